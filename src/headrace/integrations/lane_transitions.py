"""Transitions of environments side by side, each with both of its observations, as episodes of a step writer."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from headrace.arrays import row_bytes
from headrace.spec import Signature
from headrace.trajectories.writers.transition_writer import TransitionWriter

Flags = NDArray[np.bool_]


class LaneTransitions:
    """Finds where the episodes of lanes begin and end, so that each observation is stored once.

    A transition goes on with the episode of its lane if the one before has no flag, and its next observation equals
    this observation bit by bit. Otherwise the episode before ends as cut: its last next observation is kept, and no
    flag is set.

    Args:
        writer: with lanes, and with autoreset="disabled".
        signature: of the writer's replay.
        lanes: number of lanes.
    """

    def __init__(self, writer: TransitionWriter, signature: Signature, lanes: int) -> None:
        self._writer = writer
        self._observation = Signature({"observation": signature.tree["observation"]})
        self._lanes = lanes
        self.forget()

    def forget(self) -> None:
        """Lets the next transitions begin episodes, after a reset of the writer."""
        self._open: Flags = np.zeros(self._lanes, np.bool_)
        self._following = self._observation.flatten(self._observation.zeros(self._lanes))

    def add(
        self,
        observation: Any,
        action: Any,
        reward: Any,
        terminated: Flags,
        truncated: Flags,
        next_observation: Any,
    ) -> Sequence[int]:
        """Adds one transition of each lane.

        Args:
            observation, action, reward, next_observation: as the writer's signature, with the lanes in front.
            terminated, truncated: bool[lanes].

        Returns:
            The keys of the new items; the item of a transition may be made by a later call (`TransitionWriter`).

        Raises:
            SpecError: something does not fit; nothing is added.
            StoreFull, DeadlineExceeded: see `StepWriter.add`.
        """
        following = self._read(next_observation)
        goes_on = self._begin(observation)
        if not goes_on.all():
            self._writer.add_first(observation, mask=~goes_on)
            # Of the lanes that go on these are the observations that are kept already.
            self._open[:], self._following = True, self._read(observation)
        keys = self._writer.add(action, reward, terminated, truncated, next_observation)
        self._open, self._following = ~(terminated | truncated), following
        return keys

    def _begin(self, observation: Any) -> Flags:
        """Ends the episodes that do not go on with these observations; bool[lanes]: which do."""
        same = np.ones(self._lanes, np.bool_)
        for name, column in self._observation.validate({"observation": observation}, (self._lanes,)).items():
            same &= (row_bytes(column) == row_bytes(self._following[name])).all(axis=1)
        if (cut := self._open & ~same).any():
            self._writer.reset(mask=cut)
            self._open &= same
        return self._open & same

    def _read(self, observation: Any) -> dict[str, NDArray[Any]]:
        """Returns copies of observations as they are stored."""
        read = self._observation.validate({"observation": observation}, (self._lanes,))
        return {name: column.copy() for name, column in read.items()}
