"""How fast this machine is just now, beside the one that the goals were set on.

A goal of so many steps a second says something of one machine only. Where these were set, `np.take` of 256 rows of 16
bytes into a buffer took 1.1 us and indexing them 3.5 us. The same two, timed in the same run as a figure, tell what the
goal comes to here (performance P1: an absolute time means nothing by itself). They stay in the cache: of a machine's
memory they tell nothing.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable

import numpy as np

_TAKE, _INDEX = 1.1e-6, 3.5e-6
_BURSTS, _CALLS = 5, 100


class Pace:
    """A function that tells the share of that machine's speed, 1 for as fast."""

    def __init__(self) -> None:
        random = np.random.default_rng(0)
        self._rows = random.random((4096, 4), np.float32)
        self._index = random.integers(0, 4096, 256)
        self._out = np.empty((256, 4), np.float32)

    def __call__(self) -> float:
        # Where the two disagree, the one that asks for more.
        return max(_TAKE / _seconds(self._take), _INDEX / _seconds(self._by_index))

    def _take(self) -> None:
        for _ in range(_CALLS):
            np.take(self._rows, self._index, axis=0, out=self._out, mode="clip")

    def _by_index(self) -> None:
        for _ in range(_CALLS):
            self._rows[self._index]


def _seconds(calls: Callable[[], None]) -> float:
    """Of one call."""
    taken = []
    for _ in range(_BURSTS):
        begin = time.perf_counter()
        calls()
        taken.append((time.perf_counter() - begin) / _CALLS)
    return statistics.median(taken)
