"""The server's end of a client's writer: operations are applied in their order, each once."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping
from functools import partial
from typing import NamedTuple
from weakref import ref

from headrace.errors import Closed, StoreFull
from headrace.leases.checking import LeaseError, MissingMessages
from headrace.leases.frames import Frame, Payload
from headrace.leases.messages import ROWS, packed
from headrace.persist.disk.writer_counts import UNCOUNTED
from headrace.replay.replay import ReplayCore
from headrace.server.messages.columns import unpacked_numbers
from headrace.server.messages.failures import failure_of
from headrace.server.messages.operations import AppendSteps, Operation
from headrace.server.messages.rules import rule_of
from headrace.server.messages.writing import (
    CloseWriter,
    Keys,
    OpenWriter,
    Refused,
    StopWaiting,
    Sync,
    Waited,
    WaitPending,
    WantKeys,
    WriterOpened,
    WriterState,
)
from headrace.server.serving.shared_runs import SharedRuns
from headrace.server.serving.writers.client_memory import ClientMemory
from headrace.server.serving.writers.operations import Operations, check_opening
from headrace.server.serving.writers.row_writer import ServedRowWriter
from headrace.server.serving.writers.writer_sessions import Progress, SessionKey, Suspended, WriterSessions
from headrace.tables.ticket import Ticket

_KEYS_AHEAD = 1024
# About what an operation and an item take while they wait, beside the rows.
_MESSAGE_NBYTES = 512
_ITEM_NBYTES = 256
_MOST_TICKETS = 64


class _Waiting(NamedTuple):
    """An operation that waits for a page, or a message behind one."""

    message: Operation | WaitPending
    payload: Payload


class ServedWriter:
    """Applies the operations of a client's writer to a replay. No call waits.

    Calls come from the thread that listens to the client. `send` may be called from any thread.

    Args:
        replay: of this process.
        opening: the client's request.
        memory: in which the client's steps may lie.
        send: sends messages to the client without waiting for it.
        sessions: writers of the replay.
        sync: makes the replay durable.

    Attributes:
        is_closed: whether its pages are given back.

    Raises:
        ValueError, KeyError, TypeError, StoreFull, Closed: as `Replay.writer`.
    """

    def __init__(
        self,
        replay: ReplayCore,
        opening: OpenWriter,
        memory: ClientMemory | None,
        send: Callable[..., None],
        sessions: WriterSessions,
        sync: SharedRuns[None],
    ) -> None:
        self._replay = replay
        self._sync = sync
        self._sessions = sessions
        self._key = SessionKey(opening.session, opening.writer)
        check_opening(opening, replay.signature)
        earlier = sessions.resume(self._key)
        self._number = opening.writer
        self._declared = (opening.lanes, opening.history, opening.rules)
        self._slot = UNCOUNTED
        self._send = send
        rules = [rule_of(rule) for rule in opening.rules]
        try:
            self._writer = ServedRowWriter(
                replay, opening.lanes, rules, opening.history, None if earlier is None else earlier.pending
            )
        except Exception:
            if earlier is not None:
                sessions.lost(self._key, earlier)
            raise
        self._tables = [rule.table for rule in rules]
        self._operations = Operations(self._writer, replay.signature, memory)
        self._waiting: deque[_Waiting] = deque()
        self._waiting_nbytes = 0
        # Steps of the first waiting operation that are stored already.
        self._done = 0
        self._sequence = opening.base
        # The last operation that was refused.
        self._refused = 0
        # Items since the last report; see `WriterState`.
        self._made: list[tuple[int, int, int, int]] = []
        self._tickets: dict[int, Ticket] = {}
        self.is_closed = False
        is_known = self._continue(opening, earlier)
        sessions.opened(self._key, self)
        send(
            WriterOpened(
                writer=self._number,
                history=self._writer.history,
                is_known=is_known,
            ),
            self._state(),
        )

    def _continue(self, opening: OpenWriter, earlier: Progress | None) -> bool:
        """Goes on where an earlier connection of the client was; returns whether its writer is known here."""
        kept = self._count_on_disk(opening, earlier)
        is_known = earlier is not None or kept is not None
        if opening.lengths and not is_known:
            self._writer.expect_foreign_keys()
        exist = earlier.taken if earlier is not None else kept or opening.applied
        self._taken = dict(opening.taken)
        self._skipping = {table: count - self._taken.get(table, 0) for table, count in exist.items()}
        self._restored = opening.restored if opening.lengths else -1
        if opening.lengths and not self._resume(earlier, opening.restored):
            self._restore(opening)
        return is_known

    def _count_on_disk(self, opening: OpenWriter, earlier: Progress | None) -> Mapping[str, int] | None:
        """Counts the items of the writer from here on, if the replay is on disk.

        Returns:
            The number of items of each table that it has made already; None: the disk does not know it.
        """
        with self._replay.lock:
            counts = self._replay.writer_counts
            if counts is None:
                return None
            kept = counts.find(opening.session, opening.writer)
            exist = opening.applied if earlier is None else earlier.applied
            self._slot = counts.open(opening.session, opening.writer, exist)
        self._writer.count_at(self._slot)
        return kept

    def _resume(self, earlier: Progress | None, confirmed: int) -> bool:
        """Goes on after the last operation of an earlier connection; returns False if other writers use its pages.

        The client sends operations again that are applied already: they have no effect (`_apply`).

        Args:
            earlier: what that connection has left.
            confirmed: an operation whose answer the client has.
        """
        suspended = None if earlier is None else earlier.suspended
        if earlier is None or suspended is None or suspended.declared != self._declared:
            return False
        # The client may not know of a refusal: the operation is applied again, and its answer is sent
        # (test_a_refusal_that_is_lost_is_told_when_the_client_comes_back).
        if suspended.refused > confirmed:
            return False
        left = suspended.lanes()
        if left is None or not self._writer.resume(left):
            return False
        self._sequence, self._taken = suspended.sequence, dict(earlier.taken)
        self._restored, self._skipping = -1, {}
        return True

    def _suspend(self) -> Suspended | None:
        """Gives back the pages; returns what a later connection of the client needs to go on there."""
        # Items of operations that the client is still sending again must not be made twice.
        is_restoring = self._restored >= 0 or bool(self._writer.to_skip)
        left = self._writer.suspend()
        if left is None or is_restoring:
            return None
        return Suspended(self._declared, self._sequence, self._refused, ref(left))

    def _restore(self, opening: OpenWriter) -> None:
        lengths = unpacked_numbers("lengths", opening.lengths, ROWS).copy()
        if len(lengths) != opening.lanes or (lengths < 0).any():
            raise ValueError(f"lengths: expected {opening.lanes} numbers >= 0, got {lengths.tolist()}")
        streams = [unpacked_numbers("streams", each, ROWS) for each in opening.streams]
        for each in streams:
            if len(each) != 2 * opening.lanes or (each < 0).any() or (each[opening.lanes :] > 1).any():
                raise ValueError(f"streams: expected numbers >= 0 of {opening.lanes} lanes")
        before = [each.reshape(2, opening.lanes) for each in streams]
        self._writer.restore_rows(lengths, before if opening.base else self._writer.streams)
        self._end_restoring()

    def _end_restoring(self) -> None:
        if self._sequence >= self._restored >= 0:
            self._restored = -1
            self._writer.make_missing_items(self._skipping)

    def take(self, frame: Frame) -> None:
        """Processes a message of the client.

        Raises:
            LeaseError: the message breaks the protocol.
            MissingMessages: one before it did not arrive.
        """
        match frame.message:
            case WaitPending(ticket=ticket) if ticket in self._tickets or len(self._tickets) >= _MOST_TICKETS:
                raise LeaseError(f"ticket: expected at most {_MOST_TICKETS} different ones, got {ticket}")
            case Operation() | WaitPending() as message:
                self._waiting.append(_Waiting(message, frame.payload))
                self._waiting_nbytes += _MESSAGE_NBYTES + len(frame.payload)
                self._apply_waiting()
            case StopWaiting(ticket=ticket):
                with self._replay.lock:
                    if ticket in self._tickets:
                        self._writer.pending_items.leave(self._tickets.pop(ticket))
            case Sync(ticket=ticket):
                # A disk may take long: it holds up no other client.
                self._sync.begin(partial(self._answer_sync, ticket))
            case WantKeys():
                first = self._writer.give_keys(_KEYS_AHEAD)
                self._send(Keys(writer=self._number, first=first, count=_KEYS_AHEAD))
            case CloseWriter():
                self.close()
                self._sessions.closed(self._key)
                self._stop_counting()
            case message:
                raise LeaseError(f"expected a message of a writer, got {type(message).__name__}")

    def _stop_counting(self) -> None:
        with self._replay.lock:
            counts = None if self._replay.is_closed else self._replay.writer_counts
            # Items that wait are counted when they go in.
            if counts is not None and not self._writer.pending_items.count:
                counts.close(self._slot)

    # ---- operations ------------------------------------------------------------------------------------------------

    @property
    def waits(self) -> bool:
        """Whether an operation waits for a page, or items for memory or disk space."""
        return bool(self._waiting) or self._writer.lacks_memory

    def look(self) -> None:
        """Tries again to apply the operations that wait for a page, and to insert the items that wait for memory."""
        if self._writer.lacks_memory:
            self._writer.insert_pending()
        if self._waiting:
            self._apply_waiting()

    def _apply_waiting(self) -> None:
        while self._waiting:
            operation, payload = self._waiting[0]
            if isinstance(operation, WaitPending):
                self._wait(operation.ticket, operation.most)
                self._drop_first()
                continue
            try:
                self._apply(operation, payload)
            except StoreFull as error:
                if not operation.must:
                    break
                self._refuse(operation, error)
            except MissingMessages:
                raise
            except Exception as error:
                self._refuse(operation, error)
            self._sequence = max(self._sequence, operation.sequence)
            self._note_made()
            self._end_restoring()
            self._drop_first()
            self._done = 0
            if self._waiting and self._writer.streams:
                # The client continues them after each operation.
                self._send(self._state())
        self._send(self._state())

    def _drop_first(self) -> None:
        self._waiting_nbytes -= _MESSAGE_NBYTES + len(self._waiting.popleft().payload)

    @property
    def queued_nbytes(self) -> int:
        """About the bytes of operations and items that wait."""
        items = self._writer.pending_items.count + len(self._tickets)
        return self._waiting_nbytes + _ITEM_NBYTES * items

    def _apply(self, operation: Operation, payload: Payload) -> None:
        """Applies an operation, once; its numbers continue those before.

        Raises:
            MissingMessages: a number is missing. To skip it would lose what the client takes for applied.
            ValueError: see `Operations.apply`.
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
        self._expect(max(first, self._sequence) + 1)
        # Steps of a message that was sent again may be applied already.
        self._done = max(self._done, self._sequence - first)
        self._operations.set_version(operation.version)
        self._operations.give(operation.given)
        most = 1 if operation.is_recorded else operation.steps
        while self._done < operation.steps:
            done = self._writer.append_many(steps, self._done, most)
            self._done += done
            self._sequence += done
            self._note_made()

    def _expect(self, sequence: int) -> None:
        if sequence != self._sequence + 1:
            raise MissingMessages(
                f"writer {self._number}: expected operation {self._sequence + 1}, got {sequence}"
            )

    def _note_made(self) -> None:
        """Notes the items that were made up to the current operation or step."""
        for rule, keys in self._writer.take_made():
            if keys:
                self._made.append((self._sequence, rule, keys.start, len(keys)))
                self._count(self._tables[rule], len(keys))

    def _refuse(self, operation: Operation, error: Exception) -> None:
        self._refused = operation.sequence
        self._send(Refused(writer=self._number, sequence=operation.sequence, failure=failure_of(error)))

    def _state(self) -> WriterState:
        writer, refused = self._writer, None
        try:
            writer.raise_refused()
        except Exception as error:
            refused = failure_of(error)
        self._note_made()
        made, self._made = self._made, []
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
                waits=bool(self._waiting),
                streams=[packed(each) for each in writer.streams],
                tables={name: count for name, count in pending.by_table.items() if count},
                taken=self._taken_now(),
                lacks_memory=writer.lacks_memory,
                made=made,
                refused=refused,
            )

    def _count(self, table: str, count: int) -> None:
        self._taken[table] = self._taken.get(table, 0) + count

    def _taken_now(self) -> dict[str, int]:
        """Returns the numbers of items of the operations so far, counted from the first one of the writer."""
        taken, left = dict(self._taken), self._writer.to_skip
        if self._restored < 0:
            for table, count in self._skipping.items():
                taken[table] = taken.get(table, 0) + max(0, count) - left.get(table, 0)
        for table, count in self._writer.created.items():
            taken[table] = taken.get(table, 0) + count
        return taken

    @property
    def progress(self) -> Progress:
        """See `Progress`."""
        self._state()
        exist = dict(self._taken)
        # Also those of operations that the client has not sent again yet: its connection may be lost meanwhile.
        for table, count in self._skipping.items():
            exist[table] = exist.get(table, 0) + max(0, count)
        for table, count in self._writer.created.items():
            exist[table] = exist.get(table, 0) + count
        return Progress(exist, self._writer.pending_items)

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
                is_closed=self._replay.is_closed,
            )
        )

    def _answer_sync(self, number: int, result: Exception | None) -> None:
        failure = None if result is None else failure_of(result)
        self._send(Waited(writer=self._number, ticket=number, failure=failure))

    # ---- the end ---------------------------------------------------------------------------------------------------

    def close(self) -> None:
        """Gives back the pages of the writer; pending items stay. A second call does nothing."""
        if self.is_closed:
            return
        self.is_closed = True
        self._waiting.clear()
        self._waiting_nbytes = 0
        progress = self.progress
        progress.suspended = self._suspend()
        self._sessions.lost(self._key, progress)
        with self._replay.lock:
            for ticket in self._tickets.values():
                self._writer.pending_items.leave(ticket)
            self._tickets.clear()
