"""The loop that collects rollouts `[n, T]`, inline and in worker processes alike."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from headrace.collectors.batches.last_rows import Marking, mark_last_rows
from headrace.collectors.batches.view_columns import check_shown, check_view_columns
from headrace.collectors.loop.actor import Actor
from headrace.collectors.loop.columns import check_columns, check_filled
from headrace.collectors.loop.episode_totals import EpisodeTotals
from headrace.collectors.loop.recording import Columns, RecordingStepper
from headrace.collectors.loop.step_counts import StepCounts, count_steps
from headrace.collectors.loop.step_monitor import StepMonitor
from headrace.collectors.loop.task import Task
from headrace.collectors.loop.times import LoopTimes
from headrace.collectors.loop.together import TogetherStepper, WaitingTogetherStepper
from headrace.collectors.loop.uneven import SHORTEST_BOUNDED, UnevenStepper
from headrace.collectors.loop.waiting import WaitingStepper
from headrace.collectors.profiling.config import ProfileConfig
from headrace.collectors.profiling.recorder import TraceRecorder
from headrace.collectors.saved.loop_state import loop_state
from headrace.envs import is_environment, new_columns
from headrace.envs.closing import ClosesLate, close_after, log_late
from headrace.envs.protocol import NO_ENVS, AsyncStepper, Indices
from headrace.envs.step_signature import step_signature
from headrace.errors import SpecError
from headrace.leases.messages import Commit
from headrace.leases.writing.page_writer import PageWriter
from headrace.policies import ExplorationType, views_of
from headrace.spec import ArraySpec, Signature
from headrace.weights import is_torch_module


class CollectingLoop:
    """Steps n environments, rollout after rollout, and writes every step into the pages of a writer.

    The caller gives the writer (`write_to`) when it knows the columns, and takes the reports.

    Args:
        task: the work.
        refresh: called before each step; returns the version of the weights that act.
        clock: returns seconds.

    Attributes:
        times: seconds spent since the last report.
        policy: the policy that acts; None: random actions.
        views: of the task and the policy.
        stepper: the environments.
        steps: T.
        observed: names of the columns of an observation.
        extras: specs of the columns that the policy adds; None before it acts for the first time.
        not_stored: names of those columns that the replay lacks.
        frames_begun: of all rollouts that were begun, masked rows included.
        profile: records rollouts for a trace; None: off.

    Raises:
        Exception: what building the policy or the environments raised.
        SpecError: the replay lacks columns; a view that cannot be shown.
        ValueError: a view for acting that looks ahead.
    """

    def __init__(
        self,
        task: Task,
        refresh: Callable[[], int],
        clock: Callable[[], float] = time.perf_counter,
        closes_late: ClosesLate = log_late,
    ) -> None:
        self._task = task
        self._closes_late = closes_late
        self.times = LoopTimes(clock)
        self.policy = task.make_policy()
        self.views = views_of(self.policy, task.views)
        check_view_columns(self.views)
        self.stepper = task.make_stepper(closes_late)
        try:
            self._prepare(refresh)
        except BaseException as error:
            self.abandon(error)
            raise

    def _prepare(self, refresh: Callable[[], int]) -> None:
        stepper, task = self.stepper, self._task
        self.steps = task.steps(stepper.num_envs)
        self._recording = self._recorder(refresh)
        self._totals = EpisodeTotals(stepper.num_envs)
        self.observed = frozenset(stepper.observation_signature.columns)
        # The observations that the first rollout begins with.
        self._first: Columns = new_columns(stepper.observation_signature, stepper.num_envs)
        self._writer: PageWriter | None = None
        # Environments whose episodes go on from a loaded state, until the first report of steps.
        self._continued = NO_ENVS
        self.extras: dict[str, ArraySpec] | None = None
        self.not_stored: list[str] = []
        self.frames_begun = self._taken_before = 0
        self._at_random = True
        # Whether all environments were reset, and have taken no step since that was reported; the seeds of that reset.
        self._is_fresh = False
        self._fresh_seeds: Sequence[int] | None = None
        self.profile: TraceRecorder | None = None
        if self.policy is None:
            check_shown(self.views, self.signature, self.observed)
        if task.replay is not None:
            check_columns(task.replay, self.signature)

    def _recorder(self, refresh: Callable[[], int]) -> RecordingStepper:
        stepper, task = self.stepper, self._task
        recorder: Callable[..., RecordingStepper] = RecordingStepper
        if not task.reset_when_done:
            recorder = WaitingTogetherStepper if stepper.lanes_may_wait else WaitingStepper
        elif isinstance(stepper, AsyncStepper):
            self._check_bound()
            recorder = partial(UnevenStepper, steps=self.steps)
        elif stepper.lanes_may_wait:
            recorder = TogetherStepper
        return recorder(
            stepper,
            None if self.policy is None else self._actor(),
            max_frames_per_traj=task.max_frames_per_traj,
            set_truncated=task.set_truncated,
            refresh=refresh,
            times=self.times,
        )

    def _check_bound(self) -> None:
        """Refuses a bound that environments which act up to one rollout ahead cannot keep."""
        # Rules: collectors CV8
        bound, envs = self._task.max_staleness, "for an EnvPool whose batch_size is below num_envs"
        if bound == 0:
            raise ValueError(
                f"max_staleness: expected at least 1 {envs}, got 0: environments that are fast act for the next "
                "rollout before the one under way is handed out"
            )
        if bound is not None and self.steps < SHORTEST_BOUNDED:
            raise ValueError(
                f"frames_per_batch: expected at least {SHORTEST_BOUNDED} steps of each environment with max_staleness "
                f"{envs}, got {self.steps}: environments could be two rollouts ahead"
            )

    @property
    def reset_together(self) -> int:
        """The number of neighbouring lanes that are reset together: agents, or all of a vector environment; else 1."""
        stepper = self.stepper
        return 1 if stepper.resets_by_mask else stepper.num_envs // len(stepper.environments)

    @property
    def marks(self) -> Marking | None:
        """Marks rows of a rollout when it is complete; None: they are marked when they are written.

        An agent that has ended takes another step of the rollout if its environment is reset before the end of the
        rollout, which depends on the other agents.
        """
        # Rules: collectors CR8
        task = self._task
        is_late = task.set_truncated and task.reset_when_done and self.stepper.lanes_may_wait
        return mark_last_rows if is_late else None

    @property
    def acts_ahead(self) -> bool:
        """Whether environments act for rows of the next rollout before it is begun."""
        return self._recording.acts_ahead

    def _actor(self) -> Actor:
        stepper, task = self.stepper, self._task
        return Actor(
            self.policy,
            stepper.observation_signature,
            stepper.action_signature,
            stepper.num_envs,
            self.views,
            exploration_type=task.exploration_type or ExplorationType.RANDOM,
            device=task.policy_device,
            newest=stepper.on_device,
        )

    def abandon(self, error: BaseException) -> None:
        """Closes the environments after an error in a constructor. A ready one stays open: its owner may try again."""
        if not is_environment(self._task.create_env_fn):
            close_after(error, {"an environment": self.stepper}, self._closes_late)

    def close_built(self) -> None:
        """Closes the environments that this loop has built; a ready one stays open."""
        if not is_environment(self._task.create_env_fn):
            self.stepper.close()

    # ---- columns and rows ------------------------------------------------------------------------------------------

    @property
    def signature(self) -> Signature:
        """The columns of a step, as far as they are known."""
        stepper = self.stepper
        return step_signature(stepper.observation_signature, stepper.action_signature, self.extras or {})

    def learn_columns(self) -> bool:
        """Asks the policy for the columns that it adds, unless they are known: it is about to act for the first time.

        Returns:
            Whether the columns of a step have become more.

        Raises:
            SpecError: columns that do not fit the replay; a view of an unknown column.
        """
        if self.extras is not None:
            return False
        extras, replay = dict(self._recording.probe(self.row)), self._task.replay
        self.extras = extras
        try:
            check_shown(self.views, self.signature, self.observed)
            if replay is not None:
                check_columns(replay, self.signature, extras)
                check_filled(replay, self.signature)
                self.not_stored = [name for name in extras if name not in replay.columns]
        except (SpecError, ValueError):
            self.extras = None
            raise
        return bool(extras)

    @property
    def writer(self) -> PageWriter:
        """The writer of the rows."""
        assert self._writer is not None
        return self._writer

    @property
    def has_writer(self) -> bool:
        """Whether steps have been written since the last `restart`, or can be."""
        return self._writer is not None

    @property
    def row(self) -> Columns:
        """The observations of the next step, columns `[n, ...]`."""
        return self._first if self._writer is None else self._writer.row

    def following(self) -> Columns:
        """Returns a copy of `row`: the observations after the last step."""
        return {name: column.copy() for name, column in self.row.items()}

    def write_to(self, writer: PageWriter) -> None:
        """Writes the next step, and all after it, with another writer. Episodes under way go on."""
        if self._writer is not None:
            writer.continue_from(self._writer)
        writer.begin(self.row)
        self._writer = writer

    # ---- resets ----------------------------------------------------------------------------------------------------

    def restart(self, seeds: Sequence[int] | None) -> None:
        """Resets all environments and forgets the writer, and with it all steps that were not reported."""
        self._writer = None
        self._begin_episodes(None)
        self._recording.reset(self._first, seeds)
        self._is_fresh, self._fresh_seeds = True, seeds

    @property
    def episode_lengths(self) -> NDArray[np.int64]:
        """int64[n], transitions so far of the episodes under way, as far as they were reported."""
        lengths: NDArray[np.int64] = self._totals.state_dict()["lengths"]
        return lengths

    @property
    def is_open(self) -> NDArray[np.bool_]:
        """bool[n], environments in an episode of which a step was taken."""
        writer = self._writer
        is_open = np.zeros(self.stepper.num_envs, np.bool_) if writer is None else writer.is_open
        is_open[self._continued] = True
        return is_open

    @property
    def must_reset(self) -> bool:
        """Whether the next rollout begins with a reset of all environments."""
        # Rules: collectors CR6
        return self._task.reset_at_each_iter and not self._is_fresh

    @property
    def all_wait(self) -> bool:
        """Whether every environment has ended, and none is reset by itself."""
        # Rules: collectors CR7
        return self._recording.all_wait and not self._task.reset_at_each_iter

    def cut(self, envs: Indices | None = None) -> None:
        """Ends the episodes under way in environments (None: in all); `reset` follows.

        All steps were reported, and the report of the cut is taken before the reset.
        """
        if self._writer is not None:
            self._writer.cut(envs)
        self._begin_episodes(envs)

    def reset(self, seeds: Sequence[int] | None, envs: Indices | None = None) -> None:
        """Resets environments (None: all), after `cut`.

        All resets before a step count as one, with its seeds. So it does not matter when they arrive, or whether a
        state was taken in between.
        """
        # Rules: collectors CS2, CS5, CQ2
        if seeds is None and self._is_fresh:
            seeds = self._fresh_seeds
        self._recording.reset(self.row, seeds, envs)
        if envs is None:
            self._is_fresh, self._fresh_seeds = True, seeds

    def _begin_episodes(self, envs: Indices | None) -> None:
        """Notes that environments (None: all) begin an episode; all steps before were counted."""
        self._totals.reset(np.arange(self.stepper.num_envs) if envs is None else envs)
        self._continued = NO_ENVS if envs is None else np.setdiff1d(self._continued, envs)

    # ---- state -----------------------------------------------------------------------------------------------------

    def state_dict(self) -> dict[str, Any]:
        """Returns everything that the next step depends on, but for the weights of the policy."""
        # Rules: collectors CQ3
        num_envs = self.stepper.num_envs
        return {
            "num_envs": num_envs,
            "begun": self.frames_begun,
            "has_acted": self.extras is not None,
            "is_fresh": self._is_fresh,
            "fresh_seeds": self._fresh_seeds if self._is_fresh else None,
            "observations": self.following(),
            "is_open": self.is_open,
            "recording": self._recording.state_dict(),
            "counter": self._totals.state_dict(),
            "stepper": self.stepper.state_dict(),
        }

    def check_state(self, path: str, state: Mapping[str, Any]) -> None:
        """Raises ValueError if `load_state_dict` would refuse a state, which is this part of the whole one."""
        loop_state(self.stepper, self.following(), self._recording.state_dict())(path, state)
        self.stepper.check_environments(f"{path}/stepper", state["stepper"])

    def load_state_dict(self, state: Mapping[str, Any]) -> bool:
        """Goes on from a state: with its episodes, if it has the environments.

        Returns:
            Whether the episodes go on; if not, `restart` with the state's `fresh_seeds` follows.
        """
        self.frames_begun = state["begun"]
        if not state["has_acted"]:
            self.extras = None
        self._recording.load_random(state["recording"])
        if not self.stepper.can_continue(state["stepper"]):
            self.stepper.load_generators(state["stepper"])
            return False
        self.restart(None)
        self.stepper.load_state_dict(state["stepper"])
        self._recording.load_state_dict(state["recording"])
        self._totals.load_state_dict(state["counter"])
        self._is_fresh, self._fresh_seeds = state["is_fresh"], state["fresh_seeds"]
        self._continued = np.flatnonzero(state["is_open"])
        for name, column in self._first.items():
            column[...] = state["observations"][name]
        return True

    # ---- steps -----------------------------------------------------------------------------------------------------

    def begin(self, *, at_random: bool) -> None:
        """Begins a rollout.

        Args:
            at_random: whether its actions are random; the policy is not called.
        """
        self.frames_begun += self.steps * self.stepper.num_envs
        self.resume(self.steps, at_random=at_random)

    def resume(self, steps: int, *, at_random: bool, frames: int = 0) -> None:
        """Goes on with a rollout of a loaded state.

        Args:
            steps: that are still to be taken.
            frames: real transitions that were taken before.
            at_random: see `begin`.
        """
        self._at_random = at_random
        self._taken_before = self._recording.taken - frames
        self._recording.begin(steps)
        if self.profile is not None:
            self.profile.begin_rollout()
            self.times.recorder = self.profile if self.profile.is_recording else None

    def end_within(self, left: int) -> int:
        """Shortens the rollout under way: another worker's is complete. Returns the number of steps still to be taken.

        Args:
            left: steps that were still to be taken, at least 1.
        """
        # Rules: collectors CR12
        return self._recording.end_within(left)

    def end(self) -> None:
        """Ends a rollout, all of whose steps were reported, before it is handed out.

        Raises:
            Exception: raised by the callback that takes the trace.
        """
        if self.profile is not None:
            try:
                self.profile.end_rollout()
            finally:
                if self.profile.is_complete:
                    self.end_profile()

    @property
    def has_begun(self) -> bool:
        """Whether a rollout was begun since the loop was made."""
        return self.frames_begun > 0

    def begin_profile(self, config: ProfileConfig, worker_idx: int) -> None:
        """Records the rollouts of a profile, in place of an earlier one."""
        self.end_profile()
        stepper = self.stepper
        specs = stepper.observation_signature.columns | stepper.action_signature.columns
        shapes = {path: [stepper.num_envs, *spec.shape] for path, spec in specs.items()}
        with_torch = is_torch_module(self.policy)
        self.profile = TraceRecorder(config, worker_idx, self.times.clock, shapes, with_torch=with_torch)

    def end_profile(self) -> None:
        """Ends a profile; a recording under way is discarded."""
        profile, self.profile, self.times.recorder = self.profile, None, None
        if profile is not None:
            profile.stop()

    def step(self) -> None:
        """Takes one step in all environments."""
        try:
            self._recording.step(self.writer, self._at_random)
        except Exception as error:
            error.add_note(self._progress)
            raise

    def take_steps(self, most: int, monitor: StepMonitor) -> int:
        """Takes steps; see `RecordingStepper.take_steps`."""
        try:
            return self._recording.take_steps(self.writer, self._at_random, most, monitor)
        except Exception as error:
            error.add_note(self._progress)
            raise

    @property
    def _progress(self) -> str:
        return (
            f"raised after {self.frames} transitions of the rollout of {self.stepper.num_envs} environments"
        )

    def report(self) -> tuple[Commit, StepCounts]:
        """Returns the report of the steps since the last one, and what they were."""
        begin = self.times.clock()
        counts = count_steps(self.writer, self._totals, self.stepper.num_envs, self._recording.going_on)
        commit = self.writer.report()
        if commit.steps:
            self._continued = NO_ENVS
            self._is_fresh = False
        self.times.note("write", begin)
        return commit, counts

    @property
    def taken(self) -> int:
        """Number of transitions that were recorded since the loop was made."""
        return self._recording.taken

    @property
    def frames(self) -> int:
        """Number of transitions of the rollout under way."""
        return self._recording.taken - self._taken_before

    @property
    def continued(self) -> list[int]:
        """Environments whose next step continues an episode of a loaded state; none after the first report of steps."""
        continued: list[int] = self._continued.tolist()
        return continued
