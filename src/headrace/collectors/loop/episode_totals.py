"""Return and length of each episode, added up as its steps come."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import cython
import numpy as np
from numpy.typing import NDArray

if not cython.compiled:
    from headrace.kernels.kinds import Bytes, GivenDoubles, GivenLongs, Int

    # Kinds of rows.
    GOES_ON, ENDS, MASKED = range(3)


class EpisodeTotals:
    """Adds up the rewards and transitions of the episodes of n lanes.

    Args:
        lanes: n.

    >>> totals = EpisodeTotals(2)
    >>> rewards = np.array([[1, 5], [2, 5], [3, 5]], np.float32)
    >>> ended = np.array([[False, False], [True, False], [True, False]])
    >>> totals.add(rewards, ended, masked=np.array([1]), going_on=np.array([0]))
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
        self,
        rewards: NDArray[np.float32],
        ended: NDArray[np.bool_],
        masked: GivenLongs,
        going_on: GivenLongs,
    ) -> list[tuple[float, int]]:
        """Adds the next steps; returns return and length of the episodes that end in them, in the order of their ends.

        Args:
            rewards: `[T, n]`.
            ended: `[T, n]`, the last transitions of episodes; it may be true on masked rows.
            masked: int64[f], rows `step * n + lane` without a transition.
            going_on: int64[g], lanes whose episode goes on, although `ended` is true at their last step.
        """
        rows = ended.reshape(-1).astype(np.uint8)
        numbers = rewards.astype(np.float64).reshape(-1)
        return self._add(numbers, rows, masked, going_on)

    def _add(
        self, rewards: GivenDoubles, rows: Bytes, masked: GivenLongs, going_on: GivenLongs
    ) -> list[tuple[float, int]]:
        """Does `add`; overwrites `rows`."""
        found = []
        for place in range(going_on.shape[0]):
            rows[rows.shape[0] - self._lanes + going_on[place]] = GOES_ON
        for place in range(masked.shape[0]):
            rows[masked[place]] = MASKED
        lane: Int = 0
        for row in range(rewards.shape[0]):
            if rows[row] != MASKED:
                self._returns[lane] += rewards[row]
                self._lengths[lane] += 1
            if rows[row] == ENDS:
                found.append((float(self._returns[lane]), int(self._lengths[lane])))
                self._returns[lane] = 0
                self._lengths[lane] = 0
            lane = lane + 1 if lane + 1 < self._lanes else 0
        return found
