"""Complete batches of workers, handed out one after the other."""

# Rules: collectors CV7, CV8, CW3, CX2

from __future__ import annotations

import threading
from collections import defaultdict, deque
from collections.abc import Callable, Collection, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import asdict, replace
from typing import Any

from headrace.collectors.batches.batch import Batch
from headrace.collectors.batches.batch_maker import BatchMaker
from headrace.collectors.handle.group_status import GroupStatus
from headrace.collectors.handle.handle import WorkerHandle
from headrace.collectors.handle.names import name_workers
from headrace.collectors.loop.step_counts import StepCounts
from headrace.collectors.loop.waiting import ALL_WAIT
from headrace.collectors.multi.admission import Admission
from headrace.collectors.multi.assembly import Assembly, Finished
from headrace.collectors.multi.pauses import ANY_THREAD
from headrace.collectors.statistics import Tally, WorkerTally
from headrace.collectors.updates.shared import SharedWeights
from headrace.leases.selector import PEERS


class FinishedBatches:
    """The batches that wait for the learner, in the order in which they were completed. Thread-safe.

    Args:
        status: of the workers.
        tally: counts what is handed out.
        assembly: makes the batches.
        admission: tells workers to begin rollouts.
        handles: of the workers.
        handed_out: called after each batch with the workers that collected it, in the thread that listens to them.
        weights: returns those of the workers, which are held while workers collect a batch that was asked for.
        submit: makes a call in the thread that listens to the workers, without waiting for it.

    Attributes:
        unreturned: by thread, a batch that was counted; the call that returns it sets this to None.
    """

    def __init__(
        self,
        status: GroupStatus,
        tally: Tally,
        assembly: Assembly,
        admission: Admission,
        handles: Sequence[WorkerHandle],
        handed_out: Callable[[list[int]], None],
        weights: Callable[[], SharedWeights],
        submit: Callable[[Callable[[], None]], None],
    ) -> None:
        self._submit = submit
        self._status = status
        self._tally = tally
        self._assembly = assembly
        self._admission = admission
        self._handles = handles
        self._handed_out = handed_out
        self._weights = weights
        self._waiting: deque[Finished] = deque()
        # The thread that is about to hand out a batch: one at a time, so that batches are counted in order.
        self._handing_out: int | None = None
        self.unreturned: dict[int, Batch | None] = {}
        # Rollouts that were handed out: their workers do not know it yet.
        self._unsettled: list[tuple[int, StepCounts]] = []
        # Whether the workers have begun a batch because it was asked for; and the call that lets them.
        self._is_asked = False
        self._asking: Future[None] | None = None

    @property
    def hands_out(self) -> bool:
        """Whether another thread is about to hand out a batch."""
        # Ctrl-C may have ended this thread's own call before it could take that back.
        return self._handing_out not in (None, threading.get_ident())

    def __len__(self) -> int:
        return len(self._waiting)

    def add(self, finished: Finished) -> None:
        """Adds a batch."""
        with self._status.changed:
            self._waiting.append(finished)
            self._is_asked = False
            self._status.changed.notify_all()

    def next(self, timeout: float | None) -> Batch | None:
        """Returns the next batch; None when `total_frames` were handed out. Any thread may call it.

        Raises:
            RuntimeError: every environment waits for a reset.
            Exception: as `GroupStatus.wait`, when the failed worker's batches were handed out.
        """
        status, finished = self._status, None
        batch = self._not_returned()
        if batch is not None:
            self._settle_soon()
            return batch
        try:
            with self._admission.request(), status.changed:
                status.wait_held(self._can_hand_out, timeout, self._describe, self._must_raise)
                if self._tally.is_complete():
                    return None
                place = self._place()
                assert place is not None
                finished = self._waiting[place]
                self._handing_out = threading.get_ident()
            return self._hand_out(finished)
        finally:
            if finished is not None:
                with status.changed:
                    self._handing_out = None
                    status.changed.notify_all()

    def _not_returned(self) -> Batch | None:
        """Returns the batch that an earlier call of this thread did not return, because Ctrl-C came; None: none."""
        me = threading.get_ident()
        if self.unreturned.get(ANY_THREAD) is not None:
            self.unreturned[me], self.unreturned[ANY_THREAD] = self.unreturned[ANY_THREAD], None
        return self.unreturned.get(me)

    def _can_hand_out(self) -> bool:
        """Returns whether a batch can be handed out, or none will follow; else begins one if workers wait for that."""
        if self.hands_out:
            return False
        if self._tally.is_complete():
            return True
        place = self._place()
        if place is not None:
            return self._is_stored(self._waiting[place])
        if self._is_asked:
            return False
        if all(handle.stands_still for handle in self._handles):
            raise RuntimeError(ALL_WAIT)  # Rules: collectors CR7
        if not self._status.failed and self._assembly.is_synchronous:
            self._request_batch()
        return False

    def _request_batch(self) -> None:
        """Lets the workers begin a batch; `changed` of the status is held."""
        asking, self._asking = self._asking, None
        if asking is not None and asking.done():
            asking.result()
        self._weights().hold()
        self._asking = PEERS.submit(self._begin_batch)

    def _begin_batch(self) -> None:
        """Lets the workers begin a batch unless they have; the thread that listens to them calls it."""
        with self._status.changed:
            try:
                if not (self._is_asked or self._status.failed) and self._place() is None:
                    self._assembly.begin()
                    self._is_asked = True
                    self._admission.owe_batch()
            except BaseException:
                self._status.changed.notify_all()  # The waiting thread raises it.
                raise

    def _describe(self) -> str:
        """Describes a wait: its reason, and the event that can end it."""
        names = name_workers(self._handles)
        waiting = [text for handle in self._handles if (text := handle.describe_pending())]
        if not waiting:
            return f"a batch of {names}"
        return (
            f"a batch of {names}, which may begin no further rollout while items of earlier ones wait: "
            f"{'; '.join(waiting)}. Sample from there in another thread, or raise the bound of the rate limiter"
        )

    def _place(self) -> int | None:
        """Returns the place of the batch to hand out. After a failure those of the failed workers are the last ones."""
        failed, order = self._status.failed, self._admission.order
        if failed or order is None:
            return self._place_of(failed or range(len(self._handles)))
        for worker_idx in order:
            place = self._place_of([worker_idx])
            # A worker that stands still has not taken the first step of its next rollout.
            if place is not None or not self._handles[worker_idx].stands_still:
                return place
        return None

    def _is_stored(self, finished: Finished) -> bool:
        """Whether the rows of a batch have reached the replay, if there is one."""
        return not any(self._handles[worker_idx].is_forwarding for worker_idx in finished.counts)

    def _place_of(self, workers: Collection[int]) -> int | None:
        """Returns the place of the first batch with a rollout of one of these workers."""
        for place, finished in enumerate(self._waiting):
            if any(worker_idx in workers for worker_idx in finished.counts):
                return place
        return None

    def _must_raise(self) -> bool:
        may_come = self._is_asked and self._status.failed.issubset(self._assembly.workers)
        return not self.hands_out and not may_come

    def _hand_out(self, finished: Finished) -> Batch:
        """Counts a batch. Where Ctrl-C ends the call, the next one hands the batch out."""
        weights = self._weights()
        # Counted first, beside the weights that the batch could have: those that are held act from the next one on.
        self._tally.add(finished.total, 1, newest=weights.number)
        weights.end_hold()
        me = threading.get_ident()
        with self._status.changed:
            place = next(place for place, each in enumerate(self._waiting) if each is finished)
            unsettled = [*self._unsettled, *finished.counts.items()]
            # No call between these: Ctrl-C leaves the batch in one of both (test_interrupts_of_batches.py).
            self.unreturned[me], self._unsettled = finished.batch, unsettled
            del self._waiting[place]
        self._settle_soon()
        return finished.batch

    def _settle_soon(self) -> None:
        """Settles, and waits where something depends on that. Where Ctrl-C came before, the next call does it."""
        if self._admission.order is not None or self._tally.is_complete():
            self.settle()
        elif self._unsettled:
            self._submit(self._settle_all)

    def settle(self) -> None:
        """Counts the rollouts that were handed out, each for its worker, and lets the workers go on."""
        if self._unsettled:
            PEERS.submit(self._settle_all).result()

    @property
    def is_settled(self) -> bool:
        """Whether no rollout is left for `settle`."""
        return not self._unsettled

    def _settle_all(self) -> None:
        """Does what `settle` says; the thread that listens to the workers calls it."""
        while self._unsettled:
            worker_idx, counts = self._unsettled[0]
            try:
                self._handed_out([worker_idx])
            finally:
                with self._status.changed:
                    self._tally.workers[worker_idx].add(counts, 1)
                    self._unsettled = self._unsettled[1:]

    def worker_tallies(self) -> list[WorkerTally]:
        """Returns the counters of each worker with all rollouts that were handed out."""
        with self._status.changed:
            tallies = [replace(tally) for tally in self._tally.workers]
            for worker_idx, counts in self._unsettled:
                tallies[worker_idx].add(counts, 1)
        return tallies

    @property
    def rollouts(self) -> list[int]:
        """The workers of the rollouts of the waiting batches."""
        return [worker_idx for finished in self._waiting for worker_idx in finished.counts]

    @property
    def is_asked(self) -> bool:
        """Whether the workers have begun a batch because it was asked for."""
        return self._is_asked

    def state_dict(self) -> list[dict[str, Any]]:
        """Returns the batches, in the order in which they are handed out; `changed` of the status is held."""
        return [
            {
                "columns": {name: finished.batch[name] for name in finished.batch},
                "counts": {str(worker): asdict(counts) for worker, counts in finished.counts.items()},
            }
            for finished in self._in_order()
        ]

    def unreturned_state(self) -> dict[str, Any] | None:
        """Returns the batch that this thread's next call returns first; None: there is none."""
        batch = self._not_returned()
        return None if batch is None else {"columns": dict(batch), "worker": batch.worker_idx or 0}

    def _in_order(self) -> list[Finished]:
        order = self._admission.order
        if order is None:
            return list(self._waiting)
        batches: dict[int, deque[Finished]] = defaultdict(deque)
        for finished in self._waiting:
            batches[min(finished.counts)].append(finished)
        # A rollout that was begun and is not complete stands still.
        return [batches[worker_idx].popleft() for worker_idx in order if batches[worker_idx]]

    def load_state_dict(
        self, batches: Sequence[Mapping[str, Any]], makers: Sequence[BatchMaker], *, is_asked: bool
    ) -> None:
        """Replaces the batches by those of a state; `changed` of the status is held.

        Args:
            batches: as `state_dict` returned them.
            makers: of the batches.
            is_asked: see the property.
        """
        self._waiting.clear()
        self.unreturned.clear()
        self._is_asked = is_asked
        for state in batches:
            counts = {int(worker): StepCounts(**each) for worker, each in state["counts"].items()}
            maker = makers[min(counts)] if len(makers) > 1 else makers[0]
            self._waiting.append(Finished.of(maker.restored(state["columns"]), counts))

    def discard(self) -> None:
        """Drops the batches, and counts their frames as discarded."""
        with self._status.changed:
            frames = sum(finished.frames for finished in self._waiting)
            self._tally.discard(frames + (self._assembly.frames if self._is_asked else 0))
            self._waiting.clear()

    def forget(self) -> None:
        """In a forked child: drops the batches, which are the parent's."""
        self._waiting.clear()
