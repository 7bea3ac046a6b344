"""Complete batches of workers, handed out one after the other."""

# Rules: collectors CV7, CX2

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from typing import Any

from headrace.collectors.batches.batch import Batch
from headrace.collectors.batches.batch_maker import BatchMaker
from headrace.collectors.handle.group_status import GroupStatus
from headrace.collectors.loop.step_counts import StepCounts
from headrace.collectors.multi.assembly import Assembly, Finished
from headrace.collectors.statistics import Tally


class FinishedBatches:
    """The batches that wait for the learner, the oldest first. Thread-safe.

    Args:
        status: of the workers.
        tally: counts what is handed out.
        assembly: makes the batches.
        describe: names, in messages, what a wait for a batch waits for.
        check: raises where no further batch can come.
        begin_batch: tells the workers to begin a batch.
        handed_out: called after each, with the workers that collected it.
    """

    def __init__(
        self,
        status: GroupStatus,
        tally: Tally,
        assembly: Assembly,
        describe: Callable[[], str],
        check: Callable[[], None],
        begin_batch: Callable[[], None],
        handed_out: Callable[[list[int]], None],
    ) -> None:
        self._status = status
        self._tally = tally
        self._assembly = assembly
        self._describe = describe
        self._check = check
        self._begin_batch = begin_batch
        self._handed_out = handed_out
        self._waiting: deque[Finished] = deque()
        # Whether a thread is about to hand out a batch: one at a time, because episodes are numbered in their order.
        self._hands_out = False
        # Whether the workers have begun a batch because it was asked for.
        self._is_asked = False

    @property
    def hands_out(self) -> bool:
        """Whether a thread is about to hand out a batch."""
        return self._hands_out

    def __len__(self) -> int:
        return len(self._waiting)

    def add(self, finished: Finished) -> None:
        """Adds a batch."""
        with self._status.changed:
            self._waiting.append(finished)
            self._is_asked = False
            self._status.changed.notify_all()

    def next(self, timeout: float | None) -> Batch | None:
        """Returns the batch that waits longest; None when `total_frames` were handed out. Any thread may call it.

        Raises:
            RuntimeError: every environment waits for a reset.
            Exception: as `GroupStatus.wait`, when the failed worker's batches were handed out.
        """
        status, finished = self._status, None
        try:
            with status.changed:
                status.wait_held(self._can_hand_out, timeout, self._describe, self._must_raise)
                if self._tally.is_complete():
                    return None
                place = self._place()
                assert place is not None
                finished = self._waiting[place]
                del self._waiting[place]
                self._hands_out = True
            return self._hand_out(finished)
        finally:
            if finished is not None:
                with status.changed:
                    self._hands_out = False
                    status.changed.notify_all()

    def _can_hand_out(self) -> bool:
        """Returns whether a batch can be handed out, or none will follow; else begins one if workers wait for that."""
        if self._hands_out:
            return False
        if self._tally.is_complete() or self._place() is not None:
            return True
        if not self._is_asked:
            self._check()
        if not self._is_asked and not self._status.failed and self._assembly.begin():
            self._is_asked = True
            self._begin_batch()
        return False

    def _place(self) -> int | None:
        """Returns the place of the batch to hand out. After a failure those of the failed workers are the last ones."""
        failed = self._status.failed
        for place, finished in enumerate(self._waiting):
            if not failed or failed.intersection(finished.counts):
                return place
        return None

    def _must_raise(self) -> bool:
        may_come = self._is_asked and self._assembly.has_rollouts_of(self._status.failed)
        return not self._hands_out and not may_come

    def _hand_out(self, finished: Finished) -> Batch:
        """Counts a batch. Where Ctrl-C ends the call, the next one hands the batch out."""
        try:
            counts = StepCounts()
            for each in finished.counts.values():
                counts.add(each)
            self._tally.add(counts, 1)
        except BaseException:
            with self._status.changed:
                self._waiting.appendleft(finished)
            raise
        for worker_idx, each in finished.counts.items():
            self._tally.workers[worker_idx].add(each, 1)
        self._handed_out(list(finished.counts))
        return finished.batch

    def count_of(self, worker_idx: int) -> int:
        """Returns the number of waiting batches with a rollout of a worker."""
        return sum(worker_idx in finished.counts for finished in self._waiting)

    def state_dict(self) -> list[dict[str, Any]]:
        """Returns the batches, oldest first; `changed` of the status is held."""
        return [
            {
                "columns": {name: finished.batch[name] for name in finished.batch},
                "counts": {str(worker): asdict(counts) for worker, counts in finished.counts.items()},
            }
            for finished in self._waiting
        ]

    def load_state_dict(self, batches: Sequence[Mapping[str, Any]], makers: Sequence[BatchMaker]) -> None:
        """Replaces the batches by those of a state; `changed` of the status is held."""
        self._waiting.clear()
        self._is_asked = False
        for state in batches:
            counts = {int(worker): StepCounts(**each) for worker, each in state["counts"].items()}
            maker = makers[min(counts)] if len(makers) > 1 else makers[0]
            self._waiting.append(Finished(maker.restored(state["columns"]), counts))

    def discard(self) -> None:
        """Drops the batches, and counts their frames as discarded."""
        with self._status.changed:
            frames = sum(finished.frames for finished in self._waiting)
            self._tally.frames_discarded += frames + (self._assembly.frames if self._is_asked else 0)
            self._waiting.clear()

    def forget(self) -> None:
        """In a forked child: drops the batches, which are the parent's."""
        self._waiting.clear()
