"""Completed steps of several agents, which are written at once."""

# Rules: views-rollouts R14, M4

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from headrace.envs.columns import EnvironmentColumns
from headrace.errors import SpecError
from headrace.rollouts.agents.game import Game
from headrace.rollouts.pieces import AgentRun


class WaitingSteps:
    """Completed steps of agents of one policy, which are to be written at once.

    Attributes:
        games: each environment and how many of the steps are its own; its steps lie side by side.
        runs, rewards, observations: of each step.
    """

    def __init__(self) -> None:
        self.games: list[tuple[Game, int]] = []
        self.runs: list[AgentRun] = []
        self.rewards: list[Any] = []
        self.observations: list[Any] = []

    def times(self) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Returns int64[M] `env_t`, and int64[M] the environment's clock, after each step."""
        numbers = np.array([(game.env_t, game.clock) for game, _ in self.games], np.int64)
        env_t, clock = np.repeat(numbers, [count for _, count in self.games], axis=0).T
        return env_t, clock

    def without_misfits(
        self, columns: EnvironmentColumns
    ) -> tuple[WaitingSteps, list[tuple[Game, SpecError]]]:
        """Returns the steps with observations that fit the space, and the environments of the others."""
        fitting, refused = WaitingSteps(), []
        steps = zip(self.runs, self.rewards, self.observations, strict=True)
        for game, (run, reward, observation) in zip(self._game_of_each(), steps, strict=True):
            try:
                columns.stack_observations([observation], f"environment {game.index}: agent {run.agent_id!r}")
            except SpecError as error:
                refused.append((game, error))
            else:
                fitting.add(game, [run], [reward], [observation])
        return fitting, refused

    def add(
        self, game: Game, runs: Sequence[AgentRun], rewards: Sequence[Any], observations: Sequence[Any]
    ) -> None:
        """Adds steps of one environment."""
        self.games.append((game, len(runs)))
        self.runs += runs
        self.rewards += rewards
        self.observations += observations

    def _game_of_each(self) -> list[Game]:
        return [game for game, count in self.games for _ in range(count)]
