"""Collecting in a worker process, while the learner learns."""

from __future__ import annotations

import logging
import sys
import threading
import time
import warnings
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from types import TracebackType
from typing import Any, Self

import cloudpickle
import numpy as np

from headrace.collectors.batch import Batch
from headrace.collectors.channel import (
    Failed,
    Paused,
    Pause,
    Proceed,
    Ready,
    Resume,
    Rollout,
    Rows,
    Seed,
    Start,
    Stop,
    Stopped,
    WeightsAt,
)
from headrace.collectors.collector import one_source
from headrace.collectors.landlord import Landlord
from headrace.collectors.options import CollectorOptions
from headrace.collectors.process import WorkerProcess, describe_exit
from headrace.collectors.rollout import EpisodeLedger, RolloutBuffer
from headrace.collectors.statistics import CollectorStatistics, Tally
from headrace.collectors.worker import ReplayPlace, Task
from headrace.envs import environment_factory, environment_seeds
from headrace.errors import Closed, DeadlineExceeded, Disconnected, WorkerDied
from headrace.replay.rules import ItemRule
from headrace.spec import Signature
from headrace.store.arena import Arena
from headrace.weights import SharedMemory, has_weights, read_weights

_log = logging.getLogger(__name__)
_SLOTS = 2
_SHUTDOWN_SECONDS = 10.0
_PAUSE_SECONDS = 30.0
# How often a wait for the learner's samples looks whether the worker is still there.
_LOOK_SECONDS = 0.2


