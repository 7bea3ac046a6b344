"""Environments with several agents that act at the same time (PettingZoo's parallel ones): one lane for each agent."""

# Rules: collectors CE2, CE7; views-rollouts M1, M5 to M7

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from headrace.checks import shown
from headrace.ends import Autoreset
from headrace.envs.adapters.gymnasium_single import check_distinct, close_all
from headrace.envs.agents import (
    Returned,
    check_agents_act_together,
    ends_for_all,
    env_attribute,
    possible_agents,
    reset_agents,
    spaces_of,
    step_agents,
)
from headrace.envs.columns import AT_RESET, EnvironmentColumns, new_columns
from headrace.envs.protocol import Columns, Indices, StepResult
from headrace.envs.states import EnvironmentStates
from headrace.envs.tensors import TensorBoundary, boundary_of
from headrace.errors import SpecError
from headrace.spec import ArraySpec, check_array


class ParallelStepper(EnvironmentStates):
    """A `VectorStepper` over environments with several agents.

    Agent k of environment i is lane `i * agents + k`, in the order of `possible_agents`. The episode of an environment
    is over when its last agent ends (`StepResult.over`). An agent that ends before waits until the reset, and one that
    comes later waits until it comes: its lane takes no transitions meanwhile. Environment i is seeded with the seed of
    its first lane.

    Args:
        envs: the environments, all with the same agents.
        info_columns: entries of each agent's `info` to keep as columns.
        device: where environments that return torch tensors compute, if it was asked for; see `boundary_of`.

    Raises:
        ValueError: an environment that names no agents beforehand, the same environment twice, or one whose agents act
            in turn.
        SpecError: agents with different spaces.

    >>> from headrace.testing.agents import CounterAgents
    >>> stepper = ParallelStepper([CounterAgents([1, 2])])
    >>> rows = new_columns(stepper.observation_signature, 2)
    >>> stepper.reset(rows)
    >>> step = stepper.step({"action": np.array([0, 0])}, rows)
    >>> step.ended, step.waiting, step.over
    (array([0]), array([], dtype=int64), array([], dtype=int64))
    >>> step = stepper.step({"action": np.array([0, 0])}, rows)
    >>> step.ended, step.waiting, step.over, rows["observation"].tolist()
    (array([1]), array([0]), array([0, 1]), [[0, 0, 1], [1, 0, 2]])
    """

    autoreset = Autoreset.DISABLED
    lanes_may_wait = True

    def __init__(
        self,
        envs: Sequence[Any],
        info_columns: Mapping[str, ArraySpec] | None = None,
        device: str | None = None,
    ) -> None:
        check_distinct(envs)
        self.environments = tuple(envs)
        self._agents = _agents_of(envs)
        self.num_envs = len(envs) * len(self._agents)
        self.resets_by_mask = len(self._agents) == 1
        self.observation_space, self.action_space = spaces_of(envs[0], self._agents[0])
        for i, env in enumerate(envs):
            self._check_spaces(i, env)
        self._columns = EnvironmentColumns(self.observation_space, self.action_space, info_columns)
        self.observation_signature = self._columns.observed
        self.action_signature = self._columns.acted
        self._result = StepResult.empty(self.num_envs)
        self._zeros = new_columns(self.observation_signature, 1)
        # The observations of the step before, in the caller's arrays.
        self._row: Columns = {}
        self._plays = np.zeros(self.num_envs, np.bool_)
        self._is_done = np.zeros(self.num_envs, np.bool_)
        self._unchecked = set(range(len(envs)))
        self._device = device
        # Of environments that return torch tensors, by index.
        self._boundaries: dict[int, TensorBoundary] = {}
        self._steps = [0] * len(envs)
        self._closed = False

    def _check_spaces(self, i: int, env: Any) -> None:
        for agent in self._agents:
            for name, wanted, got in zip(
                ("observation_space", "action_space"),
                (self.observation_space, self.action_space),
                spaces_of(env, agent),
                strict=True,
            ):
                if wanted != got:
                    raise SpecError(
                        f"environment {i}: agent {agent!r}: {name}: expected {wanted}, as agent {self._agents[0]!r} of "
                        f"environment 0 has, got {got}; a batch has one lane for each agent. hr.RolloutWorker takes "
                        "agents with different spaces"
                    )

    # ---- resets ----------------------------------------------------------------------------------------------------

    def reset(self, out: Columns, *, envs: Indices | None = None, seeds: Sequence[int] | None = None) -> None:
        """Resets environments; see `VectorStepper.reset`.

        Raises:
            ValueError: some lanes of an environment only: its agents begin together.
        """
        for i in self._environments_of(envs, "envs"):
            seed = None if seeds is None else int(seeds[i * len(self._agents)])
            self._reset_one(i, out, seed)
        self._row = out

    def _environments_of(self, lanes: Indices | None, name: str) -> list[int]:
        """Returns the environments whose lanes these are; None: all. `name` is that of the argument."""
        if lanes is None:
            return list(range(len(self.environments)))
        agents = len(self._agents)
        chosen: list[int] = np.unique(lanes // agents).tolist()
        if lanes.size < len(chosen) * agents:
            raise ValueError(
                f"{name}: expected all lanes of an environment or none, got {lanes.tolist()}, with {agents} agents "
                "each: the agents of an environment are reset and stepped together"
            )
        return chosen

    def _reset_one(self, i: int, out: Columns, seed: int | None) -> None:
        try:
            observations, infos = reset_agents(self.environments[i], i, seed)
        except Exception as error:
            error.add_note(f"raised by reset of environment {i}")
            raise
        if i in self._unchecked and (found := boundary_of(dict(observations), self._device)) is not None:
            self._boundaries[i] = found
        if (boundary := self._boundaries.get(i)) is not None:
            observations, infos = boundary.arrays((dict(observations), self._read_infos(infos)))
        lanes = self._lanes(i)
        self._plays[lanes] = self._is_done[lanes] = False
        self._steps[i] = 0
        for name, column in out.items():
            column[lanes] = self._zeros[name]
        self._see(i, observations, infos, out, AT_RESET)

    def _read_infos(self, infos: Mapping[Any, Mapping[str, Any]]) -> dict[Any, dict[str, Any]]:
        """Returns the entries of the agents' infos that are read."""
        names = self._columns.info
        return {
            agent: {name: info[name] for name in names if name in info}
            for agent, info in infos.items()
            if names
        }

    def _lanes(self, i: int) -> slice:
        return slice(i * len(self._agents), (i + 1) * len(self._agents))

    def _see(
        self, i: int, observations: Mapping[Any, Any], infos: Mapping[Any, Any], out: Columns, step: int
    ) -> None:
        """Writes the observations of agents, which play from now on unless they have ended."""
        for agent, observation in observations.items():
            lane = self._lane(i, agent)
            where = f"environment {i}: agent {agent!r}"
            if self._is_done[lane]:
                raise SpecError(
                    f"{where}: expected nothing more in this episode, which it has ended, got an observation"
                )
            if i in self._unchecked:
                try:
                    self._columns.check_observation(observation)
                except SpecError as error:
                    raise SpecError(f"{where}: {error}") from error
            self._columns.write_observation(observation, out, lane, self.num_envs, where)
            self._write_info(infos.get(agent, {}), out, lane, where, step)
            self._plays[lane] = True

    def _lane(self, i: int, agent: Any) -> int:
        try:
            return i * len(self._agents) + self._agents.index(agent)
        except ValueError:
            raise SpecError(
                f"environment {i}: expected agents of possible_agents, {self._agents}, got {agent!r}"
            ) from None

    def _write_info(self, info: Mapping[str, Any], out: Columns, lane: int, where: str, step: int) -> None:
        for name, spec in self._columns.info.items():
            if name not in info:
                raise SpecError(f"{where}: {self._columns.missing_info(name, info, step)}")
            out[name][lane] = check_array(info[name], spec, f"{where}: {name}")

    # ---- steps -----------------------------------------------------------------------------------------------------

    def step(self, actions: Columns, out: Columns, active: Indices | None = None) -> StepResult:
        """Steps the environments one after the other; see `VectorStepper.step`.

        Raises:
            ValueError: `active` has some lanes of an environment only: its agents step together.
        """
        chosen, result = self._environments_of(active, "active"), self._result
        result.reward.fill(0)
        result.terminated.fill(False)
        result.truncated.fill(False)
        acts = self._plays.copy()
        if active is not None:
            acts[np.setdiff1d(np.arange(self.num_envs), active)] = False
        result.waiting = np.flatnonzero(~acts)
        elements = list(self._columns.action_elements(actions))
        ended: list[int] = []
        over: list[int] = []
        for i in chosen:
            ended_here, is_over = self._step_one(i, elements, out)
            ended += ended_here
            if is_over:
                over += range(self.num_envs)[self._lanes(i)]
        self._row = out
        result.ended, result.over = np.array(ended, np.intp), np.array(over, np.intp)
        result.last_observation = out
        return result

    def _step_one(self, i: int, elements: Sequence[Any], out: Columns) -> tuple[list[int], bool]:
        """Steps one environment; returns the lanes that ended, and whether its episode is over."""
        env, lanes = self.environments[i], self._lanes(i)
        acting = [lane for lane in range(lanes.start, lanes.stop) if self._plays[lane]]
        given = {self._agents[lane - lanes.start]: elements[lane] for lane in acting}
        boundary = self._boundaries.get(i)
        try:
            returned = step_agents(env, i, given if boundary is None else boundary.actions(given))
        except Exception as error:
            error.add_note(
                f"raised by environment {i} at step {self._steps[i]} of its episode, actions {shown(given)}"
            )
            raise
        if boundary is not None:
            *values, infos = returned
            returned = Returned(*boundary.arrays((*map(dict, values), self._read_infos(infos))))
        self._keep(lanes, out)
        self._see(i, returned.observations, returned.infos, out, self._steps[i])
        is_over = ends_for_all(env, returned)
        ended = [lane for lane in acting if self._end(i, lane, returned, is_over=is_over)]
        self._steps[i] += 1
        self._unchecked.discard(i)
        self._plays[ended] = False
        self._is_done[ended] = True
        return ended, is_over or not self._plays[lanes].any()

    def _keep(self, lanes: slice, out: Columns) -> None:
        """Writes the observations of the step before, for agents that get none now."""
        if out is not self._row:
            for name, column in out.items():
                column[lanes] = self._row[name][lanes]

    def _end(self, i: int, lane: int, returned: Returned, *, is_over: bool) -> bool:
        """Takes in what a step says of an agent that acted; returns whether its trajectory ends."""
        agent = self._agents[lane - self._lanes(i).start]
        where, result = f"environment {i}: agent {agent!r}", self._result
        reward = returned.rewards.get(agent)
        if reward is None:
            raise SpecError(
                f"{where}: expected a reward at step {self._steps[i]}, because it acted, got none"
            )
        terminated = returned.terminations.get(agent, False)
        truncated = returned.truncations.get(agent, False)
        if i in self._unchecked:
            try:
                self._columns.check_outcome(reward, terminated, truncated)
            except SpecError as error:
                raise SpecError(f"{where}: {error}") from error
        truncated = truncated or (is_over and not terminated)
        result.reward[lane], result.terminated[lane], result.truncated[lane] = reward, terminated, truncated
        has_ended = bool(terminated or truncated)
        if not has_ended and agent not in returned.observations:
            raise SpecError(
                f"{where}: expected an observation at step {self._steps[i]}: every agent that plays acts at each step "
                "here. hr.RolloutWorker takes agents that act now and then"
            )
        return has_ended

    # ---- about -----------------------------------------------------------------------------------------------------

    def get_attr(self, name: str) -> Any:
        """Returns the attribute of the first environment, or of the one inside its wrappers."""
        found = env_attribute(self.environments[0], name)
        return getattr(self.environments[0], name) if found is None else found

    def own_state(self) -> dict[str, Any]:
        """Returns which agents play, and how long."""
        return {"plays": self._plays.copy(), "is_done": self._is_done.copy(), "steps": list(self._steps)}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Restores the environments, and which agents play; see `VectorStepper`."""
        super().load_state_dict(state)
        self._plays[:], self._is_done[:] = state["plays"], state["is_done"]
        self._steps = list(state["steps"])

    def close(self) -> None:
        """Closes all environments, even if one of them raises; the first error is raised at the end."""
        if not self._closed:
            self._closed = True
            close_all(self.environments)


def _agents_of(envs: Sequence[Any]) -> list[Any]:
    """Returns the agents, which are the same in all environments."""
    first = possible_agents(envs[0])
    for i, env in enumerate(envs):
        check_agents_act_together(env, i)
        agents = possible_agents(env)
        if not agents or agents != first:
            raise ValueError(
                f"environment {i}: possible_agents: expected {first or 'the names of all agents'}, "
                f"got {agents}"
            )
    return first
