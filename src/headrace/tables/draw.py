"""A batch of draws from a table, in the arrays that kernels write."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from headrace.tables.items.layout import PRIORITY, PROBABILITY, TIMES


class Draw:
    """A batch of draws.

    Args:
        count: of the draws.
        has_sequences: whether the table was given items of more than one row before these draws.

    Attributes:
        keys: uint64[B].
        integers: int64[4, B]: rows SLOT, TIMES, SIZE, ROW of `items.layout`.
        floats: float64[2, B]: rows PROBABILITY, PRIORITY.
        windows: uint32[B, 3], or uint32[3] if all items agree: real rows, padded rows, lookahead.
        has_sequences: see above.
    """

    __slots__ = ("floats", "has_sequences", "integers", "keys", "windows")

    windows: NDArray[np.uint32]

    def __init__(self, count: int, has_sequences: bool) -> None:
        self.keys: NDArray[np.uint64] = np.empty(count, np.uint64)
        self.integers: NDArray[np.int64] = np.empty((4, count), np.int64)
        self.floats: NDArray[np.float64] = np.empty((2, count))
        self.has_sequences = has_sequences

    def __len__(self) -> int:
        return len(self.keys)

    @property
    def probabilities(self) -> NDArray[np.float64]:
        """float64[B]: the chance of each draw."""
        probabilities: NDArray[np.float64] = self.floats[PROBABILITY]
        return probabilities

    @property
    def priorities(self) -> NDArray[np.float64]:
        """float64[B]: the priority of each item."""
        priorities: NDArray[np.float64] = self.floats[PRIORITY]
        return priorities

    def spent(self, max_times: int) -> NDArray[np.bool_]:
        """Returns bool[B]: the draws with which an item leaves that may be sampled `max_times` times."""
        spent: NDArray[np.bool_] = self.integers[TIMES] >= max_times
        return spent
