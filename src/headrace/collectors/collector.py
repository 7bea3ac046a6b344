"""Collecting in this process."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from typing import Any, Unpack

from headrace.checks import check_timeout
from headrace.clock import SYSTEM_CLOCK
from headrace.collectors.arguments import CollectorArguments
from headrace.collectors.base import CollectorBase
from headrace.collectors.batches.batch import Batch
from headrace.collectors.batches.handing_out import HandOut
from headrace.collectors.devices import Storing
from headrace.collectors.failures import collector_home
from headrace.collectors.inline.free_run import FreeRun
from headrace.collectors.inline.rollouts import InlineRollouts
from headrace.collectors.inline.step_turns import StepTurns
from headrace.collectors.loop.parts import LoopParts
from headrace.collectors.options import CollectorOptions, shows_arguments
from headrace.collectors.paths import follow_path
from headrace.collectors.profiling.config import ProfileConfig
from headrace.collectors.statistics import CollectorStatistics, Tally
from headrace.collectors.surface.parts import Call, Layout
from headrace.collectors.updates.numbering import Versions
from headrace.envs import environment_seeds
from headrace.envs.protocol import Indices
from headrace.errors import Closed, StoreFull

_log = logging.getLogger(__name__)

_STAND_SECONDS = 30.0
_STOP_SECONDS = 10.0


class Collector(LoopParts, CollectorBase):
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
        set_truncated: the last transition of each environment in a rollout, or of each agent, is marked truncated. The
            environment is not reset: its episode goes on in the next batch, with the same id.
        split_trajs: a batch is `[K, L, ...]`: one row for each piece of a trajectory, padded with zeros where `mask` is
            False.
        postproc: called on each batch, after `split_trajs`; its result is handed out. With `replay_buffer` it is called
            before the rows are written and before `split_trajs`; its result must keep the columns and shapes of the
            batch.
        replay_buffer: also write every step into this replay, of this process or of a client.
        items: rules for items. By default every transition is an item in each table, once its next observation is
            stored (`ItemRule(table, length=1, lookahead=1)`).
        device: stands for each of the three devices below that is None.
        storing_device: where batches go. None and "cpu": NumPy arrays. Otherwise the leaves are torch tensors there.
        env_device: given to a `create_env_fn`, or the class of a registered id, that has a parameter `device`.
            Environments that return torch tensors on any device other than the CPU, or with `env_device` on any, are
            given tensors there as actions.
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
        options = self._options
        self._home = collector_home()
        self._run: FreeRun | None = None
        self._has_iterated = False
        self._turns = StepTurns()
        self._tally = Tally(options.total_frames)
        self._versions = Versions(options.track_policy_version, self._tally)
        postproc = options.postproc if options.replay_buffer is None else None
        self._hand_out = HandOut(options.split_trajs, postproc, Storing(options.devices()))
        self._rollouts = rollouts = InlineRollouts(options, self._versions, self._tally, self._turns)
        self._loop, self._updater, self._hooks = rollouts.loop, rollouts.updater, rollouts.hooks
        stepper, num_envs = self._loop.stepper, self._loop.stepper.num_envs
        self._layout = Layout(
            1,
            num_envs,
            self._loop.steps * num_envs,
            stepper.autoreset,
            stepper.lanes_may_wait,
            self._loop.reset_together,
        )
        if options.seed is not None:
            self.set_seed(options.seed)

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
        self._refuse_in_step("next")
        with self._turns.collect(seconds, "next"):
            self._check_usable()
            if self._run is not None:
                raise RuntimeError(
                    "next: expected a collector that was not started; start() fills the replay by itself"
                )
            self._has_iterated = True
            batch = self._rollouts.next(until)
        if batch is None:
            return None
        rollouts = self._rollouts
        if self._hand_out.calls_user:  # The function is called once for each batch.
            rollouts.unreturned = None
        handed_out: Batch = self._hand_out(batch)  # Of another type if `postproc` makes it one.
        rollouts.unreturned = None  # No call after this: Ctrl-C comes before it.
        return handed_out

    @property
    def _is_in_step(self) -> bool:
        """Whether the caller was called by the policy, an environment or a hook."""
        run = self._run
        return self._turns.is_in_step or (run is not None and run.is_current_thread)

    def _refuse_in_step(self, caller: str) -> None:
        self._home.check()  # First, because the turn of a thread at a fork does not end in the child.
        if self._is_in_step:
            raise RuntimeError(
                f"{caller}: called by the policy, an environment or a hook, in the middle of a step"
            )

    @contextmanager
    def _between_steps(self, caller: str) -> Iterator[None]:
        """Keeps other threads from taking a step for the time of a `with` block; within a step it does nothing.

        Args:
            caller: the name of the public method, for messages.

        Raises:
            DeadlineExceeded: a step takes longer than 30 s.
        """
        # Rules: collectors CQ1
        if self._is_in_step:
            yield
            return
        with self._standing_still(self._turns.visit(_STAND_SECONDS, caller)):
            yield

    @contextmanager
    def _standing_still(self, turn: AbstractContextManager[None]) -> Iterator[None]:
        """Keeps a run between two steps, too, for the time of a `with` block, once the caller has its turn."""
        end = SYSTEM_CLOCK.monotonic() + _STAND_SECONDS
        with turn:
            run = self._run
            if run is None or run.has_ended:
                yield
                return
            with run.hold(end - SYSTEM_CLOCK.monotonic()):
                yield

    def _check_usable(self) -> None:
        self._home.check()
        if self._turns.is_closed:
            raise Closed("the collector is shut down")
        self._raise_failure()

    # ---- free running ----------------------------------------------------------------------------------------------

    def start(self) -> None:  # noqa: D102 - see the base
        self._check_usable()
        if self._rollouts.output is None:
            raise RuntimeError("start: expected a collector with replay_buffer; iterate over this one")
        with self._between_steps("start"):  # Of several threads one starts it.
            self._check_usable()
            if self._run is not None or self._has_iterated:
                raise RuntimeError("start: the collector was started already, or is being iterated")
            self._run = FreeRun(self._rollouts)

    @contextmanager
    def pause(self) -> Iterator[None]:  # noqa: D102 - see the base
        self._check_usable()
        run = self._run
        if run is None or not run.begin_pause():
            raise RuntimeError("pause: expected a collector that runs freely and is not paused")
        try:
            with run.hold(_STAND_SECONDS):
                self._check_usable()
                yield
        finally:
            run.is_paused = False

    def _raise_failure(self) -> None:
        """Raises the failure of a run once; afterwards the collector can be used again."""
        run = self._run
        if run is not None and run.failure is not None and not run.is_current_thread:
            self._run = None
            run.finalizer.detach()
            raise run.failure

    def _reset_envs(self, envs: Indices | None) -> None:
        self._rollouts.reset(envs)

    # ---- state -----------------------------------------------------------------------------------------------------

    def state_dict(self) -> dict[str, Any]:  # noqa: D102 - see the base
        self._refuse_in_step("state_dict")
        with self._where_a_state_is():
            self._check_usable()
            return self._rollouts.state_dict()

    def _where_a_state_is(self) -> AbstractContextManager[None]:
        """Waits for the end of a step, or of a batch where a rollout under way has no state."""
        if self._run is None and self._rollouts.has_state_between_batches_alone:
            return self._standing_still(self._turns.collect(_STAND_SECONDS, "state_dict"))
        return self._between_steps("state_dict")

    def load_state_dict(self, state: Mapping[str, Any]) -> None:  # noqa: D102 - see the base
        self._refuse_in_step("load_state_dict")
        with self._turns.collect(_STAND_SECONDS, "load_state_dict"):
            self._check_usable()
            if self._run is not None:
                raise RuntimeError("load_state_dict: expected a collector that was not started")
            self._rollouts.load_state_dict(state)

    # ---- weights and seeds -----------------------------------------------------------------------------------------

    def set_seed(self, seed: int, static_seed: bool = False) -> int:
        """Seeds environment k with `seed + k`, or all with `seed`. The next batch begins with a reset of all.

        Returns:
            The seed of the last environment.
        """
        # Rules: collectors CS1, CS2, CQ7
        self._home.check()
        if self._turns.is_closed:
            raise Closed("the collector is shut down")
        seeds = environment_seeds(seed, self._layout.num_envs, static_seed=static_seed)
        self._rollouts.seed(seeds)
        return seeds[-1]

    # ---- about -----------------------------------------------------------------------------------------------------

    def _call_each(self, path: str, calls: Sequence[Call], caller: str = "") -> list[Any]:
        self._check_usable()
        with self._between_steps(caller or path):
            self._check_usable()
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
        if run is None:
            return self._tally.record(running=False, paused=False)
        running = not run.has_ended
        return self._tally.record(
            running=running, paused=running and run.is_paused, failure=None if running else run.failure
        )

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
            timeout: seconds for the end of a step of another thread or of free running, 10 by default.
            close_env: False leaves the environments open.
            raise_on_error: False logs a StoreFull, and the failure of free running.

        Raises:
            DeadlineExceeded: a step of another thread or of free running did not end in time; the collector is not
                shut down.
            RuntimeError: called by the policy, an environment or a hook.
            StoreFull: no free page for the final rows; after all is released.
            Exception: the failure of free running that no call has raised; after all is released.
        """
        seconds = check_timeout(timeout)
        if self._turns.is_closed or self._home.is_elsewhere:
            return
        self._refuse_in_step("shutdown")
        end = SYSTEM_CLOCK.monotonic() + (_STOP_SECONDS if seconds is None else seconds)
        with self._turns.visit(end - SYSTEM_CLOCK.monotonic(), "shutdown"):
            self._end_run(end - SYSTEM_CLOCK.monotonic())
            if self._turns.close():
                self._close(close_env=close_env, raise_on_error=raise_on_error)

    def _close(self, *, close_env: bool, raise_on_error: bool) -> None:
        self._rollouts.drop()
        self._loop.end_profile()
        try:
            if self._rollouts.output is not None:
                self._rollouts.output.close()
        except StoreFull as error:
            if raise_on_error:
                raise
            _log.error("shutdown: the final rows of open trajectories are missing: %s", str(error))
        finally:
            if close_env:
                self._loop.stepper.close()
        if raise_on_error:
            self._raise_failure()

    def _end_run(self, timeout: float) -> None:
        """Ends a run, with all its steps in the replay.

        Raises:
            DeadlineExceeded: a step did not end in time.
        """
        run, output = self._run, self._rollouts.output
        if run is None or output is None:
            return
        run.stop(timeout)
        run.finalizer.detach()
        output.is_running = False

    def __repr__(self) -> str:
        return f"<Collector of {self._loop.stepper.num_envs} environments, {self._tally.frames} frames>"
