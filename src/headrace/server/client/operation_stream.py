"""The ordered stream of a writer's operations, from a client to the server.

Operations are numbered, sent without waiting, and kept until the server confirms them. Steps are collected while
earlier ones are in flight, so small steps travel in large messages when the connection is busy and at once when it is
idle. The server reports for how many further steps it holds pages: an operation within that number needs no answer. Any
other one is sent alone and waits for its answer, so an error is raised by the call that causes it.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping
from typing import Any, Protocol

import msgspec

from headrace.clock import SYSTEM_CLOCK
from headrace.errors import Closed, DeadlineExceeded, Disconnected
from headrace.leases.frames import Payload
from headrace.leases.messages import Message, packed
from headrace.server.client.operation_log import NO_USE, OperationLog, Use
from headrace.server.client.step_buffer import StepBuffer
from headrace.server.messages.writing import (
    AppendSteps,
    CloseWriter,
    Given,
    Keys,
    OpenWriter,
    Operation,
    Refused,
    Report,
    StopWaiting,
    Waited,
    WaitPending,
    WantKeys,
    WriterAnswer,
    WriterOpened,
    WriterState,
)
from headrace.spec import Signature
from headrace.waits import Wait

# In place of the ticket of a request.
_KEYS = 0
# In flight at most; beyond it calls wait for the server.
_MOST_FLYING_NBYTES = 1 << 23
_MOST_FLYING = 512
# An answer may need so many seconds longer than the wait at the server.
_NETWORK_SECONDS = 1.0


class Link(Protocol):
    """A connection to the server, as writers use it."""

    def send(self, *messages: Message, payload: Payload = b"") -> None:
        """Sends messages, the last one with the payload, without waiting for the server."""

    def forget(self, stream: OperationStream) -> None:
        """Forgets a writer, which sends nothing more."""


class OperationStream:
    """Sends the operations of one writer. One thread calls it; `take` and `lose` come from the one that receives.

    Args:
        signature: of a step.
        opening: opens the writer at the server.
        timeout: in seconds, of waits for the server itself.

    Attributes:
        state: the last report of the server.
        is_recording: whether to note the items that are made.
        made: number of the rule, first key and count of items, in order.
        history: rows of a lane that stay in reach of later items.
        failure: an error of an operation that was not waited for; None: there is none.
    """

    def __init__(self, signature: Signature, opening: OpenWriter, timeout: float | None) -> None:
        self._opening = opening
        self._timeout = timeout
        self._changed = threading.Condition(threading.RLock())
        self._buffer = StepBuffer(signature, opening.lanes)
        self._buffer_use = NO_USE
        self._version = 0
        self._log = OperationLog(opening.lanes)
        self._requests: dict[int, Message] = {}
        self._link: Link | None = None
        self._is_open = self._was_open = False
        self._sequence = 0
        self._tickets = 0
        self._refusals: dict[int, Exception] = {}
        self._answers: dict[int, Exception | None] = {}
        self._keys = range(0)
        self._end: Exception | None = None
        self._is_closing = False
        self._lost_at = 0.0
        self.state = WriterState(
            writer=opening.writer, sequence=0, pending=0, room=0, finals=0, completes=False
        )
        self.made: list[tuple[int, int, int]] = []
        self.is_recording = False
        self.history = 0
        self.failure: Exception | None = None

    # ---- the connection --------------------------------------------------------------------------------------------

    def attach(self, link: Link) -> None:
        """Opens the writer over a connection, the first or another; see `wait_until_open`."""
        with self._changed:
            self._link, self._is_open = link, False
            opening, log = self._opening, self._log
            if self._was_open:
                restored, taken = log.restored
                opening = msgspec.structs.replace(
                    opening,
                    base=log.base,
                    lengths=packed(log.lengths),
                    streams=log.streams,
                    restored=restored,
                    taken=dict(taken),
                    applied=dict(log.applied),
                )
            link.send(opening)

    def _opened(self, message: WriterOpened) -> None:
        """Sends everything again that the server needs."""
        self.history = self._log.history = message.history
        self._is_open = True
        if not message.is_known:
            self._keys = range(0)  # Those of another server may be in use here.
        link = self._link
        if self._was_open and link is not None:
            for operation, payload, *_ in self._log.kept():
                link.send(operation, payload=payload)
            for request in self._requests.values():
                link.send(request)
        self._was_open = True
        self._leave_if_closing()

    def wait_until_open(self) -> None:
        """Returns when the server has opened the writer.

        Raises:
            Exception: the server's refusal.
        """
        with self._changed:
            self._wait(lambda: self._is_open or 0 in self._refusals)
            if 0 in self._refusals:
                raise self._refusals[0]

    def lose(self) -> None:
        """Notes that the connection has ended; operations are kept for the next one."""
        with self._changed:
            self._lost_at = time.monotonic()
            self._link, self._is_open = None, False

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
        """Ends the stream in a forked child, whose parent goes on with it; another thread may have held the lock."""
        self._changed = threading.Condition(threading.RLock())
        self._link, self._is_open, self._end = None, False, error

    @property
    def has_ended(self) -> bool:
        """Whether every call raises an error; see `give_up`."""
        return self._end is not None

    def take(self, message: WriterAnswer) -> None:
        """Processes a message of the server."""
        with self._changed:
            match message:
                case WriterState():
                    self._take_state(message)
                case WriterOpened():
                    self._opened(message)
                case Refused(sequence=sequence, failure=failure):
                    self._take_refusal(sequence, failure.error)
                case Waited(ticket=ticket, failure=failed):
                    self._requests.pop(ticket, None)
                    self._answers[ticket] = None if failed is None else failed.error
                case Keys(first=first, count=count):
                    self._keys = range(first, first + count)
                    self._requests.pop(_KEYS, None)
            self._changed.notify_all()

    def _take_state(self, state: WriterState) -> None:
        # Operations that are sent again may be confirmed already.
        if state.sequence < self.state.sequence:
            return
        self.state = state
        if self.is_recording:
            self.made += state.made
        if state.refused is not None:
            self.failure = self.failure or state.refused.error
        self._log.confirm(state)
        if self._buffer.count and not self._log.flying:
            self._send_buffer()
        self._leave_if_closing()

    def _take_refusal(self, sequence: int, error: Exception) -> None:
        if not sequence and self._was_open:
            self.give_up(Disconnected(f"the server does not open the writer again: {error}"))
            return
        refused = self._log.refuse(sequence)
        if not sequence or (refused is not None and refused.operation.must):
            self._refusals[sequence] = error
        else:
            self.failure = self.failure or error

    # ---- operations ------------------------------------------------------------------------------------------------

    def append(self, step: Mapping[str, Any], version: int, use: Use) -> None:
        """Sends a step of every lane.

        Args:
            step: columns `[N, ...]`, or without that axis for one lane; copied.
            version: of the policy that acted.
            use: see `Use`.

        Raises:
            StoreFull: no page for it at the server; nothing is stored.
        """
        with self._changed:
            if version != self._version:
                self._send_buffer()
                self._version = version
            if not self._fits(use):
                self._drain()
                if not self._fits(use):
                    self._buffer.add(step)
                    self._send_buffer(must=True)
                    return
            self._buffer.add(step)
            before = self._buffer_use
            self._buffer_use = Use(
                before.steps + use.steps, before.finals + use.finals, before.items + use.items
            )
            if self._buffer.is_full or not self._log.flying:
                self._send_buffer()

    def _send_buffer(self, must: bool = False) -> None:
        count = self._buffer.count
        if not count:
            return
        use, self._buffer_use = self._buffer_use, NO_USE
        self._sequence += count
        operation = AppendSteps(
            writer=self._opening.writer,
            sequence=self._sequence,
            must=must,
            steps=count,
            version=self._version,
        )
        self._send(operation, self._buffer.take(), use)

    def put(
        self,
        make: Callable[..., Operation],
        payload: Payload = b"",
        use: Use = NO_USE,
        is_answered: bool = False,
        **fields: Any,
    ) -> None:
        """Sends an operation behind the steps before it.

        Args:
            make: its class.
            payload: of it.
            use: see `Use`.
            is_answered: wait for its answer in any case.
            fields: of the operation, beside its number.

        Raises:
            Exception: it was waited for, and the server refused it; nothing changed.
        """
        with self._changed:
            self._send_buffer()
            must = is_answered
            if not must and not self._fits(use):
                self._drain()
                must = not self._fits(use)
            self._sequence += 1
            self._send(
                make(writer=self._opening.writer, sequence=self._sequence, must=must, **fields), payload, use
            )

    def append_given(self, payload: Payload, version: int, given: Given, use: Use) -> None:
        """Sends a step with given priorities and windows; see `put`."""
        self.put(AppendSteps, payload, use, steps=1, version=version, given=given)

    def _fits(self, use: Use) -> bool:
        """Whether an operation can be sent without waiting for an answer: the server has pages for it."""
        log, state, more = self._log, self.state, self._buffer_use
        if len(log.flying) >= _MOST_FLYING or log.nbytes >= _MOST_FLYING_NBYTES:
            return False
        if not (use.steps or use.finals):
            return True
        return (
            use.steps + log.steps + more.steps <= state.room
            and use.finals + log.finals + more.finals <= state.finals
        )

    def _send(self, operation: Operation, payload: Payload, use: Use) -> None:
        self._log.add(operation, payload, use)
        if self._link is not None and self._is_open:
            self._link.send(operation, payload=payload)
        elif self._end is not None:
            raise self._lost()
        if operation.must:
            self._wait(lambda: self.state.sequence >= operation.sequence)
            error = self._refusals.pop(operation.sequence, None)
            if error is not None:
                raise error

    # ---- waiting ---------------------------------------------------------------------------------------------------

    def drain(self, timeout: float | None = None) -> None:
        """Returns when all operations are applied, so that `state` and `made` are those after them.

        Args:
            timeout: of the call, in seconds, beside which the network has a second; None: that of the client.

        Raises:
            DeadlineExceeded: the server did not answer in time.
            Disconnected: the connection was not made again in time.
        """
        with self._changed:
            self._drain(timeout)

    def report(self) -> None:
        """Gets the state of now."""
        self.put(Report, is_answered=True)

    def _drain(self, timeout: float | None = None) -> None:
        self._send_buffer()
        seconds = -1.0 if timeout is None else max(timeout, 0.0) + _NETWORK_SECONDS
        if timeout is not None and self._timeout is not None:
            seconds = min(seconds, self._timeout)
        self._wait(lambda: not self._log.flying, seconds)

    @property
    def number(self) -> int:
        """The number of the writer in its client."""
        return self._opening.writer

    @property
    def replay(self) -> str:
        """The name of the replay."""
        return self._opening.replay

    def wait_until_applied(self, timeout: float | None) -> None:
        """Returns when no item is in flight or pending; any thread may call it.

        Raises:
            DeadlineExceeded, Disconnected: some are.
        """
        with self._changed:
            if self._end is None and (self.is_busy or self.state.pending):
                self.ask(WaitPending, timeout, self._pending_message, lambda: self._unacknowledged, most=0)

    def _pending_message(self, seconds: float) -> str:
        return f"{self._unacknowledged} items of a writer are not applied after {seconds:.3g} s"

    @property
    def is_busy(self) -> bool:
        """Whether operations are not confirmed."""
        return bool(self._log.flying or self._buffer.count)

    def has_room(self, steps: int) -> bool:
        """Whether the server holds pages for so many steps after those in flight."""
        return self._fits(Use(steps=steps))

    @property
    def items_flying(self) -> int:
        """Upper bound of the number of items that the operations in flight make."""
        return self._log.items + self._buffer_use.items

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
            self._send_buffer()
            self._tickets += 1
            ticket = self._tickets
            request = make(writer=self._opening.writer, ticket=ticket, **fields)
            self._request(ticket, request)
            try:
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

    def key(self) -> int:
        """Returns a key that the server gave this writer; waits for more only when all are used."""
        with self._changed:
            if not self._keys:
                self._request(_KEYS, WantKeys(writer=self._opening.writer))
                self._wait(lambda: bool(self._keys))
            key, self._keys = self._keys[0], self._keys[1:]
            return key

    def _wait(
        self,
        is_over: Callable[[], bool],
        timeout: float | None = -1,
        message: Callable[[float], str] | None = None,
        pending: Callable[[], int] = lambda: 0,
    ) -> None:
        """Waits for the server; without a timeout of the call, for the client's."""
        wait: Wait | None = None
        while not is_over():
            self._check_server()
            if wait is None:
                timeout = self._timeout if timeout == -1 else timeout
                wait = Wait(SYSTEM_CLOCK, timeout, message or self._waiting_message, pending)
            try:
                released = wait.look(self._changed)
            except DeadlineExceeded as error:
                if self._link is not None:
                    raise
                raise Disconnected(
                    f"the connection is lost, and the server was not reached again: {error}",
                    pending=self._unacknowledged,
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
                f"the connection is lost, and the server was not reached again in {seconds:.3g} s",
                pending=self._unacknowledged,
            )

    def _waiting_message(self, seconds: float) -> str:
        return f"the server did not answer a writer of {self._opening.replay!r} within {seconds:.3g} s"

    @property
    def _unacknowledged(self) -> int:
        """Number of items that are not known to be applied; those in flight are bounded by their rules."""
        return self.state.pending + self.items_flying

    def _lost(self) -> Exception:
        """Returns the error with which the stream has ended, for one more call."""
        error, count = self._end, self._unacknowledged
        text = f"{error}; {count} items of this writer are not acknowledged" if count else str(error)
        return Closed(text) if isinstance(error, Closed) else Disconnected(text, pending=count)

    def check(self) -> None:
        """Raises the error with which the stream has ended; or that of an operation that was not waited for, once."""
        if self._end is not None:
            raise self._lost()
        error, self.failure = self.failure, None
        if error is not None:
            raise error

    def settle(self) -> None:
        """Returns when everything that was put has been applied, or waits for a page, or the connection is lost.

        So another request of the client comes behind it. Any thread may call it.
        """
        with self._changed:
            if self._end is not None:
                return
            self._send_buffer()
            last = self._sequence
            if self._log.flying and self._is_open:
                self._wait(lambda: self.state.sequence >= last or self.state.waits or not self._is_open)

    def close(self) -> None:
        """Closes the writer at the server as soon as it has applied everything; does not wait."""
        with self._changed:
            if self._end is None:
                self._send_buffer()
            self._is_closing = True
            self._leave_if_closing()

    def _leave_if_closing(self) -> None:
        link = self._link
        if self._is_closing and not self._log.flying and link is not None and self._is_open:
            self._is_closing = False
            link.send(CloseWriter(writer=self._opening.writer))
            link.forget(self)
