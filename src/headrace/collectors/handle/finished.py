"""Complete rollouts of a worker, handed out one after the other."""

# Rules: collectors CV7

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import NamedTuple

from headrace.collectors.batches.batch import Batch
from headrace.collectors.handle.status import WorkerStatus
from headrace.collectors.loop.step_counts import StepCounts
from headrace.collectors.statistics import Tally


class _Finished(NamedTuple):
    batch: Batch
    counts: StepCounts


class FinishedRollouts:
    """The complete rollouts that wait for the learner, the oldest first. Thread-safe.

    Args:
        status: of the worker.
        tally: counts what is handed out.
        describe: names, in messages, what a wait for a batch waits for.
        handed_out: called after each.
    """

    def __init__(
        self,
        status: WorkerStatus,
        tally: Tally,
        describe: Callable[[], str],
        handed_out: Callable[[], None],
    ) -> None:
        self._status = status
        self._tally = tally
        self._describe = describe
        self._handed_out = handed_out
        self._waiting: deque[_Finished] = deque()
        # Whether a thread is about to hand out a rollout: one at a time, because episodes are numbered in their order.
        self._hands_out = False

    def __len__(self) -> int:
        return len(self._waiting)

    def add(self, batch: Batch, counts: StepCounts) -> None:
        """Adds a rollout."""
        with self._status.changed:
            self._waiting.append(_Finished(batch, counts))
            self._status.changed.notify_all()

    def next(self, timeout: float | None) -> Batch | None:
        """Returns the batch that waits longest; None when `total_frames` were handed out. Any thread may call it.

        Raises: as `WorkerStatus.wait`, when every rollout was handed out.
        """
        status, rollout = self._status, None
        try:
            with status.changed:
                status.wait_held(self._can_hand_out, timeout, self._describe, lambda: not self._hands_out)
                if self._tally.is_complete():
                    return None
                rollout = self._waiting.popleft()
                self._hands_out = True
            return self._hand_out(rollout)
        finally:
            if rollout is not None:
                with status.changed:
                    self._hands_out = False
                    status.changed.notify_all()

    def _can_hand_out(self) -> bool:
        return not self._hands_out and (bool(self._waiting) or self._tally.is_complete())

    def _hand_out(self, rollout: _Finished) -> Batch:
        """Counts a rollout. Where Ctrl-C ends the call, the next one hands the rollout out."""
        try:
            self._tally.add(rollout.counts, 1)
        except BaseException:
            with self._status.changed:
                self._waiting.appendleft(rollout)
            raise
        self._handed_out()
        return rollout.batch

    def discard(self) -> None:
        """Drops the rollouts, and counts their frames as discarded."""
        with self._status.changed:
            self._tally.frames_discarded += sum(rollout.counts.frames for rollout in self._waiting)
            self._waiting.clear()

    def forget(self) -> None:
        """In a forked child: drops the rollouts, which are the parent's."""
        self._waiting.clear()
