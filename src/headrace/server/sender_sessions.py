"""How far a queue has got with the samples of each client, so that a sample sent again is stored once."""

from __future__ import annotations

from collections import OrderedDict
from typing import Protocol

_MOST = 100_000


class Sender(Protocol):
    """The connection over which the samples of a session come."""

    def close(self) -> None:
        """Stores no more samples."""


class SenderSessions:
    """The number of the last sample stored of each session; the oldest of 100 000 sessions are forgotten.

    A session is a random name, and its samples are numbered from 1.

    >>> sessions = SenderSessions()
    >>> sessions.set_stored(b"name", 3)
    >>> sessions.stored(b"name"), sessions.stored(b"other")
    (3, 0)
    """

    def __init__(self) -> None:
        self._stored: OrderedDict[bytes, int] = OrderedDict()
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
        return self._stored.get(session, 0)

    def set_stored(self, session: bytes, number: int) -> None:
        """Notes that the samples of a session up to this one are stored."""
        self._stored[session] = number
        self._stored.move_to_end(session)
        if len(self._stored) > _MOST:
            self._stored.popitem(last=False)
