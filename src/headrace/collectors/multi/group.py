"""The workers of a collector: their common start, questions to them, and their end."""

# Rules: collectors CX4, CQ1, CQ7

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, suppress
from functools import partial
from typing import Any

import cloudpickle
import numpy as np

from headrace.collectors.handle.group_status import GroupStatus
from headrace.collectors.handle.handle import WorkerHandle
from headrace.collectors.handle.place import WorkerPlace
from headrace.collectors.handle.process import end_processes
from headrace.collectors.handle.questions import ANSWER_SECONDS, Questions, pickled_question
from headrace.collectors.handle.rows import WorkerRows
from headrace.collectors.handle.status import WorkerStatus
from headrace.collectors.messages import Progress, Ready, Reset, Seed, Stop, WeightsAt
from headrace.collectors.multi.collection import Collection
from headrace.collectors.multi.launch import Launch
from headrace.collectors.multi.new_rows import new_rows
from headrace.collectors.multi.options import MultiOptions
from headrace.collectors.multi.pauses import Pauses
from headrace.collectors.multi.restarts import Restarts
from headrace.collectors.multi.starting import WorkerStarter, check_alike
from headrace.collectors.multi.threads import TorchThreads
from headrace.collectors.ray.weights import WeightSender
from headrace.collectors.statistics import CollectorStatistics, Tally, WorkerTally
from headrace.collectors.surface.parts import Call
from headrace.collectors.updates.shared import SharedWeights
from headrace.envs import environment_seeds
from headrace.envs.protocol import Indices
from headrace.errors import DeadlineExceeded, WorkerDied
from headrace.forking import ForkFollowers

_GROUPS = ForkFollowers()
# Share of the timeout of a shutdown in which workers may complete their rollouts.
_SHARE_TO_FINISH = 0.5
# For workers to end when a constructor raises.
_ABANDON_SECONDS = 1.0


