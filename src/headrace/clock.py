"""Clocks: everything that waits takes a clock as an argument, so that tests control the time."""

from __future__ import annotations

import threading
import time
from typing import Protocol


class Clock(Protocol):
    """Tells the time and waits."""

    def monotonic(self) -> float:
        """Seconds since some fixed moment; never goes back."""

    def wait(self, condition: threading.Condition, timeout: float | None) -> bool:
        """Waits on `condition`, which the caller holds, as `threading.Condition.wait` does.

        Args:
            condition: released while waiting, held again on return.
            timeout: in seconds; None waits without limit.

        Returns:
            Whether the condition was notified. In both cases check again the condition's state, and the time.
        """


_LONGEST_SLEEP = 1.0


class SystemClock:
    """The clock of the machine.

    >>> clock = SystemClock()
    >>> clock.monotonic() <= clock.monotonic()
    True
    """

    # The function itself, without a wrapper: it is called for each batch.
    monotonic = staticmethod(time.monotonic)

    def wait(self, condition: threading.Condition, timeout: float | None) -> bool:
        """Waits on `condition`, at most `timeout` seconds of real time and at most one second at a time."""
        # At most a second at a time, because a signal that comes just before the thread sleeps does not wake it.
        return condition.wait(_LONGEST_SLEEP if timeout is None else min(timeout, _LONGEST_SLEEP))


SYSTEM_CLOCK: Clock = SystemClock()
