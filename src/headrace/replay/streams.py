"""Windows over the seams of episodes: where the rule says CONTINUE.

The step index of a row starts anew with each episode and tells nothing about a stream. So each lane's rows are counted
here, and its newest ones are remembered.
"""

# Rules: trajectories A10

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from headrace.tables.items.layout import STREAM


class Streams:
    """The lanes of one block, as one rule sees them.

    Args:
        lanes: of the block.
        length: rows of a window.
        stride: rows from the start of one window to the next.
    """

    def __init__(self, lanes: int, length: int, stride: int) -> None:
        self._length, self._stride = length, stride
        self._newest = np.zeros((length, lanes), np.int64)
        self._counts = np.zeros(lanes, np.int64)
        self._waited = np.zeros(lanes, np.bool_)

    def extend(self, lanes: NDArray[np.int64], rows: NDArray[np.int64]) -> NDArray[np.int64]:
        """One more row of some lanes; returns the first rows of the windows that these complete, by lane."""
        counts = self._counts[lanes]
        self._newest[counts % self._length, lanes] = rows
        self._counts[lanes] = counts + 1
        self._waited[lanes] = False
        starts = counts + 1 - self._length
        due = self._is_due(starts)
        return self._newest[starts[due] % self._length, lanes[due]]

    def wait(self, lanes: NDArray[np.int64]) -> None:
        """These lanes hold nothing in this step. After the second in turn their rows may be out of reach."""
        self.end(lanes[self._waited[lanes]])
        self._waited[lanes] = True

    def end(self, lanes: NDArray[np.int64]) -> None:
        """These lanes' streams are over; what comes next begins others."""
        self._counts[lanes] = 0

    @property
    def completes_with_the_next_row(self) -> bool:
        """Whether the next row completes a window of some lane."""
        return bool(self._is_due(self._counts + 1 - self._length).any())

    def _is_due(self, starts: NDArray[np.int64]) -> NDArray[np.bool_]:
        due: NDArray[np.bool_] = (starts >= 0) & (starts % self._stride == 0)
        return due


def stream_shape(length: int) -> NDArray[np.uint32]:
    """The window of every item of a rule with windows over seams, uint32[1, 3]."""
    return np.array([[length, 0, STREAM]], np.uint32)