class WorkerGroup:
    """Starts workers, asks them to collect, and ends them. It knows nothing of the collector, which can be forgotten.

    Args:
        options: of the collector.

    Attributes:
        status: whether the workers can be used, and how they ended.
        tally: of the collector.
        handles: one for each worker.
        pauses: of the workers.
    """

    def __init__(self, options: MultiOptions) -> None:
        self._options = options
        self._is_ending = False
        self._collection: Collection | None = None
        self._weights: SharedWeights | None = None
        self._starter: WorkerStarter | None = None
        self._seed, self._hooks = options.seed, b""
        self.status = GroupStatus()
        self.tally = Tally(options.total_frames, options.workers, options.max_staleness)
        self._torch_threads = TorchThreads(options.num_threads)
        self.handles: list[WorkerHandle] = []
        self.pauses = Pauses(self.status, self.handles)
        self._launch = Launch(self.status)
        self._restarts = Restarts(
            self.status,
            options.max_restarts if options.restart_workers else 0,
            options.start_timeout,
            count_lost=self._count_lost,
            lose=self._lose,
            start=self._start,
            resume=self._come_back,
            patience=options.worker_timeout,
            leave_out=lambda handle: self.collection.leave_out(handle.worker_idx),
        )
        _GROUPS.add(self)

    # ---- starting --------------------------------------------------------------------------------------------------

    def launch(self) -> None:
        """Starts all workers at once, and waits until they are ready.

        Raises:
            Exception: raised by building an environment or the policy.
            SpecError: workers have other columns, or another number of environments, than the first one.
            DeadlineExceeded: a worker was not ready in time.
        """
        starter = self._starter = WorkerStarter(self._options)
        self._launch.run(self._launch_steps(starter))
        self.status.wait_for_none(
            lambda: [handle for handle in self.handles if handle.peer.ready is None],
            self._options.start_timeout,
            "to be ready",
        )
        self._first = self.handles[0].ready
        self._collection = Collection(
            self._options, self.status, self.handles, self.tally, lambda: self.weights
        )
        for handle in self.handles:
            self._open(handle)

    def _launch_steps(self, starter: WorkerStarter) -> Iterator[None]:
        """Starts the process of one worker or gives it its task, step by step."""
        for worker_idx in range(self._options.workers):
            handle = WorkerHandle(
                worker_idx,
                self.status,
                self._take_progress,
                self._restarts.worker_failed,
                self._restarts.worker_ended,
                starter.new_place,
                lambda handle: self.collection.admission.is_collecting(handle.worker_idx),
                self._options.worker_timeout,
            )
            self.handles.append(handle)
            yield
        for handle in self.handles:
            self._start(handle)
            yield

    def _start(self, handle: WorkerHandle) -> None:
        assert self._starter is not None
        self._starter.start(handle, self._seed, self.tally.workers[handle.worker_idx].restarts)

    def _open(self, handle: WorkerHandle) -> None:
        """Lets a worker that is ready write, and begin the rollouts that it is owed."""
        check_alike(self._first, handle.ready, str(handle))
        if self._weights is not None:
            self._show_weights(self._weights, handle)
        if self._hooks:
            handle.send_hooks(self._hooks)
        unblocked = partial(self.collection.admission.unblocked, handle.worker_idx)
        handle.peer.rows = new_rows(self._options, self.status, handle, unblocked, self._restarts.fail)
        handle.peer.rows.open(handle.ready.signature)
        handle.come_back()
        self.collection.admission.unblocked(handle.worker_idx)

    def _come_back(self, handle: WorkerHandle) -> None:
        self.collection.take_back(handle.worker_idx)
        self._open(handle)

    def _count_lost(self, handle: WorkerHandle) -> None:
        if self._collection is not None:  # Else it has taken no step.
            self._collection.count_lost(handle)

    def _lose(self, handle: WorkerHandle) -> None:
        """Drops the incomplete rollouts of a worker whose process is gone. Its committed rows stay in the replay."""
        self.tally.workers[handle.worker_idx].restarts += 1
        handle.lose_rows()
        self.collection.lose(handle.worker_idx)

    @property
    def collection(self) -> Collection:
        """The rollouts of the workers, which are ready."""
        assert self._collection is not None
        return self._collection

    @property
    def weights(self) -> SharedWeights:
        """The memory for new weights, which was made."""
        assert self._weights is not None
        return self._weights

    @property
    def ready(self) -> list[Ready]:
        """Describes each worker."""
        return [handle.ready for handle in self.handles]

    # ---- collecting ------------------------------------------------------------------------------------------------

    def _take_progress(self, handle: WorkerHandle, progress: Progress, rows: WorkerRows) -> None:
        if progress.closes_rollout:
            self._restarts.delivered(handle.worker_idx)
        self.collection.take_progress(handle, progress, rows)

    def share_weights(self) -> SharedWeights:
        """Makes the memory for new weights, and tells the workers of it."""
        models = [cloudpickle.loads(ready.models) for ready in self.ready]
        self._weights = SharedWeights(
            models,
            [devices.policy for devices in self._options.devices()],
            self._options.schemes,
            send=(lambda _: None) if self._options.backend == "process" else WeightSender(self.handles),
            published=self.collection.admission.published,
        )
        for handle in self.handles:
            self._show_weights(self._weights, handle)
        return self._weights

    def _show_weights(self, weights: SharedWeights, handle: WorkerHandle) -> None:
        message = WeightsAt(
            layout=cloudpickle.dumps(weights.layout), address=handle.worker_idx, addresses=len(self.handles)
        )
        handle.send(message, descriptors=(weights.descriptor,))
        weights.show_again()

    def set_seed(self, seed: int, *, static_seed: bool) -> int:
        """Resets all environments at the next step of each worker; returns the seed of the last environment."""
        # Rules: collectors CS1
        num_envs = self.handles[0].ready.num_envs
        seeds = environment_seeds(seed, num_envs * len(self.handles), static_seed=static_seed)
        self._seed = seed
        for handle, first in zip(self.handles, range(0, len(seeds), num_envs), strict=True):
            handle.send_reset(Seed(seeds=seeds[first : first + num_envs], seed=seed))
        return seeds[-1]

    def reset(self, envs: Indices | None) -> None:
        """Resets environments (None: all), counted over the workers, before their next steps."""
        first = 0
        for handle in self.handles:
            own = np.arange(first, first + handle.ready.num_envs)
            chosen = own if envs is None else np.intersect1d(own, envs)
            if chosen.size:
                handle.send_reset(Reset(envs=(chosen - first).tolist()))
            first += len(own)

    def use_hooks(self, pickled: bytes) -> None:
        """Lets every worker use hooks from its next rollout on; `pickled` is as in `SetHooks`."""
        self._hooks = pickled
        for handle in self.handles:
            handle.send_hooks(self._hooks)

    # ---- questions, counters -------------------------------------------------------------------------------

    def call_each(
        self, path: str, calls: Sequence[Call], timeout: float = ANSWER_SECONDS, *, caller: str = ""
    ) -> list[Any]:
        """See `CollectorParts._call_each`; each call is made between two steps of its worker.

        Raises:
            TypeError: an argument cannot be pickled; no worker was asked.
            Exception: raised by a call; DeadlineExceeded: no answer within `timeout` seconds; WorkerDied, Closed.
        """
        # No worker is asked before all questions are found fit to be sent.
        payloads = [pickled_question(path, *call) for call in calls]
        end = time.monotonic() + timeout
        asked: list[tuple[Questions, int]] = []
        try:
            for handle, payload in zip(self.handles, payloads, strict=False):
                asked.append((handle.questions, handle.questions.pose(payload)))
            return [
                questions.answer(number, caller or path, end - time.monotonic())
                for questions, number in asked
            ]
        finally:
            for questions, number in asked:
                questions.forget(number)

    def worker_tallies(self) -> Sequence[WorkerTally]:
        """See `FinishedBatches.worker_tallies`."""
        return self.tally.workers if self._collection is None else self._collection.batches.worker_tallies()

    def statistics(self) -> CollectorStatistics:
        """Returns the present counters.

        Raises:
            RuntimeError: in a process that was forked from the collector's.
        """
        self.status.home.check()
        tallies = self.worker_tallies()
        workers = [handle.statistics(tallies[handle.worker_idx]) for handle in self.handles]
        is_running = self.status.is_running or (
            not self.status.is_iterating and any(handle.is_forwarding for handle in self.handles)
        )
        with self.status.changed:
            failure = self.status.failure
        return self.tally.record(
            running=is_running, paused=self.pauses.are_complete, failure=failure, workers=workers
        )

    # ---- ending ----------------------------------------------------------------------------------------------------

    def shutdown(self, timeout: float, *, close_env: bool, raise_on_error: bool) -> None:
        """Ends the workers and releases everything. Further calls do nothing, as does a call in a forked child.

        Raises:
            WorkerDied: a worker was killed, or failed and no call raised that. Everything is released before.
        """
        late = self._end(timeout, close_env=close_env)
        if late is not None:
            self.status.report(late, raise_on_error=raise_on_error)

    def _end(self, timeout: float, *, close_env: bool) -> list[WorkerStatus] | None:
        """Shuts down; returns the workers that did not end by themselves. None: a call before it did, or does."""
        if self.status.home.is_elsewhere:
            return None
        with self.status.changed:
            if self.status.is_closed or self._is_ending:
                return None
            self._is_ending = True
        self._launch.stop()
        killed: list[WorkerPlace] = []
        try:
            end = time.monotonic() + timeout
            self._finish_rollouts(timeout * _SHARE_TO_FINISH)
            with self.status.changed:
                self._close()
            for handle in self.handles:
                handle.stop_leasing()
                handle.send(Stop(close_env=close_env))
            killed = end_processes([handle.process for handle in self.handles], end - time.monotonic())
        finally:
            self._release()
        return [handle.status for handle in self.handles if handle.process in killed]

    def _finish_rollouts(self, timeout: float) -> None:
        """Lets workers end the rollouts that they write as a whole, so that these are in the replay."""
        # Rules: collectors CF7, CR8, CR10
        options = self._options
        if self._collection is None or options.replay_buffer is None:
            return
        if options.postproc is None and not any(handle.ready.marks_late for handle in self.handles):
            return
        with suppress(
            DeadlineExceeded, WorkerDied
        ):  # Rollouts that are not complete then are dropped, and counted.
            self.pauses.begin(timeout)

    def _close(self) -> None:
        self.status.is_closed = True
        self.status.is_running = False
        self.status.changed.notify_all()

    def _release(self) -> None:
        """Kills the workers that still run, and releases everything."""
        # Each step runs also where Ctrl-C ends another one. The last one comes first.
        with ExitStack() as steps:
            if self._starter is not None:
                steps.callback(self._starter.close)
            for handle in self.handles:
                steps.callback(handle.close_rows)
            if self._collection is not None:
                steps.callback(self._collection.discard)
            for handle in self.handles:
                steps.callback(handle.disconnect)
                steps.callback(handle.take_last_messages)
            steps.callback(self._restarts.join)
            for handle in self.handles:
                steps.callback(handle.process.kill)
            steps.callback(self._torch_threads.close)
            self.status.is_closed = True

    def abandon(self, error: BaseException) -> None:
        """Shuts down within a second, because `error` is being raised; it names the workers that were killed."""
        self.status.ignore_failure()
        try:
            late = self._end(_ABANDON_SECONDS, close_env=True)
            for worker in late if late and isinstance(error, Exception) else ():
                doing = "closing" if worker.is_ready else "building or closing"
                error.add_note(
                    f"{worker} was still {doing} its environments after {_ABANDON_SECONDS:g} s, and was killed"
                )
        finally:
            if self._weights is not None:
                self._weights.close()

    # ---- forks -----------------------------------------------------------------------------------------------------

    def before_fork(self) -> None:
        """Does nothing: the child uses no worker."""

    def after_fork_in_parent(self) -> None:
        """Does nothing."""

    def after_fork_in_child(self) -> None:
        """Closes this process's copies of sockets and memory; those of the parent stay open."""
        for handle in self.handles:
            handle.disown()
        if self._collection is not None:
            self._collection.batches.forget()
