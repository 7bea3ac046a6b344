"""A clock that only the test moves."""

from __future__ import annotations

import threading
from dataclasses import dataclass

from headrace.conditions import SignalSafeCondition


@dataclass(eq=False, slots=True)
class _Waiter:
    condition: threading.Condition
    deadline: float | None
    expired: bool = False


class FakeClock:
    """A `headrace.clock.Clock` whose time changes only by `advance`.

    Waiters whose deadline is reached wake at `advance`, and not before. `wait_for_waiters` returns when the code under
    test waits, so a test never has to sleep. Like any condition, a wait may also end without a reason.

    Args:
        start: the first value of `monotonic`, in seconds.

    >>> clock = FakeClock(start=100.0)
    >>> clock.advance(2.5)
    >>> clock.monotonic()
    102.5
    """

    def __init__(self, start: float = 0.0) -> None:
        self._now = start
        self._waiters: list[_Waiter] = []
        self._changed = SignalSafeCondition()

    def monotonic(self) -> float:
        """Returns the time set by the test, in seconds."""
        with self._changed:
            return self._now

    @property
    def waiters(self) -> int:
        """Number of calls of `wait` that have not returned and were not ended by `advance`."""
        with self._changed:
            return len(self._waiters)

    def wait(self, condition: threading.Condition, timeout: float | None) -> bool:
        """Waits on `condition`, which the caller holds, until it is notified or `advance` passes the deadline."""
        if timeout is not None and timeout <= 0:
            return condition.wait(0)
        with self._changed:
            waiter = _Waiter(condition, None if timeout is None else self._now + timeout)
            self._waiters.append(waiter)
            self._changed.notify_all()
        try:
            condition.wait()
        finally:
            with self._changed:
                if not waiter.expired:
                    self._waiters.remove(waiter)
        return not waiter.expired

    def advance(self, seconds: float) -> None:
        """Moves the time and wakes every waiter whose deadline is reached, those of the earliest deadline first.

        Do not call it while holding a condition that has a plain `Lock`: the waiters' conditions are taken one by one.

        Raises:
            ValueError: `seconds` is negative.
        """
        if not seconds >= 0:
            raise ValueError(f"seconds: expected 0 or more, got {seconds}")
        with self._changed:
            self._now += seconds
            due = [w for w in self._waiters if w.deadline is not None and w.deadline <= self._now]
            for waiter in due:
                waiter.expired = True
                self._waiters.remove(waiter)
        for waiter in sorted(due, key=lambda w: w.deadline or 0.0):
            with waiter.condition:
                waiter.condition.notify_all()

    def wait_for_waiters(self, n: int, timeout: float = 10.0) -> None:
        """Returns as soon as at least `n` threads wait on this clock.

        Args:
            n: number of threads.
            timeout: seconds of real time after which the test fails.

        Raises:
            TimeoutError: fewer than `n` wait by then.
        """
        with self._changed:
            if not self._changed.wait_for(lambda: len(self._waiters) >= n, timeout):
                raise TimeoutError(f"expected {n} waiters within {timeout} s, got {len(self._waiters)}")
