"""Rows of many trajectories in preallocated columns: each lane holds the rows of one trajectory after another."""

from __future__ import annotations

from collections.abc import Container, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from headrace.spec import ArraySpec

Lanes = NDArray[np.int64]
_FIRST_ROWS = 64
# To add a number of Python takes NumPy twice as long.
_ONE = np.ones((), np.int64)


class LaneRows:
    """Columns `[lanes * rows, ...]`, where lane i has the rows `i * rows` to `(i + 1) * rows - 1`.

    A row holds an observation and what followed it. The newest row of a lane has an observation alone. Rows and lanes
    grow when they are needed.

    Args:
        columns: specs by name.
        lanes: number of lanes to begin with.

    Attributes:
        arrays: the columns.
        newest: int64[lanes], the newest row of each lane; `lane * rows - 1` for an empty lane.
        all_lanes: int64[lanes], their numbers. Lanes that are this very array take a short way.
        begins: int64[lanes], the first row of the trajectory that each lane is in.
        late: int64[lanes] by column, the first row that is recorded, of columns that were added within trajectories.

    >>> rows = LaneRows({"observation": ArraySpec((), "float32"), "action": ArraySpec((), "int64")}, 2)
    >>> rows.write(rows.next_rows(), {"observation": np.array([5, 6])})
    >>> rows.advance(np.array([0, 1]), begins=True)
    >>> rows.write(rows.newest, {"action": np.array([1, 0])})
    >>> rows.extend(np.array([0, 1]), {"observation": np.array([7, 8])})
    >>> rows.arrays["observation"][rows.newest], rows.newest - rows.begins
    (array([7., 8.], dtype=float32), array([1, 1]))
    """

    def __init__(self, columns: Mapping[str, ArraySpec], lanes: int) -> None:
        self._rows = _FIRST_ROWS
        # Upper bound of the rows that are in use in any lane.
        self._used = 0
        self.arrays = {name: _zeros(lanes * self._rows, spec) for name, spec in columns.items()}
        self.all_lanes = np.arange(lanes)
        self.newest: Lanes = self.all_lanes * self._rows - 1
        self.begins: Lanes = self.newest + 1
        self.late: dict[str, Lanes] = {}

    @property
    def lanes(self) -> int:
        """Number of lanes."""
        return len(self.newest)

    @property
    def first_rows(self) -> Lanes:
        """The first row of each lane, int64[lanes]."""
        return np.arange(self.lanes) * self._rows

    def place(self, lane: int) -> int:
        """Returns the newest row of a lane, counted from the lane's first."""
        return int(self.newest[lane]) - lane * self._rows

    def rows_of(self, lanes: Lanes) -> Lanes:
        """Returns the newest row of each of some lanes; for `all_lanes` the very array `newest`."""
        return self.newest if lanes is self.all_lanes else self.newest[lanes]

    def next_rows(self) -> Lanes:
        """Makes place for one more row in every lane, and returns their numbers, int64[lanes].

        The caller writes there, and then calls `advance`.
        """
        self._reserve()
        rows: Lanes = self.newest + _ONE
        return rows

    def advance(self, lanes: Lanes, *, begins: bool = False) -> None:
        """Makes the next row of some lanes their newest one.

        Args:
            lanes: the lanes.
            begins: whether a trajectory begins with this row.
        """
        if lanes is self.all_lanes:
            self.newest += _ONE
        else:
            self.newest[lanes] += 1
        if begins:
            self.begins[lanes] = self.newest[lanes]

    def extend(self, lanes: Lanes, observed: Mapping[str, NDArray[Any]]) -> None:
        """Appends a row to some lanes, with the observation that followed."""
        self._reserve()
        self.advance(lanes)
        self.write(self.rows_of(lanes), observed)

    def append(self, lane: int, *, begins: bool = False) -> int:
        """Appends a row to one lane, and returns its number; the caller writes its values.

        Args:
            lane: the lane.
            begins: whether a trajectory begins with this row.
        """
        if self.newest[lane] + 1 >= (lane + 1) * self._rows:
            self._grow()
        self.newest[lane] += 1
        row = int(self.newest[lane])
        self._used = max(self._used, row - lane * self._rows + 1)
        if begins:
            self.begins[lane] = row
        return row

    def write(self, rows: NDArray[np.int64], values: Mapping[str, NDArray[Any]]) -> None:
        """Writes columns of some rows."""
        for name, value in values.items():
            self.arrays[name][rows] = value

    def match(self, columns: Mapping[str, ArraySpec], late: str = "") -> None:
        """Adds the columns that there are not, or are of another spec; their rows are zeros so far.

        Args:
            columns: specs by name.
            late: new columns whose names begin with this are recorded from the newest rows on; empty: none.
        """
        for name, spec in columns.items():
            held = self.arrays.get(name)
            if held is None or ArraySpec(held.shape[1:], held.dtype) != spec:
                self.arrays[name] = _zeros(self.lanes * self._rows, spec)
                if late and name.startswith(late):
                    self.late[name] = self.newest.copy()
        self._forget_late()

    def _forget_late(self) -> None:
        """Forgets the columns that are recorded from the first rows of all trajectories on."""
        self.late = {name: first for name, first in self.late.items() if (first > self.begins).any()}

    def late_at(self, rows: NDArray[np.int64]) -> dict[str, NDArray[np.int64]]:
        """Returns `late` for the lanes of some rows."""
        return {name: first[rows // self._rows] for name, first in self.late.items()}

    def drop(self, prefix: str, kept: Container[str]) -> None:
        """Drops the columns whose names begin with `prefix`, but for those to be kept."""
        for name in [name for name in self.arrays if name.startswith(prefix) and name not in kept]:
            del self.arrays[name]
            self.late.pop(name, None)

    def add_lanes(self, more: int) -> None:
        """Adds empty lanes."""
        lanes = self.lanes + more
        for name, array in self.arrays.items():
            self.arrays[name] = np.concatenate(
                [array, np.zeros((more * self._rows, *array.shape[1:]), array.dtype)]
            )
        firsts = np.arange(self.lanes, lanes) * self._rows
        self.all_lanes = np.arange(lanes)
        self.newest = np.concatenate([self.newest, firsts - 1])
        self.begins = np.concatenate([self.begins, firsts])
        self.late = {name: np.concatenate([first, firsts]) for name, first in self.late.items()}

    def forget(self, lanes: Lanes, look_back: int | NDArray[np.int64]) -> Lanes:
        """Moves the newest rows of every lane to its front.

        Args:
            lanes: the lanes that are in a trajectory. The others become empty.
            look_back: rows before the newest one that stay, if the trajectory has as many; one number, or one a lane.

        Returns:
            int64[lanes of all], by how many rows each lane was moved.
        """
        firsts = self.first_rows
        kept = np.full(self.lanes, -1)
        kept[lanes] = np.minimum(look_back, self.newest[lanes] - self.begins[lanes])
        starts = self.newest - kept
        counts = kept + 1
        within = np.arange(counts.sum()) - np.repeat(np.cumsum(counts) - counts, counts)
        sources, targets = np.repeat(starts, counts) + within, np.repeat(firsts, counts) + within
        for array in self.arrays.values():
            array[targets] = array[sources]
        moved: Lanes = starts - firsts
        self.newest = firsts + kept
        self.begins = np.maximum(self.begins - moved, firsts)
        self._used = int(counts.max(initial=0))
        if self.late:
            self.late = {name: np.maximum(first - moved, firsts) for name, first in self.late.items()}
            self._forget_late()
        return moved

    def forget_one(self, lane: int, look_back: int) -> None:
        """Moves the newest rows of one lane to its front; `look_back=-1` empties it."""
        base, newest = lane * self._rows, int(self.newest[lane])
        kept = min(look_back, newest - int(self.begins[lane]))
        for array in self.arrays.values():
            array[base : base + kept + 1] = array[newest - kept : newest + 1].copy()
        moved = newest - kept - base
        self.begins[lane] = max(base, int(self.begins[lane]) - moved)
        self.newest[lane] = base + kept
        if self.late:
            for first in self.late.values():
                first[lane] = max(base, int(first[lane]) - moved)
            self._forget_late()

    def _reserve(self) -> None:
        """Makes place for one more row in every lane."""
        self._used += 1
        if self._used > self._rows:
            self._used = int((self.newest - self.first_rows).max()) + 2
            if self._used > self._rows:
                self._grow()

    def _grow(self) -> None:
        grown, lane = 2 * self._rows, np.arange(self.lanes) * self._rows
        for name, array in self.arrays.items():
            wider = np.zeros((self.lanes, grown, *array.shape[1:]), array.dtype)
            wider[:, : self._rows] = array.reshape(self.lanes, self._rows, *array.shape[1:])
            self.arrays[name] = wider.reshape(-1, *array.shape[1:])
        self.newest += lane
        self.begins += lane
        for first in self.late.values():
            first += lane
        self._rows = grown


def _zeros(rows: int, spec: ArraySpec) -> NDArray[Any]:
    return np.zeros((rows, *spec.shape), spec.dtype)
