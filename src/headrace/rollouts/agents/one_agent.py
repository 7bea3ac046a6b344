"""Environments with one agent, as those with several: for workers with several policies."""

# Rules: views-rollouts M1, M2

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

AGENT = "agent0"


class OneAgent:
    """A gymnasium environment with the interface of one with several agents; its only agent is "agent0".

    Args:
        env: the environment.

    >>> import gymnasium
    >>> env = OneAgent(gymnasium.make("CartPole-v1"))
    >>> observations, infos = env.reset(seed=0)
    >>> observations["agent0"].shape, env.step({"agent0": 1})[1]
    ((4,), {'agent0': 1.0})
    """

    possible_agents = (AGENT,)

    def __init__(self, env: Any) -> None:
        self._env = env

    def observation_space(self, _: Any) -> Any:
        """Returns the observation space."""
        return self._env.observation_space

    def action_space(self, _: Any) -> Any:
        """Returns the action space."""
        return self._env.action_space

    def reset(self, *, seed: int | None = None) -> tuple[dict[str, Any], dict[str, Any]]:
        """Resets the environment."""
        observation, info = self._env.reset(seed=seed)
        return {AGENT: observation}, {AGENT: info}

    def step(self, actions: Mapping[Any, Any]) -> tuple[dict[str, Any], ...]:
        """Steps the environment with the agent's action."""
        return tuple({AGENT: value} for value in self._env.step(actions[AGENT]))
