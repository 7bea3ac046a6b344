"""Where the numbers of a view come from: which columns, at which rows, filled with what."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

from numpy.typing import NDArray

from headrace import trees
from headrace.errors import SpecError
from headrace.spec import ArraySpec, Signature
from headrace.store.layout import EDGE, UNKNOWN
from headrace.views.causality import check_causal
from headrace.views.columns import Columns
from headrace.views.promised import signature_of_space
from headrace.views.returns import kind_of
from headrace.views.transition import SUM_PARTS, TransitionView
from headrace.views.view import View, fill_value


class Window(NamedTuple):
    """Offsets of a window; views with the same offsets share one call of the window function.

    Attributes:
        offsets: of the rows.
        is_post: whether a final row, or the row of the step that is being taken, has no value.
        every: k, if only rows 0, k, 2k, ... are presented.
        next_of: (n_step, gamma), if the offsets count from the row after that transition, not from the row itself.
    """

    offsets: tuple[int, ...]
    is_post: bool
    every: int
    next_of: tuple[int, float] | None


@dataclass
class Source:
    """One view and the source of its values.

    Attributes:
        columns: maps a name under the view ("" for the view itself) to a column.
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
    def sums(self) -> tuple[int, float]:
        """(n_step, gamma) of a view of n-step transitions."""
        view = self.view
        assert isinstance(view, TransitionView)
        return view.n_step, view.gamma

    @property
    def is_last(self) -> bool:
        """Whether it shows the last transition of an n-step return."""
        return isinstance(self.view, TransitionView) and self.view.part == "last"

    @property
    def fill_threshold(self) -> int:
        """Fill threshold: values known no better than this (`store.window`) are filled; "edge" shows the nearest."""
        return UNKNOWN if isinstance(self.view.fill, str) and self.view.fill == "edge" else EDGE

    @property
    def is_plain(self) -> bool:
        """Whether the row itself is presented, and zeros are stored already at the places to fill."""
        window = self.window
        return (
            window.offsets == (0,)
            and window.every == 1
            and window.next_of is None
            and not self.view.has_window
            and not self.view.mask
            and (not window.is_post or (isinstance(self.view.fill, str) and self.view.fill == "zeros"))
        )


def source_of(columns: Columns, name: str, view: View) -> Source:
    """Looks up the columns of one view.

    Args:
        columns: the columns there are.
        name: of the view.
        view: the view.

    Raises:
        SpecError: an unknown column, a space that contradicts it, a fill that its dtype cannot hold.
        ValueError: a view that these columns cannot show, or a view for acting that looks ahead.
    """
    path = view.data_col or name
    found = columns.at(name, path)
    specs = {leaf: columns.spec_of(column) for leaf, column in found.items()}
    check_space(name, view, specs)
    is_pre = view.is_known_before_acting or columns.is_pre(path, found)
    check_causal(name, view, is_pre=is_pre)
    _check_agent(name, view)
    _check_transition_view(name, view)
    # A window that ends before the row never reaches a final row.
    lacks_final = max(view.offsets) >= 0 and not view.is_known_before_acting and columns.ends_early(found)
    next_of = (view.n_step, view.gamma) if isinstance(view, TransitionView) and view.part == "next" else None
    return Source(
        name=name,
        view=view,
        window=Window(view.offsets, not is_pre or lacks_final, view.every, next_of),
        columns=found,
        fills=_fills(columns, name, path, view.fill, specs),
        build=columns.builder(path, found),
    )


def _check_agent(name: str, view: View) -> None:
    """Refuses views of other agents."""
    if view.agent is not None:
        raise ValueError(f"view {name!r}: agent={view.agent!r}: these rows belong to one agent each")


def _check_transition_view(name: str, view: View) -> None:
    """Refuses options of an n-step transition's views that the n-step return determines."""
    # Rules: views V18
    if isinstance(view, TransitionView) and view.every > 1:
        raise ValueError(
            f"view {name!r}: every: expected 1 in a view of an n-step transition, got {view.every}"
        )
    if isinstance(view, TransitionView) and view.part != "next" and (view.has_window or view.offsets != (0,)):
        raise ValueError(
            f"view {name!r}: shift: expected 0 in a view of an n-step transition, got {view.shift!r}: its row is given "
            "by n_step. Only observation and next_observation can be shifted"
        )


def leaves_at(signature: Signature, path: str, values: Any) -> dict[str, Any]:
    """Maps each column at or under a path to its part of `values`, a tree like the one at the path."""
    columns = Columns.of_store(signature, frozenset())
    found = columns.at(path, path)
    if "" in found:
        return {found[""]: values}
    parts = columns.subtree(path).flatten(values)
    return {column: parts[leaf] for leaf, column in found.items()}


def _fills(
    columns: Columns, name: str, path: str, fill: Any, specs: Mapping[str, ArraySpec]
) -> dict[str, NDArray[Any]]:
    """Returns the fill of each column of a view, given a tree of fills or one value for all."""
    by_leaf: Mapping[str, Any] = dict.fromkeys(specs, fill)
    if "" not in specs and isinstance(fill, Mapping | tuple | list):
        try:
            by_leaf = columns.subtree(path).flatten(fill)
        except SpecError as error:
            raise SpecError(f"view {name!r}: fill: {error}") from error
    return {
        leaf: fill_value(
            f"view {name!r}: fill" + (f": {leaf}" if leaf else ""), by_leaf[leaf], spec.shape, spec.dtype
        )
        for leaf, spec in specs.items()
    }


def check_space(name: str, view: View, specs: Mapping[str, ArraySpec]) -> None:
    """Refuses a space that contradicts the columns of a view.

    Raises:
        SpecError: with both shapes.
    """
    if view.space is None:
        return
    wanted = signature_of_space(view.space)
    shapes = {leaf: spec.shape for leaf, spec in specs.items()}
    expected = {"" if leaf == trees.BARE else leaf: spec.shape for leaf, spec in wanted.columns.items()}
    if shapes != expected:
        raise SpecError(
            f"view {name!r}: space: expected that of the column {view.data_col or name!r}, which has "
            f"{_described(shapes)}, got one with {_described(expected)}"
        )


def _described(shapes: Mapping[str, tuple[int, ...]]) -> str:
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
