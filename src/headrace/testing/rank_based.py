"""A custom selector as an example, used in the tests of tables."""

from __future__ import annotations

import bisect
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from headrace.tables.description.selectors import CustomSelector, SelectorIndex


@dataclass(frozen=True)
class RankBased(CustomSelector):
    """Items in proportion to `rank ** -exponent`; the highest priority has rank 1, and of equals the oldest item first.

    Source: T. Schaul et al., "Prioritized Experience Replay" (2016), rank-based variant.

    >>> index = RankBased(exponent=1.0).new_index()
    >>> index.insert(1, priority=0.5)
    >>> index.insert(2, priority=9.0)
    >>> keys, probabilities = index.choose(3, np.random.default_rng(0))
    >>> keys.tolist(), probabilities.round(3).tolist()
    ([2, 2, 2], [0.667, 0.667, 0.667])
    """

    exponent: float = 0.7

    def new_index(self) -> SelectorIndex:
        """See `CustomSelector`."""
        return _RankBasedIndex(self.exponent)


class _RankBasedIndex(SelectorIndex):
    def __init__(self, exponent: float) -> None:
        self._exponent = exponent
        self._priorities: dict[int, float] = {}
        self._ranked: list[tuple[float, int]] = []  # (-priority, key), sorted

    def insert(self, key: int, priority: float) -> None:
        self._priorities[key] = priority
        bisect.insort(self._ranked, (-priority, key))

    def update(self, key: int, priority: float) -> None:
        self.remove(key)
        self.insert(key, priority)

    def remove(self, key: int) -> None:
        entry = (-self._priorities.pop(key), key)
        del self._ranked[bisect.bisect_left(self._ranked, entry)]

    def choose(
        self, count: int, random: np.random.Generator
    ) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
        weights = np.arange(1, len(self._ranked) + 1) ** -self._exponent
        probabilities = weights / weights.sum()
        places = random.choice(len(self._ranked), count, p=probabilities)
        keys = np.array([self._ranked[place][1] for place in places.tolist()])
        return keys, probabilities[places]
