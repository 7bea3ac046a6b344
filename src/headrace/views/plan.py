"""Plans for presenting a dict of views: the same for stored rows, episodes, fragments and histories.

A plan is made once for a dict of views and the columns there are. Presenting has two halves: `locate` finds row
numbers, `present` copies the rows.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from headrace.store.layout import KNOWN
from headrace.views.columns import Columns
from headrace.views.copies import Copies, CopyRows
from headrace.views.hindsight import RelabelledView
from headrace.views.located import Located, RowFinder, places_of, shape_of
from headrace.views.sources import Source, check_transition, source_of
from headrace.views.transition import TransitionView
from headrace.views.view import View


class Plan:
    """Plan for presenting views.

    Attributes:
        sources: the views and their columns.
        windows: the windows to be found, with their offsets, int64[W].
        sums: (n_step, gamma) of the transitions to be summed.
        metadata: the metadata columns shown, and the views that show them.
        copies: the copies of columns.
        names: of all arrays that are presented, in the order of the views.

    Args:
        columns: the columns there are.
        views: maps names to views; arrays of `RelabelledView` are left to the caller.

    Raises:
        SpecError: an unknown source, a space that contradicts the column, a fill that the dtype cannot hold.
        TypeError: a value of the dict that is not a view.
        ValueError: a view with the name of another view's mask; a view that these columns cannot show.
    """

    def __init__(self, columns: Columns, views: Mapping[str, View]) -> None:
        self.names = names_of(views)
        self.sources = [
            source_of(columns, name, view)
            for name, view in views.items()
            if not isinstance(view, RelabelledView)
        ]
        self.windows = {
            source.window: np.asarray(source.window.offsets, np.int64)
            for source in self.sources
            if not source.is_plain
        }
        transitions = [source for source in self.sources if isinstance(source.view, TransitionView)]
        self.sums = list(dict.fromkeys(source.sums for source in transitions))
        if transitions:
            check_transition(columns.signature)
        self.metadata = [
            (column, source)
            for source in self.sources
            for column in source.columns.values()
            if column in columns.metadata
        ]
        self.copies = Copies(self.sources)
        self._parts = [
            (source.name, source.sums, source.sum_part) for source in transitions if source.sum_part
        ]
        self._repeated = _repeated(self._parts)
        self._trees = [source for source in self.sources if source.build is not None]
        self._masked = [source for source in self.sources if source.view.mask]
        self._every = {1, *(source.window.every for source in self.sources)}

    def locate(self, finder: RowFinder) -> Located:
        """Finds every row that the views need; metadata are left to the caller."""
        located = Located(
            finder.rows, finder.padded, {every: finder.kept(every) for every in self._every}, {}, {}, {}
        )
        for sums in self.sums:
            located.sums[sums] = finder.add_up(sums)
        for window, offsets in self.windows.items():
            following = None if window.next_of is None else located.sums[window.next_of].following
            located.found[window] = finder.resolve(window, offsets, following)
        return located

    def present(self, located: Located, copy: CopyRows) -> dict[str, Any]:
        """Returns the arrays of the views, `[M, ...]`, `[B, ...]` or `[B, L, ...]`, with a window's axis after those.

        Args:
            located: the rows.
            copy: copies the columns of `copies`.
        """
        out: dict[str, Any] = dict.fromkeys(self.names)
        for source in self._trees:
            out[source.name] = {}
        self.copies.present(located, out, copy)
        for column, source in self.metadata:
            out[source.name] = _present_number(column, source, located)
        for name, sums, part in self._parts:
            out[name] = getattr(located.sums[sums], part).reshape(located.rows.shape)
        for name in self._repeated:
            out[name] = out[name].copy()
        for source in self._masked:
            out[f"{source.name}_mask"] = _mask(source, located)
        return out

    def build_trees(self, out: dict[str, Any]) -> None:
        """Replaces the dicts of leaves that `present` returned by trees like their sources."""
        for source in self._trees:
            assert source.build is not None
            out[source.name] = source.build(out[source.name])


def names_of(views: Mapping[str, View]) -> list[str]:
    """Returns the names of all arrays that views present, masks included.

    Raises:
        ValueError: a view has the name of another view's mask.
    """
    names = list(_with_masks(views.items()))
    for name, view in views.items():
        if view.mask and f"{name}_mask" in views:
            raise ValueError(
                f"view {name!r}: mask: expected no view named '{name}_mask', where its mask is presented"
            )
    return names


def _with_masks(views: Iterable[tuple[str, View]]) -> Iterable[str]:
    for name, view in views:
        yield name
        if view.mask:
            yield f"{name}_mask"


def _present_number(column: str, source: Source, located: Located) -> NDArray[np.int64]:
    rows, unfit = places_of(source, located)
    # Views of one column and window share the numbers that were found.
    values = located.numbers[column, source.window].reshape(rows.shape).copy()
    if unfit is not None:
        values[unfit] = source.fills[""]
    return values


def _mask(source: Source, located: Located) -> NDArray[np.bool_]:
    """Returns the places of a view that are data."""
    if source.sum_part or source.is_last:
        return (located.sums[source.sums].n > 0).reshape(located.rows.shape)
    mask: NDArray[np.bool_] = located.found[source.window].known == KNOWN
    return mask.reshape(shape_of(source, located))


def _repeated(parts: Sequence[tuple[str, tuple[int, float], str]]) -> list[str]:
    """Returns the views that show the same as an earlier view: each array of a batch must be separate."""
    # Rules: replay B4
    seen: set[tuple[tuple[int, float], str]] = set()
    repeated = []
    for name, sums, part in parts:
        if (sums, part) in seen:
            repeated.append(name)
        seen.add((sums, part))
    return repeated
