"""Return and length of each episode, added up as its steps come."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypeAlias

import cython
import numpy as np
from numpy.typing import NDArray

if not cython.compiled:
    from headrace.kernels.kinds import GivenLongs, Int

    Rewards: TypeAlias = NDArray[np.float32]
    Flags: TypeAlias = NDArray[np.bool_]

    # Kinds of rows.
    ANY, GOES_ON, ENDS, MASKED = range(4)


class EpisodeTotals:
    """Adds up the rewards and transitions of the episodes of n lanes.

    Args:
        lanes: n.

    >>> totals = EpisodeTotals(2)
    >>> rewards = np.array([[1, 5], [2, 5], [3, 5]], np.float32)
    >>> terminated = np.array([[False, False], [True, False], [True, False]])
    >>> totals.add(rewards, terminated, np.zeros((3, 2), bool), masked=np.array([1]), going_on=np.array([0]))
    [(3.0, 2)]
    """

    def __init__(self, lanes: Int) -> None:
        self._lanes = lanes
        self._returns = np.zeros(lanes)
        self._lengths = np.zeros(lanes, np.int64)
        # Of each row that is being added.
        self._kinds = np.zeros(0, np.uint8)

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
        rewards: Rewards,
        terminated: Flags,
        truncated: Flags,
        masked: GivenLongs,
        going_on: GivenLongs,
    ) -> list[tuple[float, int]]:
        """Adds the next steps; returns return and length of the episodes that end in them, in the order of their ends.

        Without a call of NumPy: frames drive its code out of the caches, and six calls took as long as two steps.

        Args:
            rewards: float32[T, n].
            terminated, truncated: bool[T, n]; they may be true on masked rows.
            masked: int64[f], rows `step * n + lane` without a transition.
            going_on: int64[g], lanes whose episode goes on, although their last step is marked.
        """
        steps: Int = rewards.shape[0]
        lanes: Int = self._lanes
        if self._kinds.shape[0] < steps * lanes:
            self._kinds = np.zeros(steps * lanes, np.uint8)
        # Zeros between two calls: most have no row of a special kind.
        kinds = self._kinds
        for place in range(going_on.shape[0]):
            kinds[(steps - 1) * lanes + going_on[place]] = GOES_ON
        for place in range(masked.shape[0]):
            kinds[masked[place]] = MASKED
        found = []
        for step in range(steps):
            for lane in range(lanes):
                row = step * lanes + lane
                kind = kinds[row]
                kinds[row] = ANY
                if kind == ANY and (terminated[step, lane] or truncated[step, lane]):
                    kind = ENDS
                if kind != MASKED:
                    self._returns[lane] += rewards[step, lane]
                    self._lengths[lane] += 1
                if kind == ENDS:
                    found.append((float(self._returns[lane]), int(self._lengths[lane])))
                    self._returns[lane] = 0
                    self._lengths[lane] = 0
        return found
