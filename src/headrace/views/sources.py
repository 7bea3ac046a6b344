"""Where the numbers of a view come from: which columns of a store, at which rows, filled with what."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from headrace import trees
from headrace.errors import SpecError
from headrace.spec import ArraySpec, Signature
from headrace.store.layout import EDGE, UNKNOWN
from headrace.views.returns import kind_of
from headrace.views.transition import SUM_PARTS, TransitionView
from headrace.views.view import View, fill_value

# Columns that are known before acting, beside those whose final row was given a value (views V2).
_PRE = ("observation", "state_in_", "t", "episode_id", "policy_version")
# Metadata of every row. A column of the signature with the same name takes precedence. No column begins with a slash,
# so the slash tells them apart.
METADATA = {
    "/t": ArraySpec((), np.int64),
    "/episode_id": ArraySpec((), np.int64),
    "/policy_version": ArraySpec((), np.int64),
}


class Window(NamedTuple):
    """Offsets of a window; views with the same offsets share one call of the window function."""

    offsets: tuple[int, ...]
    acting_gives: bool
    every: int
    # (n_step, gamma): seen from the next row of that transition, not from the row itself.
    next_of: tuple[int, float] | None


@dataclass
class Source:
    """One view and the source of its values.

    Attributes:
        columns: maps a name under the view ("" for the view itself) to a column of the store.
        fills: fill of each column, one row.
        build: makes a tree of its leaves; None for a view of one column.
    """

    name: str
    view: View
    window: Window
    columns: dict[str, str]
    fills: dict[str, NDArray[Any]]
    build: Callable[[dict[str, Any]], Any] | None

    @property
    def sum_part(self) -> str:
        """The part of an n-step return that it shows: "reward", "discount" or "n"; "" for none."""
        # Rules: views V18
        view = self.view
        return view.part if isinstance(view, TransitionView) and view.part in SUM_PARTS else ""

    @property
    def is_last(self) -> bool:
        """Whether it shows the last transition of an n-step return."""
        return isinstance(self.view, TransitionView) and self.view.part == "last"

    @property
    def covers(self) -> int:
        """Fill threshold: values known no better than this (`store.window`) are filled; "edge" shows the nearest."""
        return UNKNOWN if isinstance(self.view.fill, str) and self.view.fill == "edge" else EDGE

    @property
    def is_plain(self) -> bool:
        """Whether the row itself is presented, and the store already has zeros at the places to fill."""
        window = self.window
        return (
            window.offsets == (0,)
            and window.every == 1
            and window.next_of is None
            and not self.view.has_window
            and not self.view.mask
            and (not window.acting_gives or (isinstance(self.view.fill, str) and self.view.fill == "zeros"))
        )


def source_of(signature: Signature, name: str, view: View, given_at_the_end: frozenset[str]) -> Source:
    """Looks up the columns of one view.

    Args:
        signature: of the store.
        name: of the view.
        view: the view.
        given_at_the_end: columns for which final rows were given a value.

    Raises:
        SpecError: an unknown column, a space that contradicts it, a fill that its dtype cannot hold.
        ValueError: a view that stored rows cannot show.
    """
    path = view.data_col or name
    columns = _columns(signature, name, path)
    specs = {leaf: METADATA.get(column) or signature.columns[column] for leaf, column in columns.items()}
    _check_space(name, view, specs)
    acting_gives = not (_is_pre(path) or any(column in given_at_the_end for column in columns.values()))
    if given_at_the_end and path.split("/")[0] == "observation":
        # Final rows there are, but they were not given the observation: what stands in them is no data.
        acting_gives = not any(column in given_at_the_end for column in columns.values())
    acting_gives = acting_gives and not view.is_known_before_acting
    _check_flags(name, view, acting_gives)
    _check_shift(name, view)
    next_of = (view.n_step, view.gamma) if isinstance(view, TransitionView) and view.part == "next" else None
    return Source(
        name=name,
        view=view,
        window=Window(view.offsets, acting_gives, view.every, next_of),
        columns=columns,
        fills=_fills(signature, name, path, view.fill, specs),
        build=_builder(signature, path, columns),
    )


def _is_pre(path: str) -> bool:
    """Whether a column of this name is known before acting, whatever final rows are given."""
    # Rules: views V2
    return any(path == pre or path.startswith(pre if pre.endswith("_") else f"{pre}/") for pre in _PRE)


def _check_flags(name: str, view: View, acting_gives: bool) -> None:
    """Refuses views that stored rows cannot show, and a view for acting that looks ahead."""
    # Rules: views V8
    if view.agent is not None:
        raise ValueError(
            f"view {name!r}: agent={view.agent!r}: the rows of a replay belong to one agent each"
        )
    if view.used_for_compute_actions and max(view.offsets) > (-1 if acting_gives else 0):
        raise ValueError(
            f"view {name!r}: used_for_compute_actions=True, but it looks at what is not known when acting: {view!r}"
        )


def _check_shift(name: str, view: View) -> None:
    """Refuses a shift in views whose rows the n-step return determines."""
    # Rules: views V18
    if isinstance(view, TransitionView) and view.part != "next" and (view.has_window or view.offsets != (0,)):
        raise ValueError(
            f"view {name!r}: shift: expected 0 in a view of an n-step transition, got {view.shift!r}: its row is given "
            "by n_step. Only observation and next_observation can be shifted"
        )


def _columns(signature: Signature, name: str, path: str) -> dict[str, str]:
    """Maps the rest of the path, for each column at or under a path, to the column's name."""
    if path in signature.columns:
        return {"": path}
    below = {column[len(path) + 1 :]: column for column in signature.columns if column.startswith(f"{path}/")}
    if not below and f"/{path}" in METADATA:
        return {"": f"/{path}"}
    if not below:
        known = ", ".join([*signature.columns, *(name[1:] for name in METADATA)])
        raise SpecError(f"view {name!r}: no column {path!r}; there are {known}")
    return below


