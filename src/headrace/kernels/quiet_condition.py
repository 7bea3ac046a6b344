"""A condition that is mostly notified while nobody waits, and that wakes a thread without the interpreter lock.

The condition of Python wakes a thread while the caller holds the interpreter lock. If both share a processor, the
system runs the woken thread at once, which finds that lock taken and sleeps again. These two switches take 10 us, as
much as the way of a small sample through a server.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import cython

from headrace.conditions import SignalSafeCondition

if cython.compiled:
    from cython.cimports.cpython.exc import PyErr_CheckSignals
    from cython.cimports.headrace.kernels.atomics import nanoseconds
    from cython.cimports.headrace.kernels.locks import (
        TAKEN_LOCK,
        acquire_within,
        allocate_lock,
        free_lock,
        release_lock,
    )
else:
    from headrace.kernels.kinds import Bool, Float, Int

# Of a wait without a limit.
_MOST_SECONDS = 1e6


class WaitersLock:
    """A lock that a waiting thread holds until another thread releases it, once.

    >>> lock = WaitersLock()
    >>> lock.acquire_within(0.0)
    False
    >>> lock.release()
    >>> lock.acquire_within(10.0)
    True
    """

    def __init__(self) -> None:
        if cython.compiled:
            self._lock = allocate_lock()
            if not self._lock:
                raise MemoryError
            acquire_within(self._lock, 0)
        else:
            self._lock = threading.Lock()
            self._lock.acquire()

    if cython.compiled:

        def __dealloc__(self) -> None:
            if self._lock:
                free_lock(self._lock)

    def acquire_within(self, seconds: Float) -> Bool:
        """Waits for `release`; returns whether it was called within `seconds`. Ctrl-C ends the wait."""
        if cython.compiled:
            end: Int = nanoseconds() + cython.cast(Int, seconds * 1e9)
            while True:
                with cython.nogil:
                    left: Int = end - nanoseconds()
                    found: Int = acquire_within(self._lock, left // 1000 if left > 0 else 0)
                if found == TAKEN_LOCK:
                    return True
                # May raise what a handler of signals raises.
                PyErr_CheckSignals()
                if nanoseconds() >= end:
                    return False
        else:
            is_released: bool = self._lock.acquire(timeout=seconds)
            return is_released

    def release(self) -> None:
        """Ends the wait. The interpreter lock is free while the system wakes the thread."""
        if cython.compiled:
            with cython.nogil:
                release_lock(self._lock)
        else:
            self._lock.release()


class QuietCondition(SignalSafeCondition):
    """A condition for threads that hand work over to each other.

    >>> condition = QuietCondition(threading.RLock())
    >>> with condition:
    ...     condition.wait(0.0)
    False
    """

    # Of `threading.Condition`: they give up a lock that is held several times, and take it as often.
    _release_save: Callable[[], Any]
    _acquire_restore: Callable[[Any], None]

    def __init__(self, lock: threading.RLock | threading.Lock) -> None:
        super().__init__(lock)
        self._sleepers: deque[WaitersLock] = deque()

    def wait(self, timeout: float | None = None) -> bool:
        """See `threading.Condition.wait`; the lock must be held."""
        lock = WaitersLock()
        self._sleepers.append(lock)
        is_notified = False
        times = self._release_save()
        try:
            is_notified = lock.acquire_within(_MOST_SECONDS if timeout is None else max(timeout, 0.0))
        finally:
            self._acquire_restore(times)
            if not is_notified:
                with suppress(ValueError):  # It was notified meanwhile.
                    self._sleepers.remove(lock)
        return is_notified

    def notify(self, n: int = 1) -> None:
        """See `threading.Condition.notify`.

        The lock need not be held. Best is to change the state with the lock held, and to notify without it: then the
        woken thread finds it free.
        """
        while n > 0 and self._sleepers:
            n -= 1
            try:
                sleeper = self._sleepers.popleft()
            except IndexError:  # Another thread was first.
                return
            sleeper.release()

    def notify_all(self) -> None:
        """See `notify`."""
        if self._sleepers:
            self.notify(len(self._sleepers))

    def take_sleepers(self) -> list[WaitersLock]:
        """Returns the locks of the threads that wait, which the caller is to release."""
        sleepers = []
        with suppress(IndexError):
            while True:
                sleepers.append(self._sleepers.popleft())
        return sleepers
