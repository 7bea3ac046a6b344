"""Marks of the steps that a writer has not reported: rows without a transition, and ends of episodes."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

Lanes = NDArray[np.integer[Any]]
Rows = NDArray[np.int64]

_NO_ROWS: Rows = np.empty(0, np.int64)


class MarkedRows(NamedTuple):
    """Marked rows, rising, counted from the first unreported row.

    Attributes:
        final: int64[f], rows that hold the final row of an episode.
        idle: int64[i], rows that hold nothing.
        ended: int64[m], last transitions of episodes whose final rows stand beside the lanes.
    """

    final: Rows
    idle: Rows
    ended: Rows

    @property
    def masked(self) -> Rows:
        """int64[f + i], rows without a transition."""
        return np.concatenate([self.final, self.idle]) if self.idle.size else self.final


_NO_MARKS = MarkedRows(_NO_ROWS, _NO_ROWS, _NO_ROWS)


class StepMarks:
    """Collects marks step by step. Row numbers are made of them once, for a report: a step has no time for it.

    Args:
        lanes: number of lanes.

    Attributes:
        count: of the marks, at least.

    >>> marks = StepMarks(4)
    >>> marks.reset(0, np.array([1, 3]), closed=np.array([2, 3]))
    >>> marks.end(1, np.array([0]))
    >>> [rows.tolist() for rows in marks.rows()]
    [[1], [3], [4]]
    """

    def __init__(self, lanes: int) -> None:
        self._lanes = lanes
        self._resets: list[tuple[int, Lanes]] = []
        self._closed: list[tuple[int, Lanes]] = []
        self._idle: list[tuple[int, Lanes]] = []
        self._ended: list[tuple[int, Lanes]] = []
        self._rows: MarkedRows | None = None
        self.count = 0

    def reset(self, step: int, lanes: Lanes, closed: Lanes) -> None:
        """Marks lanes that took no transition; without an episode under way, they hold nothing.

        Args:
            step: counted from the first unreported one.
            lanes: int64[r], rising.
            closed: lanes that were in no episode before the step.
        """
        self._resets.append((step, lanes))
        self._closed.append((step, closed))
        self._note(lanes)

    def idle(self, step: int, lanes: Lanes) -> None:
        """Marks lanes that hold nothing, int64[i], rising."""
        self._idle.append((step, lanes))
        self._note(lanes)

    def end(self, step: int, lanes: Lanes) -> None:
        """Marks lanes whose episodes end with a final row beside the lanes, int64[m], rising."""
        self._ended.append((step, lanes))
        self._note(lanes)

    def _note(self, lanes: Lanes) -> None:
        self.count += len(lanes)
        self._rows = None

    def rows(self) -> MarkedRows:
        """Returns the marked rows."""
        if not self.count:
            return _NO_MARKS  # As in most reports.
        if self._rows is None:
            final, idle = self._numbers(self._resets), self._numbers(self._idle)
            if final.size:
                holds_nothing = np.isin(final, self._numbers(self._closed))
                idle = np.union1d(idle, final[holds_nothing])
                final = final[~holds_nothing]
            self._rows = MarkedRows(final, idle, self._numbers(self._ended))
        return self._rows

    def _numbers(self, marks: list[tuple[int, Lanes]]) -> Rows:
        if not marks:
            return _NO_ROWS
        steps = np.array([step for step, _ in marks])
        numbers: Rows = np.concatenate([lanes for _, lanes in marks]).astype(np.int64)
        numbers += np.repeat(steps * self._lanes, [len(lanes) for _, lanes in marks])
        return numbers
