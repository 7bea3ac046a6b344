"""The collecting of several workers: which rollouts they begin, and what becomes of those that they complete."""

# Rules: collectors CV7, CV8, CR12, CF5

from __future__ import annotations

import logging
import operator
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from copy import deepcopy
from dataclasses import asdict
from functools import partial
from typing import Any

import cloudpickle

from headrace.collectors.batches.batch_maker import BatchMaker
from headrace.collectors.batches.copy_threads import CopyThreads
from headrace.collectors.batches.last_rows import mark_last_rows
from headrace.collectors.batches.partial_rollout import PartialRollout
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
from headrace.collectors.multi.pauses import ANY_THREAD
from headrace.collectors.multi.staleness import ahead_within
from headrace.collectors.multi.turns import Rotation
from headrace.collectors.statistics import Tally
from headrace.collectors.updates.shared import SharedWeights
from headrace.leases.selector import PEERS

_log = logging.getLogger(__name__)

# Rollouts that a worker may be ahead of the learner.
_ROLLOUTS_AHEAD = 2


def _submit(call: Callable[[], None]) -> None:
    """Makes a call in the thread that listens to the workers, and does not wait for it."""
    PEERS.submit(call).add_done_callback(_log_failure)


def _log_failure(made: Future[None]) -> None:
    error = made.exception()
    if error is not None:
        _log.error("workers could not be told to go on", exc_info=error)


