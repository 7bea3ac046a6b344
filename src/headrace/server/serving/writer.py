"""The server's end of a client's writer: operations are applied in their order, each once."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable
from typing import NamedTuple

from headrace.errors import Closed, StoreFull
from headrace.leases.frames import Frame, Payload
from headrace.replay.replay import ReplayCore
from headrace.server.messages.failures import failure_of
from headrace.server.messages.rules import rule_of
from headrace.server.messages.writing import (
    AppendSteps,
    CloseWriter,
    Keys,
    OpenWriter,
    Operation,
    Refused,
    StopWaiting,
    Sync,
    Waited,
    WaitPending,
    WantKeys,
    WriterOpened,
    WriterState,
)
from headrace.server.serving.operations import Operations
from headrace.server.serving.row_writer import ServedRowWriter
from headrace.tables.ticket import Ticket

_KEYS_AHEAD = 1024


class _Waiting(NamedTuple):
    """An operation that waits for a page, or for one that does."""

    operation: Operation
    payload: Payload


class ServedWriter:
    """Applies the operations of a client's writer to a replay. No call waits.

    Calls come from the thread that listens to the client. `send` may be called from any thread.

    Args:
        replay: of this process.
        opening: the client's request.
        send: sends messages to the client without waiting for it.

    Raises:
        ValueError, KeyError, TypeError, StoreFull, Closed: as `Replay.writer`.
    """

    def __init__(self, replay: ReplayCore, opening: OpenWriter, send: Callable[..., None]) -> None:
        self._replay = replay
        self._number = opening.writer
        self._send = send
        rules = [rule_of(rule) for rule in opening.rules]
        self._writer = ServedRowWriter(replay, opening.lanes, rules, opening.history)
        self._operations = Operations(self._writer, replay.signature)
        self._waiting: deque[_Waiting] = deque()
        # Steps of the first waiting operation that are stored already.
        self._done = 0
        self._sequence = 0
        self._tickets: dict[int, Ticket] = {}
        send(
            WriterOpened(writer=self._number, history=self._writer.history, sequence=self._sequence),
            self._state(),
        )

    def take(self, frame: Frame) -> None:
        """Processes a message of the client.

        Raises:
            ValueError: the message breaks the protocol.
        """
        match frame.message:
            case Operation() as operation:
                self._waiting.append(_Waiting(operation, frame.payload))
                self._apply_waiting()
            case WaitPending(ticket=ticket, most=most):
                self._wait(ticket, most)
            case StopWaiting(ticket=ticket):
                with self._replay.lock:
                    if ticket in self._tickets:
                        self._writer.pending_items.leave(self._tickets.pop(ticket))
            case Sync(ticket=ticket):
                # A disk may take long: it holds up no other client.
                threading.Thread(target=self._sync, args=(ticket,), name="headrace-sync", daemon=True).start()
            case WantKeys():
                with self._replay.lock:
                    first = self._replay.keys.take(_KEYS_AHEAD)
                self._send(Keys(writer=self._number, first=first, count=_KEYS_AHEAD))
            case CloseWriter():
                self.close()
            case message:
                raise ValueError(f"expected a message of a writer, got {type(message).__name__}")

    # ---- operations ------------------------------------------------------------------------------------------------

    @property
    def waits(self) -> bool:
        """Whether an operation waits for a page."""
        return bool(self._waiting)

    def look(self) -> None:
        """Tries again to apply the operations that wait for a page."""
        if self._waiting:
            self._apply_waiting()

    def _apply_waiting(self) -> None:
        while self._waiting:
            operation, payload = self._waiting[0]
            try:
                self._apply(operation, payload)
            except StoreFull as error:
                if not operation.must:
                    break
                self._refuse(operation, error)
            except (ValueError, KeyError, TypeError, RuntimeError, Closed) as error:
                self._refuse(operation, error)
            self._sequence = max(self._sequence, operation.sequence)
            self._waiting.popleft()
            self._done = 0
        self._send(self._state())

    def _apply(self, operation: Operation, payload: Payload) -> None:
        """Applies an operation, once; its numbers continue those before.

        Raises:
            ValueError: a number is missing, or see `Operations.apply`.
            StoreFull: the first `_done` steps of the operation are stored.
        """
        if operation.sequence <= self._sequence:
            return
        if not isinstance(operation, AppendSteps):
            self._expect(operation.sequence)
            self._operations.apply(operation, payload)
            return
        steps = self._operations.columns(operation, payload)
        first = operation.sequence - operation.steps
        self._expect(min(first, self._sequence) + 1)
        # Steps of a message that was sent again may be applied already.
        self._done = max(self._done, self._sequence - first)
        self._writer.policy_version = operation.version
        self._operations.give(operation.given)
        while self._done < operation.steps:
            done = self._writer.append_many(steps, self._done)
            self._done += done
            self._sequence += done

    def _expect(self, sequence: int) -> None:
        if sequence != self._sequence + 1:
            raise ValueError(f"sequence: expected {self._sequence + 1}, got {sequence}")

    def _refuse(self, operation: Operation, error: Exception) -> None:
        self._send(Refused(writer=self._number, sequence=operation.sequence, failure=failure_of(error)))

    def _state(self) -> WriterState:
        writer, refused = self._writer, None
        try:
            writer.raise_refused()
        except Exception as error:
            refused = failure_of(error)
        with self._replay.lock:
            room, finals = writer.room() if not self._replay.is_closed else (0, 0)
            pending = writer.pending_items
            return WriterState(
                writer=self._number,
                sequence=self._sequence,
                pending=pending.count,
                room=room,
                finals=finals,
                completes=writer.completes_items,
                tables={name: count for name, count in pending.by_table.items() if count},
                made=[(rule, keys.start, len(keys)) for rule, keys in writer.take_made() if keys],
                refused=refused,
            )

    # ---- waiting ---------------------------------------------------------------------------------------------------

    def _wait(self, number: int, most: int) -> None:
        with self._replay.lock:
            pending = self._writer.pending_items
            ticket = pending.ask(most, lambda _: self._answer(number))
            self._tickets[number] = ticket
            if ticket.is_called or ticket.failure is not None:
                self._answer(number, ticket)

    def _answer(self, number: int, ticket: Ticket | None = None) -> None:
        """Answers a wait that is over; the replay's lock is held."""
        ticket = ticket or self._tickets.get(number)
        if ticket is None or self._tickets.pop(number, None) is None:
            return
        pending = self._writer.pending_items
        pending.leave(ticket)
        failure = ticket.failure
        if pending.refused:
            failure = Closed(f"the replay was closed: {pending.refused} items of this writer were refused")
        self._send(
            Waited(
                writer=self._number,
                ticket=number,
                failure=None if failure is None else failure_of(failure),
            )
        )

    def _sync(self, number: int) -> None:
        failure = None
        try:
            self._replay.sync()
        except Exception as error:
            failure = failure_of(error)
        self._send(Waited(writer=self._number, ticket=number, failure=failure))

    # ---- the end ---------------------------------------------------------------------------------------------------

    def close(self) -> None:
        """Gives back the pages of the writer; pending items stay. A second call does nothing."""
        self._waiting.clear()
        with self._replay.lock:
            for ticket in self._tickets.values():
                self._writer.pending_items.leave(ticket)
            self._tickets.clear()
        self._writer.release()
