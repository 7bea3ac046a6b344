"""Sequences of rows that lie one after another: lengths, cuts, runs of equal values, and padding."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

Lengths = NDArray[np.int64]


class SequenceCut(NamedTuple):
    """The sequences in a range of rows.

    Attributes:
        first: the first sequence that has rows in the range.
        last: the one after the last.
        lengths: int64[last - first], the rows of each inside the range.
        begins_inside: whether the range begins after the first row of its first sequence.
    """

    first: int
    last: int
    lengths: Lengths
    begins_inside: bool


def cut(lengths: Lengths, start: int, stop: int) -> SequenceCut:
    """Cuts sequences to the rows `start <= row < stop`, where `0 <= start <= stop <= sum(lengths)`.

    >>> cut(np.array([3, 2, 4]), 1, 4)
    SequenceCut(first=0, last=2, lengths=array([2, 1]), begins_inside=True)
    """
    if start >= stop:
        return SequenceCut(0, 0, lengths[:0].copy(), False)
    ends = np.cumsum(lengths)
    first = int(np.searchsorted(ends, start, side="right"))
    last = int(np.searchsorted(ends, stop, side="left")) + 1
    inside = lengths[first:last].copy()
    skipped = start - int(ends[first] - lengths[first])
    inside[0] -= skipped
    inside[-1] -= int(ends[last - 1]) - stop
    return SequenceCut(first, last, inside, skipped > 0)


def groups(lengths: Lengths, size: int) -> list[tuple[int, int]]:
    """Groups whole sequences: as many in a row as have at most `size` rows together, at least one.

    Returns:
        The first sequence of each group and the one after its last.

    >>> groups(np.array([2, 2, 5, 1]), 4)
    [(0, 2), (2, 3), (3, 4)]
    """
    ends = np.cumsum(lengths)
    found, first, begin = [], 0, 0
    while first < len(lengths):
        last = max(int(np.searchsorted(ends, begin + size, side="right")), first + 1)
        found.append((first, last))
        first, begin = last, int(ends[last - 1])
    return found


@dataclass(frozen=True, slots=True)
class Sequences:
    """How the rows of a batch are sequences.

    Attributes:
        lengths: int64[S], real rows of each.
        padded_to: rows of each with its padding; None without padding.
        one_row: names of the columns that have one row a sequence.
    """

    lengths: Any
    padded_to: int | None = None
    one_row: frozenset[str] = frozenset()

    @property
    def stored_rows(self) -> int:
        """Rows of the columns that are stored row by row, padding included."""
        return len(self.lengths) * self.padded_to if self.padded_to else int(self.lengths.sum())

    @property
    def mask(self) -> Any:
        """bool[stored_rows], True for real rows.

        >>> Sequences(np.array([1, 2]), padded_to=3).mask
        array([ True, False, False,  True,  True, False])
        """
        if self.padded_to is None:
            return np.ones(self.stored_rows, bool)
        return (np.arange(self.padded_to) < self.lengths[:, None]).reshape(-1)

    def padded(self, rows: int) -> Sequences:
        """Returns the same sequences with padding.

        Raises:
            ValueError: a sequence is longer, or they are padded to another length.
        """
        if self.padded_to not in (None, rows):
            raise ValueError(
                f"right_zero_pad: expected {self.padded_to}, to which the batch is padded, got {rows}"
            )
        if (longest := int(self.lengths.max(initial=0))) > rows:
            raise ValueError(f"right_zero_pad: expected at least {longest}, the longest sequence, got {rows}")
        return replace(self, padded_to=rows)


def starts_of_runs(rows: int, keys: Iterable[NDArray[Any]], ends: NDArray[np.bool_] | None = None) -> Lengths:
    """Returns the rows at which one of the keys differs from the row before; row 0 is one.

    Args:
        rows: number of rows.
        keys: arrays `[rows]`, each compared by itself.
        ends: bool[rows], True at rows after which a run ends whatever the keys are.

    >>> starts_of_runs(4, [np.array([7, 7, 8, 8])], np.array([True, False, False, False]))
    array([0, 1, 2])
    """
    starts = np.zeros(rows, bool)
    starts[:1] = True
    for key in keys:
        starts[1:] |= key[1:] != key[:-1]
    if ends is not None:
        starts[1:] |= ends[:-1]
    return np.flatnonzero(starts)


def chopped(starts: Lengths, rows: int, longest: int) -> Lengths:
    """Returns the starts of sequences of at most `longest` rows, which are counted from the start of each run.

    >>> chopped(np.array([0, 5]), 7, 2)
    array([0, 2, 4, 5])
    """
    within = np.arange(rows) - np.repeat(starts, np.diff(starts, append=rows))
    return np.flatnonzero(within % longest == 0)
