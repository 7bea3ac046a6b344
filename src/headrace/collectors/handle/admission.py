"""Admission of a worker's rollouts."""

# Rules: collectors CV7, CR3

from __future__ import annotations

import threading
from collections.abc import Callable

from headrace.collectors.statistics import Tally


class Admission:
    """Lets a worker begin rollouts, as far as they are owed and allowed.

    A rollout is owed for each free slot: two at first, one more for each rollout that was handed out or written. It is
    granted when no items of earlier rollouts wait for a rate limiter, and when the frames of the rollouts under way
    cannot reach `total_frames` already.

    Args:
        tally: frames and batches so far.
        frames: of a rollout without masked rows.
        total_frames: -1 is no end.
        is_blocked: returns whether no rollout may be begun now.
        grant: sends a grant to the worker; called with the number of the rollout.

    >>> begun = []
    >>> admission = Admission(Tally(), 10, 20, lambda: False, begun.append)
    >>> admission.owe(2); admission.owe(1)
    >>> begun
    [0, 1]
    """

    def __init__(
        self,
        tally: Tally,
        frames: int,
        total_frames: int,
        is_blocked: Callable[[], bool],
        grant: Callable[[int], None],
    ) -> None:
        self._tally = tally
        self._frames = frames
        self._total = total_frames
        self._is_blocked = is_blocked
        self._grant = grant
        self._owed = self._granted = 0
        self._lock = threading.Lock()

    def owe(self, count: int) -> None:
        """Adds `count` free slots, so that the worker may begin as many more rollouts."""
        with self._lock:
            self._owed += count
        self.settle()

    def settle(self) -> None:
        """Grants the rollouts that are owed and allowed. Any thread calls it when they may have become allowed."""
        with self._lock:
            while self._owed and self._may_begin():
                self._owed -= 1
                self._grant(self._granted)
                self._granted += 1

    def _may_begin(self) -> bool:
        if self._is_blocked():
            return False
        frames, batches = self._tally.progress()
        # Rows that will be masked are not known yet, so those under way count in full.
        return self._total < 0 or frames + (self._granted - batches) * self._frames < self._total
