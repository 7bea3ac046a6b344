"""How far a queue has got with the samples of each client, so that a sample sent again is stored once."""

from __future__ import annotations

from typing import Protocol

from headrace.clock import SYSTEM_CLOCK, Clock
from headrace.server.recent import Recent


class Sender(Protocol):
    """The connection over which the samples of a session come."""

    def close(self) -> None:
        """Stores no more samples."""


class SenderSessions:
    """The number of the last sample stored of each session, for as long as `Recent` keeps it.

    A session is a random name, and its samples are numbered from 1.

    Args:
        clock: tells the time.

    >>> sessions = SenderSessions()
    >>> sessions.set_stored(b"name", 3)
    >>> sessions.stored(b"name"), sessions.stored(b"other")
    (3, 0)
    """

    def __init__(self, clock: Clock = SYSTEM_CLOCK) -> None:
        self._stored: Recent[bytes, int] = Recent(clock)
        self._senders: dict[bytes, Sender] = {}

    def begin(self, session: bytes, sender: Sender, known: int) -> int:
        """Closes the earlier sender of a session, whose connection may not be known to have ended.

        Args:
            session: its name.
            sender: of its new connection.
            known: number of the last sample that the client knows to be stored, here or in an earlier queue.

        Returns:
            The number of the last sample that is not to be stored again.
        """
        earlier = self._senders.get(session)
        if earlier is not None:
            earlier.close()
        self._senders[session] = sender
        return max(self.stored(session), known)

    def end(self, session: bytes, sender: Sender) -> None:
        """Notes that a sender is closed."""
        if self._senders.get(session) is sender:
            del self._senders[session]

    def stored(self, session: bytes) -> int:
        """Returns the number of the last sample of a session that the queue has stored; 0: none."""
        return self._stored.get(session) or 0

    def set_stored(self, session: bytes, number: int) -> None:
        """Notes that the samples of a session up to this one are stored."""
        self._stored.put(session, number)
