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

    A session is a random name, and its samples are numbered from 1. While its connection is open, its sender has the
    number.

    Args:
        clock: tells the time.

    >>> class Connection:
    ...     def close(self):
    ...         sessions.end(b"name", self, 3)
    >>> sessions = SenderSessions()
    >>> sessions.begin(b"name", Connection(), known=0)
    0
    >>> sessions.begin(b"name", Connection(), known=0)
    3
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
        return max(self._stored.get(session) or 0, known)

    def end(self, session: bytes, sender: Sender, stored: int) -> None:
        """Notes that a sender is closed.

        Args:
            session: its name.
            sender: of the connection.
            stored: number of the last sample of the session that the queue has stored; 0: none.
        """
        if stored:
            self._stored.put(session, stored)
        if self._senders.get(session) is sender:
            del self._senders[session]
