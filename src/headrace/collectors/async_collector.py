"""Collecting in a worker process, while the learner learns."""

from __future__ import annotations

import itertools
import warnings
import weakref
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import cloudpickle

from headrace.collectors.base import CollectorBase
from headrace.collectors.batches.batch import Batch
from headrace.collectors.devices import Storing
from headrace.collectors.handle.handle import WorkerHandle
from headrace.collectors.handle.publisher import Publisher
from headrace.collectors.loop.columns import warn_not_stored
from headrace.collectors.messages import Seed
from headrace.collectors.options import CollectorOptions
from headrace.collectors.profiling.config import ProfileConfig, checked_workers
from headrace.collectors.statistics import CollectorStatistics
from headrace.collectors.surface.control import Call
from headrace.collectors.weight_arguments import given_weights
from headrace.envs import environment_seeds
from headrace.policies import ExplorationType
from headrace.spec import ArraySpec
from headrace.system import need_linux
from headrace.tables.description.rules import ItemRule
from headrace.views import View

_SHUTDOWN_SECONDS = 10.0
_INTERRUPTED_SECONDS = 2.0
_PAUSE_SECONDS = 30.0


class AsyncCollector(CollectorBase):
    """Collects in one worker process that runs ahead by at most two rollouts.

    Without a replay it is iterated: the worker writes rollouts into shared memory, and each batch is copied out once.
    With `replay_buffer` the worker writes its rows into leased pages of the replay's store: freely after `start()`,
    or while the collector is iterated. Nothing is pickled per step or per batch. Weights are published in shared
    memory; the worker looks at one number per step.

    `create_env_fn` and the policy travel by cloudpickle, so lambdas work, and a script needs no main guard.

    Args:
        start_timeout: seconds for the worker to be ready.
        create_env_fn, policy, ...: as for `Collector`.

    Raises:
        Unsupported: on another system than Linux.
        ValueError, TypeError, KeyError: an argument that does not fit, before anything runs.
        Exception: what building the environment or the policy in the worker raised.
        DeadlineExceeded: the worker was not ready in time.

    >>> with AsyncCollector("CartPole-v1", frames_per_batch=40, num_envs=4, total_frames=80, seed=0) as collector:
    ...     [batch.shape for batch in collector]
    [(4, 10), (4, 10)]
    """

    def __init__(
        self,
        create_env_fn: Any,
        policy: Any = None,
        *,
        policy_factory: Callable[[], Any] | None = None,
        frames_per_batch: int,
        total_frames: int = -1,
        device: Any = None,
        storing_device: Any = None,
        env_device: Any = None,
        policy_device: Any = None,
        create_env_kwargs: Mapping[str, Any] | None = None,
        max_frames_per_traj: int | None = None,
        init_random_frames: int | None = None,
        exploration_type: ExplorationType | None = None,
        replay_buffer: Any = None,
        items: Sequence[ItemRule] | None = None,
        num_envs: int = 1,
        views: Mapping[str, View] | None = None,
        info_columns: Mapping[str, ArraySpec] | None = None,
        seed: int | None = None,
        start_timeout: float = 60.0,
    ) -> None:
        need_linux(
            "hr.AsyncCollector",
            "memory that processes share by its descriptor",
            "Use hr.Collector, which collects in this process",
        )
        self._options = CollectorOptions(
            create_env_fn=create_env_fn,
            policy=policy,
            policy_factory=policy_factory,
            frames_per_batch=frames_per_batch,
            total_frames=total_frames,
            device=device,
            storing_device=storing_device,
            env_device=env_device,
            policy_device=policy_device,
            create_env_kwargs=create_env_kwargs,
            max_frames_per_traj=max_frames_per_traj,
            init_random_frames=init_random_frames,
            exploration_type=exploration_type,
            replay_buffer=replay_buffer,
            items=items,
            num_envs=num_envs,
            views=views,
            info_columns=info_columns,
            seed=seed,
        )
        self._storing = Storing(self._options.devices())
        task = cloudpickle.dumps(self._options.worker_task())
        self._worker = WorkerHandle(self._options)
        try:
            self._ready = self._worker.launch(task, start_timeout)
            self._options.warn_of_rounding(self._ready.num_envs, stacklevel=2)
            if self._worker.peer.not_stored:
                warn_not_stored(self._worker.peer.not_stored, stacklevel=2)
        except BaseException:
            self._worker.abandon()
            raise
        self._publisher = Publisher(self._ready, self._worker.send)
        self._pauses = itertools.count()
        self._pausing = False
        self._finalizer = weakref.finalize(self, _forgotten, self._worker, self._publisher)

    # ---- batches ---------------------------------------------------------------------------------------------------

    def next(self, timeout: float | None = None) -> Batch | None:
        """Returns the batch that waits longest; None when `total_frames` were handed out. Any thread may call it.

        Args:
            timeout: seconds to wait; None for ever.

        Raises:
            DeadlineExceeded: none came in time; the next call returns it.
            WorkerDied: the worker is gone, and all its complete rollouts were handed out.
            RuntimeError: after `start()`.
            Closed: after `shutdown`.
        """
        worker = self._worker
        worker.status.check_open()
        if not worker.peer.is_iterating:
            worker.status.raise_failure()
            if self._started:
                raise RuntimeError(
                    "next: expected a collector that was not started; start() fills the replay by itself"
                )
            worker.begin(running=False)
        batch = worker.rollouts.next(timeout)
        return None if batch is None else self._storing(batch, 0)

    # ---- free running ----------------------------------------------------------------------------------------------

    _started = False

    def start(self) -> None:
        """Begins to fill the replay freely, until `total_frames` or `shutdown`.

        Raises:
            RuntimeError: without `replay_buffer`, when started already, or after iteration has begun.
            WorkerDied: the worker is gone.
        """
        self._worker.status.check()
        if self._options.replay_buffer is None:
            raise RuntimeError("start: expected a collector with replay_buffer; iterate over this one")
        if self._started or self._worker.peer.is_iterating:
            raise RuntimeError("start: the collector was started already, or is being iterated")
        self._started = True
        self._worker.begin(running=True)

    @contextmanager
    def pause(self) -> Iterator[None]:
        """Stops between two steps for the time of a `with` block. Meanwhile all collected steps are in the replay.

        Raises:
            RuntimeError: not running, or paused already.
            DeadlineExceeded: the worker did not stop within 30 s; it goes on.
            WorkerDied: the worker is gone.
        """
        worker = self._worker
        worker.status.check()
        if not worker.peer.is_running or self._pausing:
            raise RuntimeError("pause: expected a collector that runs freely and is not paused")
        self._pausing = True
        try:
            worker.pause(next(self._pauses), _PAUSE_SECONDS)
            yield
        finally:
            self._pausing = False
            worker.resume()

    def async_shutdown(self, timeout: float | None = None, close_env: bool = True) -> None:
        """Stops between two steps, writes all collected steps into the replay, and shuts down as `shutdown` does."""
        self.shutdown(timeout, close_env)

    # ---- questions -------------------------------------------------------------------------------------------------

    @property
    def _num_workers(self) -> int:
        return 1

    def _check_usable(self) -> None:
        self._worker.status.check_open()

    def _call_each(self, path: str, calls: Sequence[Call]) -> list[Any]:
        return [self._worker.ask(path, args, kwargs) for args, kwargs in calls]

    # ---- weights and seeds -----------------------------------------------------------------------------------------

    @property
    def policy_version(self) -> int:
        """The number of the newest set of weights: 0 at the start, one more with every update."""
        self._worker.status.home.check()
        return self._worker.tally.newest

    def update_policy_weights_(
        self, policy_or_weights: Any = None, *, weights: Any = None, policy: Any = None
    ) -> None:
        """Publishes new weights. Returning means published: the arrays may be changed at once.

        The worker takes over whole sets, between two steps. A slow worker skips to the newest set.
        Any thread may call it.

        Args:
            policy_or_weights: an object with `state_dict()`, or a tree of arrays. None: the policy that the collector
                was made with.
            weights, policy: the same, by name; only one of the three.

        Raises:
            ValueError: more than one source, or none and the collector was made without a policy object.
            SpecError: names, shapes or dtypes differ; nothing is published.
            TypeError: a policy without `state_dict` and `load_state_dict`.
            WorkerDied, Closed: there is no worker any more.
        """
        worker = self._worker
        worker.status.check()
        values = given_weights(policy_or_weights, weights, policy, self._options.policy)
        worker.tally.newest = max(worker.tally.newest, self._publisher.publish(values))

    def set_seed(self, seed: int, static_seed: bool = False) -> int:
        """Resets all environments at the worker's next step: environment k with `seed + k`, or all with `seed`.

        Returns:
            The seed of the last environment.
        """
        self._worker.status.check()
        seeds = environment_seeds(seed, self._ready.num_envs, static_seed=static_seed)
        self._worker.send(Seed(seeds=seeds, seed=seed))
        return seeds[-1]

    # ---- about -----------------------------------------------------------------------------------------------------

    @property
    def _batch_size(self) -> tuple[int, str]:
        ready = self._ready
        return ready.steps * ready.num_envs, ready.autoreset

    @property
    def policy(self) -> Any:
        """This process's policy object; the worker has its own."""
        return self._options.policy

    @property
    def worker_pid(self) -> int:
        """The process id of the worker."""
        return self._worker.pid

    @property
    def _has_begun(self) -> bool:
        return self._worker.peer.is_running or self._worker.peer.is_iterating

    def _profilable(self, workers: Sequence[int] | None) -> Sequence[int]:
        return checked_workers(workers, self._num_workers)

    def _is_recorded(self, config: ProfileConfig) -> bool:
        return self._worker.tally.batches >= config.num_rollouts

    def statistics(self) -> CollectorStatistics:
        """Returns a frozen record of the counters; costs no message."""
        return self._worker.statistics()

    # ---- ending ----------------------------------------------------------------------------------------------------

    def shutdown(
        self, timeout: float | None = None, close_env: bool = True, raise_on_error: bool = True
    ) -> None:
        """Ends the worker and releases everything. Further calls do nothing, as does a call in a forked child.

        Ctrl-C kills the worker at once. Leaving a `with` block by Ctrl-C waits 2 s for the worker.

        Each open trajectory gets a final row with its newest observation in the replay, so its last transitions become
        items too.

        Args:
            timeout: seconds in all, 10 by default. The worker is asked first, terminated after 80 % of them, and
                killed after 95 %.
            close_env: False leaves the environments open until their process ends.
            raise_on_error: raise `WorkerDied` if the worker was killed, or failed and no call raised it; False logs.

        Raises:
            WorkerDied: after all is released.
        """
        worker = self._worker
        if worker.status.home.is_elsewhere:
            return
        try:
            worker.shutdown(
                _SHUTDOWN_SECONDS if timeout is None else timeout,
                close_env=close_env,
                raise_on_error=raise_on_error,
            )
        finally:
            if worker.status.is_closed:
                self._finalizer.detach()
                self._publisher.close()

    def _exit_seconds(self, kind: type[BaseException] | None) -> float | None:
        return _INTERRUPTED_SECONDS if kind is not None and issubclass(kind, KeyboardInterrupt) else None

    def __repr__(self) -> str:
        state = "shut down" if self._worker.status.is_closed else f"worker {self._worker.pid}"
        return f"<AsyncCollector, {state}, {self._worker.tally.frames} frames>"


def _forgotten(worker: WorkerHandle, publisher: Publisher) -> None:
    """Shuts down a collector that became garbage, or that is still open at the end of the interpreter."""
    # Rules: collectors CX9
    if worker.status.home.is_elsewhere:
        return
    try:
        worker.shutdown(2.0, close_env=True, raise_on_error=False)
        publisher.close()
    finally:
        warnings.warn(
            "an AsyncCollector was not shut down; use it in a with block", ResourceWarning, stacklevel=2
        )