class Collection:
    """Lets ready workers collect, and takes in their rollouts: as batches, or counted where they fill a replay.

    Args:
        options: of the collector.
        status: of the workers.
        handles: of the workers, all ready.
        tally: of the collector.
        weights: returns those of the workers, once a batch is asked for.

    Attributes:
        admission: lets workers begin rollouts.
        batches: those that wait for the learner.
    """

    def __init__(
        self,
        options: MultiOptions,
        status: GroupStatus,
        handles: Sequence[WorkerHandle],
        tally: Tally,
        weights: Callable[[], SharedWeights],
    ) -> None:
        self._is_synchronous = options.sync
        self._status = status
        self._handles = handles
        self._tally = tally
        self._counts = [StepCounts() for _ in handles]
        # Rollouts of a loaded state that workers have not gone on with, by worker: whether actions are random.
        self._resumed: dict[int, bool] = {}
        self._was_running = False
        # Free slots of workers in a loaded state: a synchronous batch was asked for.
        self._owed: Sequence[int] = ()
        self._enough_workers = options.enough_workers
        bound = options.max_staleness
        turns: Rotation | None = None
        if bound is not None and any(handle.ready.acts_ahead for handle in handles):
            bound, turns = ahead_within(bound, len(handles))
            if turns.workers < len(handles):
                _log.warning(
                    "max_staleness=%d keeps %d of %d workers busy, because environments of an EnvPool with batch_size "
                    "below num_envs act up to one rollout ahead; %d keeps all busy",
                    options.max_staleness,
                    turns.workers,
                    len(handles),
                    2 * len(handles) - 1,
                )
        self.admission = Admission(
            tally,
            [handle.frames for handle in handles],
            options.total_frames,
            options.random_frames,
            options.sync,
            bound,
            lambda worker_idx: not handles[worker_idx].may_begin,
            self._grant,
            turns,
            _submit,
        )
        self._threads = CopyThreads(options.copy_threads)
        ready = [handle.ready for handle in handles]
        self._assembly = Assembly(
            options.sync,
            [cloudpickle.loads(each.views) for each in ready],
            ready[0].num_envs,
            [each.steps for each in ready],
            self._threads,
            self.admission.forgive,
            mark_last_rows if any(each.marks_late for each in ready) else None,
        )
        self.batches = FinishedBatches(
            status, tally, self._assembly, self.admission, handles, self._handed_out, weights, _submit
        )

    def _grant(self, worker_idx: int, *, at_random: bool, continues: bool = False) -> None:
        is_asked = self._is_synchronous and self._status.is_iterating
        # Rules: collectors CW3. All rows of a synchronous batch come from the same weights.
        each_step = not self._is_synchronous or self._status.is_running
        proceed = Proceed(
            at_random=at_random,
            is_needed=is_asked or continues,
            updates_each_step=each_step,
            continues=continues,
        )
        # A worker that was started again may begin last.
        messages = (proceed, Preempt()) if is_asked and self._has_enough_workers else (proceed,)
        self._handles[worker_idx].send(*messages)

    @property
    def _has_enough_workers(self) -> bool:
        """Whether the workers that have not finished the batch that was asked for are to stop soon."""
        return len(self._assembly.workers) >= self._enough_workers

    def begin(self, *, running: bool) -> bool:
        """Begins to collect, freely into a replay or for iteration; returns False if it has begun already."""
        return PEERS.submit(partial(self._begin, running=running)).result()

    def _begin(self, *, running: bool) -> bool:
        """Does what `begin` says; the thread that listens to the workers calls it."""
        with self._status.changed:
            if self._status.is_running or self._status.is_iterating:
                return False
            self._status.is_running, self._status.is_iterating = running, not running
        self._go_on()
        return True

    def _go_on(self) -> None:
        """Lets the workers collect what is owed: ahead of the learner, unless each batch is asked for."""
        self._resume_rollouts()
        owed, self._owed = self._owed, ()
        if self._status.is_iterating and self._is_synchronous:
            self.admission.owe_all(owed)
        else:
            # A loaded state may have brought rollouts already.
            under_way = [self.admission.under_way(handle.worker_idx) for handle in self._handles]
            self.admission.owe_all([max(0, _ROLLOUTS_AHEAD - count) for count in under_way])

    # ---- the workers' reports --------------------------------------------------------------------------------------

    def take_progress(self, handle: WorkerHandle, progress: Progress, rows: WorkerRows) -> None:
        """Takes in steps that are committed. The thread that listens calls it."""
        worker_idx = handle.worker_idx
        self._tally.add_seconds(progress.seconds)
        handle.note_reported(progress.counts.frames)
        if not self._status.is_iterating:
            rows.committed.forget()
            self._count(worker_idx, progress)
            handle.note_progress(progress)
            if handle.stands_still:
                _log.warning("%s: %s", str(handle), ALL_WAIT)
            return
        self._counts[worker_idx].add(progress.counts)
        if progress.continued:
            self._assembly.note_continued(worker_idx, progress.continued)
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
        """Drops the rollouts that a worker, whose process is gone, did not complete."""
        self._discard_steps(worker_idx)
        self._assembly.lose(worker_idx)
        self._resumed.pop(worker_idx, None)
        self.admission.lost(worker_idx)

    def count_lost(self, handle: WorkerHandle) -> None:
        """Counts the steps of a worker, which takes no more, that were never reported."""
        self._tally.discard(handle.lose_unreported())

    def _discard_steps(self, worker_idx: int) -> None:
        """Counts the reported steps of a worker's incomplete rollouts as discarded."""
        counts, self._counts[worker_idx] = self._counts[worker_idx], StepCounts()
        self._tally.discard(counts.frames)

    def leave_out(self, worker_idx: int) -> None:
        """Masks the rows of a worker, which finds no place, in synchronous batches until `take_back`."""
        # Rules: collectors CY3
        finished = self._assembly.leave_out(worker_idx)
        if finished is not None:
            self.batches.add(finished)

    def take_back(self, worker_idx: int) -> None:
        """Lets batches wait again for a worker that is ready, before it may begin a rollout."""
        self._assembly.take_back(worker_idx)

    # ---- state -----------------------------------------------------------------------------------------------------

    @property
    def makers(self) -> Sequence[BatchMaker]:
        """See `Assembly.makers`."""
        return self._assembly.makers

    def state_dict(self, in_progress: Sequence[bool], timeout: float) -> dict[str, Any]:
        """Returns what waits for the learner, and everything that later batches depend on in this process.

        The workers stand still, and admission is suspended.

        Args:
            in_progress: whether each worker has begun a rollout that is not complete.
            timeout: in seconds, for a batch that another thread is about to be handed.

        Raises:
            DeadlineExceeded: that thread did not get its batch in time.
        """
        end, state = time.monotonic() + timeout, None
        while state is None:
            self.batches.settle()
            with self._status.changed:
                # A batch that is being handed out is counted before the state is taken.
                self._status.wait_held(
                    lambda: not self.batches.hands_out,
                    end - time.monotonic(),
                    lambda: "a batch",
                    lambda: True,
                )
                if self.batches.is_settled:
                    state = self._state(in_progress)
        return state

    def _state(self, in_progress: Sequence[bool]) -> dict[str, Any]:
        return {
            "tally": self._tally.state_dict(),
            "admission": self._admission_state(in_progress),
            "waiting": self.batches.state_dict(),
            "unreturned": self.batches.unreturned_state(),
            "is_asked": self.batches.is_asked,
            "is_running": self._status.is_running,
            "partial": self._partial_state(),
            "lanes": [maker.state_dict() for maker in self._assembly.makers],
        }

    def _admission_state(self, in_progress: Sequence[bool]) -> dict[str, Any]:
        state = self.admission.state_dict(in_progress)
        if self._owed:  # No batch was asked for since a state was loaded.
            state["owed"] = list(map(operator.add, state["owed"], self._owed))
        return state

    def _partial_state(self) -> dict[str, Any]:
        """Returns the steps of each worker that are in no batch yet."""
        partial: dict[str, Any] = {}
        if self._is_synchronous and not self.batches.is_asked:
            return partial
        for handle, counts in zip(self._handles, self._counts, strict=True):
            rows, worker_idx = handle.peer.rows, handle.worker_idx
            steps = None if rows is None else self._assembly.partial(worker_idx, rows.committed)
            if steps is not None:
                complete = self._assembly.counts_of(worker_idx)
                partial[str(worker_idx)] = {
                    "steps": steps.state_dict(),
                    "counts": asdict(complete or counts),
                    "is_complete": complete is not None,
                }
        return partial

    def load_state_dict(self, state: Mapping[str, Any], rollouts: Sequence[Mapping[str, Any] | None]) -> None:
        """Goes on from a state. The workers, which have loaded theirs, stand still, and admission is suspended.

        Args:
            state: of `state_dict`.
            rollouts: the rollout that each worker has begun and not completed; see `RolloutTurn.state_dict`.
        """
        makers = self._assembly.makers
        in_progress = [rollout is not None for rollout in rollouts]
        self.batches.settle()
        with self._status.changed:
            for maker, own in zip(makers, state["lanes"], strict=True):
                maker.load_state_dict(own)
            self.batches.load_state_dict(state["waiting"], makers, is_asked=state["is_asked"])
            unreturned = state["unreturned"]
            if unreturned is not None:
                maker = makers[unreturned["worker"] if len(makers) > 1 else 0]
                self.batches.unreturned[ANY_THREAD] = maker.restored(unreturned["columns"])
            self._tally.load_state_dict(state["tally"])
            self._load_partial(state["partial"])
            self._resumed = {
                worker: rollout["at_random"] for worker, rollout in enumerate(rollouts) if rollout is not None
            }
            self._owed = state["admission"]["owed"] if state["is_asked"] else ()
            self._was_running = state["is_running"]
            self.admission.load_state_dict(state["admission"], in_progress)
            if self._status.is_iterating:
                self._go_on()
            self._status.changed.notify_all()

    def _load_partial(self, partial: Mapping[str, Any]) -> None:
        counts = {int(worker): StepCounts(**deepcopy(each["counts"])) for worker, each in partial.items()}
        complete = {int(worker) for worker, each in partial.items() if each["is_complete"]}
        self._assembly.load(
            {int(worker): PartialRollout.from_state(each["steps"]) for worker, each in partial.items()},
            {worker: counts[worker] for worker in complete},
        )
        self._counts = [
            StepCounts() if worker in complete else counts.get(worker, StepCounts())
            for worker in range(len(self._handles))
        ]

    def _resume_rollouts(self) -> None:
        """Lets workers go on with the rollouts of a loaded state."""
        resumed, self._resumed = self._resumed, {}
        for worker_idx, at_random in resumed.items():
            if self._was_running and not self._status.is_running:
                self.admission.drop(worker_idx)  # The replay has their steps: a batch would lack them.
            else:
                self._grant(worker_idx, at_random=at_random, continues=True)
            if self._status.is_running:  # Steps that were to be handed out are in the replay already.
                self._tally.add(self._counts[worker_idx], 0)
                self._tally.workers[worker_idx].add(self._counts[worker_idx], 0)
                self._counts[worker_idx] = StepCounts()
                self._assembly.lose(worker_idx)

    def discard(self) -> None:
        """Drops all rollouts, and counts their frames as discarded. No worker may report any more."""
        self.batches.discard()
        for handle in self._handles:
            self._discard_steps(handle.worker_idx)
            self.count_lost(handle)
        self._threads.close()
