"""The way of a writer's operations to the server: collected, sent, kept until they are applied, and sent again.

Steps are collected while earlier operations are in flight and a moment longer, so small steps travel in large messages
when the connection is busy and at once when it is idle.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from headrace.errors import Closed, Disconnected
from headrace.leases.frames import LARGEST_PAYLOAD, Payload
from headrace.leases.messages import Message, packed
from headrace.server.client.writers.lane_lengths import LaneLengths
from headrace.server.client.writers.made_items import MadeItems
from headrace.server.client.writers.operation_log import Logged, OperationLog
from headrace.server.client.writers.operation_use import Use
from headrace.server.client.writers.packed_steps import PackedSteps
from headrace.server.client.writers.step_buffer import StepBuffer
from headrace.server.client.writers.step_memory import SharedSteps, StepMemory
from headrace.server.client.writers.writer_link import Connection, WriterLink
from headrace.server.messages.operations import AppendSteps, Operation
from headrace.server.messages.writing import (
    CloseWriter,
    Keys,
    OpenWriter,
    Refused,
    Waited,
    WriterAnswer,
    WriterOpened,
    WriterState,
)
from headrace.spec import Signature

# In place of the ticket of a request for keys.
KEYS_TICKET = 0
# Steps that come while others are in flight wait for so long after the server's answer, for more of them.
_GATHERING_SECONDS = 5e-4


class OperationSender(WriterLink):
    """Brings the operations of one writer to the server, each once, over one connection after the other.

    Subclasses make the operations. `take` and `lose` are called by the thread that receives.

    Args:
        signature: of a step.
        opening: opens the writer at the server.
        peer: the server's address, for messages.
        timeout: in seconds, of waits for the server itself.
        shared_nbytes: memory that the writer may share with the server.
        payload_nbytes: of one operation at most.

    Attributes:
        state: the last report of the server.
        waits_for_page: whether an operation waits at the server for a page; also one that is sent again, for whose rows
            the server has no page any more (test_waits_of_writers.py).
        is_recording: whether to note the items that are made; see `take_made`.
        history: rows of a lane that stay in reach of later items.
        failure: an error of an operation that was not waited for; None: there is none.
        replay_is_closed: whether the server said so with its last answer to a wait.
    """

    def __init__(
        self,
        signature: Signature,
        opening: OpenWriter,
        peer: str,
        timeout: float | None,
        shared_nbytes: int = 0,
        payload_nbytes: int = LARGEST_PAYLOAD,
    ) -> None:
        super().__init__(opening, peer, timeout)
        self._most_nbytes = payload_nbytes
        self._memory = StepMemory(signature, opening.lanes, shared_nbytes, payload_nbytes)
        self._buffer = StepBuffer(self._memory)
        self._packed_steps = PackedSteps(signature, opening.lanes)
        # Whether the collected steps are sent after a moment.
        self._is_gathering = False
        self._version = 0
        self._log = OperationLog(opening.lanes)
        self._was_open = False
        # The number of the last operation that was sent over this connection.
        self._posted = 0
        self._refusals: dict[int, Exception] = {}
        # Of the last operation that changes the lengths and may be refused: its number, the lengths before and after.
        self._refusable: tuple[int, LaneLengths | None, LaneLengths | None] = (0, None, None)
        self._keys = range(0)
        # Whether the writer is to be closed at the server, and whether the server was told.
        self._is_closing = self._has_left = False
        self.state = WriterState(
            writer=opening.writer, sequence=0, pending=0, room=0, finals=0, completes=False
        )
        self._made = MadeItems()
        self.waits_for_page = False
        self.is_recording = False
        self.history = 0
        self.failure: Exception | None = None
        self.replay_is_closed = False

    # ---- the connection --------------------------------------------------------------------------------------------

    def attach(self, link: Connection) -> None:
        """Opens the writer over a connection, the first or another; see `wait_until_open`."""
        with self._changed:
            self._link, self._is_open, self.waits_for_page = link, False, False
            shared_nbytes = self._memory.shared_nbytes if link.shared_nbytes else 0
            opening, log = msgspec.structs.replace(self._opening, shared_nbytes=shared_nbytes), self._log
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
            link.send(opening, descriptors=self._memory.descriptors if shared_nbytes else ())

    def _opened(self, message: WriterOpened) -> None:
        """Sends everything again that the server needs."""
        self.history = self._log.history = message.history
        self._is_open, self._is_gathering = True, False
        if not message.is_known:
            self._keys = range(0)  # Keys of another server may be in use here.
        link = self._link
        if self._was_open and link is not None:
            for logged in self._log.kept():
                self._post(link, logged)
            for request in self._requests.values():
                link.send(request)
            if not self._log.flying:
                self._send_buffer()
        self._was_open = True
        self._leave_if_closing()

    def give_up(self, error: Exception) -> None:
        """See `WriterLink.give_up`."""
        super().give_up(error)
        self._memory.close()

    def wait_until_open(self) -> None:
        """Returns when the server has opened the writer.

        Raises:
            Exception: the server's refusal.
        """
        with self._changed:
            self._wait(lambda: self._is_open or 0 in self._refusals)
            if 0 in self._refusals:
                raise self._refusals[0]

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
                case Waited(ticket=ticket, failure=failed, is_closed=is_closed):
                    self.replay_is_closed = is_closed
                    self._requests.pop(ticket, None)
                    self._answers[ticket] = None if failed is None else failed.error
                case Keys(first=first, count=count):
                    self._keys = range(first, first + count)
                    self._requests.pop(KEYS_TICKET, None)
            self._changed.notify_all()

    def _take_state(self, state: WriterState) -> None:
        self.waits_for_page = state.waits
        # Operations that are sent again may be confirmed already.
        if state.sequence < self.state.sequence:
            return
        self.state = state
        if self.is_recording:
            self._made.add(state)
        if state.refused is not None:
            self.failure = self.failure or state.refused.error
        self._log.confirm(state)
        if self._buffer.count and not self._log.flying and self._link is not None and not self._is_gathering:
            self._is_gathering = True
            self._link.call_later(_GATHERING_SECONDS, self._end_gathering)
        self._leave_if_closing()

    def _end_gathering(self) -> None:
        with self._changed:
            if self._is_gathering:
                self._is_gathering = False
                if self._end is None:
                    self._send_buffer()

    def _take_refusal(self, sequence: int, error: Exception) -> None:
        if not sequence and self._was_open:
            self.give_up(Disconnected(f"the server does not open the writer again: {error}"))
            return
        if sequence and isinstance(error, Closed):
            # Steps are lost, so later ones do not continue those in the replay, nor in one that takes its place.
            self.give_up(error)
            return
        refused = self._log.refuse(sequence)
        if not sequence or (refused is not None and refused.operation.must):
            self._refusals[sequence] = error
            self._take_back(sequence)
        else:
            self.failure = self.failure or error

    def _take_back(self, sequence: int) -> None:
        """Restores the lengths of lanes that a refused operation changed, if no other has changed them since."""
        asked, before, after = self._refusable
        if asked == sequence and before is not None and self._buffer.lengths is after:
            self._buffer.lengths = before

    # ---- operations ------------------------------------------------------------------------------------------------

    def _check_size(self, payload: Payload | SharedSteps) -> None:
        """Refuses an operation that would end the connection, before it has a number.

        Raises:
            ValueError: its payload is too large for the server.
        """
        nbytes = len(payload.payload if isinstance(payload, SharedSteps) else payload)
        if nbytes > self._most_nbytes:
            raise ValueError(
                f"a writer of {self.replay!r} on {self._peer}: expected at most {self._most_nbytes} bytes a message, "
                f"got {nbytes} of a step with its final rows, or of the final rows alone; give the server a larger "
                "payload_nbytes in its limits, or the writer fewer lanes"
            )

    def send_collected(self) -> None:
        """See `WriterLink.send_collected`."""
        self._send_buffer()

    def _send_buffer(self, must: bool = False) -> None:
        self._post_rest()
        count = self._buffer.count
        if not count:
            return
        steps = self._buffer.packed()
        operation = AppendSteps(
            writer=self._opening.writer,
            sequence=self._log.sequence + count,
            must=must,
            steps=count,
            version=self._version,
            place=steps.place if isinstance(steps, SharedSteps) else None,
            is_recorded=self.is_recording,
        )
        self._is_gathering = False
        self._send(operation, steps, self._buffer.use)

    def _send(
        self,
        operation: Operation,
        payload: Payload | SharedSteps,
        use: Use,
        lengths: LaneLengths | None = None,
    ) -> None:
        if lengths is not None:
            self._refusable = operation.sequence, self._buffer.lengths, lengths
        self._log.add(operation, payload, use, self._buffer, lengths)
        self._post_rest()
        if self._link is None and self._end is not None:
            raise self._lost()
        if operation.must:
            self._wait(lambda: self.state.sequence >= operation.sequence)
            error = self._refusals.pop(operation.sequence, None)
            if error is not None:
                raise error

    def _post_rest(self) -> None:
        """Sends the operations that were not sent over this connection: the newest, or more after Ctrl-C."""
        link = self._link
        if link is None or not self._is_open or self._posted >= self._log.sequence:
            return
        rest: list[Logged] = []
        for logged in reversed(self._log.flying):
            if logged.operation.sequence <= self._posted:
                break
            rest.append(logged)
        for logged in reversed(rest):
            # Where Ctrl-C comes between the message and its note, it is sent twice; the server applies it once.
            self._post(link, logged)

    def _post(self, link: Connection, logged: Logged) -> None:
        """Sends an operation; steps in shared memory become a payload for a server that does not map it."""
        operation, payload = logged.operation, logged.payload
        if not isinstance(payload, SharedSteps):
            before: Sequence[Message] = ()
            if link.packer is not None and len(payload):
                before, parts = self._packed_steps.packed(link.packer, operation, payload)
                payload = b"".join(parts) if before else payload
            link.send(*before, operation, payload=payload)
        elif link.shared_nbytes:
            link.send(operation, payload=payload.payload)
        else:
            link.send(msgspec.structs.replace(operation, place=None), payload=payload.packed())
        self._posted = operation.sequence

    # ---- counts ----------------------------------------------------------------------------------------------------

    @property
    def lengths(self) -> LaneLengths:
        """The lengths of the lanes after all operations so far."""
        return self._buffer.lengths

    @lengths.setter
    def lengths(self, lengths: LaneLengths) -> None:
        self._buffer.lengths = lengths

    @property
    def is_busy(self) -> bool:
        """Whether operations are not confirmed."""
        return bool(self._log.flying or self._buffer.count)

    @property
    def items_flying(self) -> int:
        """Upper bound of the number of items that the operations in flight make."""
        return self._log.items + self._buffer.use.items

    @property
    def unacknowledged(self) -> int:
        """See `WriterLink.unacknowledged`; the items in flight are bounded by their rules."""
        return self.state.pending + self.items_flying

    def _waiting_message(self, seconds: float) -> str:
        if self._link is None or not self.waits_for_page:
            return super()._waiting_message(seconds)
        return (
            f"steps of a writer of {self.replay!r} on {self._peer} have waited {seconds:.3g} s for a free page: the "
            "store is full. They stay on their way; let items leave (a smaller max_size, max_times_sampled, delete), "
            "give the store a larger capacity, or wait longer"
        )

    # ---- the end ---------------------------------------------------------------------------------------------------

    def close(self) -> None:
        """Closes the writer at the server as soon as it has applied everything; does not wait.

        A second call completes a first that Ctrl-C interrupted. The thread that receives sends the message, because
        the server ends a connection over which it comes twice.
        """
        with self._changed:
            if self._end is None:
                self._send_buffer()
            self._is_closing = True
            if self._link is not None:
                self._link.call_later(0.0, self._leave)

    @property
    def is_leaving(self) -> bool:
        """Whether the writer is closed and everything is applied, so that the server answers no further request."""
        return self._is_closing and not self._log.flying

    def _leave(self) -> None:
        with self._changed:
            self._leave_if_closing()

    def _leave_if_closing(self) -> None:
        link = self._link
        if not self._is_closing or self._has_left or self._log.flying:
            return
        if link is not None and self._is_open:
            self._has_left, self._is_open = True, False
            link.send(CloseWriter(writer=self._opening.writer))
            link.forget(self)
            self._memory.close()
