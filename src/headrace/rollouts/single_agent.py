"""Collects from environments with one agent, all of them stepped together."""

# Rules: views-rollouts R2, R3, R6, R12, R14, H1, H2

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from headrace.batches.sample_batch import SampleBatch
from headrace.envs.columns import new_columns
from headrace.envs.protocol import StepResult
from headrace.policies import Decision
from headrace.rollouts.agents.one_agent import AGENT
from headrace.rollouts.callbacks import Calls
from headrace.rollouts.fragments import Fragments
from headrace.rollouts.lanes.policy_lanes import PolicyLanes
from headrace.rollouts.lanes.rows import Lanes
from headrace.rollouts.pieces import Piece
from headrace.rollouts.samplers import StopFlag
from headrace.rollouts.settings import Settings
from headrace.views import View

if TYPE_CHECKING:
    from headrace.envs.adapters.gymnasium_single import SingleEnvStepper

Columns = Mapping[str, NDArray[Any]]


class SingleAgentLoop:
    """Steps n environments with one policy; lane i holds the rows of environment i.

    Args:
        settings: of the worker.
        stepper: the environments.
        lanes: of the policy.
        fragments: the pieces.
        calls: the callbacks.
        stop: ends `collect` early.
        follows_episodes: whether anything is given episodes, so that their rewards must be added up.
    """

    def __init__(
        self,
        settings: Settings,
        stepper: SingleEnvStepper,
        lanes: PolicyLanes,
        fragments: Fragments,
        calls: Calls,
        stop: StopFlag,
        *,
        follows_episodes: bool,
    ) -> None:
        self._settings, self._stepper, self._lanes = settings, stepper, lanes
        self._fragments, self._calls, self._follows_episodes = fragments, calls, follows_episodes
        self._stop = stop
        n = settings.num_envs
        self._all = lanes.rows.all_lanes
        # The running episode of each environment; environments that are to be reset before their next step have none.
        self._pieces: dict[int, Piece] = {}
        self._never_reset = set(range(n))
        # Steps, or episodes, that each environment has still to bring for the present batch.
        self._left = np.full(n, settings.fragment_units, np.int64)
        # Steps that all environments took together, which are not subtracted yet.
        self._together = 0

    def collect(self, views: Mapping[str, View]) -> SampleBatch:
        """Returns the next fragment.

        Args:
            views: of the worker.
        """
        settings = self._settings
        asked = self._lanes.asked
        self._lanes.use(views)
        if self._lanes.asked != asked:
            for piece in self._pieces.values():
                self._lanes.write_history(piece)
        self._stepper.on_info = self._record_info if self._lanes.shows_info else None
        while (lanes := self._taking_part()).size:
            # The same environments take part until one has all its steps, or its episode.
            for _ in range(1 if settings.takes_whole_episodes else int(self._left[lanes].min())):
                self._step(lanes)
        return self._cut()

    def _step(self, lanes: Lanes) -> None:
        self._stop.check()
        if len(self._pieces) < self._all.size:
            for i in lanes.tolist():
                if i not in self._pieces:
                    self._reset(i)
        decision, rows = self._lanes.act(lanes), self._lanes.rows
        following, active = rows.next_rows().tolist(), None if self._are_all(lanes) else lanes
        try:
            result = self._stepper.step(self._actions(decision, lanes), rows.arrays, active, following)
        except BaseException:
            self._record_until_failure(lanes, decision)
            raise
        self._record(lanes, decision, result)

    def _record_info(self, i: int, info: Mapping[str, Any]) -> None:
        self._lanes.record_info(i, info, f"environment {i}")

    def _taking_part(self) -> Lanes:
        """Returns the environments that have still to bring something."""
        self._left -= self._together
        self._together = 0
        lanes = self._left.nonzero()[0]
        return self._all if len(lanes) == self._all.size else lanes

    def _are_all(self, lanes: Lanes) -> bool:
        return lanes is self._all

    def _actions(self, decision: Decision, lanes: Lanes) -> Columns:
        """Returns the actions as columns of all environments."""
        if self._are_all(lanes):
            return decision.actions
        actions = new_columns(self._stepper.action_signature, self._all.size)
        for name, column in decision.actions.items():
            actions[name][lanes] = column
        return actions

    def _record_until_failure(self, lanes: Lanes, decision: Decision) -> None:
        """Records the environments that were stepped before one raised, and drops the episode of that one."""
        failed = self._stepper.failed
        before = lanes < failed
        taken = Decision(
            {name: column[before] for name, column in decision.actions.items()},
            [state[before] for state in decision.state_outs],
            {name: column[before] for name, column in decision.extras.items()},
        )
        piece = self._pieces.pop(failed)
        self._lanes.dropped(piece)
        if not self._settings.takes_whole_episodes:
            self._left[failed] += self._lanes.rows.place(failed) - piece.first
        if before.any():
            self._record(lanes[before], taken, self._stepper.result)

    def _record(self, lanes: Lanes, decision: Decision, result: StepResult) -> None:
        """Writes a step of some environments, and handles the episodes that end with it."""
        ended: list[int] = result.ended.tolist()
        continued: list[int] = []
        if self._settings.horizon is not None:
            ended, continued = self._at_horizon(lanes, result)
        self._write(lanes, decision, result)
        if not self._settings.takes_whole_episodes:
            if self._are_all(lanes):
                self._together += 1
            else:
                self._left[lanes] -= 1
        over: list[Piece] = []
        if ended or continued:
            over = [*map(self._close, ended), *map(self._continue, continued)]
        if self._follows_episodes:
            self._tell_step(lanes, result, over)
        if over:
            self._tell_ends(over)

    def _at_horizon(self, lanes: Lanes, result: StepResult) -> tuple[list[int], list[int]]:
        """Returns the environments that are to be reset, and those that go on with a new episode."""
        horizon = self._settings.horizon
        assert horizon is not None
        # The row after this step is not there yet.
        at_horizon = [i for i in lanes.tolist() if self._t(i) + 1 >= horizon]
        ended = result.ended.tolist()
        cut = [i for i in at_horizon if i not in ended]
        if self._settings.soft_horizon:
            return ended, cut
        result.truncated[cut] = True
        return ended + cut, []

    def _write(self, lanes: Lanes, decision: Decision, result: StepResult) -> None:
        self._lanes.record_actions(lanes, decision)
        outcome = {
            "reward": result.reward,
            "terminated": result.terminated,
            "truncated": result.truncated,
        }
        if self._settings.no_done_at_end:
            outcome["terminated"] = outcome["truncated"] = np.zeros(self._all.size, np.bool_)
        if not self._are_all(lanes):
            outcome = {name: column[lanes] for name, column in outcome.items()}
        rows = self._lanes.rows
        rows.write(rows.rows_of(lanes), outcome)
        rows.advance(lanes)
        if self._lanes.is_keyed:
            for i in lanes.tolist():
                self._lanes.completed(self._pieces[i])
        if self._lanes.asked:
            self._write_numbers(lanes)

    def _write_numbers(self, lanes: Lanes) -> None:
        """Writes the bookkeeping columns that views show into the newest rows."""
        for i in lanes.tolist():
            if piece := self._pieces.get(i):
                numbers = piece.numbers(self._t(i))
                row = self._lanes.rows.newest[i]
                for name in self._lanes.asked:
                    self._lanes.rows.arrays[name][row] = numbers.get(name, 0)

    def _t(self, i: int) -> int:
        """Returns the number of the newest row of an environment in its episode."""
        piece = self._pieces[i]
        return piece.t + self._lanes.rows.place(i) - piece.first

    def _reset(self, i: int) -> None:
        """Begins an episode in an environment."""
        settings, lane = self._settings, self._all[i : i + 1]
        seeds = None
        if settings.seed is not None and i in self._never_reset:
            seeds = range(settings.seed, settings.seed + self._all.size)
        rows = self._lanes.rows
        first = rows.next_rows().tolist()
        self._stepper.reset(rows.arrays, envs=lane, seeds=seeds, rows=first)
        self._never_reset.discard(i)
        rows.advance(lane, begins=True)
        episode = self._fragments.new_episode()
        self._pieces[i] = self._fragments.open(episode, self._lanes.policy_id, i, env_index=i, agent_id=AGENT)
        if self._lanes.asked:
            self._write_numbers(lane)
        if self._calls.start is not None:
            self._calls.start(episode=episode, env_index=i)

    def _close(self, i: int) -> Piece:
        """Ends the episode of an environment, which is to be reset."""
        piece = self._pieces.pop(i)
        self._fragments.close(piece, is_end=True)
        self._count_episode(i)
        return piece

    def _continue(self, i: int) -> Piece:
        """Ends the episode of an environment that is not reset, and begins the next one."""
        # Rules: views-rollouts H2
        piece = self._pieces[i]
        self._pieces[i] = self._fragments.into_next_episode(piece, self._fragments.new_episode())
        if self._lanes.asked:
            self._write_numbers(self._all[i : i + 1])
        self._count_episode(i)
        return piece

    def _count_episode(self, i: int) -> None:
        if self._settings.takes_whole_episodes:
            self._left[i] -= 1

    def _tell_step(self, lanes: Lanes, result: StepResult, over: list[Piece]) -> None:
        """Updates the episodes, and calls `on_episode_step`."""
        episodes = {i: piece.episode for i, piece in self._pieces.items()}
        episodes |= {piece.key.env_index: piece.episode for piece in over}
        for i in lanes.tolist():
            episodes[i].length += 1
            episodes[i].add(AGENT, result.reward[i])
        if self._calls.step is not None:
            for i in lanes.tolist():
                self._calls.step(episode=episodes[i], env_index=i)

    def _tell_ends(self, over: list[Piece]) -> None:
        for piece in over:
            i = piece.key.env_index
            try:
                self._fragments.end_episode(piece.episode)
            except BaseException:
                self._left[i] += 1 if self._settings.takes_whole_episodes else piece.stop - piece.first
                raise
            if self._calls.end is not None:
                self._calls.end(episode=piece.episode, env_index=i)
            if self._calls.start is not None and i in self._pieces:
                self._calls.start(episode=self._pieces[i].episode, env_index=i)

    def _cut(self) -> SampleBatch:
        """Returns the batch of the closed pieces, and begins the next fragment."""
        for piece in self._pieces.values():
            self._fragments.close(piece, is_end=False)
        try:
            return self._fragments.take().get(self._lanes.policy_id) or SampleBatch({})
        finally:
            self._begin_fragment()

    def _begin_fragment(self) -> None:
        self._left[:] = self._settings.fragment_units
        moved = self._lanes.rows.forget(
            np.array(sorted(self._pieces), np.int64), self._lanes.presenter.look_back
        ).tolist()
        for i, piece in self._pieces.items():
            later = self._pieces[i] = self._fragments.after(piece)
            later.begin, later.first = max(0, piece.begin - moved[i]), piece.stop - moved[i]
        if self._lanes.asked:
            self._write_numbers(self._all)
