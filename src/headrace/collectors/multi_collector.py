"""Collecting in worker processes."""

from __future__ import annotations

import math
import threading
import warnings
import weakref
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from typing import Any, Never, Unpack

from headrace.checks import check_timeout
from headrace.collectors.arguments import MultiArguments
from headrace.collectors.base import CollectorBase
from headrace.collectors.batches.batch import Batch
from headrace.collectors.batches.handing_out import HandOut
from headrace.collectors.devices import Storing
from headrace.collectors.handle.names import name_workers
from headrace.collectors.loop.columns import warn_not_stored
from headrace.collectors.loop.hooks import CollectHooks, PostHook, PreHook
from headrace.collectors.multi.collected_state import collected_state, load_collected_state
from headrace.collectors.multi.group import WorkerGroup
from headrace.collectors.multi.options import MultiOptions
from headrace.collectors.options import shows_arguments, warn_of_rounding
from headrace.collectors.profiling.config import ProfileConfig
from headrace.collectors.sending import pickle_for_worker
from headrace.collectors.statistics import CollectorStatistics
from headrace.collectors.surface.parts import Call, Layout
from headrace.collectors.updates.following import Following
from headrace.collectors.updates.numbering import Versions
from headrace.collectors.updates.shared import SharedWeights
from headrace.collectors.updates.updater import WeightUpdater
from headrace.envs.protocol import Indices
from headrace.system import need_linux

_SHUTDOWN_SECONDS = 10.0
_INTERRUPTED_SECONDS = 2.0
_PAUSE_SECONDS = 30.0


