"""Collecting in this process."""

from __future__ import annotations

import logging
import threading
import weakref
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from functools import partial
from typing import Any, Unpack

import numpy as np

from headrace.checks import check_timeout
from headrace.clock import SYSTEM_CLOCK
from headrace.collectors.base import CollectorBase
from headrace.collectors.batches.batch import Batch
from headrace.collectors.batches.batch_maker import BatchMaker
from headrace.collectors.batches.episode_numbering import EpisodeNumbering
from headrace.collectors.batches.handing_out import HandOut
from headrace.collectors.batches.stored_columns import StoredColumns
from headrace.collectors.batches.view_columns import ViewColumns
from headrace.collectors.devices import Storing
from headrace.collectors.failures import collector_home
from headrace.collectors.inline.free_running import FreeRunning
from headrace.collectors.inline.replay_output import ReplayOutput
from headrace.collectors.loop.collecting import CollectingLoop
from headrace.collectors.loop.columns import warn_not_stored
from headrace.collectors.loop.hooks import CollectHooks
from headrace.collectors.loop.local_rows import LocalRows
from headrace.collectors.loop.parts import LoopParts
from headrace.collectors.loop.recording import Columns
from headrace.collectors.loop.step_counts import StepCounts
from headrace.collectors.loop.waiting import ALL_WAIT
from headrace.collectors.options import (
    CollectorArguments,
    CollectorOptions,
    shows_arguments,
    warn_of_rounding,
)
from headrace.collectors.paths import follow_path
from headrace.collectors.profiling.config import ProfileConfig
from headrace.collectors.states import check_num_envs, check_parts, check_weights, load_weights, saved_weights
from headrace.collectors.statistics import CollectorStatistics, Tally
from headrace.collectors.surface.parts import Call, Layout
from headrace.collectors.updates.inline import InlineWeights
from headrace.collectors.updates.numbering import Versions
from headrace.collectors.updates.sources import own_model
from headrace.collectors.updates.updater import WeightUpdater
from headrace.envs import environment_seeds
from headrace.envs.protocol import Indices
from headrace.errors import Closed, DeadlineExceeded, StoreFull
from headrace.replay.public import core_of

_log = logging.getLogger(__name__)


