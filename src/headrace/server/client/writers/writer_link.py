"""A writer's way to the server: its connection, which may be lost and come back, and waits for answers."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Any, Protocol

from headrace.clock import SYSTEM_CLOCK
from headrace.conditions import SignalSafeCondition
from headrace.errors import Closed, DeadlineExceeded, Disconnected
from headrace.leases.frames import Payload
from headrace.leases.messages import Message
from headrace.server.compression.packing import PayloadPacker
from headrace.server.messages.writing import CloseWriter, OpenWriter, StopWaiting
from headrace.waits import Wait


class Connection(Protocol):
    """A connection to the server, as writers use it.

    Attributes:
        shared_nbytes: memory that a writer may share with the server.
        packer: of steps; None: they are not compressed.
    """

    shared_nbytes: int
    packer: PayloadPacker | None

    def send(self, *messages: Message, payload: Payload = b"", descriptors: tuple[int, ...] = ()) -> None:
        """Sends messages, the last one with payload and descriptors, without waiting for the server."""

    def call_later(self, seconds: float, call: Callable[[], None]) -> None:
        """Makes a call after so many seconds, in the thread that receives."""

    def forget(self, stream: WriterLink) -> None:
        """Forgets a writer, which sends nothing more."""


class WriterLink:
    """The connection of one writer. Waits end when the server answers, when it is gone, and with their time.

    Subclasses say what is unacknowledged.

    Args:
        opening: opens the writer at the server.
        peer: the server's address, for messages.
        timeout: in seconds, of waits for the server itself; None waits without limit.
    """

    def __init__(self, opening: OpenWriter, peer: str, timeout: float | None) -> None:
        self._opening = opening
        self._peer = peer
        self._timeout = timeout
        self._changed = SignalSafeCondition(threading.RLock())
        self._link: Connection | None = None
        self._is_open = False
        self._end: Exception | None = None
        self._lost_at = 0.0
        # Servers that have stopped, and the error of the last for the calls that waited for it.
        self._goodbyes = 0
        self._goodbye: Closed | None = None
        # Requests by their tickets, and their answers.
        self._requests: dict[int, Message] = {}
        self._answers: dict[int, Exception | None] = {}
        self._tickets = 0

    @property
    def number(self) -> int:
        """The number of the writer in its client."""
        return self._opening.writer

    @property
    def replay(self) -> str:
        """The name of the replay."""
        return self._opening.replay

    # ---- the connection --------------------------------------------------------------------------------------------

    def lose(self, goodbye: Closed | None = None) -> None:
        """Notes that the connection has ended; operations are kept for the next one.

        Args:
            goodbye: ends the calls that wait: the server stops.
        """
        with self._changed:
            self._lost_at = time.monotonic()
            self._link, self._is_open = None, False
            if goodbye is not None:
                self._goodbyes += 1
                self._goodbye = goodbye
                self._changed.notify_all()

    def give_up(self, error: Exception) -> None:
        """Notes that nothing more will be sent: every call raises this error."""
        with self._changed:
            link, was_open = self._link, self._is_open
            self._link, self._is_open = None, False
            self._end = error
            self._changed.notify_all()
        if link is not None:
            if was_open:
                link.send(CloseWriter(writer=self.number))
            link.forget(self)

    def become_inherited(self, error: Exception) -> None:
        """Ends the writer in a forked child, whose parent goes on with it; another thread may have held the lock."""
        self._changed = SignalSafeCondition(threading.RLock())
        self._link, self._is_open, self._end = None, False, error

    @property
    def has_ended(self) -> bool:
        """Whether every call raises an error; see `give_up`."""
        return self._end is not None

    @property
    def is_connected(self) -> bool:
        """Whether there is a connection now."""
        return self._link is not None

    @property
    def unacknowledged(self) -> int:
        """Number of items that are not known to be applied; an upper bound."""
        raise NotImplementedError

    def _lost(self) -> Exception:
        """Returns the error with which the stream has ended, for one more call."""
        count, text = self.unacknowledged, self._with_pending(self._end)
        return Closed(text) if isinstance(self._end, Closed) else Disconnected(text, pending=count)

    def _with_pending(self, error: Exception | None) -> str:
        count = self.unacknowledged
        return f"{error}; {count} items of this writer are not acknowledged" if count else str(error)

    def send_collected(self) -> None:
        """Sends what was collected, before a request."""

    # ---- waiting ---------------------------------------------------------------------------------------------------

    def ask(
        self,
        make: Callable[..., Message],
        timeout: float | None,
        message: Callable[[float], str],
        pending: Callable[[], int],
        **fields: Any,
    ) -> None:
        """Sends a request and waits for its answer.

        Args:
            make: the class of the request.
            timeout: in seconds; None waits without limit.
            message, pending: see `Wait`.
            fields: of the request.

        Raises:
            DeadlineExceeded: not within `timeout`.
            Exception: the server's refusal.
        """
        with self._changed:
            self.send_collected()
            self._tickets += 1
            ticket = self._tickets
            request = make(writer=self._opening.writer, ticket=ticket, **fields)
            try:
                self._request(ticket, request)
                self._wait(lambda: ticket in self._answers, timeout, message, pending)
            except BaseException:
                self._requests.pop(ticket, None)
                if self._link is not None and self._is_open:
                    self._link.send(StopWaiting(writer=self._opening.writer, ticket=ticket))
                raise
            error = self._answers.pop(ticket)
            if error is not None:
                raise error

    def _request(self, ticket: int, request: Message) -> None:
        """Sends a request, again after each reconnection until it is answered."""
        self._requests[ticket] = request
        if self._link is not None and self._is_open:
            self._link.send(request)
        elif self._end is not None:
            raise self._lost()

    def _wait(
        self,
        is_over: Callable[[], bool],
        timeout: float | None = -1,
        message: Callable[[float], str] | None = None,
        pending: Callable[[], int] | None = None,
    ) -> None:
        """Waits for the server; without a timeout of the call, for the client's.

        Args:
            is_over: whether the wait is over.
            timeout: in seconds; None waits without limit, -1 is that of the client.
            message, pending: see `Wait`; left out: the server does not answer, and what is unacknowledged.
        """
        wait: Wait | None = None
        goodbyes = self._goodbyes
        while not is_over():
            if self._goodbyes != goodbyes:
                raise Closed(self._with_pending(self._goodbye))
            self._check_server()
            if wait is None:
                timeout = self._timeout if timeout == -1 else timeout
                wait = Wait(
                    SYSTEM_CLOCK,
                    timeout,
                    message or self._waiting_message,
                    pending or (lambda: self.unacknowledged),
                )
            try:
                released = wait.look(self._changed)
            except DeadlineExceeded as error:
                if self._link is not None:
                    raise
                raise Disconnected(
                    f"the connection to {self._peer} is lost, and the server was not reached again: {error}",
                    pending=self.unacknowledged,
                ) from error
            if not released:
                wait.turn_on(self._changed)

    def _check_server(self) -> None:
        """Raises if the server is gone, or was not reached for the time of the client."""
        if self._end is not None:
            raise self._lost()
        seconds = time.monotonic() - self._lost_at
        if self._link is None and self._timeout is not None and seconds > self._timeout:
            raise Disconnected(
                f"the connection to {self._peer} is lost, and the server was not reached again in {seconds:.3g} s",
                pending=self.unacknowledged,
            )

    def _waiting_message(self, seconds: float) -> str:
        return f"{self._peer} did not answer a writer of {self._opening.replay!r} within {seconds:.3g} s"
