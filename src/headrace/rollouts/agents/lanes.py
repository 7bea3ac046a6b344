"""The lanes of the policies of environments with several agents: which an agent has, and what is written there."""

# Rules: views-rollouts P2, M2 to M4, M6, M9, R16

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from headrace.envs.agents import possible_agents, spaces_of
from headrace.envs.columns import EnvironmentColumns
from headrace.errors import SpecError
from headrace.policies import Decision
from headrace.rollouts.agents.game import ActingGroup, AgentStep, Game
from headrace.rollouts.agents.waiting_steps import WaitingSteps
from headrace.rollouts.columns import BOOKKEEPING, CLOCK, NUMBER, OUTCOME, agents_of
from headrace.rollouts.lanes.others import Others
from headrace.rollouts.lanes.policy_lanes import PolicyLanes
from headrace.rollouts.pieces import AgentRun
from headrace.spec import Signature
from headrace.views import View
from headrace.views.columns import Columns
from headrace.views.other_agents import Beside
from headrace.views.promised import promised_specs, with_promised

MakeLanes = Callable[[str, EnvironmentColumns], PolicyLanes]


class AgentLanes:
    """Gives agents lanes of their policies, asks the policies to act, and writes what follows.

    The lanes of a policy are made when it is first mapped to an agent, from that agent's spaces.

    Args:
        policies: filled with the lanes by policy id.
        make_lanes: makes the lanes of a policy.
        env: tells the spaces of agents.
    """

    def __init__(self, policies: dict[str, PolicyLanes], make_lanes: MakeLanes, env: Any) -> None:
        self._policies, self._make_lanes, self._env = policies, make_lanes, env
        self._others = Others(policies)
        self._columns: dict[str, EnvironmentColumns] = {}
        self._views: Mapping[str, View] = {}
        # The columns of the agents that views name, and the policy that acts for each, if that is known.
        self._named: dict[Any, Columns] = {}
        self._policy_of: dict[Any, str] = {}
        self._waiting: dict[str, WaitingSteps] = defaultdict(WaitingSteps)
        self._is_plain = True
        # Specs of the columns of other policies that views show, after the spaces of these views.
        self._promised: dict[str, Any] = {}

    @property
    def others(self) -> Others:
        """Finds the other agents beside a piece."""
        return self._others

    @property
    def shows_others(self) -> bool:
        """Whether any view shows another agent."""
        return any(
            lanes.presenter.shows_others or lanes.presenter.acts_on_others
            for lanes in self._policies.values()
        )

    def use(self, views: Mapping[str, View], games: Sequence[Game] = ()) -> None:
        """Takes over the views of the worker and of the policies.

        Args:
            views: of the worker.
            games: with the running episodes.
        """
        self._views = dict(views)
        for policy_id, lanes in self._policies.items():
            asked = lanes.asked
            self._plan(lanes)
            if lanes.asked != asked:
                for run in (run for game in games for run in game.runs.values()):
                    if run.policy_id == policy_id and run.piece is not None:
                        lanes.write_history(run.piece)

    def add_policy(self, policy_id: str, agent_id: Any) -> None:
        """Makes the lanes of a policy, if it has none, from the spaces of an agent."""
        if policy_id not in self._policies:
            self._columns[policy_id] = EnvironmentColumns(*spaces_of(self._env, agent_id))
            lanes = self._policies[policy_id] = self._make_lanes(policy_id, self._columns[policy_id])
            self._plan(lanes)

    def begin(self, game: Game, run: AgentRun, observation: Any) -> None:
        """Takes a lane for an agent and writes its first observation."""
        self.add_policy(run.policy_id, run.agent_id)
        lanes = self._policies[run.policy_id]
        if run.agent_id in self._named:
            self._policy_of[run.agent_id] = run.policy_id
            self._named[run.agent_id] = lanes.columns
        run.lane = lanes.take_lane()
        self._append(game, run, observation, begins=True)

    def act(self, games: Sequence[Game]) -> dict[int, dict[Any, Any]]:
        """Asks each policy once for the actions of all its agents that act now.

        Returns:
            The actions by environment and agent.
        """
        acting: dict[str, list[tuple[Game, ActingGroup]]] = defaultdict(list)
        for game in games:
            for policy_id, group in game.groups().items():
                acting[policy_id].append((game, group))
        actions: dict[int, dict[Any, Any]] = {game.index: {} for game in games}
        decisions = {policy_id: self._decide(policy_id, groups) for policy_id, groups in acting.items()}
        for policy_id, groups in acting.items():
            lanes, decision = decisions[policy_id]
            self._policies[policy_id].record_actions(lanes, decision)
            elements = iter(self._columns[policy_id].action_elements(decision.actions))
            for game, group in groups:
                actions[game.index].update(zip(group.agent_ids, elements, strict=False))
        return actions

    def complete(
        self, game: Game, step: AgentStep, observation: Any, infos: Mapping[Any, Mapping[str, Any]]
    ) -> None:
        """Writes the outcome of an agent's step, and the observation after it, if there is one.

        Args:
            game: the environment.
            step: the step.
            observation: unused where the step has none after it.
            infos: by agent, as the environment returned them when the step was completed.
        """
        run = step.run
        rows = self._policies[run.policy_id].rows
        newest = rows.newest[run.lane]
        if self._policies[run.policy_id].shows_info:
            where = f"environment {game.index}: agent {run.agent_id!r}"
            self._policies[run.policy_id].record_info(run.lane, infos.get(run.agent_id, {}), where)
        rows.arrays["reward"][newest] = run.reward
        rows.arrays["terminated"][newest] = step.terminated
        rows.arrays["truncated"][newest] = step.truncated
        if step.is_observed:
            self._append(game, run, observation, begins=False)
            self.write_numbers(run, game.env_t)
        else:
            rows.append(run.lane)
        if run.piece is not None:
            self._policies[run.policy_id].completed(run.piece, is_observed=step.is_observed)

    @property
    def writes_together(self) -> bool:
        """Whether rows of several agents may be written at once: nothing wants to know of each."""
        return self._is_plain

    def complete_later(self, game: Game, rewards: Mapping[Any, Any], observations: Mapping[Any, Any]) -> None:
        """Takes note of completed steps of all agents that acted in an environment, which `flush` writes.

        Args:
            game: the environment.
            rewards, observations: by agent.

        Raises:
            SpecError: a reward that is not a number; no step of this environment is noted.
        """
        groups = game.groups()
        try:
            numbers = {
                policy_id: [*map(float, group.values_of(rewards))] for policy_id, group in groups.items()
            }
        except (TypeError, ValueError):
            for agent_id, reward in rewards.items():
                game.reward_of(agent_id, reward)
            raise
        for policy_id, group in groups.items():
            self._waiting[policy_id].add(game, group, numbers[policy_id], group.values_of(observations))

    def flush(self) -> list[tuple[Game, SpecError]]:
        """Writes the steps that wait, those of each policy at once.

        Returns:
            The environments of which an observation does not fit the space; these steps are not written.
        """
        waiting, self._waiting = self._waiting, defaultdict(WaitingSteps)
        refused: list[tuple[Game, SpecError]] = []
        for policy_id, steps in waiting.items():
            try:
                self._write_steps(policy_id, steps)
            except SpecError:
                fitting, others = steps.without_misfits(self._columns[policy_id])
                refused += others
                if fitting.groups:
                    self._write_steps(policy_id, fitting)
        return refused

    def _write_steps(self, policy_id: str, steps: WaitingSteps) -> None:
        rows = self._policies[policy_id].rows
        taken = steps.lanes()
        ends = np.zeros(len(taken), np.bool_)
        outcome = {"reward": np.array(steps.rewards, np.float32), "terminated": ends, "truncated": ends}
        columns = self._columns[policy_id].stack_observations(steps.observations, f"policy {policy_id!r}")
        env_t, clock = steps.times()
        rows.write(rows.newest[taken], outcome)
        rows.extend(taken, {**columns, "env_t": env_t, CLOCK: clock})

    def drop(self, run: AgentRun) -> None:
        """Drops the trajectory of an agent, and gives back its lane."""
        if run.piece is not None:
            self._policies[run.policy_id].dropped(run.piece)
            run.piece = None
        self.release(run)

    def write_numbers(self, run: AgentRun, env_t: int) -> None:
        """Writes the bookkeeping columns that views show into the newest row of an agent."""
        lanes = self._policies[run.policy_id]
        row = lanes.rows.newest[run.lane]
        lanes.rows.arrays["env_t"][row] = env_t
        if lanes.asked and run.piece is not None:
            t = run.piece.t + lanes.rows.place(run.lane) - run.piece.first
            numbers = {**run.piece.numbers(t), "env_t": env_t}
            for name in lanes.asked:
                lanes.rows.arrays[name][row] = numbers.get(name, 0)

    def place(self, run: AgentRun) -> int:
        """Returns the newest row of an agent, counted from the first of its lane."""
        return self._policies[run.policy_id].rows.place(run.lane)

    def release(self, run: AgentRun) -> None:
        """Gives back the lane of an agent."""
        if run.lane >= 0 and not run.is_released:
            run.is_released = True
            self._policies[run.policy_id].release_lane(run.lane)

    def forget(self, games: Sequence[Game]) -> None:
        """Forgets the rows that no view reads any more."""
        shows_others = self.shows_others
        look_back = max((lanes.presenter.look_back for lanes in self._policies.values()), default=0)
        held: dict[str, list[tuple[AgentRun, int]]] = defaultdict(list)
        for game in games:
            for run in game.runs.values():
                if run.is_released:
                    # Other agents have the lane from now on; a view of this one that is added later must not show them.
                    run.lane = -1
            runs = [run for run in game.runs.values() if run.lane >= 0]
            needed = look_back + 1 + self._longest_open(game, runs) if shows_others else look_back
            for run in runs:
                held[run.policy_id].append((run, needed))
        for policy_id, lanes in self._policies.items():
            kept = [run for run, _ in held[policy_id]]
            taken = np.array([run.lane for run in kept], np.int64)
            needs = np.array([needed for _, needed in held[policy_id]], np.int64)
            moved = lanes.rows.forget(taken, needs).tolist()
            for run in kept:
                run.begin = max(0, run.begin - moved[run.lane])
                run.stop -= moved[run.lane]
                if run.piece is not None:
                    run.piece.begin = run.begin
                    run.piece.first -= moved[run.lane]

    def _longest_open(self, game: Game, runs: Sequence[AgentRun]) -> int:
        """Returns the number of environment steps since the oldest step that is still open.

        Its row will show what the others did at that time.
        """
        # Rules: views-rollouts M4, M9
        rows = {policy_id: lanes.rows for policy_id, lanes in self._policies.items()}
        began = [
            int(rows[run.policy_id].arrays[CLOCK][rows[run.policy_id].newest[run.lane]])
            for run in runs
            if not run.is_done
        ]
        return game.clock - min(began, default=game.clock)

    def _decide(
        self, policy_id: str, groups: Sequence[tuple[Game, ActingGroup]]
    ) -> tuple[np.ndarray[Any, np.dtype[np.int64]], Decision]:
        policy = self._policies[policy_id]
        lanes = np.concatenate([group.lanes for _, group in groups])
        return lanes, policy.act(lanes, self._beside(policy, groups))

    def _beside(self, lanes: PolicyLanes, groups: Sequence[tuple[Game, ActingGroup]]) -> Beside | None:
        if not lanes.presenter.acts_on_others:
            return None
        games = [game for game, group in groups for _ in group.runs]
        clock = np.array([game.clock for game in games], np.int64)
        return self._others.beside_acting([game.runs for game in games], clock)

    def _append(self, game: Game, run: AgentRun, observation: Any, *, begins: bool) -> None:
        """Appends a row with an observation."""
        rows = self._policies[run.policy_id].rows
        row = rows.append(run.lane, begins=begins)
        rows.arrays["env_t"][row], rows.arrays[CLOCK][row] = game.env_t, game.clock
        where = f"environment {game.index}: agent {run.agent_id!r}"
        self._columns[run.policy_id].write_observation(observation, rows.arrays, row, rows.lanes, where)

    def _plan(self, lanes: PolicyLanes) -> None:
        """Plans the views of a policy, with the columns of the agents that they name."""
        views = lanes.given_views(self._views)
        of_others = {name: view for name, view in views.items() if view.agent is not None}
        self._promised = with_promised(promised_specs(of_others), self._promised)
        for others in self._policies.values():
            others.promise(self._promised)
        for name, view in of_others.items():
            for agent_id in agents_of(view):
                self._name(agent_id, name)
        lanes.use(self._views, self._named)
        self._is_plain = not any(
            each.is_keyed or each.asked or each.shows_info for each in self._policies.values()
        )

    def _name(self, agent_id: Any, view: str) -> None:
        """Looks up the columns of an agent that a view names.

        Raises:
            SpecError: the environment lists its agents, and this one is not among them.
        """
        listed = possible_agents(self._env)
        if listed and agent_id not in listed:
            known = ", ".join(map(repr, listed))
            raise SpecError(f"view {view!r}: agent: no agent {agent_id!r}; there are {known}")
        columns = self._columns_of(agent_id)
        if columns is not None:
            self._named[agent_id] = columns

    def _columns_of(self, agent_id: Any) -> Columns | None:
        """Returns the columns of an agent; None for one of which the environment has no spaces."""
        if agent_id in self._policy_of:
            return self._policies[self._policy_of[agent_id]].columns
        try:
            spaces = EnvironmentColumns(*spaces_of(self._env, agent_id))
        except (SpecError, LookupError):
            return None
        numbers = dict.fromkeys(("env_t", *BOOKKEEPING), NUMBER)
        own = {**spaces.observation.tree, **spaces.acted.tree, **OUTCOME}
        return Columns(Signature({**numbers, **self._promised, **own}), {})
