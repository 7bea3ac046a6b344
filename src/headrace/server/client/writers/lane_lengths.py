"""The lengths of the episodes and streams in a writer's lanes, as a client knows them without asking.

They are values that never change: a call replaces one by the next in the same step that queues its rows, so Ctrl-C
comes before or after both (test_interrupts_of_writers.py).
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

Lanes = NDArray[np.int64]
Mask = NDArray[np.bool_]


class StreamLengths(NamedTuple):
    """The rows of each lane since its stream began; windows with `EndOfEpisode.CONTINUE` lie in streams.

    Attributes:
        rows: int64[N], of the stream, final rows included.
        steps: int64[N], the same without final rows.
        is_unknown: bool[N], lanes that waited for two steps or more, so that the server may have begun a new stream.
        waits: bool[N], lanes that waited in the last step.
    """

    rows: Lanes
    steps: Lanes
    is_unknown: Mask
    waits: Mask

    def after_step(self, idle: Mask | None) -> StreamLengths:
        """Returns them after a step of every lane that is not idle."""
        if idle is None:
            idle = np.zeros(len(self.rows), np.bool_)
        return StreamLengths(
            self.rows + ~idle, self.steps + ~idle, self.is_unknown | (idle & self.waits), idle.copy()
        )

    def after_finals(self, lanes: Lanes) -> StreamLengths:
        """Returns them after final rows."""
        rows, waits = self.rows.copy(), self.waits.copy()
        rows[lanes] += 1
        waits[lanes] = False
        return self._replace(rows=rows, waits=waits)

    def after_restart(self, lanes: Lanes) -> StreamLengths:
        """Returns them after new streams have begun."""
        rows, steps, is_unknown = self.rows.copy(), self.steps.copy(), self.is_unknown.copy()
        rows[lanes] = steps[lanes] = 0
        is_unknown[lanes] = False
        return StreamLengths(rows, steps, is_unknown, self.waits)


class LaneLengths(NamedTuple):
    """The rows of each lane's newest episode, and of its stream.

    Attributes:
        open: int64[N], rows of the episode under way; 0: there is none.
        last: int64[N], rows of the newest episode, its final row included, that a later item may hold.
        streams: of all episodes; steps are counted only where `counts_streams`, because few writers need them.
        counts_streams: see above.

    >>> lengths = LaneLengths.of(2).after_step().after_end(np.array([1]), 1)
    >>> lengths.open.tolist(), lengths.last.tolist()
    ([1, 0], [1, 2])
    """

    open: Lanes
    last: Lanes
    streams: StreamLengths
    counts_streams: bool

    @classmethod
    def of(cls, lanes: int) -> LaneLengths:
        """Returns the lengths of N lanes without rows."""
        rows, nothing = np.zeros(lanes, np.int64), np.zeros(lanes, np.bool_)
        return cls(rows, rows, StreamLengths(rows, rows, nothing, nothing), counts_streams=False)

    def counting_streams(self) -> LaneLengths:
        """Returns them with `counts_streams`."""
        return self._replace(counts_streams=True)

    def after_step(self, idle: Mask | None = None) -> LaneLengths:
        """Returns them after a step of every lane that is not idle."""
        streams = self.streams.after_step(idle) if self.counts_streams else self.streams
        if idle is None:
            rows = self.open + 1
            return LaneLengths(rows, rows, streams, self.counts_streams)
        rows = self.open + ~idle
        return LaneLengths(rows, np.where(idle, self.last, rows), streams, self.counts_streams)

    def after_end(self, lanes: Lanes, final_rows: int) -> LaneLengths:
        """Returns them after the ends of episodes, each with so many final rows: 1 or 0."""
        rows, last = self.open.copy(), self.last.copy()
        last[lanes] = rows[lanes] + final_rows
        rows[lanes] = 0
        streams = self.streams.after_finals(lanes) if final_rows else self.streams
        return LaneLengths(rows, last, streams, self.counts_streams)

    def after_drop(self, lanes: Lanes) -> LaneLengths:
        """Returns them after the ends of episodes of which no later item holds a row, and of their streams."""
        rows, last, is_open = self.open.copy(), self.last.copy(), lanes[self.open[lanes] > 0]
        last[is_open] = rows[is_open] = 0
        return LaneLengths(rows, last, self.streams, self.counts_streams).after_restart(lanes)

    def after_restart(self, lanes: Lanes) -> LaneLengths:
        """Returns them after new streams have begun."""
        return self._replace(streams=self.streams.after_restart(lanes))
