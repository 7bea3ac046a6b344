"""Environments with several agents that follow a script, so that every number of a rollout is known."""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from gymnasium import spaces

AGENTS = ("a", "b", "c")


class Turn(NamedTuple):
    """The result of one step of the environment.

    Attributes:
        seen: names of the agents that are observed, one letter each.
        rewards: by agent; None: 1 for each agent that is observed.
        terminated, truncated: names of the agents with this flag, or "__all__".
    """

    seen: str
    rewards: Mapping[str, float] | None = None
    terminated: Sequence[str] = ""
    truncated: Sequence[str] = ""


def script(draws: Sequence[tuple[int, int]]) -> list[Turn]:
    """Makes turns of numbers whose bits choose which agents are observed, and which end."""
    alive, joined, turns = set(AGENTS), {"a"}, []
    for seen_bits, end_bits in draws:
        seen = {agent for i, agent in enumerate(AGENTS) if agent in alive and seen_bits >> i & 1} or (
            alive & {"a"}
        )
        ends = {agent for i, agent in enumerate(AGENTS) if agent in alive & joined and end_bits >> i & 1}
        rewards = {agent: float(1 + i) for i, agent in enumerate(AGENTS) if agent in alive}
        turns.append(Turn("".join(sorted(seen)), rewards, "".join(sorted(ends))))
        joined |= seen
        alive -= ends
    return turns


class ScriptedEnv:
    """Plays a script in each episode. An observation is int64[3]: number of the agent, episode, time.

    Args:
        first: names of the agents that are observed after a reset.
        turns: the steps of an episode.
        listed: whether there is `possible_agents`.
    """

    def __init__(
        self, first: str, *turns: Turn, possible: Sequence[str] = AGENTS, endless: bool = False
    ) -> None:
        self.possible_agents = list(possible)
        self._first, self._turns, self._endless = first, turns, endless
        self.agents: list[str] = []
        self.episode = -1
        self.acted: list[dict[str, int]] = []
        self.seeds: list[int | None] = []

    def observation_space(self, agent: str) -> Any:
        return spaces.Box(0, 1000, (3,), np.int64)

    def action_space(self, agent: str) -> Any:
        return spaces.Discrete(100)

    def reset(self, seed=None, options=None):
        self.seeds.append(seed)
        self.episode, self.time = self.episode + 1, 0
        self.agents = list(self.possible_agents)
        return self._seen(self._first), {agent: {} for agent in self._first}

    def step(self, actions):
        self.acted.append({agent: int(action) for agent, action in actions.items()})
        turn = self._turns[self.time % len(self._turns)]
        self.time += 1
        if self.time == len(self._turns) and not self._endless:
            self.agents = []
        rewards = dict.fromkeys(turn.seen, 1.0) if turn.rewards is None else dict(turn.rewards)
        flags = [
            {name: name in marked or marked == name for name in (*turn.seen, *marked)} for marked in turn[2:]
        ]
        if "__all__" in (turn.terminated, turn.truncated):
            flags = [dict.fromkeys([marked] if marked == "__all__" else marked, True) for marked in turn[2:]]
        return self._seen(turn.seen), rewards, flags[0], flags[1], {}

    def _seen(self, names: str) -> dict[str, Any]:
        return {name: np.array([AGENTS.index(name), self.episode, self.time], np.int64) for name in names}

    def close(self) -> None:
        pass


def by_time(observation: Any) -> Any:
    """Acts with ten times the number of the agent, plus the time."""
    return 10 * observation[:, 0] + observation[:, 2]


class Watched:
    """Acts by time, and keeps what it saw."""

    def __init__(self) -> None:
        self.seen: list[dict[str, Any]] = []

    def compute_actions(self, input_dict):
        self.seen.append(dict(input_dict))
        return by_time(input_dict["observation"])


def rows_of(batch: Any) -> list[tuple[int, int, int]]:
    """Returns (agent, episode, time) of each row, as observed."""
    return [tuple(row) for row in batch["observation"].tolist()]
