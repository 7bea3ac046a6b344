"""The collecting of several workers: which rollouts they begin, and what becomes of those that they complete."""

# Rules: collectors CV7, CV8, CR12, CF5

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from typing import Any

import cloudpickle
import numpy as np
from numpy.typing import NDArray

from headrace.collectors.batches.batch_maker import BatchMaker
from headrace.collectors.batches.copy_threads import CopyThreads
from headrace.collectors.handle.group_status import GroupStatus
from headrace.collectors.handle.handle import WorkerHandle
from headrace.collectors.handle.rows import WorkerRows
from headrace.collectors.loop.step_counts import StepCounts
from headrace.collectors.loop.waiting import ALL_WAIT
from headrace.collectors.messages import Preempt, Proceed, Progress
from headrace.collectors.multi.admission import Admission
from headrace.collectors.multi.assembly import Assembly
from headrace.collectors.multi.finished import FinishedBatches
from headrace.collectors.multi.options import MultiOptions
from headrace.collectors.statistics import Tally

_log = logging.getLogger(__name__)

# Rollouts that a worker may be ahead of the learner.
_ROLLOUTS_AHEAD = 2


class Collection:
    """Lets ready workers collect, and takes in their rollouts: as batches, or counted where they fill a replay.

    Args:
        options: of the collector.
        status: of the workers.
        handles: of the workers, all ready.
        tally: of the collector.

    Attributes:
        admission: lets workers begin rollouts.
        batches: those that wait for the learner.
    """

    def __init__(
        self, options: MultiOptions, status: GroupStatus, handles: Sequence[WorkerHandle], tally: Tally
    ) -> None:
        self._is_synchronous = options.sync
        self._status = status
        self._handles = handles
        self._tally = tally
        self._counts = [StepCounts() for _ in handles]
        self._enough_workers = options.enough_workers
        self.admission = Admission(
            tally,
            [handle.frames for handle in handles],
            options.total_frames,
            options.random_frames,
            options.sync,
            options.max_staleness,
            lambda worker_idx: not handles[worker_idx].may_begin,
            self._grant,
        )
        self._threads = CopyThreads(options.copy_threads)
        ready = [handle.ready for handle in handles]
        self._assembly = Assembly(
            options.sync,
            [cloudpickle.loads(each.views) for each in ready],
            ready[0].num_envs,
            [each.steps for each in ready],
            self._threads,
        )
        self.batches = FinishedBatches(
            status, tally, self._assembly, self.admission, handles, self._handed_out
        )

    def _grant(self, worker_idx: int, *, at_random: bool) -> None:
        is_needed = self._is_synchronous and self._status.is_iterating
        # Rules: collectors CW3. All rows of a synchronous batch come from the same weights.
        each_step = not self._is_synchronous or self._status.is_running
        proceed = Proceed(at_random=at_random, is_needed=is_needed, updates_each_step=each_step)
        # A worker that was started again may begin last.
        messages = (proceed, Preempt()) if is_needed and self._has_enough_workers else (proceed,)
        self._handles[worker_idx].send(*messages)

    @property
    def _has_enough_workers(self) -> bool:
        """Whether the workers that have not finished the batch that was asked for are to stop soon."""
        return len(self._assembly.workers) >= self._enough_workers

    def begin(self, *, running: bool) -> None:
        """Begins to collect, freely into a replay or for iteration, unless it has begun."""
        with self._status.changed:
            if self._status.is_running or self._status.is_iterating:
                return
            self._status.is_running, self._status.is_iterating = running, not running
        if running or not self._is_synchronous:
            # A loaded state may have brought rollouts already.
            under_way = [self.admission.under_way(handle.worker_idx) for handle in self._handles]
            self.admission.owe_all([max(0, _ROLLOUTS_AHEAD - count) for count in under_way])

    # ---- the workers' reports --------------------------------------------------------------------------------------

    def take_progress(self, handle: WorkerHandle, progress: Progress, rows: WorkerRows) -> None:
        """Takes in steps that are committed. The thread that listens calls it."""
        worker_idx = handle.worker_idx
        self._tally.add_seconds(progress.seconds)
        self._tally.frames_discarded += progress.dropped
        if not self._status.is_iterating:
            rows.committed.forget()
            self._count(worker_idx, progress)
            handle.note_progress(progress)
            if handle.stands_still:
                _log.warning("%s: %s", str(handle), ALL_WAIT)
            return
        self._counts[worker_idx].add(progress.counts)
        if progress.closes_rollout:
            counts, self._counts[worker_idx] = self._counts[worker_idx], StepCounts()
            self.admission.completed(worker_idx)
            finished = self._assembly.add(worker_idx, rows.committed, counts)
            if len(self._assembly.workers) == self._enough_workers:
                self._preempt()
            with self._status.changed:  # A batch is handed out before a call tells that none will follow.
                handle.note_progress(progress)
                if finished is not None:
                    self.batches.add(finished)
                self._status.changed.notify_all()

    def _preempt(self) -> None:
        for handle in self._handles:
            if handle.worker_idx not in self._assembly.workers:
                handle.send(Preempt())

    def _count(self, worker_idx: int, progress: Progress) -> None:
        """Counts steps of free running."""
        closes = int(progress.closes_rollout)
        self._tally.add(progress.counts, closes)
        self._tally.workers[worker_idx].add(progress.counts, closes)
        if closes:
            self.admission.completed(worker_idx)
            self._handed_out([worker_idx])
        with self._status.changed:
            if closes and self._tally.is_complete():
                self._status.is_running = False
            self._status.changed.notify_all()

    def _handed_out(self, workers: list[int]) -> None:
        """Handles rollouts of these workers that were handed out or, free-running, written."""
        for worker_idx in workers:
            self.admission.done(worker_idx)
        if self._status.is_running or not self._is_synchronous:
            for worker_idx in workers:
                self.admission.owe(worker_idx)
        if self._tally.is_complete():
            for handle in self._handles:
                if self.admission.is_idle(handle.worker_idx):
                    handle.end_episodes()

    def lose(self, worker_idx: int) -> None:
        """Drops what a worker, whose process is gone, has collected of rollouts that it did not complete."""
        counts, self._counts[worker_idx] = self._counts[worker_idx], StepCounts()
        self._tally.frames_discarded += counts.frames
        self.admission.lost(worker_idx)

    # ---- state -----------------------------------------------------------------------------------------------------

    def finish_rollouts(self, timeout: float) -> None:
        """Waits until all workers have finished the rollouts that they have begun. Admission must be suspended.

        Raises:
            DeadlineExceeded: a rollout did not end in time.
            WorkerDied: a worker is gone.
        """
        # Rules: collectors CQ3
        self._status.wait_for_none(self._busy, timeout, "to finish a rollout")

    def _busy(self) -> list[WorkerHandle]:
        waiting = self.batches.rollouts
        return [
            handle
            for handle in self._handles
            if not handle.stands_still
            and self.admission.under_way(handle.worker_idx) != waiting.count(handle.worker_idx)
        ]

    @property
    def makers(self) -> Sequence[BatchMaker]:
        """See `Assembly.makers`."""
        return self._assembly.makers

    def state_dict(self, timeout: float) -> dict[str, Any]:
        """Returns the batches that wait, and everything that later ones depend on in this process.

        Args:
            timeout: in seconds, for a batch that another thread is about to be handed.

        Raises:
            DeadlineExceeded: that thread did not get its batch in time.
        """
        with self._status.changed:
            # A batch that is being handed out is counted before the state is taken.
            self._status.wait_held(
                lambda: not self.batches.hands_out, timeout, lambda: "a batch", lambda: True
            )
            return {
                "tally": self._tally.state_dict(),
                "begun": self.admission.begun,
                "waiting": self.batches.state_dict(),
                "lanes": [maker.state_dict() for maker in self._assembly.makers],
            }

    def load_state_dict(self, state: Mapping[str, Any], is_open: Sequence[NDArray[np.bool_]]) -> None:
        """Goes on from a state, between two rollouts.

        Args:
            state: of `state_dict`.
            is_open: bool[n] of each worker, environments whose episode goes on.
        """
        makers = self._assembly.makers
        lanes = is_open if len(makers) > 1 else [np.concatenate(is_open)]
        with self._status.changed:
            for maker, own, opened in zip(makers, state["lanes"], lanes, strict=True):
                maker.load_state_dict(own, opened)
            self.batches.load_state_dict(state["waiting"], makers)
            self._tally.load_state_dict(state["tally"])
            self._counts = [StepCounts() for _ in self._handles]
            waiting = self.batches.rollouts
            ahead = _ROLLOUTS_AHEAD if self._status.is_iterating and not self._is_synchronous else 0
            owed = [max(0, ahead - waiting.count(handle.worker_idx)) for handle in self._handles]
            self.admission.load(state["begun"], waiting, owed)
            self._status.changed.notify_all()

    def discard(self) -> None:
        """Drops the complete rollouts, and counts their frames as discarded. No worker may report any more."""
        self.batches.discard()
        self._threads.close()
