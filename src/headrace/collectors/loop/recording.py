"""One step of n environments: the policy acts, the environments step, and the transition is recorded."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import cython
import numpy as np
from numpy.typing import NDArray

from headrace.collectors.loop.actor import Actor
from headrace.collectors.loop.step_monitor import StepMonitor
from headrace.collectors.loop.times import LoopTimes
from headrace.ends import Autoreset
from headrace.envs.protocol import NO_ENVS, Indices, StepResult, VectorStepper
from headrace.envs.random_actions import RandomActions
from headrace.leases.writing.page_steps import PageSteps
from headrace.spec import ArraySpec

if not cython.compiled:
    from headrace.kernels.kinds import Bool, Int

Columns = Mapping[str, NDArray[Any]]
NO_COLUMNS: Columns = {}
RANDOM_VERSION = -1


class RecordingStepper:
    """Steps n environments with a policy and records every transition once.

    Compiled, as the steps of a page are that it writes to (`PageSteps`): frames drive the interpreter's data out of the
    caches, and in Python a step of eight frames took 0.3 to 0.5 us longer.

    Args:
        stepper: the environments.
        actor: the policy; None acts at random.
        max_frames_per_traj: the transition that makes a trajectory this long is marked truncated and its environment is
            reset; None, 0 and negative numbers set no limit.
        set_truncated: marks the last transition of each environment in a rollout truncated.
        refresh: called before each step; returns the version of the weights that act.
        times: takes the seconds that steps and resets need.

    Attributes:
        taken: number of transitions that were recorded.
        acts_ahead: whether environments may act for rows of the next rollout before it is begun.
        going_on: environments whose last transition is marked truncated although their episode goes on.

    Raises:
        ValueError: a limit with a vector environment that cannot be reset by mask.
    """

    # Rules: collectors CR5, CR8, CR12, CW4

    acts_ahead = False

    def __init__(
        self,
        stepper: VectorStepper,
        actor: Actor | None,
        *,
        max_frames_per_traj: int | None,
        set_truncated: bool,
        refresh: Callable[[], int],
        times: LoopTimes,
    ) -> None:
        self._limit = max(0, max_frames_per_traj or 0)
        if self._limit and not (stepper.resets_by_mask or stepper.lanes_may_wait):
            raise ValueError(
                "max_frames_per_traj: this vector environment resets itself and cannot be reset by mask; give single "
                "environments, or one with autoreset disabled"
            )
        self.taken = 0
        self._set_truncated = set_truncated
        self._sees_every_step = bool(self._limit) or set_truncated
        # Steps that are left of the rollout under way; counted with `set_truncated` alone.
        self._left = 0
        self.going_on: Indices = NO_ENVS
        self._times = times
        self._stepper = stepper
        self._num_envs = stepper.num_envs
        self._random = RandomActions(stepper.action_space, stepper.num_envs)
        # The environments that take part in the next step; None: all.
        self._active: Indices | None = None
        self._actor = actor
        self._remembers = self._actor is not None and self._actor.remembers
        self._lengths = np.zeros(stepper.num_envs, np.int64)
        self._refresh = refresh
        self._first: tuple[Columns, Columns, int] | None = None

    def reset(self, row: Columns, seeds: Sequence[int] | None = None, envs: Indices | None = None) -> None:
        """Resets environments (None: all) and writes their first observations into their part of `row`."""
        if seeds is not None:
            self._random.seed(seeds)
        self._first = None
        if self._actor is not None:
            self._actor.reset(envs)
        begin = self._times.clock()
        self._stepper.reset(row, envs=envs, seeds=seeds)
        self._times.note("env", begin, "env_reset")
        self._lengths[slice(None) if envs is None else envs] = 0

    def begin(self, steps: int) -> None:
        """Begins a rollout of this number of steps."""
        self._left = steps
        self.going_on = NO_ENVS

    def end_within(self, left: int) -> int:
        """Shortens the rollout under way; see `CollectingLoop.end_within`."""
        needed = 1
        if self._set_truncated and self._stepper.autoreset is Autoreset.NEXT_STEP:
            needed = 2  # An environment whose reset takes the last step is marked one step before.
        self._left = min(left, needed)
        return self._left

    @property
    def all_wait(self) -> bool:
        """Whether no environment takes a step before a reset."""
        return False

    def state_dict(self) -> dict[str, Any]:
        """Returns the random actions to come, the lengths of the trajectories, and what the policy remembers."""
        return {
            "random": self._random.state_dict(),
            "lengths": self._lengths.copy(),
            "policy": None if self._actor is None else self._actor.state_dict(),
        }

    def load_random(self, state: Mapping[str, Any]) -> None:
        """Restores the random actions alone; `reset` follows, without seeds."""
        self._random.load_state_dict(state["random"])

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Goes on after a state of the same environments and of a policy of the same form, after `reset`."""
        self.load_random(state)
        self._lengths[:] = state["lengths"]
        if self._actor is not None and state["policy"] is not None:
            self._actor.load_state_dict(state["policy"])

    def probe(self, row: Columns) -> Mapping[str, ArraySpec]:
        """Returns the further columns of the policy. It is called for the first step, which uses its result."""
        if self._actor is None:
            return {}
        begin = self._times.clock()
        self._first = self._ask(self._actor, row, self._refresh())
        self._times.policy += self._times.clock() - begin
        return self._actor.extras

    def take_steps(self, writer: PageSteps, at_random: Bool, most: Int, monitor: StepMonitor) -> Int:
        """Takes steps until `most` are taken, messages have arrived, a report is due, or the next one may wait.

        While a step waits for a page, its worker answers questions; so the caller is to know all steps before it
        (test_a_state_of_a_worker_that_waits_for_a_page).

        Args:
            writer: takes the steps.
            at_random: whether their actions are random; the policy is not called.
            most: at least 1.
            monitor: notes each step, and looks for messages.

        Returns:
            The number of steps.
        """
        count = 0
        while count < most:
            self.step(writer, at_random)
            count += 1
            if monitor.step_taken(self.taken) or writer.may_wait or writer.must_report:
                break
        return count

    def step(self, writer: PageSteps, at_random: Bool) -> None:
        """Takes and records one step of all environments."""
        stepper, times = self._stepper, self._times
        clock = times.clock
        # Only a policy reads the row.
        row = NO_COLUMNS if self._actor is None else writer.row
        next_row = writer.next_row
        begin = clock()
        actions: Columns
        extras: Columns = NO_COLUMNS
        if at_random or self._actor is None:
            actions, version = self._random.draw(self._active), RANDOM_VERSION
        else:
            actions, extras, version = self._act(self._actor, row)
        acted = clock()
        result = self._step_envs(actions, next_row)
        stepped = clock()
        finals = resets = NO_ENVS
        if self._sees_every_step or len(result.ended):
            finals, resets = self._sort_ends(result, next_row)
        values = dict(actions)
        values.update(extras)
        values["reward"] = result.reward
        values["terminated"] = result.terminated
        values["truncated"] = result.truncated
        reset_steps, waiting = result.reset_steps, result.waiting
        writer.record(values, version, reset_steps, finals, result.last_observation)
        self.taken += self._num_envs - len(reset_steps) - len(waiting)
        if len(waiting):
            writer.mark_idle(waiting)
        if self._remembers and self._actor is not None:
            restarted = np.concatenate([finals, reset_steps, waiting])
            self._actor.follow(row, values, version, restarted)
        begun = written = clock()
        if len(resets):
            stepper.reset(next_row, envs=resets)
            begun = clock()
        times.note_step(begin, acted, stepped, written, begun)

    def _step_envs(self, actions: Columns, next_row: Columns) -> StepResult:
        return self._stepper.step(actions, next_row)

    def _act(self, actor: Actor, row: Columns) -> tuple[Columns, Columns, int]:
        version = self._refresh()
        if self._first is not None:
            first, self._first = self._first, None
            if first[2] == version:
                return first
        return self._ask(actor, row, version)

    @staticmethod
    def _ask(
        actor: Actor, row: Columns, version: int, lanes: Indices | None = None
    ) -> tuple[Columns, Columns, int]:
        try:
            return (*actor(row, version, lanes), version)
        except Exception as error:
            error.add_note(f"raised by the policy (weights of version {version})")
            raise

    def _sort_ends(self, result: StepResult, next_row: Columns) -> tuple[Indices, Indices]:
        """Returns the environments whose last observations are to be kept now, and those that are to be reset now.

        An environment that the limit cuts is reset by mask, in every mode of autoreset.
        """
        cut = self._cut_long(result) if self._limit else NO_ENVS
        ended = result.ended
        if self._set_truncated:
            self._mark_last(result, cut)
        match self._stepper.autoreset:
            case Autoreset.DISABLED:
                return ended, ended
            case Autoreset.NEXT_STEP:
                return cut, cut  # At an end of its own the next step is the reset, and its row the final one.
            case Autoreset.SAME_STEP:
                if cut.size:
                    for name, column in result.last_observation.items():
                        column[cut] = next_row[name][cut]
                return ended, cut

    def _cut_long(self, result: StepResult) -> Indices:
        """Marks trajectories that have reached the limit; returns those of them that the environment would continue."""
        lengths = self._lengths
        lengths += 1
        lengths[result.reset_steps] = 0
        cut: Indices = NO_ENVS
        long = lengths >= self._limit
        if long.any():
            cut = np.flatnonzero(long & ~(result.terminated | result.truncated))
            result.truncated |= long
            result.ended = np.flatnonzero(result.terminated | result.truncated)
        lengths[result.ended] = 0
        return cut

    def _mark_last(self, result: StepResult, cut: Indices) -> None:
        """Marks the transitions truncated that are the last ones of their environments in the rollout.

        Args:
            result: of the step.
            cut: environments that the limit cuts, which are reset at once.
        """
        self._left -= 1
        if self._left == 0:
            took = np.ones(self._num_envs, np.bool_)
            took[result.reset_steps] = took[result.waiting] = False
            self._truncate(result, took)
        elif self._left == 1 and self._stepper.autoreset is Autoreset.NEXT_STEP:
            # The reset takes the last step of the rollout, whose row is masked.
            result.truncated[np.setdiff1d(result.ended, cut)] = True

    def _truncate(self, result: StepResult, took: NDArray[np.bool_]) -> None:
        """Marks these transitions, the last ones of the rollout."""
        going_on = took.copy()
        going_on[result.ended] = False
        self.going_on = np.flatnonzero(going_on)
        result.truncated |= took
