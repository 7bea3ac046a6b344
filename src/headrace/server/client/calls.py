"""Calls of one replay on a server, over the connection that its client has."""

from __future__ import annotations

from typing import Any, Protocol

from headrace.errors import Closed
from headrace.leases.frames import Payload
from headrace.server.client.connecting import ServerAccess
from headrace.server.client.link import Link
from headrace.server.client.reply import Reply
from headrace.server.client.served_again import check_same
from headrace.server.client.writers.writer_connection import WriterConnection
from headrace.server.messages.requests import Request, Sample
from headrace.spec import Signature


class Connected(Protocol):
    """A client, as its replays call it.

    Attributes:
        peer: the server's address, for messages.
        access: by which another connection is made.
    """

    peer: str
    access: ServerAccess

    def link(self, timeout: float | None = None) -> Link:
        """Returns the connection; makes a new one if the last has ended.

        Args:
            timeout: of the call, in seconds; None: the client's.

        Raises:
            Closed: the client is closed, or belongs to another process.
            Disconnected: the server is gone.
        """

    def once(self, request: Request, payload: Payload = b"", owner: object = None) -> Any:
        """Returns the answer to a request, which is sent once."""

    def exchanged(
        self, request: Request, payload: Payload = b"", owner: object = None
    ) -> tuple[Any, Payload]:
        """Returns the answer to a request and its payload; see `repeated`."""

    def lasting(self, request: Request, owner: object = None) -> Any:
        """Returns the answer to a request that is sent once and may take long."""

    def repeated(self, request: Request, payload: Payload = b"", owner: object = None) -> Any:
        """Returns the answer to a request, which is sent again if the connection ends before."""

    def writers(self) -> WriterConnection:
        """Returns the connection of the client's writers; makes it if there is none.

        Raises:
            Closed, Disconnected: see `link`.
        """

    def settle(self, replay: str, timeout: float | None = None) -> None:
        """Returns when the server has applied all steps that the client's writers sent to a replay; see `link`."""

    def end_waits(self, owner: object) -> None:
        """Ends the waits of an owner with `Closed`."""


class ReplayCalls:
    """The way from a `RemoteReplay` and its tables to the server.

    Every request comes behind the steps that writers of the same client sent before.

    Args:
        client: has the connection.
        name: of the replay.
        signature: of its steps.
    """

    def __init__(self, client: Connected, name: str, signature: Signature) -> None:
        self._client = client
        self.name = name
        self._signature = signature
        # The connection over which the server serves this replay.
        self._checked: Link | None = None
        self.is_closed = False

    @property
    def peer(self) -> str:
        """The server's address."""
        return self._client.peer

    @property
    def access(self) -> ServerAccess:
        """See `Connected.access`."""
        return self._client.access

    def check_open(self) -> None:
        """Raises `Closed` if the replay was closed on this side."""
        if self.is_closed:
            raise Closed("the replay is closed")

    def once(self, request: Request, payload: Payload = b"") -> Any:
        """See `Connected.once`."""
        self._settle()
        return self._client.once(request, payload, self)

    def lasting(self, request: Request) -> Any:
        """See `Connected.lasting`."""
        self.check_open()
        return self._client.lasting(request, self)

    def repeated(self, request: Request, payload: Payload = b"") -> Any:
        """See `Connected.repeated`."""
        self._settle()
        return self._client.repeated(request, payload, self)

    def exchanged(self, request: Request) -> tuple[Any, Payload]:
        """See `Connected.exchanged`."""
        self._settle()
        return self._client.exchanged(request, owner=self)

    def link(self, timeout: float | None = None) -> Link:
        """Returns the connection; see `Connected.link`.

        Raises:
            KeyError, SpecError: the server behind a new connection has no such replay, or one of another signature.
        """
        self._settle(timeout)
        link = self._client.link(timeout)
        if link is not self._checked:
            check_same(link.served, self.name, self._signature, self.peer)
            self._checked = link
        return link

    def _settle(self, timeout: float | None = None) -> None:
        self.check_open()
        self._client.settle(self.name, timeout)

    def writers(self) -> WriterConnection:
        """See `Connected.writers`."""
        self.check_open()
        return self._client.writers()

    def begin(self, link: Link, request: Request, payload: Payload = b"") -> Reply:
        """Sends a request, whose wait ends when the replay is closed."""
        reply = link.begin(request, payload, self)
        self._check_begun(link, [reply])
        return reply

    def begin_samples(self, link: Link, request: Sample) -> list[Reply]:
        """Sends a request for batches; see `begin`."""
        replies = link.begin_samples(request, self)
        self._check_begun(link, replies)
        return replies

    def _check_begun(self, link: Link, replies: list[Reply]) -> None:
        if self.is_closed:
            for reply in replies:
                link.cancel(reply)
            self.check_open()

    def close(self) -> None:
        """Ends all waits of this replay with `Closed`."""
        self.is_closed = True
        self._client.end_waits(self)
