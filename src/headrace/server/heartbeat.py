"""Notices that a peer is silent while something is expected of it.

The systems of both machines notice a lost connection themselves if it is idle (`headrace.server.keepalive`). A peer
that hangs, or a network device that keeps a dead connection alive, is noticed only by the lack of an answer.
"""

from __future__ import annotations

from enum import Enum

ASK_SECONDS = 4.0
ANSWER_SECONDS = 9.0


class Pulse(Enum):
    """The next step with a peer: none, ask it for a sign of life, or end the connection."""

    FINE = "fine"
    ASK = "ask"
    GONE = "gone"


class Heartbeat:
    """Judges one peer, by the bytes that have moved on its connection.

    A peer is asked after 4 s of silence, and gone 9 s later. It is judged gone only at a second look, because the first
    one may come late: the caller was stopped, and the answer has arrived without having been read.

    >>> heartbeat = Heartbeat()
    >>> [heartbeat.look(now, 100).value for now in (0.0, 3.9, 4.0, 12.9, 13.0, 13.5)]
    ['fine', 'fine', 'ask', 'fine', 'fine', 'gone']
    """

    def __init__(self) -> None:
        self._nbytes = -1
        self._since = 0.0
        self._asked: float | None = None
        self._is_suspect = False

    def restart(self) -> None:
        """Begins anew with the next look: nothing was expected of the peer meanwhile."""
        self._nbytes = -1

    def look(self, now: float, nbytes: int) -> Pulse:
        """Returns what to do.

        Args:
            now: in seconds.
            nbytes: that have moved on the connection so far.
        """
        if nbytes != self._nbytes:
            self._nbytes, self._since, self._asked, self._is_suspect = nbytes, now, None, False
            return Pulse.FINE
        if self._asked is None:
            if now - self._since < ASK_SECONDS:
                return Pulse.FINE
            self._asked = now
            return Pulse.ASK
        if now - self._asked < ANSWER_SECONDS:
            return Pulse.FINE
        was_suspect, self._is_suspect = self._is_suspect, True
        return Pulse.GONE if was_suspect else Pulse.FINE
