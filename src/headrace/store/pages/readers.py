"""Guards of threads that copy rows without the store's lock, by epochs.

A page that is freed is retired with the present epoch. It is used again when every guard of an earlier epoch has ended.
Source: K. Fraser, "Practical lock-freedom" (2004), section 5.2.3 (epoch-based reclamation).
"""

from __future__ import annotations

import threading

from headrace.conditions import SignalSafeCondition

# Seconds of one wait: a reader may end between a look at it and the wait.
_LOOK_SECONDS = 0.05


class Readers:
    """The guards that are open.

    Args:
        lock: of the store.

    Attributes:
        epoch: of the next guard.
        waiting: number of threads that wait for a guard to end.
    """

    def __init__(self, lock: threading.RLock) -> None:
        self._lock = lock
        self._ended = SignalSafeCondition(lock)
        self._open: dict[int, threading.Thread] = {}
        self.epoch = 0
        self.waiting = 0

    def __len__(self) -> int:
        return len(self._open)

    def begin(self) -> ReadGuard:
        """Opens a guard. The lock must be held."""
        epoch = self.epoch
        self.epoch = epoch + 1
        return ReadGuard(self, self._open, epoch)

    def oldest(self) -> int:
        """Returns the epoch of the oldest open guard; without one, that of the next."""
        # A copy, in one step: guards end without the lock.
        return min(list(self._open), default=self.epoch)

    def names(self) -> str:
        """Returns the names of the threads that read."""
        return ", ".join(sorted({thread.name for thread in self._open.values()}))

    def wait_for_one(self) -> bool:
        """Waits a moment for a guard of another thread to end. The lock must be held.

        Returns:
            False without a wait, if no guard is open or this thread has one itself.
        """
        if not self._open:
            return False
        # The guard of a thread that has ended may be kept alive by a traceback.
        ended = [epoch for epoch, thread in list(self._open.items()) if not thread.is_alive()]
        for epoch in ended:
            self._open.pop(epoch, None)
        if threading.current_thread() in self._open.values():
            return False
        if ended:
            return True
        self.waiting += 1
        try:
            self._ended.wait(_LOOK_SECONDS)
        finally:
            self.waiting -= 1
        return True

    def notify(self) -> None:
        """Wakes the threads that wait."""
        with self._lock:
            self._ended.notify_all()

    def forget(self) -> None:
        """Drops all guards in a forked child, which has none of the threads that opened them."""
        self._open.clear()
        self.waiting = 0


class ReadGuard:
    """A guard of one thread. It ends with this object, wherever an error or Ctrl-C comes.

    Args:
        readers: of the store.
        open_guards: their dictionary of open guards.
        epoch: of the guard.
    """

    __slots__ = ("_epoch", "_open", "_readers")

    def __init__(self, readers: Readers, open_guards: dict[int, threading.Thread], epoch: int) -> None:
        self._readers, self._open, self._epoch = readers, open_guards, epoch
        open_guards[epoch] = threading.current_thread()

    def end(self) -> None:
        """Closes the guard. It needs no lock unless a thread waits; a second call does nothing."""
        self._open.pop(self._epoch, None)
        if self._readers.waiting:
            self._readers.notify()

    def __del__(self) -> None:
        # Without the lock: it may run anywhere.
        self._open.pop(self._epoch, None)
