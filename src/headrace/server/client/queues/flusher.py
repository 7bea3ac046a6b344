"""The thread that looks after the samples of all streams of this process whose senders have turned to other work."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from typing import Protocol

from headrace.forking import ForkFollowers

# Collected samples are sent after this time.
_SOON_SECONDS = 1e-3
# Samples in flight are looked after this often, so that a lost connection is noticed.
_LATE_SECONDS = 0.05
_IDLE_SECONDS = 1.0
# The thread uses at most a fifth of a processor: with many streams, a full message is cheaper than an early one.
_REST_RATIO = 4
_FOLLOWERS = ForkFollowers()
_LOGGER = logging.getLogger(__name__)


class Flushed(Protocol):
    """A stream, as the flusher calls it."""

    def flush_soon(self) -> bool:
        """Sends what is collected, as far as it may; returns whether something is collected still."""

    def look_after(self) -> bool:
        """Goes on with what is in flight; returns whether something is."""


class Flusher:
    """One thread for all streams; it starts with the first that has something to send and ends when none has.

    >>> Flusher().streams
    0
    """

    def __init__(self) -> None:
        self._begin()
        _FOLLOWERS.add(self)

    def _begin(self) -> None:
        self._lock = threading.Lock()
        self._called = threading.Event()
        self._soon: dict[Flushed, None] = {}
        self._in_flight: dict[Flushed, None] = {}
        self._thread: threading.Thread | None = None

    @property
    def streams(self) -> int:
        """Number of streams that have something in flight or collected."""
        return len(self._in_flight)

    def watch(self, stream: Flushed) -> None:
        """Calls `look_after` from time to time until it returns False."""
        with self._lock:
            self._in_flight[stream] = None
            if self._thread is None:
                self._thread = threading.Thread(target=self._run, name="headrace-samples", daemon=True)
                self._thread.start()

    def flush(self, stream: Flushed) -> None:
        """Calls `flush_soon` of a watched stream in about a millisecond, and again until it returns False."""
        with self._lock:
            self._soon[stream] = None
        self._called.set()

    def _run(self) -> None:
        late, idle_since = time.monotonic() + _LATE_SECONDS, time.monotonic()
        rest = _SOON_SECONDS
        while True:
            if self._called.wait(max(late - time.monotonic(), 0.0)):
                time.sleep(rest)
                self._called.clear()
            began, used = time.monotonic(), time.thread_time()
            self._flush_all()
            if began >= late:
                self._look_after_all()
                late = began + _LATE_SECONDS
            rest = max(_SOON_SECONDS, _REST_RATIO * (time.thread_time() - used))
            if self._in_flight:
                idle_since = began
            elif began - idle_since > _IDLE_SECONDS and self._has_ended():
                return

    def _flush_all(self) -> None:
        with self._lock:
            streams, self._soon = self._soon, {}
        left = [stream for stream in streams if _goes_on(stream.flush_soon)]
        for stream in left:
            self.flush(stream)

    def _look_after_all(self) -> None:
        with self._lock:
            streams, self._in_flight = self._in_flight, {}
        left = [stream for stream in streams if _goes_on(stream.look_after)]
        with self._lock:
            self._in_flight.update(dict.fromkeys(left))

    def _has_ended(self) -> bool:
        with self._lock:
            if self._in_flight or self._soon:
                return False
            self._thread = None
            return True

    # ---- forks -----------------------------------------------------------------------------------------------------

    def before_fork(self) -> None:
        """Keeps the lock until `os.fork` has returned."""
        self._lock.acquire()

    def after_fork_in_parent(self) -> None:
        """Releases the lock."""
        self._lock.release()

    def after_fork_in_child(self) -> None:
        """Begins without streams: those belong to the parent."""
        self._begin()


def _goes_on(call: Callable[[], bool]) -> bool:
    """Returns the result of a call; an error must not end the thread, which other streams need."""
    try:
        return call()
    except Exception:
        _LOGGER.exception("samples are sent only by further calls of their queue")
        return False


FLUSHER = Flusher()
