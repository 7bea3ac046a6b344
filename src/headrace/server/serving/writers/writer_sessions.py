"""Writers of clients by name, so that one that comes over a new connection goes on where it was."""

from __future__ import annotations

import threading
from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple, Protocol
from weakref import ReferenceType, WeakKeyDictionary

from headrace.clock import Clock
from headrace.replay.replay import ReplayCore
from headrace.server.recent import Recent
from headrace.store.left_lanes import LeftLanes
from headrace.tables.pending import Pending


class SessionKey(NamedTuple):
    """The name of a writer.

    Attributes:
        session: of the client, 16 random bytes.
        writer: its number in the client.
    """

    session: bytes
    writer: int


class Suspended(NamedTuple):
    """The writer of a client that is gone, which can go on where it was if the client comes back.

    Attributes:
        declared: its lanes, history and rules.
        sequence: of the last operation that was applied.
        refused: of the last operation that was refused; 0: none was.
        lanes: as they were then; gone once another writer has taken their page.
    """

    declared: tuple[object, ...]
    sequence: int
    refused: int
    lanes: ReferenceType[LeftLanes]


@dataclass
class Progress:
    """Items of a writer that exist.

    Attributes:
        taken: maps tables to the number of items made so far, those that wait for a rate limiter included.
        pending: those that wait.
        suspended: the writer itself; None if it cannot go on where it was.
    """

    taken: Mapping[str, int]
    pending: Pending
    suspended: Suspended | None = None

    @property
    def applied(self) -> dict[str, int]:
        """Maps tables to the number of items that are in them, or were."""
        waiting = self.pending.by_table
        return {table: count - waiting.get(table, 0) for table, count in self.taken.items()}


class Replaced(Protocol):
    """A writer whose client has come back before its connection was known to have ended."""

    def close(self) -> None:
        """Gives back its pages."""

    @property
    def progress(self) -> Progress:
        """The items that it has made."""


class WriterSessions:
    """Keeps what writers of a replay have made for clients that come back, for as long as `Recent` does. Thread-safe.

    Args:
        clock: tells the time.
    """

    def __init__(self, clock: Clock) -> None:
        self._writers: dict[SessionKey, Replaced] = {}
        self._left: Recent[SessionKey, Progress] = Recent(clock)
        # Two servers may serve one replay, each in a thread of its own. A writer comes to one of them.
        self._lock = threading.RLock()

    def resume(self, key: SessionKey) -> Progress | None:
        """Ends the earlier connection of a writer; returns what it has made, or None if it is new."""
        writer = self._writers.get(key)
        if writer is not None:
            writer.close()
        with self._lock:
            return self._left.pop(key)

    def opened(self, key: SessionKey, writer: Replaced) -> None:
        """Notes that a writer is served."""
        self._writers[key] = writer

    def lost(self, key: SessionKey, progress: Progress) -> None:
        """Notes that the connection of a writer has ended."""
        self._writers.pop(key, None)
        with self._lock:
            self._left.put(key, progress)

    def closed(self, key: SessionKey) -> None:
        """Notes that a writer was closed by its client: it does not come back."""
        self._writers.pop(key, None)
        with self._lock:
            self._left.pop(key)


_SESSIONS: WeakKeyDictionary[ReplayCore, WriterSessions] = WeakKeyDictionary()
_LOCK = threading.Lock()


def sessions_of(replay: ReplayCore) -> WriterSessions:
    """Returns the writers of a replay, the same for every server that serves it, one after the other."""
    with _LOCK:
        found = _SESSIONS.get(replay)
        if found is None:
            found = _SESSIONS[replay] = WriterSessions(replay.clock)
        return found
