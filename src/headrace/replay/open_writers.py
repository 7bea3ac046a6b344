"""The writers that can bring the items that samples wait for."""

from __future__ import annotations

import threading
import weakref
from collections.abc import Mapping

from headrace.replay.lifetime import Lifetime
from headrace.tables.live_table import LiveTable


class OpenWriters:
    """Open writers of a replay: of this process, and of others whose steps it takes in.

    Args:
        lifetime, lock, tables: of the replay.
    """

    def __init__(self, lifetime: Lifetime, lock: threading.RLock, tables: Mapping[str, LiveTable]) -> None:
        self._lifetime = lifetime
        self._lock = lock
        self._tables = tables
        self._writers: weakref.WeakSet[object] = weakref.WeakSet()

    def opened(self, writer: object) -> None:
        """Notes that a writer can bring items; waits that an earlier failure would end are possible again."""
        with self._lock:
            self._lifetime.check_open()
            self._writers.add(writer)
            for live in self._tables.values():
                live.failure = None

    def closed(self, writer: object) -> None:
        """Notes that a writer will bring nothing more."""
        with self._lock:
            self._writers.discard(writer)

    def failed(self, writer: object, failure: BaseException) -> None:
        """Notes that a writer has failed; if it was the last one, waits to sample end with its error."""
        with self._lock:
            self._writers.discard(writer)
            if not self._writers and not self._lifetime.is_closed:
                for live in self._tables.values():
                    live.fail(failure)