def _builder(
    signature: Signature, path: str, columns: dict[str, str]
) -> Callable[[dict[str, Any]], Any] | None:
    if "" in columns:
        return None
    return _subtree(signature, path).unflatten


def leaves_at(signature: Signature, path: str, values: Any) -> dict[str, Any]:
    """Maps each column at or under a path to its part of `values`, a tree like the one at the path."""
    columns = _columns(signature, path, path)
    if "" in columns:
        return {columns[""]: values}
    parts = _subtree(signature, path).flatten(values)
    return {column: parts[leaf] for leaf, column in columns.items()}


def _subtree(signature: Signature, path: str) -> Signature:
    return Signature(trees.at_path(signature.tree, path))


def _fills(
    signature: Signature, name: str, path: str, fill: Any, specs: dict[str, ArraySpec]
) -> dict[str, NDArray[Any]]:
    """Returns the fill of each column of a view, given a tree of fills or one value for all."""
    by_leaf: Mapping[str, Any] = dict.fromkeys(specs, fill)
    if "" not in specs and isinstance(fill, Mapping | tuple | list):
        try:
            by_leaf = _subtree(signature, path).flatten(fill)
        except SpecError as error:
            raise SpecError(f"view {name!r}: fill: {error}") from error
    return {leaf: fill_value(name, by_leaf[leaf], spec.shape, spec.dtype) for leaf, spec in specs.items()}


def _check_space(name: str, view: View, specs: dict[str, ArraySpec]) -> None:
    if view.space is None:
        return
    wanted = Signature(view.space) if isinstance(view.space, ArraySpec) else Signature.of_space(view.space)
    shapes = {leaf: spec.shape for leaf, spec in specs.items()}
    expected = {"" if leaf == trees.BARE else leaf: spec.shape for leaf, spec in wanted.columns.items()}
    if shapes != expected:
        raise SpecError(
            f"view {name!r}: space: expected that of the column {view.data_col or name!r}, which has "
            f"{_told(shapes)}, got one with {_told(expected)}"
        )


def _told(shapes: Mapping[str, tuple[int, ...]]) -> str:
    if "" in shapes:
        return f"rows of shape {shapes['']}"
    return "a tree of rows of shape " + ", ".join(f"{leaf} {shape}" for leaf, shape in shapes.items())


def check_transition(signature: Signature) -> None:
    """Refuses a signature without the scalar columns that n-step transitions need.

    Raises:
        SpecError: a column is missing or not a scalar; the message has its name.
    """
    for column in ("reward", "terminated", "truncated"):
        spec = signature.columns.get(column)
        if spec is None or spec.shape != ():
            raise SpecError(
                f"views.transition: expected a scalar column {column!r} in the signature, got {spec}"
            )
    for column in ("reward", "terminated"):
        spec = signature.columns[column]
        if kind_of(spec) < 0:
            raise SpecError(
                f"views.transition: expected a {column} of float32, float64, integer or bool, got {spec}"
            )
