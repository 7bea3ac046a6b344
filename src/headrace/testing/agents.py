"""Counter environments with several agents, with the interface of PettingZoo's parallel environments."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from headrace.testing.envs import CounterEnv, Ending


class CounterAgents:
    """An environment in which each agent is a `CounterEnv`. An episode ends with its last agent.

    Args:
        episode_lengths: transitions of each agent in an episode.
        first_copy: the first number of the observations of the first agent; others count on from it.
        ending: see `CounterEnv`.

    Attributes:
        counters: of the agents.
        closed: number of calls of `close`.

    >>> env = CounterAgents([1, 2])
    >>> env.reset()[0]
    {'agent0': array([0, 0, 0]), 'agent1': array([1, 0, 0])}
    >>> env.step({"agent0": 0, "agent1": 1})[2], env.agents
    ({'agent0': True, 'agent1': False}, ['agent1'])
    """

    metadata: Mapping[str, Any] = {}

    def __init__(
        self, episode_lengths: Sequence[int], *, first_copy: int = 0, ending: Ending = "terminated"
    ) -> None:
        self.possible_agents = [f"agent{k}" for k in range(len(episode_lengths))]
        self.agents: list[str] = []
        self.counters = {
            agent: CounterEnv(length, copy=first_copy + k, ending=ending)
            for k, (agent, length) in enumerate(zip(self.possible_agents, episode_lengths, strict=True))
        }
        self.closed = 0

    def observation_space(self, agent: str) -> Any:
        """Returns the space of a counter."""
        return self.counters[agent].observation_space

    def action_space(self, agent: str) -> Any:
        """Returns the space of a counter's actions."""
        return self.counters[agent].action_space

    def reset(
        self, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[dict[str, Any], dict[str, Any]]:
        """Begins an episode with all agents."""
        self.agents = list(self.possible_agents)
        returned = {agent: env.reset(seed=seed, options=options) for agent, env in self.counters.items()}
        return {agent: each[0] for agent, each in returned.items()}, {
            agent: each[1] for agent, each in returned.items()
        }

    def step(self, actions: Mapping[str, Any]) -> tuple[dict[str, Any], ...]:
        """Takes one transition of each agent that is left."""
        returned = {agent: self.counters[agent].step(actions[agent]) for agent in self.agents}
        self.agents = [agent for agent in self.agents if not any(returned[agent][2:4])]
        return tuple({agent: each[k] for agent, each in returned.items()} for k in range(5))

    def state_dict(self) -> dict[str, Any]:
        """Returns the counters of the agents, and which are left."""
        counters = {agent: counter.state_dict() for agent, counter in self.counters.items()}
        return {"agents": list(self.agents), "counters": counters}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Restores the counters."""
        self.agents = list(state["agents"])
        for agent, saved in state["counters"].items():
            self.counters[agent].load_state_dict(saved)

    def close(self) -> None:
        """Counts the calls."""
        self.closed += 1
