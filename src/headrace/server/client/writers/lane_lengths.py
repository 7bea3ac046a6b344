"""The lengths of the episodes and streams in a writer's lanes, as a client knows them without asking."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

Lanes = NDArray[np.int64]


class StreamLengths:
    """Counts the rows of each lane since its stream began; windows with `EndOfEpisode.CONTINUE` lie in streams.

    Args:
        lanes: number N of lanes.

    Attributes:
        rows: int64[N], of the stream, final rows included.
        steps: int64[N], the same without final rows.
        is_unknown: bool[N], lanes that waited for two steps or more, so that the server may have begun a new stream.
    """

    def __init__(self, lanes: int) -> None:
        self.rows: Lanes = np.zeros(lanes, np.int64)
        self.steps: Lanes = np.zeros(lanes, np.int64)
        self.is_unknown = np.zeros(lanes, np.bool_)
        self._waits = np.zeros(lanes, np.bool_)

    def append(self, idle: NDArray[np.bool_] | None) -> None:
        """Notes a step of every lane that is not idle."""
        if idle is None:
            idle = np.zeros(len(self.rows), np.bool_)
        self.rows += ~idle
        self.steps += ~idle
        self.is_unknown |= idle & self._waits
        self._waits = idle.copy()

    def append_finals(self, lanes: Lanes) -> None:
        """Notes final rows."""
        self.rows[lanes] += 1
        self._waits[lanes] = False

    def restart(self, lanes: Lanes) -> None:
        """Notes that new streams begin."""
        self.rows[lanes] = self.steps[lanes] = 0
        self.is_unknown[lanes] = False


class LaneLengths:
    """Counts the rows of each lane's newest episode, and of its stream.

    Args:
        lanes: number N of lanes.

    Attributes:
        open: int64[N], rows of the episode under way; 0: there is none.
        last: int64[N], rows of the newest episode, its final row included, that a later item may hold.
        streams: of all episodes; counted only after `count_streams`, because few writers need them.

    >>> lengths = LaneLengths(2)
    >>> lengths.append(); lengths.end(np.array([1]), 1)
    >>> lengths.open.tolist(), lengths.last.tolist()
    ([1, 0], [1, 2])
    """

    def __init__(self, lanes: int) -> None:
        self.open: Lanes = np.zeros(lanes, np.int64)
        self.last: Lanes = np.zeros(lanes, np.int64)
        self.streams = StreamLengths(lanes)
        self._counts_streams = False

    def count_streams(self) -> None:
        """Counts the rows of streams from here on."""
        self._counts_streams = True

    def append(self, idle: NDArray[np.bool_] | None = None) -> None:
        """Notes a step of every lane that is not idle."""
        if self._counts_streams:
            self.streams.append(idle)
        if idle is None:
            self.open += 1
            self.last[...] = self.open
            return
        self.open[~idle] += 1
        self.last[~idle] = self.open[~idle]

    def end(self, lanes: Lanes, final_rows: int) -> None:
        """Notes that episodes end, each with so many final rows: 1 or 0."""
        self.last[lanes] = self.open[lanes] + final_rows
        self.open[lanes] = 0
        if final_rows:
            self.streams.append_finals(lanes)

    def drop(self, lanes: Lanes) -> None:
        """Notes that episodes end of which no later item holds a row, and their streams."""
        is_open = lanes[self.open[lanes] > 0]
        self.last[is_open] = self.open[is_open] = 0
        self.streams.restart(lanes)
