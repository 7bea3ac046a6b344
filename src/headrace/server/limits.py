"""Limits of a server: what one client, or all of them together, may take of it."""

from __future__ import annotations

from dataclasses import dataclass, fields

from headrace.checks import check_count, check_seconds


@dataclass(frozen=True, kw_only=True)
class Limits:
    """Limits of the clients of a server. A client at a limit waits or is refused.

    Attributes:
        connections: open at a time; a further client is refused. Each open writer needs a second connection of its
            client. The process needs as many descriptors.
        payload_nbytes: rows of one message of a client, and arrays of one batch. Writers of clients send as many vector
            steps together as fit, up to 1 MiB. Over TCP they need at least one vector step, with its final rows.
        lanes: of one writer.
        unread_nbytes: answers that a client has not read. Above it the server takes no further request of this client.
        queued_nbytes: steps of a client that wait for a page or a rate limiter. Above it the server reads no further
            step of this client, whose calls then wait.
        handshake_timeout: in seconds; a connection that has not finished its handshake by then is ended.

    Raises:
        ValueError, TypeError: not a number in its range.

    >>> Limits(connections=100).connections
    100
    """

    connections: int = 4096
    payload_nbytes: int = 1 << 30
    lanes: int = 1 << 17
    unread_nbytes: int = 1 << 22
    queued_nbytes: int = 1 << 26
    handshake_timeout: float = 10.0

    def __post_init__(self) -> None:
        for field in fields(self):
            if field.name != "handshake_timeout":
                check_count(field.name, getattr(self, field.name), 1)
        if (check_seconds(self.handshake_timeout, "handshake_timeout") or 0) <= 0:
            raise ValueError(f"handshake_timeout: expected seconds > 0, got {self.handshake_timeout}")
