"""The copies that views make; views that show the same rows share them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from headrace.views.columns import METADATA
from headrace.views.located import Located, places_of
from headrace.views.sources import Source

Places = Callable[[Located], tuple[NDArray[np.int64], NDArray[np.bool_] | None]]
"""Returns the rows to copy, and a mask of the places with the fill instead."""


class Target(NamedTuple):
    """Destination of the copy of a column.

    Attributes:
        name: of the view.
        leaf: path in the view's tree; "" for a view of one column.
        column: the column copied.
        fill: one row of the fill.
    """

    name: str
    leaf: str
    column: str
    fill: NDArray[Any]


CopyRows = Callable[[Sequence[NDArray[np.int64]]], list[NDArray[Any]]]
"""Copies sets of rows, `dtype[*rows.shape, ...]` each, for `Copies.columns` in order."""


class Copies:
    """The copies of columns that a dict of views makes, by sets of rows.

    Args:
        sources: the views. Metadata and sums of rewards are not copied from columns.

    Attributes:
        columns: the number of a set of rows, and the column that is copied from there.
    """

    def __init__(self, sources: Sequence[Source]) -> None:
        sets = _sets(sources)
        self._places = [places for places, _ in sets]
        self._targets = [target for _, targets in sets for target in targets]
        self._set_of = [number for number, (_, targets) in enumerate(sets) for _ in targets]
        self._names = [target.name for target in self._targets]
        self._has_trees = any(target.leaf for target in self._targets)
        self.columns = [
            (number, target.column) for number, target in zip(self._set_of, self._targets, strict=True)
        ]

    def present(self, located: Located, out: dict[str, Any], copy: CopyRows) -> None:
        """Writes the copies under their views' names, the leaves of a tree into a dict."""
        if not self._targets:
            return
        found = [places(located) for places in self._places]
        copies = copy([rows for rows, _ in found])
        if any(unfit is not None for _, unfit in found):
            self._fill([unfit for _, unfit in found], copies)
        if not self._has_trees:
            out.update(zip(self._names, copies, strict=True))
            return
        for target, values in zip(self._targets, copies, strict=True):
            if target.leaf:
                out[target.name][target.leaf] = values
            else:
                out[target.name] = values

    def _fill(self, unfit: Sequence[NDArray[np.bool_] | None], copies: Sequence[NDArray[Any]]) -> None:
        for target, number, values in zip(self._targets, self._set_of, copies, strict=True):
            where = unfit[number]
            if where is not None:
                # A mask over whole rows takes five times as long as their numbers.
                row_by_row = values.reshape(where.size, *values.shape[where.ndim :])
                row_by_row[np.flatnonzero(where)] = target.fill


def _sets(sources: Sequence[Source]) -> list[tuple[Places, list[Target]]]:
    """Returns the sets of rows that these views show, and the copies made from each."""
    found: dict[Any, tuple[Places, list[Target]]] = {}
    for source in sources:
        if source.sum_part:
            continue
        key, places = _places(source)
        targets = [
            Target(source.name, leaf, column, source.fills[leaf])
            for leaf, column in source.columns.items()
            if column not in METADATA
        ]
        if targets:
            found.setdefault(key, (places, []))[1].extend(targets)
    return list(found.values())


def _places(source: Source) -> tuple[Any, Places]:
    """Returns a key for the set of rows that a view shows, and the function that finds them in a batch."""
    if source.is_last:
        sums = source.sums
        return ("last", sums), lambda located: _last(located, sums)
    if source.is_plain:
        return "plain", _plain
    return (source.window, source.view.has_window, source.fill_threshold), lambda located: places_of(
        source, located
    )


def _plain(located: Located) -> tuple[NDArray[np.int64], NDArray[np.bool_] | None]:
    """Returns the rows themselves."""
    return located.rows, (located.rows < 0 if located.padded else None)


def _last(located: Located, sums: tuple[int, float]) -> tuple[NDArray[np.int64], NDArray[np.bool_] | None]:
    """Returns the rows of the last transitions that were summed."""
    # Rules: views V18
    last = located.sums[sums].last.reshape(located.rows.shape)
    return last, (last < 0 if located.sums[sums].missing else None)
