"""Return and length of each episode, added up as its steps come."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import cython
import numpy as np
from numpy.typing import NDArray

if not cython.compiled:
    from headrace.kernels.kinds import Doubles, GivenBytes, GivenDoubles, GivenLongs, Int, Longs


class EpisodeTotals:
    """Adds up the rewards and transitions of the episodes of n lanes.

    Args:
        lanes: n.

    >>> totals = EpisodeTotals(2)
    >>> rewards = np.array([[1, 5], [2, 5], [3, 5]], np.float32)
    >>> ended = np.array([[False, False], [True, False], [False, False]])
    >>> totals.add(rewards, ended, np.ones((3, 2), bool))
    [(3.0, 2)]
    """

    def __init__(self, lanes: Int) -> None:
        self._lanes = lanes
        self._returns = np.zeros(lanes)
        self._lengths = np.zeros(lanes, np.int64)

    def reset(self, lanes: GivenLongs) -> None:
        """Begins an episode in each of these lanes, int64[m]."""
        for place in range(lanes.shape[0]):
            self._returns[lanes[place]] = 0
            self._lengths[lanes[place]] = 0

    def state_dict(self) -> dict[str, Any]:
        """Returns the returns and lengths of the episodes under way."""
        return {"returns": np.array(self._returns), "lengths": np.array(self._lengths)}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Goes on with the episodes of a state."""
        self._returns = np.array(state["returns"], np.float64)
        self._lengths = np.array(state["lengths"], np.int64)

    def add(
        self, rewards: NDArray[np.float32], ended: NDArray[np.bool_], took: NDArray[np.bool_]
    ) -> list[tuple[float, int]]:
        """Adds the next steps; returns return and length of the episodes that end in them, in the order of their ends.

        Args:
            rewards, ended, took: `[T, n]`; `ended` marks the last transitions of episodes, `took` all transitions.
        """
        returns, lengths = np.empty(ended.size), np.empty(ended.size, np.int64)
        numbers = rewards.astype(np.float64).reshape(-1)
        count = self._add(numbers, ended.reshape(-1), took.reshape(-1), returns, lengths)
        return list(zip(returns[:count].tolist(), lengths[:count].tolist(), strict=True))

    def _add(
        self, rewards: GivenDoubles, ended: GivenBytes, took: GivenBytes, returns: Doubles, lengths: Longs
    ) -> Int:
        """Does `add`; writes what it finds to `returns` and `lengths`, and returns the number of episodes."""
        count: Int = 0
        lane: Int = 0
        for row in range(rewards.shape[0]):
            if took[row]:
                self._returns[lane] += rewards[row]
                self._lengths[lane] += 1
            if ended[row]:
                returns[count] = self._returns[lane]
                lengths[count] = self._lengths[lane]
                count += 1
                self._returns[lane] = 0
                self._lengths[lane] = 0
            lane = lane + 1 if lane + 1 < self._lanes else 0
        return count
