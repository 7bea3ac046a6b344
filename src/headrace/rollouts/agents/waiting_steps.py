"""Completed steps of several agents, which are written at once."""

# Rules: views-rollouts R14, M4

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from headrace.envs.columns import EnvironmentColumns
from headrace.errors import SpecError
from headrace.rollouts.agents.game import ActingGroup, Game


class WaitingSteps:
    """Completed steps of agents of one policy, which are to be written at once.

    Attributes:
        groups: each environment and the agents whose steps these are; its steps lie side by side.
        rewards, observations: of each step.
    """

    def __init__(self) -> None:
        self.groups: list[tuple[Game, ActingGroup]] = []
        self.rewards: list[Any] = []
        self.observations: list[Any] = []

    def times(self) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Returns int64[M] `env_t`, and int64[M] the environment's clock, after each step."""
        counts = [len(group.runs) for _, group in self.groups]
        env_t = np.array([game.env_t for game, _ in self.groups], np.int64)
        clock = np.array([game.clock for game, _ in self.groups], np.int64)
        return env_t.repeat(counts), clock.repeat(counts)

    def lanes(self) -> NDArray[np.int64]:
        """Returns int64[M], the lane of each step."""
        return np.concatenate([group.lanes for _, group in self.groups])

    def without_misfits(
        self, columns: EnvironmentColumns
    ) -> tuple[WaitingSteps, list[tuple[Game, SpecError]]]:
        """Returns the steps with observations that fit the space, and the environments of the others."""
        fitting, refused = WaitingSteps(), []
        each = [(game, run) for game, group in self.groups for run in group.runs]
        for (game, run), reward, observation in zip(each, self.rewards, self.observations, strict=True):
            try:
                columns.stack_observations([observation], f"environment {game.index}: agent {run.agent_id!r}")
            except SpecError as error:
                refused.append((game, error))
            else:
                fitting.add(game, ActingGroup.of([run]), [reward], [observation])
        return fitting, refused

    def add(
        self, game: Game, group: ActingGroup, rewards: Sequence[Any], observations: Sequence[Any]
    ) -> None:
        """Adds steps of one environment."""
        self.groups.append((game, group))
        self.rewards += rewards
        self.observations += observations
