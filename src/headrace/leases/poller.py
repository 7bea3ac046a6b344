"""Tells which of many descriptors can be read or written: `selectors` of Python, whose wait is compiled.

Python's own wait makes lists and objects in some three functions for each message. They take as long as the rest of
what the thread does before it reads the socket, when another process has taken the caches in between.
"""

from __future__ import annotations

import os
import selectors
from typing import Any

import cython
import numpy as np

from headrace.kernels.quiet_condition import WaitersLock

if cython.compiled:
    from cython.cimports.headrace.kernels.locks import release_lock
    from cython.cimports.headrace.kernels.polling import HAS_EPOLL, wait_ready
else:
    from headrace.kernels.kinds import Float, Int

READ, WRITE = selectors.EVENT_READ, selectors.EVENT_WRITE


class Poller:
    """Watches descriptors. Used by one thread.

    >>> reading, writing = os.pipe()
    >>> poller = Poller()
    >>> poller.watch(reading, READ, "a pipe")
    >>> poller.wait(0.0, []), os.write(writing, b"x"), poller.wait(1.0, [])
    ([], 1, [('a pipe', 1)])
    >>> poller.watch(reading, 0, None)
    >>> poller.wait(0.0, [])
    []
    >>> poller.close(); os.close(reading); os.close(writing)
    """

    def __init__(self) -> None:
        self._selector = selectors.DefaultSelector()
        # Of each descriptor: what the caller named it, and the events that it waits for.
        self._keys: dict[int, tuple[Any, int]] = {}
        # Of the system's object for `wait_ready`; -1: there is none.
        self._descriptor = -1
        # A pair for each of the descriptors that one wait finds.
        self._found = np.zeros(128, np.int64)
        if (
            cython.compiled
            and HAS_EPOLL
            and isinstance(self._selector, getattr(selectors, "EpollSelector", ()))
        ):
            self._descriptor = self._selector.fileno()

    def watch(self, descriptor: int, events: int, name: Any) -> None:
        """Waits for events of a descriptor from here on, instead of those before; no events: for none.

        Args:
            descriptor: of something that is open; a closed one may only be watched for nothing.
            events: `READ`, `WRITE`, both, or 0.
            name: that `wait` returns with its events.
        """
        before = self._keys.get(descriptor)
        if not events:
            if before is not None:
                del self._keys[descriptor]
                self._selector.unregister(descriptor)
        elif before is None or before[0] is not name:
            if before is not None:  # It was closed, and its number is another one's now.
                self.watch(descriptor, 0, None)
            self._selector.register(descriptor, events)
            self._keys[descriptor] = name, events
        elif before[1] != events:
            self._selector.modify(descriptor, events)
            self._keys[descriptor] = name, events

    def wait(self, seconds: Float, sleepers: list[WaitersLock]) -> list[tuple[Any, int]]:
        """Waits for at most so many seconds; returns the names of what is ready, with the events.

        Args:
            seconds: to wait at most.
            sleepers: of threads that are woken first. The interpreter lock is free from before the last of them is
                woken until the wait is over: a woken thread does not find it taken.
        """
        last: WaitersLock | None = sleepers.pop() if sleepers else None
        for sleeper in sleepers:
            sleeper.release()
        if cython.compiled and self._descriptor >= 0:
            milliseconds: Int = cython.cast(Int, seconds * 1000.0)
            if milliseconds < seconds * 1000.0:
                milliseconds += 1
            with cython.nogil:
                if last is not None:
                    release_lock(last._lock)
                count: Int = wait_ready(self._descriptor, milliseconds, cython.address(self._found[0]))
            if count < 0:
                raise OSError(-count, os.strerror(-count))
            found = []
            place: Int
            for place in range(count):
                key = self._keys.get(self._found[2 * place])
                if key is not None:
                    name, events = key
                    found.append((name, self._found[2 * place + 1] & events))
            return found
        if last is not None:
            last.release()
        return [(self._keys[key.fd][0], events) for key, events in self._selector.select(seconds)]

    def close(self) -> None:
        """Watches nothing any more."""
        self._selector.close()
