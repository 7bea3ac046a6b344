"""A running episode, as callbacks and policies see it."""

# Rules: views-rollouts C2

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any


@dataclass(slots=True, eq=False)
class RolloutEpisode:
    """A running episode.

    Attributes:
        episode_id: unique within a worker.
        length: environment steps so far.
        agent_rewards: the sum of the rewards of each agent so far.
        user_data: a dict for the user.

    >>> episode = RolloutEpisode(3)
    >>> episode.add("agent0", 1.5)
    >>> episode.total_reward, episode.agent_rewards
    (1.5, {'agent0': 1.5})
    """

    episode_id: int
    length: int = 0
    agent_rewards: dict[Any, float] = field(default_factory=dict)
    user_data: dict[Any, Any] = field(default_factory=dict)

    @property
    def total_reward(self) -> float:
        """The sum of all rewards so far."""
        return sum(self.agent_rewards.values())

    def add_all(self, rewards: Mapping[Any, float]) -> None:
        """Adds a reward of each of several agents."""
        totals = self.agent_rewards
        for agent_id, reward in rewards.items():
            totals[agent_id] = totals.get(agent_id, 0.0) + float(reward)

    def add(self, agent_id: Any, reward: float) -> None:
        """Adds a reward."""
        self.agent_rewards[agent_id] = self.agent_rewards.get(agent_id, 0.0) + float(reward)
