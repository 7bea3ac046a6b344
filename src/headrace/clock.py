"""Time is given in, never taken: whatever waits takes a clock, so that tests move time by hand."""

from __future__ import annotations

import threading
import time
from typing import Protocol


class Clock(Protocol):
    """What tells the time and waits."""

    def monotonic(self) -> float:
        """Seconds since some fixed moment; never goes back."""

    def wait(self, condition: threading.Condition, timeout: float | None) -> bool:
        """Waits on `condition`, which the caller holds, as `threading.Condition.wait` does.

        Args:
            condition: released while waiting, held again on return.
            timeout: in seconds; None waits for ever.

        Returns:
            False if the time ran out. True says only that something was notified: look again at what you wait for.
        """


class SystemClock:
    """The clock of the machine.

    >>> clock = SystemClock()
    >>> clock.monotonic() <= clock.monotonic()
    True
    """

    def monotonic(self) -> float:
        """Seconds of `time.monotonic`."""
        return time.monotonic()

    def wait(self, condition: threading.Condition, timeout: float | None) -> bool:
        """Waits on `condition`, at most `timeout` seconds of real time."""
        return condition.wait(timeout)


SYSTEM_CLOCK: Clock = SystemClock()