class MultiCollector(CollectorBase):
    """Collects in worker processes, each with environments and a policy of its own.

    With `sync=True` all workers collect together when a batch is asked for, and a batch has the rows of all of them:
    `[W * n, T, ...]`, worker by worker. With `sync=False` each worker collects all the time, at most two rollouts ahead
    of the learner. A batch is then one rollout `[n, T, ...]`, the one that has waited longest; `batch.worker_idx` tells
    whose.

    Workers write rollouts into shared memory. A synchronous batch is copied out once. A batch with `sync=False` shows
    large columns, such as frames, where the worker wrote them: that memory is used again when the last array over it is
    garbage. A learner that keeps many such batches gets copies instead. In either case the arrays are the learner's
    own: they may be written to, never change by themselves, and outlive the collector.

    With `replay_buffer` the workers write their rows into leased pages of the replay's store: freely after `start()`,
    or while the collector is iterated. Rows for a replay that is elsewhere, such as a client's, are sent on by this
    process: a worker begins its next rollout when those before are stored, and its death loses none of them. Nothing is
    pickled per step or per batch. Weights are published in memory that all workers share; a worker looks at one number
    per step.

    `create_env_fn` and the policy travel by cloudpickle, so lambdas work, and a script needs no main guard.

    Args:
        create_env_fn: as for `Collector`, but no ready environment; or a list with one for each worker.
        policy: as for `Collector`.
        sync: whether a batch has a rollout of every worker.
        num_workers: W; by default the length of the list, or 1.
        restart_workers: a worker that dies, or raises while it collects, is started again: with the newest weights,
            new ids of episodes, and, where the collector has a seed, seeds of a stream of its own. Its unfinished
            rollouts are lost. False: `WorkerDied` at the first death.
        max_restarts: restarts of one worker without a complete rollout in between; then `WorkerDied`. They come after
            pauses of 0.1, 0.2, 0.4 s and so on, up to 1.6 s.
        start_timeout: seconds for all workers to be ready, and for a worker that is started again.
        worker_timeout: a worker that finishes no step for so many seconds, although it has room to collect, is killed;
            then it is started again, or `WorkerDied` is raised, as after any death. Waiting for the learner, for room
            in a replay, for a pause or a question does not count. With Ray, synchronous batches wait as long for a
            worker whose machine is gone; then its rows are masked until another machine runs it. None waits. In both
            cases a warning in the log names a worker that has taken no step for 30 s.
        num_threads: threads of this process that copy rollouts into batches; by default W, at most the cores. A number
            is also torch's thread count in this process until `shutdown`.
        num_sub_threads: threads of NumPy, torch and other libraries in each worker. More than 1 only helps where a
            worker starts threads or processes of its own.
        update_at_each_batch: publish the weights of `policy` before each batch, if they have changed.
        preemptive_threshold: with `sync=True`, the share of the workers, from 0 to 1, whose rollouts a batch waits
            for. Then the others stop after their next step. The rows that they have not collected are masked and not
            counted, and their episodes go on in the next batch. None and 1.0 wait for all workers.
        max_staleness: with `sync=False`, the largest number of publications by which the rows of a batch may be behind,
            for a learner that publishes at most once per batch. Workers then begin rollouts later, and batches are
            handed out in the order in which they were begun; no row is dropped. With 0 a rollout begins when the
            weights that follow the batch before it are published. A call of `next` that ends by its timeout has let a
            rollout begin: weights published before that one is handed out count as a second publication. An EnvPool
            with `batch_size` below `num_envs` needs at least 1, because its environments act up to one rollout ahead.
            None sets no bound.
        backend: "process" runs workers on this machine. "ray" runs each as an actor of a Ray cluster (extra `ray`).
        backend_options: of Ray, a dict. `num_cpus` (1), `num_gpus` (0) and `resources` of each actor; `scheduling`,
            "spread" over the nodes or "pack"; `runtime_env`; `address` of the cluster. Without `address` it is the
            cluster that this process is connected to or that runs here, else a local one that ends with the collector.
        **arguments: the other arguments of `Collector`. `frames_per_batch` is divided among the workers of a
            synchronous collector, and is the size of each rollout of an asynchronous one. A list has the size of each
            worker's rollouts; where they differ, a synchronous batch has the longest T, and the rows of others are
            masked there.
            Environment `i` of worker `w` is number `w * num_envs + i` for seeds.

    Raises:
        Unsupported: on another system than Linux.
        ValueError, TypeError, KeyError: an argument that does not fit, before anything runs.
        SpecError: workers whose environments differ in number, or whose columns differ.
        Exception: what building an environment or the policy in a worker raised.
        DeadlineExceeded: a worker was not ready in time.

    >>> make = ["CartPole-v1", "CartPole-v1"]
    >>> with MultiCollector(make, sync=True, frames_per_batch=40, num_envs=2, seed=0) as collector:
    ...     next(collector).shape
    (4, 10)
    """

    _options: MultiOptions

    @shows_arguments(MultiOptions, MultiArguments)
    def __init__(self, create_env_fn: Any, policy: Any = None, **arguments: Unpack[MultiArguments]) -> None:
        name = type(self).__name__
        need_linux(
            f"hr.{name}",
            "memory that processes share by its descriptor",
            "Use hr.Collector, which collects in this process",
        )
        self._options = MultiOptions.of(
            name, MultiArguments, create_env_fn=create_env_fn, policy=policy, **arguments
        )
        writes = self._options.replay_buffer is not None
        postproc = None if writes else self._options.postproc
        self._hand_out = HandOut(self._options.split_trajs, postproc, Storing(self._options.devices()))
        self._hooks = CollectHooks()
        self._group = WorkerGroup(self._options)
        self._home = self._group.status.home
        try:
            self._group.launch()
            self._layout = self._new_layout()
            self._warn(stacklevel=1 + self._constructors)
            self._prepare_weights()
            self._finalizer = weakref.finalize(
                self, _forgotten, name, self._group, self._weights, self._following
            )
        except BaseException as error:
            self._group.abandon(error)
            raise

    def _prepare_weights(self) -> None:
        options, group = self._options, self._group
        self._versions = Versions(options.track_policy_version, group.tally)
        self._weights = group.share_weights()
        self._updater = WeightUpdater(self._weights, self._versions, options.schemes, options.policy)
        self._following = Following(self._updater)
        if options.update_at_each_batch:
            self._updater.begin_mirroring()

    def _new_layout(self) -> Layout:
        ready, frames = self._group.ready, [handle.frames for handle in self._group.handles]
        return Layout(
            len(ready),
            sum(each.num_envs for each in ready),
            sum(frames) if self._options.sync else max(frames),
            ready[0].autoreset,
            any(each.lanes_may_wait for each in ready),
            math.lcm(*(each.reset_together for each in ready)),
        )

    def _uncounted(self) -> str:
        options, frames = self._options, {handle.frames for handle in self._group.handles}
        if options.enough_workers < options.workers:
            return (
                "with preemptive_threshold slow workers stop early, and the rows that they lack do not count"
            )
        if len(frames) > 1 and not options.sync:
            return "the rollouts of the workers differ in size"
        return super()._uncounted()

    # Number of constructors on the way from the user's line, for the places of warnings.
    _constructors = 1

    def _warn(self, *, stacklevel: int) -> None:
        asked = self._options.worker_frames()
        frames, num_envs = [handle.frames for handle in self._group.handles], self._group.ready[0].num_envs
        if self._options.sync:
            asked, frames = [self._options.asked_frames], [sum(frames)]
            num_envs *= len(self._group.handles)
        for each in dict.fromkeys(zip(asked, frames, strict=True)):
            warn_of_rounding(*each, num_envs, stacklevel=stacklevel + 1)
        not_stored = self._group.handles[0].peer.not_stored
        if not_stored:
            warn_not_stored(not_stored, stacklevel=stacklevel + 1)

    # ---- batches ---------------------------------------------------------------------------------------------------

    def next(self, timeout: float | None = None) -> Batch | None:
        """Returns the batch that waits longest; None when `total_frames` were handed out. Any thread may call it.

        Args:
            timeout: seconds to wait; None for ever.

        Raises:
            DeadlineExceeded: none came in time; the next call returns it.
            WorkerDied: a worker is gone, and the batches with its complete rollouts were handed out.
            RuntimeError: after `start()`; or with `reset_when_done=False` every environment waits for a reset.
            Closed: after `shutdown`.
            Exception: raised by `postproc`; the batch is lost, and counts as handed out.
        """
        seconds, status = check_timeout(timeout), self._group.status
        status.check_open()
        if not status.is_iterating:
            status.raise_failure()
            if self._started or not (self._group.collection.begin(running=False) or status.is_iterating):
                raise RuntimeError(
                    "next: expected a collector that was not started; start() fills the replay by itself"
                )
        self._group.pauses.end_forgotten()
        if self._updater.receivers.have_news:
            self._updater.receive()
        if self._options.update_at_each_batch:
            self._updater.mirror()
        batches, me = self._group.collection.batches, threading.get_ident()
        batch = batches.next(seconds)
        if batch is None:
            return None
        if self._hand_out.calls_user:  # The function is called once for each batch.
            batches.unreturned[me] = None
        handed_out: Batch = self._hand_out(batch)  # Of another type if `postproc` makes it one.
        batches.unreturned[me] = None  # No call after this: Ctrl-C comes before it.
        return handed_out

    # ---- free running ----------------------------------------------------------------------------------------------

    _started = False

    def start(self) -> None:  # noqa: D102 - see the base
        self._group.status.check()
        if self._options.replay_buffer is None:
            raise RuntimeError("start: expected a collector with replay_buffer; iterate over this one")
        if self._started or not self._group.collection.begin(running=True):
            raise RuntimeError("start: the collector was started already, or is being iterated")
        self._started = True

    def pause(self) -> AbstractContextManager[None]:  # noqa: D102 - see the base
        self._group.status.check()
        return self._group.pauses.pause(_PAUSE_SECONDS)

    # ---- questions -------------------------------------------------------------------------------------------------

    @property
    def env(self) -> Never:
        """There is none here: each worker has its environments.

        Raises:
            AttributeError: always.
        """
        raise AttributeError(
            "env: the environments are in the workers; getattr_env(name) reads an attribute of the first one, and "
            "map_fn('env.unwrapped.method', ...) calls a method in each worker"
        )

    def _check_usable(self) -> None:
        status = self._group.status
        status.check_open()
        if len(status.failed) == len(status.workers):
            status.raise_failure()

    def _call_each(self, path: str, calls: Sequence[Call], caller: str = "") -> list[Any]:
        return self._group.call_each(path, calls, caller=caller)

    # ---- state -----------------------------------------------------------------------------------------------------

    def state_dict(self) -> dict[str, Any]:
        """See `CollectorBase.state_dict`: "worker0", "worker1", ..., and "collector" for all of them.

        The workers stop between two steps for it. The steps of the rollouts under way are part of the state. Both this
        collector and one that loads the state go on with them. Rollouts that go into a replay as a whole (see `pause`)
        are finished first.

        Raises:
            DeadlineExceeded: a worker did not finish its step, or such a rollout, within 30 s.
            WorkerDied: a worker is gone.
            Closed: after `shutdown`.
        """
        self._group.status.check()
        return collected_state(self._group, self._updater)

    def load_state_dict(self, state: Mapping[str, Any]) -> None:  # noqa: D102 - see the base
        self._group.status.check()
        if self._started:
            raise RuntimeError("load_state_dict: expected a collector that was not started")
        load_collected_state(self._group, self._updater, state)

    # ---- weights and seeds -----------------------------------------------------------------------------------------

    def _check_workers(self) -> None:
        self._group.status.raise_failure()

    def _follow_receivers(self) -> None:
        self._following.start()

    def set_seed(self, seed: int, static_seed: bool = False) -> int:
        """Resets all environments at their worker's next step: environment k with `seed + k`, or all with `seed`.

        Returns:
            The seed of the last environment.
        """
        self._group.status.check()
        return self._group.set_seed(seed, static_seed=static_seed)

    def _reset_envs(self, envs: Indices | None) -> None:
        self._group.reset(envs)

    def _use_hooks(self, pre: PreHook | None, post: PostHook | None) -> None:
        pickled = pickle_for_worker(
            (pre, post),
            {"pre_collect_hook": pre, "post_collect_hook": post},
            "Make such parts in the worker, when the hook is called",
        )
        super()._use_hooks(pre, post)
        self._group.use_hooks(pickled)

    @property
    def policy(self) -> Any:
        """This process's policy object; the workers have their own."""
        return self._options.policy

    @property
    def _has_begun(self) -> bool:
        return self._group.status.is_running or self._group.status.is_iterating

    def _is_recorded(self, config: ProfileConfig) -> bool:
        rollouts = [worker.rollouts for worker in self._group.worker_tallies()]
        return all(rollouts[worker] >= config.num_rollouts for worker in config.workers)

    def statistics(self) -> CollectorStatistics:
        """Returns a frozen record of the counters; costs no message."""
        return self._group.statistics()

    # ---- ending ----------------------------------------------------------------------------------------------------

    def shutdown(
        self, timeout: float | None = None, close_env: bool = True, raise_on_error: bool = True
    ) -> None:
        """Ends the workers and releases everything. Further calls do nothing, as does a call in a forked child.

        Ctrl-C kills the workers at once. Leaving a `with` block by Ctrl-C waits 2 s for the workers.

        Each open trajectory gets a final row with its newest observation in the replay, so its last transitions become
        items too.

        Args:
            timeout: seconds in all, 10 by default. The workers are asked first, terminated after 80 % of them, and
                killed after 95 %.
            close_env: False leaves the environments open until their process ends.
            raise_on_error: raise `WorkerDied` if a worker was killed, or failed and no call raised it; False logs.

        Raises:
            WorkerDied: after all is released.
        """
        group, seconds = self._group, check_timeout(timeout)
        if self._home.is_elsewhere:
            return
        try:
            group.shutdown(
                _SHUTDOWN_SECONDS if seconds is None else seconds,
                close_env=close_env,
                raise_on_error=raise_on_error,
            )
        finally:
            if group.status.is_closed:
                self._finalizer.detach()
                self._following.close()
                self._weights.close()

    def _exit_seconds(self, kind: type[BaseException] | None) -> float | None:
        return _INTERRUPTED_SECONDS if kind is not None and issubclass(kind, KeyboardInterrupt) else None

    def __repr__(self) -> str:
        pids = name_workers([handle.process.pid for handle in self._group.handles])
        state = "shut down" if self._group.status.is_closed else f"workers {pids}"
        return f"<{type(self).__name__}, {state}, {self._group.tally.frames} frames>"


def _forgotten(name: str, group: WorkerGroup, weights: SharedWeights, following: Following) -> None:
    """Shuts down a collector that became garbage, or that is still open at the end of the interpreter."""
    # Rules: collectors CX9
    if group.status.home.is_elsewhere or group.status.is_closed:  # Closed: its constructor has raised.
        return
    try:
        group.shutdown(2.0, close_env=True, raise_on_error=False)
        following.close()
        weights.close()
    finally:
        warnings.warn(f"{name}: was not shut down; use it in a with block", ResourceWarning, stacklevel=2)
