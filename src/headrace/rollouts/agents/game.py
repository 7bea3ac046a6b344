"""One environment with several agents: which of them act, and what each step of the environment brings them."""

# Rules: views-rollouts M1 to M7

from __future__ import annotations

from collections.abc import Callable, Mapping
from operator import itemgetter
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from headrace.checks import shown
from headrace.envs.agents import (
    Returned,
    ends_for_all,
    env_attribute,
    possible_agents,
    reset_agents,
    step_agents,
)
from headrace.errors import SpecError
from headrace.rollouts.episode import RolloutEpisode
from headrace.rollouts.pieces import AgentRun


class AgentStep(NamedTuple):
    """The end of one agent's step.

    Attributes:
        run: the agent.
        terminated, truncated: flags.
        is_observed: whether there is an observation after it.
        is_last: whether the agent's trajectory ends with it.
    """

    run: AgentRun
    terminated: bool
    truncated: bool
    is_observed: bool
    is_last: bool


class ActingGroup(NamedTuple):
    """The agents of one policy that act next in an environment.

    Attributes:
        runs: of the agents.
        agent_ids: of the agents.
        lanes: int64[agents], their lanes of the policy.
        values_of: takes the values of these agents, in their order, out of a mapping by agent.
    """

    runs: list[AgentRun]
    agent_ids: list[Any]
    lanes: NDArray[np.int64]
    values_of: Callable[[Mapping[Any, Any]], tuple[Any, ...]]

    @classmethod
    def of(cls, runs: list[AgentRun]) -> ActingGroup:
        """Returns the group of these agents."""
        agent_ids = [run.agent_id for run in runs]
        # For one key `itemgetter` returns the value itself.
        one = agent_ids[0]
        values_of = itemgetter(*agent_ids) if len(runs) > 1 else lambda values: (values[one],)
        return cls(runs, agent_ids, np.array([run.lane for run in runs], np.int64), values_of)