class AsyncCollector:
    """Collects in one worker process that runs ahead by at most two rollouts.

    Without a replay it is iterated: rollouts are written into shared memory by the worker, and each batch is copied out
    once. With `replay_buffer` the worker writes its rows into leased pages of the replay's own store; `start()` lets it
    run freely, or it is iterated as well. Nothing is pickled per step or per batch. Weights are published into shared
    memory; the worker looks at one number per step.

    `create_env_fn` and the policy travel by cloudpickle, so lambdas work, and a script needs no main guard.

    Args:
        start_timeout: seconds for the worker to be ready.
        create_env_fn, policy, ...: as for `Collector`.

    Raises:
        ValueError, TypeError: an argument that does not fit, before anything runs.
        Exception: what building the environment or the policy in the worker raised.
        DeadlineExceeded: the worker was not ready in time.

    >>> with AsyncCollector("CartPole-v1", frames_per_batch=40, num_envs=4, total_frames=80, seed=0) as collector:
    ...     [batch.shape for batch in collector]
    [(4, 10), (4, 10)]
    """

    def __init__(
        self,
        create_env_fn: Any,
        policy: Callable[..., Any] | None = None,
        *,
        policy_factory: Callable[[], Any] | None = None,
        frames_per_batch: int,
        total_frames: int = -1,
        create_env_kwargs: Mapping[str, Any] | None = None,
        max_frames_per_traj: int | None = None,
        init_random_frames: int | None = None,
        replay_buffer: Any = None,
        items: Sequence[ItemRule] | None = None,
        num_envs: int = 1,
        seed: int | None = None,
        start_timeout: float = 60.0,
    ) -> None:
        self._closed = True  # Until everything below has succeeded.
        self._options = CollectorOptions(
            create_env_fn=create_env_fn,
            policy=policy,
            policy_factory=policy_factory,
            frames_per_batch=frames_per_batch,
            total_frames=total_frames,
            create_env_kwargs=create_env_kwargs,
            max_frames_per_traj=max_frames_per_traj,
            init_random_frames=init_random_frames,
            replay_buffer=replay_buffer,
            items=items,
            num_envs=num_envs,
            seed=seed,
        )
        self._policy = policy
        self._tally = Tally()
        self._changed = threading.Condition()
        self._rollouts: deque[Rollout | Batch] = deque()
        self._ready: Ready | None = None
        self._failure: BaseException | None = None
        self._failure_told = False
        self._stopped = self._stopping = False
        self._running = self._iterating = self._paused = False
        self._granted = 0
        self._landlord: Landlord | None = None
        self._buffers: list[RolloutBuffer] = []
        self._weights: SharedMemory | None = None
        self._newest = 0
        self._seed = seed
        task = self._task()
        self._worker = WorkerProcess()
        self._closed = False
        self._listener = threading.Thread(target=self._listen, daemon=True, name="headrace-collector")
        try:
            self._launch(task, start_timeout)
        except BaseException:
            self._failure_told = True
            self.shutdown(timeout=1.0, raise_on_error=False)
            raise

    # ---- starting --------------------------------------------------------------------------------------------------

    def _task(self) -> bytes:
        options, replay = self._options, self._options.replay_buffer
        place = None
        if replay is not None:
            store = replay.store
            place = ReplayPlace(
                signature=store.signature,
                nbytes=store.arena.nbytes,
                num_pages=store.num_pages,
                page_rows=store.arrays.page_rows,
            )
        task = Task(
            path=list(sys.path),
            create_env_fn=environment_factory(options.create_env_fn, options.create_env_kwargs),
            create_env_kwargs=None,
            num_envs=options.num_envs,
            policy=options.policy,
            policy_factory=options.policy_factory,
            steps_of=partial(_steps, options.frames_per_batch),
            random_frames=options.random_frames,
            max_frames_per_traj=options.max_frames_per_traj,
            seeds_of=None if options.seed is None else partial(environment_seeds, options.seed),
            worker_seed=options.seed,
            replay=place,
        )
        return cloudpickle.dumps((list(sys.path), cloudpickle.dumps(task)))

    def _launch(self, task: bytes, start_timeout: float) -> None:
        replay = self._options.replay_buffer
        descriptors = () if replay is None else (replay.store.arena.descriptor,)
        self._listener.start()
        self._worker.channel.send(Start(payload=task), descriptors)
        with self._changed:
            self._wait(lambda: self._ready is not None, start_timeout, "the worker to be ready")
        assert self._ready is not None
        self._options.steps(self._ready.num_envs)
        if has_weights(self._policy):
            self._publish_at(SharedMemory(read_weights(self._policy)))
        if replay is not None:
            rules = self._options.rules(replay)
            self._landlord = Landlord(replay, rules, self._ready.num_envs, self._worker.channel.send)
            self._landlord.begin()
        else:
            self._grant(_SLOTS)

    def _take_ready(self, ready: Ready, descriptors: list[int]) -> None:
        self._signature = Signature.from_json(ready.signature)
        self._observed = frozenset(ready.observed)
        self._ledger = EpisodeLedger(ready.num_envs)
        if descriptors:
            arena = Arena.attach(descriptors[0], ready.nbytes)
            size = ready.nbytes // _SLOTS
            self._buffers = [
                RolloutBuffer(
                    arena, self._signature, self._observed, ready.steps, ready.num_envs, slot * size
                )
                for slot in range(_SLOTS)
            ]
        self._ready = ready

    def _publish_at(self, weights: SharedMemory) -> None:
        self._weights = weights
        receiver = weights.receiver()
        try:
            self._worker.channel.send(
                WeightsAt(layout=cloudpickle.dumps(receiver.layout)), (receiver.descriptor,)
            )
        finally:
            receiver.close()

    def _grant(self, count: int) -> None:
        """Let the worker begin so many rollouts more, as long as `total_frames` allows them."""
        assert self._ready is not None
        per_rollout = self._ready.steps * self._ready.num_envs
        total = self._options.total_frames
        for _ in range(count):
            if 0 < total <= self._granted * per_rollout and not self._has_masked_rows:
                return
            self._worker.channel.send(Proceed(slot=self._granted % _SLOTS))
            self._granted += 1

    @property
    def _has_masked_rows(self) -> bool:
        """Whether fewer frames came than steps were granted: reset steps are no frames."""
        assert self._ready is not None
        return self._tally.frames < self._tally.batches * self._ready.steps * self._ready.num_envs

    # ---- the listening thread --------------------------------------------------------------------------------------

    def _listen(self) -> None:
        try:
            while True:
                message, descriptors = self._worker.channel.receive()
                self._take(message, descriptors)
        except Disconnected:
            self._note_end()
        except BaseException as error:
            self._note_failure(error)

    def _take(self, message: Any, descriptors: list[int]) -> None:
        if isinstance(message, Rows):
            self._take_rows(message)
            return
        with self._changed:
            match message:
                case Ready():
                    self._take_ready(message, descriptors)
                case Rollout():
                    self._rollouts.append(message)
                case Failed():
                    self._failure = _rebuilt(message)
                case Paused():
                    self._paused = True
                case Stopped():
                    self._stopped = True
            self._changed.notify_all()

    def _take_rows(self, rows: Rows) -> None:
        landlord = self._landlord
        assert landlord is not None
        landlord.commit(rows)
        with self._changed:
            self._tally.env_seconds, self._tally.policy_seconds = rows.env_seconds, rows.policy_seconds
            if self._iterating:
                if rows.closes_rollout:
                    self._rollouts.append(landlord.take_batch(self._signature, self._observed, self._ledger))
            else:
                landlord.segments.clear()
                self._tally.add_batch(
                    rows.frames, rows.episodes, rows.versions, self._newest, rows.closes_rollout
                )
            self._changed.notify_all()
        if rows.closes_rollout and self._running:
            self._wait_applied(landlord)
            self._grant(1)
            self._end_at_total()

    def _wait_applied(self, landlord: Landlord) -> None:
        """A rollout more is begun when the items of those before are in their tables (collectors CV7)."""
        while True:
            with self._options.replay_buffer.lock:
                if not landlord.pending.count:
                    return
                landlord.pending.changed.wait(_LOOK_SECONDS)
            if not self._worker.is_alive or self._stopping or self._options.replay_buffer.is_closed:
                return

    def _end_at_total(self) -> None:
        total = self._options.total_frames
        if 0 < total <= self._tally.frames:
            with self._changed:
                self._running = False
                self._changed.notify_all()

    def _note_end(self) -> None:
        """The connection has ended: in order, or because the worker is gone."""
        exitcode = self._worker.wait(2.0)
        with self._changed:
            if not self._stopped and not self._stopping:
                self._failure = self._death(exitcode)
                self._running = False
                _log.error("%s", self._failure)
                self._fail_replay()
            self._stopped = True
            self._changed.notify_all()

    def _note_failure(self, error: BaseException) -> None:
        with self._changed:
            self._failure = error
            self._running = False
            self._changed.notify_all()
        if not isinstance(error, Closed):
            _log.error("collecting failed", exc_info=error)
        self._fail_replay()
        self._worker.channel.shutdown()

    def _death(self, exitcode: int | None) -> WorkerDied:
        cause = self._failure
        why = describe_exit(exitcode) if cause is None else f"{type(cause).__name__}: {cause}"
        died = WorkerDied(f"worker 0 (pid {self._worker.pid}) died: {why}", worker_idx=0, exitcode=exitcode)
        died.__cause__ = cause
        return died

    def _fail_replay(self) -> None:
        """End the waits of learners for rows that only this collector could write (collectors CF8)."""
        replay = self._options.replay_buffer
        if replay is not None and self._landlord is not None and self._failure is not None:
            replay.writer_failed(self._failure)

    # ---- batches ---------------------------------------------------------------------------------------------------

    def __iter__(self) -> Iterator[Batch]:
        return self

    def __next__(self) -> Batch:
        batch = self.next()
        if batch is None:
            raise StopIteration
        return batch

    def next(self, timeout: float | None = None) -> Batch | None:
        """The next batch, the longest waiting first; None when `total_frames` were handed out.

        Args:
            timeout: seconds to wait; None for ever.

        Raises:
            DeadlineExceeded: none came in time; the next call returns it.
            WorkerDied: the worker is gone, and every complete rollout of it was handed out.
            Closed: after `shutdown`.
        """
        self._check_open()
        total = self._options.total_frames
        if 0 < total <= self._tally.frames:
            return None
        self._iterate()
        begin = time.perf_counter()
        with self._changed:
            self._wait(lambda: bool(self._rollouts), timeout, "a batch")
            rollout = self._rollouts.popleft()
        self._tally.wait_seconds += time.perf_counter() - begin
        batch = self._present(rollout)
        self._count(batch)
        self._regrant()
        return batch

    def _iterate(self) -> None:
        if self._iterating:
            return
        if self._running:
            raise RuntimeError(
                "next: expected a collector that was not started; start() fills the replay by itself"
            )
        self._iterating = True
        if self._landlord is not None:
            self._grant(_SLOTS)

    def _present(self, rollout: Rollout | Batch) -> Batch:
        if isinstance(rollout, Batch):
            return rollout
        buffer = self._buffers[rollout.slot]
        buffer.num_finals = rollout.finals
        self._tally.env_seconds, self._tally.policy_seconds = rollout.env_seconds, rollout.policy_seconds
        return buffer.batch(self._ledger, 0)

    def _regrant(self) -> None:
        try:
            self._grant(1)
        except Disconnected:
            pass  # The next call tells of the worker's death, after what it has completed.

    def _count(self, batch: Batch) -> None:
        versions = batch["policy_version"][batch["mask"]]
        told = (
            (int(versions.min()), float(versions.mean()), int(versions.max()))
            if versions.size
            else (0, 0.0, 0)
        )
        self._tally.add_batch(batch.frames, self._ledger.take_finished(), told, self._newest, True)

    def _wait(self, there: Callable[[], bool], timeout: float | None, what: str) -> None:
        """Wait, with `_changed` held, until something is there or the worker is gone."""
        end = None if timeout is None else time.monotonic() + timeout
        while not there():
            if self._failure is not None and (self._stopped or self._ready is None):
                self._failure_told = True
                raise self._failure
            if self._closed or self._stopped:
                raise Closed("the collector is shut down")
            left = None if end is None else end - time.monotonic()
            if left is not None and left <= 0:
                raise DeadlineExceeded(
                    f"waited {timeout} s for {what}; worker 0 (pid {self._worker.pid}) is alive"
                )
            self._changed.wait(left)

    # ---- free running ----------------------------------------------------------------------------------------------

    def start(self) -> None:
        """Begin to fill the replay, without being asked for batches, until `total_frames` or `shutdown`.

        Raises:
            RuntimeError: without `replay_buffer`, when started already, or after iteration has begun.
        """
        self._check_open()
        if self._landlord is None:
            raise RuntimeError("start: expected a collector with replay_buffer; iterate over this one")
        if self._running or self._iterating:
            raise RuntimeError("start: the collector is collecting already")
        self._running = True
        self._grant(_SLOTS)

    @contextmanager
    def pause(self) -> Iterator[None]:
        """Stop between two steps for the time of a `with` block; everything collected is in the replay meanwhile.

        Raises:
            RuntimeError: not running, or paused already.
            DeadlineExceeded: the worker did not stop within 30 s; it goes on.
        """
        self._check_open()
        if not self._running or self._paused:
            raise RuntimeError("pause: expected a collector that runs freely and is not paused")
        self._worker.channel.send(Pause())
        try:
            with self._changed:
                self._wait(lambda: self._paused, _PAUSE_SECONDS, "the worker to pause")
            yield
        finally:
            self._paused = False
            self._worker.channel.send(Resume())

    def async_shutdown(self, timeout: float | None = None, close_env: bool = True) -> None:
        """Stop between two steps, see to it that what was collected is in the replay, then `shutdown`."""
        self.shutdown(timeout, close_env)

    # ---- weights and seeds -----------------------------------------------------------------------------------------

    @property
    def policy_version(self) -> int:
        """The number of the newest set of weights: 0 at the start, one more with every update."""
        return self._newest

    def update_policy_weights_(
        self, policy_or_weights: Any = None, *, weights: Any = None, policy: Any = None
    ) -> None:
        """Publish new weights. Returning means published: the arrays may be changed at once.

        The worker takes over whole sets only, between two steps; a slow one skips to the newest.

        Args:
            policy_or_weights: an object with `state_dict()`, or a tree of arrays. None: the policy that the collector
                was made with.
            weights, policy: the same, by name; only one of the three.

        Raises:
            ValueError: more than one source, or none and the policy was made by a factory.
            SpecError: names, shapes or dtypes differ; nothing is published.
            TypeError: a policy without `state_dict`.
            WorkerDied, Closed: nobody is left to take them.
        """
        self._check_open()
        self._raise_failure()
        source = one_source(policy_or_weights, weights, policy)
        if source is None:
            source = self._policy
            if source is None:
                raise ValueError(
                    "update_policy_weights_: there is no policy in this process; give weights or a policy"
                )
        values = read_weights(source) if has_weights(source) else _tree_of_weights(source)
        if self._weights is None:
            self._publish_at(SharedMemory(values))
        assert self._weights is not None
        self._newest = self._weights.publish(values)

    def set_seed(self, seed: int, static_seed: bool = False) -> int:
        """Reset every copy with its seed at the worker's next step: copy k gets `seed + k`, or all the same.

        Returns:
            The seed of the last copy.
        """
        self._check_open()
        assert self._ready is not None
        seeds = environment_seeds(seed, self._ready.num_envs, static_seed=static_seed)
        self._worker.channel.send(Seed(seeds=seeds))
        return seeds[-1]

    # ---- about -----------------------------------------------------------------------------------------------------

    def __len__(self) -> int:
        assert self._ready is not None
        total = self._options.total_frames
        if total < 0:
            raise TypeError("this collector has no end: total_frames is -1")
        return -(-total // (self._ready.steps * self._ready.num_envs))

    def __bool__(self) -> bool:
        return True

    @property
    def policy(self) -> Any:
        """This process's policy object; the worker has its own."""
        return self._policy

    @property
    def replay_buffer(self) -> Any:
        """The replay that is written to, or None."""
        return self._options.replay_buffer

    @property
    def worker_pid(self) -> int:
        """The process id of the worker."""
        return self._worker.pid

    def statistics(self) -> CollectorStatistics:
        """A frozen record of what was done; costs no message."""
        alive = not self._closed and self._worker.is_alive
        return self._tally.record(workers_alive=int(alive), running=self._running, paused=self._paused)

    def _check_open(self) -> None:
        if self._closed:
            raise Closed("the collector is shut down")

    def _raise_failure(self) -> None:
        with self._changed:
            if self._failure is not None and self._stopped:
                self._failure_told = True
                raise self._failure

    # ---- ending ----------------------------------------------------------------------------------------------------

    def shutdown(
        self, timeout: float | None = None, close_env: bool = True, raise_on_error: bool = True
    ) -> None:
        """End the worker and release everything. More calls do nothing.

        Args:
            timeout: seconds in all, 10 by default: the worker is asked, after 80 % of them terminated, after 95 % killed.
            close_env: False leaves the environments to the end of their process.
            raise_on_error: raise `WorkerDied` if the worker failed unreported or had to be killed; False logs it.

        Raises:
            WorkerDied: after all is released.
        """
        with self._changed:
            if self._closed:
                return
            self._closed = True
            self._stopping = True
            self._running = False
            self._changed.notify_all()
        limit = _SHUTDOWN_SECONDS if timeout is None else timeout
        try:
            self._worker.channel.send(Stop(close_env=close_env))
        except Disconnected:
            pass
        in_order = self._worker.end(limit)
        self._release()
        self._report(in_order, raise_on_error)

    def _release(self) -> None:
        if self._listener.is_alive() and self._listener is not threading.current_thread():
            self._listener.join(5.0)
        self._worker.channel.shutdown()
        self._listener.join(5.0)
        self._worker.channel.close()
        assert self._ready is not None or not self._rollouts
        per_rollout = 0 if self._ready is None else self._ready.steps * self._ready.num_envs
        self._tally.frames_discarded += len(self._rollouts) * per_rollout
        self._rollouts.clear()
        self._buffers = []
        if self._landlord is not None:
            self._landlord.close()
        if self._weights is not None:
            self._weights.close()

    def _report(self, in_order: bool, raise_on_error: bool) -> None:
        failure = self._failure if not self._failure_told else None
        if failure is None and in_order:
            return
        if failure is None and not self._failure_told:
            failure = WorkerDied("worker 0 did not stop in time and was killed", worker_idx=0, exitcode=-9)
        if failure is None:
            return
        self._failure_told = True
        if raise_on_error:
            raise failure
        _log.error("%s", failure)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.shutdown(raise_on_error=kind is None)

    def __del__(self) -> None:
        if not getattr(self, "_closed", True):
            warnings.warn(
                "an AsyncCollector was not shut down; use it in a with block", ResourceWarning, stacklevel=2
            )
            self.shutdown(timeout=2.0, raise_on_error=False)

    def __repr__(self) -> str:
        state = "shut down" if self._closed else f"worker {self._worker.pid}"
        return f"<AsyncCollector, {state}, {self._tally.frames} frames>"


def _steps(frames_per_batch: int, num_envs: int) -> int:
    return -(-frames_per_batch // num_envs)


def _rebuilt(failed: Failed) -> BaseException:
    """The exception that ended a worker, of its own type where it can be rebuilt, with the remote traceback."""
    try:
        error = cloudpickle.loads(failed.error)
    except Exception:
        error = RuntimeError(failed.text.strip().splitlines()[-1])
    if isinstance(error, BaseException):
        error.add_note(f"in the worker:\n{failed.text}")
        return error
    return RuntimeError(failed.text)


def _tree_of_weights(source: Any) -> Any:
    if isinstance(source, Mapping | list | tuple | np.ndarray):
        return source
    return read_weights(source)  # Says what to add.
