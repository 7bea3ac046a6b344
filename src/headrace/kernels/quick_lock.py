"""Locks that compiled code takes and gives without a call of Python."""

from __future__ import annotations

import threading
from typing import Any

import cython

if cython.compiled:
    from cython.cimports.cpython.exc import PyErr_CheckSignals
    from cython.cimports.headrace.kernels.locks import (
        TAKEN_LOCK,
        acquire_within,
        allocate_lock,
        free_lock,
        release_lock,
        thread_number,
    )
else:
    from headrace.kernels.kinds import Bool, Int


class ThreadingNames:
    """The names of `threading` for a lock."""

    def take(self) -> None:
        """Waits for the lock, and takes it."""
        raise NotImplementedError

    def give(self) -> None:
        """Gives the lock back."""
        raise NotImplementedError

    def acquire(self) -> bool:
        """See `take`."""
        self.take()
        return True

    def release(self) -> None:
        """See `give`."""
        self.give()

    def __enter__(self) -> None:
        self.take()

    def __exit__(self, *_: object) -> None:
        self.give()


class QuickLock(ThreadingNames):
    """A lock like that of `threading`, also for its conditions.

    Where another process has taken the caches in between, a `with` of Python's lock costs compiled code 1 us. `take`
    and `give` save half of it.

    >>> lock = QuickLock()
    >>> with lock:
    ...     lock.take_now()
    False
    >>> lock.take_now()
    True
    """

    def __init__(self) -> None:
        if cython.compiled:
            self._lock = allocate_lock()
            if not self._lock:
                raise MemoryError
        else:
            self._plain = threading.Lock()

    if cython.compiled:

        def __dealloc__(self) -> None:
            if self._lock:
                free_lock(self._lock)

    def take_now(self) -> Bool:
        """Takes the lock if it is free; returns whether it was."""
        if cython.compiled:
            is_taken: Bool = acquire_within(self._lock, 0) == TAKEN_LOCK
            return is_taken
        else:
            return self._plain.acquire(blocking=False)

    def take(self) -> None:
        """Waits for the lock, and takes it. Ctrl-C ends the wait."""
        if cython.compiled:
            if acquire_within(self._lock, 0) == TAKEN_LOCK:
                return
            while True:
                with cython.nogil:
                    found: Int = acquire_within(self._lock, -1)
                if found == TAKEN_LOCK:
                    return
                # May raise what a handler of signals raises.
                PyErr_CheckSignals()
        else:
            self._plain.acquire()

    def give(self) -> None:
        """Gives the lock back."""
        if cython.compiled:
            release_lock(self._lock)
        else:
            self._plain.release()

    def acquire(self, blocking: bool = True) -> bool:
        """See `take` and `take_now`."""
        if not blocking:
            return self.take_now()
        self.take()
        return True


class QuickRLock(ThreadingNames):
    """A `QuickLock` that its owner may take again, as `threading.RLock`.

    Where kernels run as plain Python, `take` and a `try` behind it are not enough: Ctrl-C may come between them, and
    the lock would stay taken. There a `with` of `threading.RLock` takes their place.

    >>> lock = QuickRLock()
    >>> with lock, lock:
    ...     pass
    >>> lock.release()
    Traceback (most recent call last):
    RuntimeError: this thread does not hold the lock
    """

    def __init__(self) -> None:
        self._inner = QuickLock()
        # The thread that holds it, which alone changes both; 0: none does.
        self._owner = 0
        self._depth = 0

    def take(self) -> None:
        """Waits for the lock, and takes it. Ctrl-C ends the wait."""
        me: Int = _this_thread()
        if self._owner != me:
            self._inner.take()
            self._owner = me
        self._depth += 1

    def give(self) -> None:
        """Gives the lock back, as often as it was taken.

        Raises:
            RuntimeError: another thread holds it, or none.
        """
        if self._owner != _this_thread():
            raise RuntimeError("this thread does not hold the lock")
        self._depth -= 1
        if not self._depth:
            self._owner = 0
            self._inner.give()


def _this_thread() -> Int:
    """Returns the number of this thread, which is not 0."""
    if cython.compiled:
        number: Int = thread_number()
        return number
    else:
        return threading.get_ident()


def rlock() -> Any:
    """Returns a `QuickRLock`, where kernels run as plain Python an `RLock`."""
    return QuickRLock() if cython.compiled else threading.RLock()
