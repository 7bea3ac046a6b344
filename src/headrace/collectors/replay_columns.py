"""Whether a replay's columns are those that a collector gives."""

# Rules: collectors CF1

from __future__ import annotations

from headrace.errors import SpecError
from headrace.spec import Signature

_BASE_COLUMNS = frozenset(("observation", "action", "reward", "terminated", "truncated"))


def check_columns(wanted: Signature, given: Signature) -> None:
    """Refuse a replay that lacks columns of the environments, or has them otherwise.

    Args:
        wanted: the replay's.
        given: the collector's; its extras may be missing in the replay.

    Raises:
        SpecError: with the columns.
    """
    # Rules: collectors CF1
    missing = [
        name for name in given.columns if name.split("/")[0] in _BASE_COLUMNS and name not in wanted.columns
    ]
    if missing:
        raise SpecError(
            f"replay_buffer: expected the columns {', '.join(given.columns)}; missing: {', '.join(missing)} "
            "(hr.collectors.signature makes the right one)"
        )
    for name, spec in wanted.columns.items():
        if name in given.columns and spec != given.columns[name]:
            raise SpecError(f"replay_buffer: {name}: expected {given.columns[name]}, got {spec}")


def check_filled(wanted: Signature, given: Signature) -> None:
    """Refuse a replay with columns that neither environments nor policy give, now that both are known.

    Raises:
        SpecError: with the columns.
    """
    unknown = [name for name in wanted.columns if name not in given.columns]
    if unknown:
        raise SpecError(
            f"replay_buffer: expected only the columns {', '.join(given.columns)}; nobody gives {', '.join(unknown)}"
        )
