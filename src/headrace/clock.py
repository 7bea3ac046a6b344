"""Time is given in, never taken: whatever waits takes a clock, so that tests move time by hand."""

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
            timeout: in seconds; None waits for ever.

        Returns:
            Whether something was notified. Either way look again at what you wait for, and at the time.
        """


_LONGEST_SLEEP = 1.0


class SystemClock:
    """The clock of the machine.

    >>> clock = SystemClock()
    >>> clock.monotonic() <= clock.monotonic()
    True
    """

    # Itself, without a function around it: it is asked for each batch.
    monotonic = staticmethod(time.monotonic)

    def wait(self, condition: threading.Condition, timeout: float | None) -> bool:
        """Waits on `condition`, at most `timeout` seconds of real time and at most one second at a time."""
        # In turns of a second: a signal that comes just before the thread sleeps does not wake it.
        return condition.wait(_LONGEST_SLEEP if timeout is None else min(timeout, _LONGEST_SLEEP))


SYSTEM_CLOCK: Clock = SystemClock()
