"""The lengths of the episodes in a writer's lanes, as a client knows them without asking."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

Lanes = NDArray[np.int64]


class LaneLengths:
    """Counts the rows of each lane's newest episode.

    Args:
        lanes: number N of lanes.

    Attributes:
        open: int64[N], rows of the episode under way; 0: there is none.
        last: int64[N], rows of the newest episode, its final row included, that a later item may hold.

    >>> lengths = LaneLengths(2)
    >>> lengths.append(); lengths.end(np.array([1]), 1)
    >>> lengths.open.tolist(), lengths.last.tolist()
    ([1, 0], [1, 2])
    """

    def __init__(self, lanes: int) -> None:
        self.open: Lanes = np.zeros(lanes, np.int64)
        self.last: Lanes = np.zeros(lanes, np.int64)

    def append(self, idle: NDArray[np.bool_] | None = None) -> None:
        """Notes a step of every lane that is not idle."""
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

    def drop(self, lanes: Lanes) -> None:
        """Notes that episodes end of which no later item holds a row."""
        is_open = lanes[self.open[lanes] > 0]
        self.last[is_open] = self.open[is_open] = 0
