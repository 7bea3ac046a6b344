"""Histories of running episodes: the rows that views read, of many environments or agents side by side.

Each environment or agent has a *slot*. Its history begins at a reset, grows with each step, and is cut at the end of a
fragment: then only the rows remain to which a later row looks back.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from headrace.spec import ArraySpec
from headrace.views.array_rows import Segments
from headrace.views.columns import is_pre_by_name

Values = Mapping[str, NDArray[Any]]


class History:
    """Rows of running episodes, by slot. Values at a row are written in two halves: `observe`, then `act`.

    Args:
        columns: the columns and their specs; those that are known before acting by their names are written by
            `observe`, the others by `act`.
        look_back: number of rows before a row that are read (`look_back`); older rows are forgotten at a cut.
        slots: number of slots at first; a higher slot makes more.
        rows: number of rows for which there is memory at first; more rows take more.

    Attributes:
        arrays: by column, `[slots * rows, ...]`; replaced when they grow.

    >>> history = History({"observation": ArraySpec((), int), "action": ArraySpec((), int)}, look_back=1)
    >>> slot = np.zeros(1, np.int64)
    >>> history.begin(slot)
    >>> history.observe(slot, {"observation": np.array([10])})
    >>> history.act(slot, {"action": np.array([100])})
    >>> history.observe(slot, {"observation": np.array([11])})
    >>> history.acting(slot).rows, history.fragment(slot).rows
    (array([1]), array([0]))
    """

    # Rules: views R16

    def __init__(
        self, columns: Mapping[str, ArraySpec], look_back: int, *, slots: int = 1, rows: int = 64
    ) -> None:
        self._columns = dict(columns)
        self._pre = [name for name in columns if is_pre_by_name(name)]
        self._post = [name for name in columns if not is_pre_by_name(name)]
        self._look_back = look_back
        self._rows = rows + look_back
        # Of each slot: rows of which the actions are known, rows of which the observations are, and the first row that
        # was not cut yet.
        self._acted, self._observed, self._first = np.zeros((3, slots), np.int64)
        self.arrays = self._made(slots, self._rows)

    def begin(self, slots: NDArray[np.int64]) -> None:
        """Forgets the rows of these slots: a trajectory begins in each. No slot may be given twice."""
        self._reserve(1 + int(slots.max(initial=-1)), self._rows)
        self._acted[slots] = self._observed[slots] = self._first[slots] = 0

    def observe(self, slots: NDArray[np.int64], values: Values) -> None:
        """Writes the values that are known before the next action, `[B, ...]` each."""
        rows = self._next_rows(slots, self._observed)
        for name in self._pre:
            self.arrays[name][rows] = values[name]
        self._observed[slots] += 1

    def act(self, slots: NDArray[np.int64], values: Values) -> None:
        """Writes the values that are known after the action, `[B, ...]` each."""
        rows = self._next_rows(slots, self._acted)
        for name in self._post:
            self.arrays[name][rows] = values[name]
        self._acted[slots] += 1

    def acting(self, slots: NDArray[np.int64]) -> Segments:
        """Returns the row of each slot at which a policy acts next: its observation is the newest."""
        begins = slots * self._rows
        rows = begins + self._acted[slots]
        return Segments(rows, begins, begins + self._observed[slots], rows, np.zeros_like(rows))

    def fragment(self, slots: NDArray[np.int64]) -> Segments:
        """Returns the rows since the last cut, those of one slot after those of another."""
        counts = self.uncut(slots)
        begins = slots * self._rows
        places = np.arange(counts.sum()) - np.repeat(np.cumsum(counts) - counts, counts)
        return Segments(
            np.repeat(begins + self._first[slots], counts) + places,
            np.repeat(begins, counts),
            np.repeat(begins + self._observed[slots], counts),
            np.repeat(begins + self._acted[slots], counts),
            places,
        )

    def uncut(self, slots: NDArray[np.int64]) -> NDArray[np.int64]:
        """Returns the number of rows of each slot since its last cut."""
        counts: NDArray[np.int64] = self._acted[slots] - self._first[slots]
        return counts

    def cut(self, slots: NDArray[np.int64]) -> None:
        """Ends the fragments of these slots, and forgets the rows to which no later row looks back."""
        # Rules: views V12, R8
        kept = np.minimum(self._acted[slots], self._look_back)
        dropped = self._acted[slots] - kept
        # The observation of the row at which the slot acts next is kept too.
        counts = np.where(dropped > 0, self._observed[slots] - dropped, 0)
        places = np.arange(counts.sum()) - np.repeat(np.cumsum(counts) - counts, counts)
        to = np.repeat(slots * self._rows, counts) + places
        source = to + np.repeat(dropped, counts)
        for array in self.arrays.values():
            array[to] = array[source]
        self._acted[slots] -= dropped
        self._observed[slots] -= dropped
        self._first[slots] = self._acted[slots]

    def _next_rows(self, slots: NDArray[np.int64], counts: NDArray[np.int64]) -> NDArray[np.int64]:
        """Returns the row after the last value of each slot, and makes memory for it."""
        used = counts[slots]
        if used.max(initial=-1) >= self._rows:
            self._reserve(len(self._first), 2 * self._rows)
        rows: NDArray[np.int64] = slots * self._rows + used
        return rows

    def _reserve(self, slots: int, rows: int) -> None:
        before, width = len(self._first), self._rows
        if slots <= before and rows == width:
            return
        slots = max(slots, 2 * before) if slots > before else before
        grown = self._made(slots, rows)
        for name, spec in self._columns.items():
            ours = grown[name].reshape(slots, rows, *spec.shape)
            ours[:before, :width] = self.arrays[name].reshape(before, width, *spec.shape)
        self.arrays, self._rows = grown, rows
        more = ((0, slots - before),)
        self._acted, self._observed, self._first = (
            np.pad(each, more) for each in (self._acted, self._observed, self._first)
        )

    def _made(self, slots: int, rows: int) -> dict[str, NDArray[Any]]:
        return {
            name: np.zeros((slots * rows, *spec.shape), spec.dtype) for name, spec in self._columns.items()
        }