class Collector(LoopParts, FreeRunning, CollectorBase):
    """Collects batches in this process, only when asked.

    Args:
        create_env_fn: a callable that returns an environment, a ready environment, or the id of a registered one.
        policy: a callable on batched observations `[n, ...]` that returns actions `[n, ...]`, or the pair of actions
            and a dict of further columns; an object with `compute_actions(input_dict)`, which may have a memory; a
            torch module, which may return a distribution, or take a TensorDict; None for random actions.
        policy_factory: makes the policy, in the process that collects; with several workers also a list with one for
            each.
        frames_per_batch: frames of one batch; rounded up to a whole number of steps.
        total_frames: where to stop, a multiple of `frames_per_batch`; -1 goes on for ever.
        create_env_kwargs: keyword arguments of `create_env_fn`.
        max_frames_per_traj: a trajectory of this length is truncated and its environment reset.
        init_random_frames: actions are random while fewer frames were begun.
        exploration_type: how an action is taken from a torch distribution that the policy returns; `RANDOM` by default.
            While the policy is called, `hr.exploration_type()` returns it.
        reset_at_each_iter: all environments are reset before each rollout. The trajectories that are cut carry no flag.
        reset_when_done: False: an environment whose episode has ended waits, and its rows are masked, until `reset` is
            called or `reset_at_each_iter` resets it.
        set_truncated: the last transition of each environment in a rollout is marked truncated. The environment is not
            reset: its episode goes on in the next batch, with the same id.
        split_trajs: a batch is `[K, L, ...]`: one row for each piece of a trajectory, padded with zeros where `mask` is
            False.
        postproc: called on each batch, after `split_trajs`; its result is handed out. With `replay_buffer` it is called
            before the rows are written and before `split_trajs`; its result must keep the columns and shapes of the
            batch.
        replay_buffer: also write every step into this replay.
        items: rules for items. By default every transition is an item in each table, once its next observation is
            stored (`ItemRule(table, length=1, lookahead=1)`).
        device: stands for each of the three devices below that is None.
        storing_device: where batches go. None and "cpu": NumPy arrays. Otherwise the leaves are torch tensors there.
        env_device: given to a `create_env_fn` that has a parameter `device`.
        policy_device: where the policy acts. A torch module elsewhere is copied there. On a device other than the CPU
            every policy is given tensors. Devices are strings, indices of CUDA devices, or `torch.device`.
        num_envs: n, the number of single environments.
        views: maps names to views (`hr.View`), to which the `views` of the policy are added. A policy with
            `compute_actions` is fed those that show only what is known before acting, as `used_for_compute_actions`
            says. All of them with `used_for_training` are columns of the batches, `[n, T, ...]`; they look back over
            the border of batches, and ahead up to the end of the batch.
        info_columns: entries of `info` to keep as columns, with their specs, such as
            `{"action_mask": hr.ArraySpec(2, "int8")}`. Each must come with every reset and step. It stands in the row
            of the observation that it came with.
        seed: see `set_seed`.
        weight_sync_schemes: further models whose weights can be replaced: dotted paths of parts of the policy, each
            with its publishing end (`hr.weights`); None: the default one.
        track_policy_version: True or "int" shows the number of the newest weights as `policy_version`, "uuid" shows a
            UUID for it. A `hr.PolicyVersion` is shared by several collectors. Rows always carry numbers.

    Raises:
        ValueError, TypeError, KeyError: an argument that does not fit, before anything runs.
        SpecError: a replay that lacks columns.

    >>> with Collector("CartPole-v1", frames_per_batch=20, num_envs=4, seed=0) as collector:
    ...     batch = next(iter(collector))
    >>> batch.shape, batch["observation"].shape
    ((4, 5), (4, 5, 4))
    """

    @shows_arguments(CollectorOptions, CollectorArguments)
    def __init__(
        self, create_env_fn: Any, policy: Any = None, **arguments: Unpack[CollectorArguments]
    ) -> None:
        self._options = CollectorOptions.of(
            type(self).__name__, CollectorArguments, create_env_fn=create_env_fn, policy=policy, **arguments
        )
        self._home = collector_home()
        self._closed = False
        self._turns, self._is_collecting = threading.RLock(), False
        self._tally = Tally(self._options.total_frames)
        self._versions = Versions(self._options.track_policy_version, self._tally)
        # The parts do not refer to the collector, which is garbage as soon as its user forgets it.
        self._loop = CollectingLoop(self._options.task(), _weakly(self._take_weights))
        stepper = self._loop.stepper
        self._layout = Layout(
            1,
            stepper.num_envs,
            self._loop.steps * stepper.num_envs,
            stepper.autoreset,
            stepper.resets_by_mask,
        )
        try:
            self._weights = InlineWeights(self._loop.policy, self._options.model_ids, self._loop.times)
            self._updater = WeightUpdater(
                self._weights, self._versions, self._options.schemes, partial(own_model, self._options.policy)
            )
            warn_of_rounding(
                self._options.frames_per_batch, self._layout.batch_frames, self._layout.num_envs, stacklevel=2
            )
            self._prepare()
        except BaseException:
            self._loop.abandon()
            raise

    def _prepare(self) -> None:
        options, num_envs = self._options, self._loop.stepper.num_envs
        self._numbering = EpisodeNumbering(num_envs)
        self._views = ViewColumns(self._loop.views, num_envs)
        self._maker = BatchMaker(num_envs, self._numbering, self._views)
        # None: no rollout was begun since the last failure.
        self._rows: LocalRows | None = None
        self._must_reset = True
        # Steps of the rollout under way that are left; 0: none is under way.
        self._left = 0
        self._idle_since: float | None = None
        self._seeds: list[int] | None = None
        # bool[n], environments to be reset before the next rollout.
        self._to_reset = np.zeros(num_envs, np.bool_)
        self._hooks = CollectHooks()
        writes = options.replay_buffer is not None
        self._hand_out = HandOut(
            options.split_trajs, None if writes else options.postproc, Storing(options.devices())
        )
        if options.seed is not None:
            self.set_seed(options.seed)
        self._output: ReplayOutput | None = None
        self._stored: StoredColumns | None = None
        if writes and options.postproc is not None:
            self._stored = StoredColumns(options.postproc, self._loop.views)
        if writes:
            self._output = ReplayOutput(
                core_of(options.replay_buffer), num_envs, self._loop.observed, options.rules()
            )

    # ---- batches ---------------------------------------------------------------------------------------------------

    def next(self, timeout: float | None = None) -> Batch | None:
        """Collects one batch and returns it; None when `total_frames` were handed out.

        Args:
            timeout: seconds, looked at after each step and while another thread collects; None: no limit.

        Raises:
            DeadlineExceeded: the batch was not complete in time; the next call goes on with its rollout.
            Closed: after `shutdown`.
            RuntimeError: with `reset_when_done=False` every environment waits for a reset.
            Exception: raised by the environment, the policy or a hook, and StoreFull of a replay. The rollout under way
                is lost; the next call resets all environments. Raised by `postproc`: the batch is lost, and counts as
                handed out; with a replay as above.
        """
        seconds = check_timeout(timeout)
        until = None if seconds is None else SYSTEM_CLOCK.monotonic() + seconds
        with self._between_batches(seconds):
            self._check_iterates()
            return self._next(until)

    @contextmanager
    def _between_batches(self, timeout: float | None = None) -> Iterator[None]:
        """Waits until no other thread collects, and keeps others from it meanwhile.

        Raises:
            DeadlineExceeded: another thread collects for longer than `timeout`.
        """
        if self._run is not None and self._run.is_current_thread:
            raise RuntimeError(
                "the collector was called by its policy, an environment or a hook, in the middle of a step"
            )
        with self._turn(timeout), self._standing_still(at_rollout_end=True):
            self._check_usable()
            if self._is_collecting:
                raise RuntimeError(
                    "the collector was called by its policy, an environment or a hook, in the middle of a step"
                )
            self._is_collecting = True
            try:
                yield
            finally:
                self._is_collecting = False

    @contextmanager
    def _turn(self, timeout: float | None) -> Iterator[None]:
        if not self._turns.acquire(timeout=-1 if timeout is None else min(timeout, threading.TIMEOUT_MAX)):
            raise DeadlineExceeded(f"next: waited {timeout:g} s for another thread that collects a batch")
        try:
            yield
        finally:
            self._turns.release()

    def _next(self, until: float | None) -> Batch | None:
        if self._tally.is_complete():
            self._end_trajectories()
            return None
        if self._idle_since is not None:
            self._loop.times.note("wait", self._idle_since)
            self._idle_since = None
        with self._weights.collecting():
            rows = self._rollout()
            self._must_reset = True  # Until the batch is complete: Ctrl-C may come anywhere.
            try:
                is_complete = self._step_until(until)
                if is_complete:
                    batch, counts = self._complete(rows)
                    self._tally.add(counts, 1)
                    self._left = 0
            except BaseException:
                self._drop_rollout()
                raise
        self._must_reset = self._seeds is not None  # The policy may have called `set_seed` meanwhile.
        if not is_complete:
            self._idle_since = self._loop.times.clock()
            raise DeadlineExceeded(
                f"next: {self._left} of {self._loop.steps} steps of the rollout are left; the next call goes on with it"
            )
        if self._tally.is_complete():
            with suppress(StoreFull):  # The batch is complete; the next call tries again, and raises.
                self._end_trajectories()
        self._idle_since = self._loop.times.clock()
        handed_out: Batch = self._hand_out(batch)  # Of another type if `postproc` makes it one.
        return handed_out

    def _rollout(self) -> LocalRows:
        """Returns where the rows of the rollout under way are; begins one if there is none, or all are to be reset."""
        if self._must_reset:
            self._drop_rollout()
        if self._left and self._rows is not None:
            return self._rows
        rows = self._begin_rollout()
        self._left = self._loop.steps
        return rows

    def _drop_rollout(self) -> None:
        """Discards the rollout under way, if there is one."""
        if self._left:
            self._left = 0
            self._tally.frames_discarded += self._loop.frames

    def _step_until(self, until: float | None) -> bool:
        """Takes the steps of the rollout under way, but only one after this time; returns whether they are complete."""
        for left in range(self._left - 1, -1, -1):
            self._loop.step()
            if until is not None and left and SYSTEM_CLOCK.monotonic() >= until:
                self._left = left
                return False
        return True

    def _complete(self, rows: LocalRows) -> tuple[Batch, StepCounts]:
        """Writes the last steps of a rollout into the replay; returns its batch, and counts of these steps."""
        loop = self._loop
        is_open = loop.writer.is_open
        commit, counts = loop.report()
        begin = loop.times.clock()
        batch = rows.finish(commit)
        loop.times.note("write", begin)
        self._hooks.after(batch)
        if self._output is not None:
            begin = loop.times.clock()
            steps = rows.steps_of(commit, loop.steps - commit.steps)
            following: Columns = {name: row.copy() for name, row in loop.row.items()}
            if self._stored is not None:
                batch, steps, following = self._stored.of(batch, steps, following)
            self._output.write(steps, is_open, following)
            loop.times.note("write", begin)
        loop.end()
        self._tally.add_seconds(loop.times.take())
        return batch, counts

    def _check_usable(self) -> None:
        self._home.check()
        if self._closed:
            raise Closed("the collector is shut down")
        self._raise_failure()

    def _end_trajectories(self) -> None:
        """Stores the final rows of the open trajectories, as no step will follow."""
        if self._output is not None:
            self._output.cut()

    def _begin_rollout(self) -> LocalRows:
        loop = self._loop
        try:
            self._hooks.before()
        except BaseException:
            self._must_reset = True
            raise
        self._reset_as_asked()
        try:
            at_random = loop.frames_begun < self._options.random_frames
            has_learned = not at_random and loop.learn_columns()
            if has_learned and loop.not_stored:
                warn_not_stored(loop.not_stored, stacklevel=4)
            if has_learned or self._rows is None:
                self._rows = LocalRows(loop, self._maker, self._rows)
        except BaseException:
            self._must_reset = True
            raise
        loop.begin(at_random=at_random)
        return self._rows

    def _reset_as_asked(self) -> None:
        """Resets the environments that are to be reset before the next rollout."""
        loop = self._loop
        if self._must_reset:
            self._restart()
        elif loop.must_reset or self._to_reset.all():
            self._begin_anew(None)
        elif self._to_reset.any():
            self._begin_anew(np.flatnonzero(self._to_reset))
        elif loop.all_wait:
            raise RuntimeError(ALL_WAIT)

    def _restart(self) -> None:
        """Resets all environments: at the start, after a failure and after `set_seed`."""
        # Rules: collectors CX1
        self._rows = None
        if self._output is not None:
            self._output.cut()
        self._to_reset[:] = False
        self._loop.restart(self._seeds)
        self._must_reset, self._seeds = False, None

    def _begin_anew(self, envs: Indices | None) -> None:
        """Ends the trajectories of environments (None: of all) after their last steps, and resets them."""
        # Rules: collectors CR6, CQ2
        loop, rows = self._loop, self._rows
        if self._output is not None:
            self._output.cut(envs)
        self._must_reset = True  # Until all are reset.
        self._to_reset[:] = False  # Another thread may ask for the next reset meanwhile.
        if rows is None:  # A state was loaded.
            self._numbering.end(envs)
        loop.cut(envs)
        if rows is not None and loop.writer.has_news:
            rows.cut(loop.report()[0])
        loop.reset(None, envs)
        self._must_reset = False

    def _reset_envs(self, envs: Indices | None) -> None:
        self._to_reset[slice(None) if envs is None else envs] = True

    # ---- state -----------------------------------------------------------------------------------------------------

    def state_dict(self) -> dict[str, Any]:  # noqa: D102 - see the base
        with self._between_batches():
            if self._must_reset:
                self._drop_rollout()
                self._restart()
            if self._left:
                raise RuntimeError(
                    "state_dict: next(timeout) has left a rollout that is not complete; call next() first"
                )
            return {
                "loop": self._loop.state_dict(),
                "numbering": self._numbering.state_dict(),
                "views": self._views.state_dict(),
                "tally": self._tally.state_dict(),
                "versions": self._updater.state(),
                "to_reset": self._to_reset.copy(),
                "weights": saved_weights(self.policy),
            }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:  # noqa: D102 - see the base
        with self._between_batches():
            if self._run is not None:
                raise RuntimeError("load_state_dict: expected a collector that was not started")
            check_parts(state, ("loop", "numbering", "views", "tally", "versions", "to_reset", "weights"))
            loop = state["loop"]
            check_num_envs(loop, self._loop.stepper.num_envs)
            check_weights(self.policy, state["weights"])
            self._drop_rollout()
            self._must_reset = True  # Until all is restored: Ctrl-C may come anywhere.
            self._rows = None
            if self._output is not None:
                self._output.cut()
            load_weights(self.policy, state["weights"])
            continues = self._loop.load_state_dict(loop)
            self._numbering.load_state_dict(state["numbering"], loop["is_open"] & continues)
            self._views.load_state_dict(state["views"])
            self._tally.load_state_dict(state["tally"])
            self._updater.load_state(state["versions"])
            self._to_reset[:] = state["to_reset"]
            self._seeds, self._must_reset = None, not continues

    # ---- weights and seeds -----------------------------------------------------------------------------------------

    def _take_weights(self) -> int:
        """Takes over new weights before a step; returns the number of those that act."""
        if self._updater.receivers.have_news:
            self._updater.receive()
        return self._weights.take_over()

    def set_seed(self, seed: int, static_seed: bool = False) -> int:
        """Seeds environment k with `seed + k`, or all with `seed`. The next batch begins with a reset of all.

        Returns:
            The seed of the last environment.
        """
        # Rules: collectors CS1, CS2
        self._home.check()
        self._seeds = environment_seeds(seed, self._loop.stepper.num_envs, static_seed=static_seed)
        self._must_reset = True
        return self._seeds[-1]

    # ---- about -----------------------------------------------------------------------------------------------------

    def _call_each(self, path: str, calls: Sequence[Call]) -> list[Any]:
        self._check_usable()
        with self._standing_still():
            return [follow_path(self, path)(*args, **kwargs) for args, kwargs in calls]

    @property
    def _has_begun(self) -> bool:
        return self._loop.has_begun

    def _profiled(self, workers: Sequence[int] | None) -> Sequence[int]:  # noqa: ARG002 - there is one place
        return (0,)

    def _is_recorded(self, config: ProfileConfig) -> bool:  # noqa: ARG002 - the loop knows
        return self._loop.profile is None

    def statistics(self) -> CollectorStatistics:
        """Returns a frozen record of the counters."""
        self._home.check()
        run = self._run
        running = run is not None and not run.has_ended
        return self._tally.record(running=running, paused=running and run is not None and run.is_paused)

    def shutdown(
        self,
        timeout: float | None = None,
        close_env: bool = True,
        raise_on_error: bool = True,
    ) -> None:
        """Ends the open trajectories in the replay and closes the environments.

        Each open trajectory gets a final row with its newest observation, so its last transitions become items too.
        Items that wait for a rate limiter stay queued in their tables. Further calls do nothing.

        Args:
            timeout: seconds for the end of a step of free running, 10 by default.
            close_env: False leaves the environments open.
            raise_on_error: False logs a StoreFull, and the failure of free running.

        Raises:
            DeadlineExceeded: a step of free running did not end in time; the collector is not shut down.
            StoreFull: no free page for the final rows; after all is released.
            Exception: the failure of free running that no call has raised; after all is released.
        """
        if self._closed or self._home.is_elsewhere:
            return
        self._end_run(timeout)
        self._closed = True
        self._drop_rollout()
        self._loop.end_profile()
        try:
            if self._output is not None:
                self._output.close()
        except StoreFull as error:
            if raise_on_error:
                raise
            _log.error("shutdown: the final rows of open trajectories are missing: %s", str(error))
        finally:
            if close_env:
                self._loop.stepper.close()
        if raise_on_error:
            self._raise_failure()
        self._failure = None  # It was logged when it came.

    def __repr__(self) -> str:
        return f"<Collector of {self._loop.stepper.num_envs} environments, {self._tally.frames} frames>"


def _weakly(method: Callable[[], int]) -> Callable[[], int]:
    """Returns a function that calls a bound method, and does not keep its object alive."""
    weak = weakref.WeakMethod(method)

    def call() -> int:
        bound = weak()
        assert bound is not None
        return bound()

    return call