class Game:
    """State of one environment with several agents.

    Args:
        env: the environment.
        index: its number.

    Attributes:
        episode: the running episode; None before a reset.
        env_t: environment steps of the episode so far.
        clock: environment steps since the reset; a soft horizon does not set it back.
        runs: the agents of the episode so far, in order of appearance.
        acting: the agents that act next.
        left: steps, or episodes, that it has still to bring for the present batch.
        steps, agent_steps: steps of the present episode since the last cut.
    """

    def __init__(self, env: Any, index: int) -> None:
        self.env, self.index = env, index
        self._indices = {agent_id: place for place, agent_id in enumerate(possible_agents(env))}
        self.left = 0
        self.was_reset = False
        self.forget_episode()

    def forget_episode(self) -> None:
        """The next step needs a reset."""
        self.episode: RolloutEpisode | None = None
        self.env_t = self.clock = 0
        self.runs: dict[Any, AgentRun] = {}
        self.acting: list[AgentRun] = []
        self.steps = self.agent_steps = 0
        self._grouped: list[AgentRun] = []
        self._grouped_ids: frozenset[Any] = frozenset()
        self._groups: dict[str, ActingGroup] = {}

    def groups(self) -> dict[str, ActingGroup]:
        """Returns the agents that act next by their policies. Most steps have those of the step before."""
        if self._grouped != self.acting:
            runs: dict[str, list[AgentRun]] = {}
            for run in self.acting:
                runs.setdefault(run.policy_id, []).append(run)
            self._groups = {policy_id: ActingGroup.of(each) for policy_id, each in runs.items()}
            self._grouped = self.acting.copy()
            self._grouped_ids = frozenset(run.agent_id for run in self.acting)
        return self._groups

    def count_step(self) -> None:
        """Takes note of a step of the environment."""
        assert self.episode is not None
        self.env_t += 1
        self.clock += 1
        self.episode.length += 1

    def reset(self, seed: int | None) -> Mapping[Any, Any]:
        """Resets the environment and returns the first observations."""
        observations, _ = reset_agents(self.env, self.index, seed)
        self.was_reset = True
        return observations

    def step(self, actions: Mapping[Any, Any]) -> Returned:
        """Steps the environment."""
        return step_agents(self.env, self.index, actions)

    def agent_index(self, agent_id: Any) -> int:
        """Returns the place of an agent in `possible_agents`; agents not listed there follow in order of appearance."""
        if agent_id in self._indices:
            return self._indices[agent_id]
        others = [other for other in self.runs if other not in self._indices]
        return len(self._indices) + others.index(agent_id)

    def add_rewards(self, rewards: Mapping[Any, Any]) -> None:
        """Adds rewards to the open steps of agents, and to the episode.

        Raises:
            SpecError: a reward of an agent that is done, or one that is not a number.
        """
        assert self.episode is not None
        for agent_id, reward in rewards.items():
            run = self.runs.get(agent_id)
            if run is not None and run.is_done:
                raise self._done_already(agent_id, "a reward")
            number = self.reward_of(agent_id, reward)
            self.episode.add(agent_id, number)
            if run is not None:
                run.reward += number

    def reward_of(self, agent_id: Any, reward: Any) -> float:
        """Returns the reward of an agent as a number.

        Raises:
            SpecError: it is not one; the message has the agent and the environment step.
        """
        try:
            return float(reward)
        except (TypeError, ValueError) as error:
            raise SpecError(
                f"environment {self.index}: agent {agent_id!r}: reward: expected a number at env step {self.env_t}, "
                f"got {shown(reward)}"
            ) from error

    def check(self, returned: Returned) -> None:
        """Refuses observations of agents that are done, and of agents that acted and got no reward.

        Raises:
            SpecError: the message has the agent and the environment step.
        """
        # Rules: views-rollouts M7
        for agent_id in returned.observations:
            run = self.runs.get(agent_id)
            if run is None:
                continue
            if run.is_done:
                raise self._done_already(agent_id, "an observation")
            if run.has_acted and agent_id not in returned.rewards:
                raise SpecError(
                    f"environment {self.index}: agent {agent_id!r}: expected a reward at env step {self.env_t}, "
                    "because it acted and is observed, got none"
                )

    def goes_on_together(self, returned: Returned) -> bool:
        """Whether a step observes and rewards the agents that acted and no others, and ends nothing."""
        observations, rewards, terminations, truncations, _ = returned
        if not self.groups() or not observations.keys() == rewards.keys() == self._grouped_ids:
            return False
        if any(terminations.values()) or any(truncations.values()):
            return False
        agents = env_attribute(self.env, "agents")
        return agents is None or len(agents) > 0

    def is_over(self, returned: Returned) -> bool:
        """Whether the environment ends the episode with this step."""
        # Rules: views-rollouts M1
        if ends_for_all(self.env, returned):
            return True
        seen = {**self.runs, **returned.observations}
        return bool(seen) and all(self._ends(agent_id, returned) for agent_id in seen)

    def agent_steps_of(self, returned: Returned, *, cut: bool, flags: bool) -> list[AgentStep]:
        """Returns the steps of agents that this environment step completes.

        Args:
            returned: by the environment.
            cut: whether the episode ends here for all agents.
            flags: whether ends are written as flags.
        """
        found = []
        for agent_id, run in self.runs.items():
            if run.is_done:
                continue
            terminated = bool(returned.terminations.get(agent_id, False))
            truncated = bool(returned.truncations.get(agent_id, False))
            is_last = terminated or truncated or cut
            if not (terminated or truncated):
                # Rules: views-rollouts M5
                truncated = cut
            is_observed = agent_id in returned.observations
            if run.has_acted and (is_observed or is_last):
                found.append(AgentStep(run, terminated and flags, truncated and flags, is_observed, is_last))
        return found

    def _ends(self, agent_id: Any, returned: Returned) -> bool:
        run = self.runs.get(agent_id)
        is_done = run is not None and run.is_done
        return bool(is_done or returned.terminations.get(agent_id) or returned.truncations.get(agent_id))

    def _done_already(self, agent_id: Any, what: str) -> SpecError:
        return SpecError(
            f"environment {self.index}: agent {agent_id!r}: expected nothing more in this episode, which it has "
            f"ended, got {what} at env step {self.env_t}"
        )
