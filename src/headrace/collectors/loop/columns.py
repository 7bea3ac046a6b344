"""The columns of a collected step, compared with those of a replay."""

# Rules: collectors CF1

from __future__ import annotations

import warnings
from collections.abc import Iterable

from headrace.errors import SpecError
from headrace.spec import Signature
from headrace.views.columns import METADATA


def check_columns(wanted: Signature, given: Signature, extras: Iterable[str] = ()) -> None:
    """Raises if a replay lacks columns of the environments, or has them with other specs.

    Args:
        wanted: the replay's.
        given: the collector's.
        extras: names of the columns that the policy adds; they may be missing in the replay.

    Raises:
        SpecError: with the columns.
    """
    # Rules: collectors CF1
    missing = [name for name in given.columns if name not in wanted.columns and name not in extras]
    if missing:
        raise SpecError(
            f"replay_buffer: expected the columns {', '.join(given.columns)}; missing: {', '.join(missing)} "
            "(hr.collectors.signature makes the right one from the same environments and info_columns)"
        )
    for name, spec in wanted.columns.items():
        if name in given.columns and spec != given.columns[name]:
            raise SpecError(f"replay_buffer: {name}: expected {given.columns[name]}, got {spec}")


def check_filled(wanted: Signature, given: Signature) -> None:
    """Raises if a replay has columns that neither the environments nor the policy fill.

    Raises:
        SpecError: with the columns.
    """
    unknown = [name for name in wanted.columns if name not in given.columns]
    if unknown:
        stored = [name for name in unknown if f"/{name}" in METADATA]
        advice = f"; every row has {', '.join(stored)} without a column: hr.View() of this name shows it"
        raise SpecError(
            f"replay_buffer: expected only the columns {', '.join(given.columns)}; neither the environments nor the "
            f"policy fill {', '.join(unknown)}{advice * bool(stored)}"
        )


def warn_not_stored(names: Iterable[str], *, stacklevel: int) -> None:
    """Warns of columns that the policy adds and the replay lacks."""
    warnings.warn(not_stored_text(names), UserWarning, stacklevel=stacklevel + 1)


def not_stored_text(names: Iterable[str]) -> str:
    """Returns the text of that warning."""
    return (
        f"replay_buffer: columns that the policy returns are not stored, because the replay's signature lacks them: "
        f"{', '.join(names)}. Make the replay with hr.collectors.signature(create_env_fn, policy) to keep them"
    )
