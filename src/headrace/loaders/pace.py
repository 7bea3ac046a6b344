"""Whether a learner comes back for its next batch at once, which decides the thread that draws it."""

from __future__ import annotations

import math
import time

# Seconds. If a learner is away for less between two batches, a thread that draws meanwhile does not help it.
_QUICK = 1e-4
PATIENCE = 2e-3
"""Seconds that the thread leaves drawing to such a learner, then looks whether it is away."""


class Pace:
    """Time between two requests of the learner. It is real time, because it decides which thread draws and no more.

    >>> pace = Pace()
    >>> pace.come()
    >>> pace.is_quick
    False
    """

    def __init__(self) -> None:
        self._is_quick = False
        self._left_at = -math.inf

    def come(self) -> None:
        """Records that the learner requests a batch."""
        self._is_quick = time.perf_counter() - self._left_at < _QUICK

    def leave(self) -> None:
        """Records that the learner has received a batch."""
        self._left_at = time.perf_counter()

    @property
    def is_quick(self) -> bool:
        """Whether the learner came back at once the last time."""
        return self._is_quick and time.perf_counter() - self._left_at < PATIENCE
