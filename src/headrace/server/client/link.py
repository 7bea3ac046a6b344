"""One connection of a client: requests of many threads, and their answers.

No thread of its own receives. Of the threads that wait for answers, one reads the socket and wakes those whose answers
have come. When its own has come, another one goes on reading.
"""

from __future__ import annotations

import math
import select
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any, NoReturn, Protocol

import cython
import msgspec

from headrace.clock import SYSTEM_CLOCK, Clock
from headrace.errors import Closed, DeadlineExceeded, Disconnected
from headrace.kernels.quick_lock import QuickLock
from headrace.kernels.quiet_condition import QuietCondition
from headrace.kernels.readiness import is_readable, wait_until_readable
from headrace.leases.channel import Channel
from headrace.leases.frames import LARGEST_PAYLOAD, Frame, Payload, ProtocolError
from headrace.leases.messages import Goodbye, Message
from headrace.server.client.answers.batch_form import BatchForm, KnownForms, split_payload
from headrace.server.client.answers.placed_arrays import named_blocks
from headrace.server.client.blocks import MappedBlocks
from headrace.server.client.direct_sending import DirectSending, NumberedFrame
from headrace.server.client.known_views import KnownViews
from headrace.server.client.reply import Reply
from headrace.server.compression.packing import PayloadPacker
from headrace.server.compression.unpacking import PayloadUnpacker
from headrace.server.heartbeat import ANSWER_SECONDS, ASK_SECONDS, Heartbeat, Pulse
from headrace.server.messages.answers import (
    Answer,
    Failed,
    ForgetBlocks,
    GrantBlocks,
    QueueBatch,
    Sampled,
    SampledAgain,
)
from headrace.server.messages.handshake import Served
from headrace.server.messages.requests import Cancel, Ping, Request, ReturnBlocks, Sample

if cython.compiled:
    from cython.cimports.headrace.kernels.instances import is_of
    from cython.cimports.headrace.kernels.monotonic import monotonic
else:
    from headrace.kernels.instances import is_of
    from headrace.kernels.kinds import Bool, Float, Int
    from headrace.kernels.monotonic import monotonic

# A thread that waits looks this often whether Ctrl-C has come, or whether nobody reads the socket.
_TURN_SECONDS = 0.5
_MOST_UNSENT_NBYTES = 1 << 31


class Awaited(Protocol):
    """An answer that a thread waits for."""

    @property
    def is_done(self) -> bool:
        """Whether it is there, or will not come."""


class Link:
    """One connection after its handshake. Thread-safe.

    Args:
        channel: to the server, owned by the link.
        peer: the server's address, for messages.
        served: as the server described it.
        blocks: of the batch arena.
        clock: of the heartbeat.
        packer: of payloads to the server, which may compress its own, too; None: none are compressed.

    Attributes:
        served, blocks, packer: see above.
        direct: sends messages that are encoded once.
        failure: why the connection has ended; None while it has not.
        lacked: what the server missed when it ended the connection for that; "": nothing.
        views: that the server knows.
    """

    def __init__(
        self,
        channel: Channel,
        peer: str,
        served: dict[str, Served],
        blocks: MappedBlocks,
        clock: Clock = SYSTEM_CLOCK,
        packer: PayloadPacker | None = None,
    ) -> None:
        self._channel = channel
        self.direct = DirectSending(channel)
        self.packer = packer
        self._unpacker = None if packer is None else PayloadUnpacker(LARGEST_PAYLOAD)
        self._peer = peer
        self.served = served
        self.blocks = blocks
        self._returned = blocks.returned
        self.failure: BaseException | None = None
        self.lacked = ""
        self.views = KnownViews()
        self._forms = KnownForms()
        self._clock = clock
        self._heartbeat = Heartbeat()
        # The number of the next request.
        self._next = 1
        self._lock = QuickLock()
        # It has all that a condition needs of a lock.
        lock: Any = self._lock
        self._changed = QuietCondition(lock)
        self._waiting: dict[int, Reply] = {}
        self._listeners: dict[int, Callable[[Answer], None]] = {}
        self._is_read = self._is_closed = False
        # Threads that wait for another one to read.
        self._sleepers = 0
        self._poll = select.poll()
        self._descriptor = channel.fileno()
        self._poll.register(self._descriptor, select.POLLIN)

    # ---- requests --------------------------------------------------------------------------------------------------

    def begin(
        self,
        request: Request,
        payload: Payload = b"",
        owner: object = None,
        *,
        parts: Sequence[memoryview] = (),
        descriptors: tuple[int, ...] = (),
    ) -> Reply:
        """Sends a request; `wait` returns its answer.

        Args:
            request: whose number it sets.
            payload, parts, descriptors: see `Channel.send_soon`.
            owner: see `Reply`.

        Raises:
            Disconnected, Closed: the connection has ended.
        """
        with self._lock:
            request.number = self._take_numbers(1)
            reply = self._waiting[request.number] = Reply(request.number, owner)
        self._send([reply], request, payload, parts, descriptors)
        return reply

    def ask(self, frame: NumberedFrame) -> Reply:
        """Sends a request that is encoded once; see `begin`."""
        self._lock.take()
        try:
            number: Int = self._take_numbers(1)
            reply = self._waiting[number] = Reply(number, None)
        finally:
            self._lock.give()
        if cython.compiled and self.failure is None and not self._returned and self.direct.begin():
            frame.set_number(number)
            self.direct.send(frame, frame._bytes, 0, None, 0)
            return reply
        request: Any = msgspec.structs.replace(frame.message, number=number)
        self._send([reply], request, b"", (), ())
        return reply

    def begin_samples(self, request: Sample, owner: object = None) -> list[Reply]:
        """Sends a request for several batches; see `begin`.

        Returns:
            One for each batch, in the order in which they are drawn.
        """
        with self._lock:
            request.number = self._take_numbers(request.count)
            replies = [Reply(number, owner) for number in range(request.number, self._next)]
            self._waiting.update((reply.number, reply) for reply in replies)
        self._send(replies, request, b"", (), ())
        return replies

    def _take_numbers(self, count: Int) -> Int:
        """Returns the first of so many numbers for requests, with the lock held.

        Raises:
            Disconnected, Closed: the connection has ended.
        """
        if self.failure is not None:
            self._raise_failure(self.failure)
        if not self._waiting:
            self._heartbeat.restart()
        first: Int = self._next
        self._next += count
        return first

    def _send(
        self,
        replies: Sequence[Reply],
        request: Request,
        payload: Payload,
        parts: Sequence[memoryview],
        descriptors: Sequence[int],
    ) -> None:
        """Sends a request, whose answers are not expected if that fails; a lost connection fails them."""
        returned = self.blocks.take_returned()
        try:
            before = [ReturnBlocks(blocks=returned)] if returned else []
            self._channel.send_soon(
                *before,
                request,
                payload=payload,
                parts=parts,
                descriptors=tuple(descriptors),
                most=_MOST_UNSENT_NBYTES,
            )
        except Disconnected as error:
            self.fail(error)
        except BaseException:
            for reply in replies:
                self._forget(reply)
            raise

    def post(self, *messages: Message, parts: Sequence[memoryview] = ()) -> None:
        """Sends messages, the last one with a payload, that a listener's answers confirm; see `listen`.

        Raises:
            Disconnected, Closed: the connection has ended.
        """
        if self.failure is not None:
            self._raise_failure(self.failure)
        try:
            self._channel.send_soon(*messages, parts=parts, most=_MOST_UNSENT_NBYTES)
        except Disconnected as error:
            self.fail(error)
            raise

    def listen(self, number: int, listener: Callable[[Answer], None]) -> None:
        """Gives a listener all further answers of this number, as long as the connection lasts.

        Args:
            number: of a request that was answered.
            listener: called by the thread that reads, which holds the lock; a `ProtocolError` ends the connection.
        """
        self._listeners[number] = listener

    @staticmethod
    def _raise_failure(failure: BaseException) -> NoReturn:
        raise type(failure)(str(failure))

    def wait(self, reply: Reply, timeout: float | None) -> tuple[Any, Payload]:
        """Returns the answer to a request.

        Args:
            reply: of `begin`.
            timeout: in seconds; None waits as long as the connection lasts.

        Raises:
            DeadlineExceeded: no answer in time.
            Disconnected: the connection has ended.
            Exception: the error that the server answered with.
        """
        deadline = None if timeout is None else time.monotonic() + timeout
        try:
            if not self.is_answered(reply, deadline):
                raise DeadlineExceeded(f"{self._peer} did not answer in {timeout:.3g} s")
        except BaseException:
            self.cancel(reply)
            raise
        return reply.result()

    @cython.annotation_typing(False)
    def is_answered(self, reply: Awaited, deadline: float | None) -> bool:
        """Waits for an answer until a time; returns whether it is there."""
        end: Float = math.inf if deadline is None else deadline
        while not _is_done(reply):
            if self._may_read(reply, end):
                try:
                    while not _is_done(reply) and monotonic() < end:
                        self.read_ready(_seconds_left(end))
                finally:
                    self._stop_reading()
            if not _is_done(reply) and monotonic() >= end:
                return False
        return True

    def look(self) -> None:
        """Takes the answers that have come, unless another thread does; never waits."""
        self._lock.take()
        is_read = self._is_read
        self._is_read = True
        self._lock.give()
        if is_read:
            return
        try:
            self.read_ready(0.0)
        finally:
            self._stop_reading()

    def look_for_end(self) -> None:
        """Notices that the connection has ended while no answer was expected, unless a thread reads; never waits."""
        # The thread that reads notices it, too; to ask without the lock costs a fifth.
        if self._is_read or not is_readable(self._descriptor):
            return
        self.look()

    def is_open(self) -> Bool:
        """Returns whether the connection has not ended, also while no answer is expected; never waits."""
        self.look_for_end()
        return self.failure is None

    def _may_read(self, reply: Awaited, end: Float) -> Bool:
        """Waits until the answer is there or nobody reads the socket; returns whether the caller has to read it."""
        self._lock.take()
        try:
            if self._is_read and not _is_done(reply):
                self._sleep(_seconds_left(end))
            if self._is_read or _is_done(reply):
                return False
            self._is_read = True
            return True
        finally:
            self._lock.give()

    def _stop_reading(self) -> None:
        self._lock.take()
        try:
            self._is_read = False
            self._wake()
        finally:
            self._lock.give()

    def _sleep(self, seconds: Float) -> None:
        """Waits until something has changed, with the lock held."""
        self._sleepers += 1
        try:
            self._changed.wait(seconds)
        finally:
            self._sleepers -= 1

    def _wake(self) -> None:
        """Wakes the threads that wait for a change, with the lock held."""
        if self._sleepers:
            self._changed.notify_all()

    def read_ready(self, seconds: Float) -> None:
        """Waits for the socket at most `seconds`, and takes the answers that have come. One thread at a time."""
        try:
            has_data = True
            if self._channel.unsent:
                has_data = self._send_rest(seconds)
            elif seconds:
                has_data = wait_until_readable(self._descriptor, seconds)
            if has_data:
                self._take_ready()
            else:
                self._look_for_life()
        except (Disconnected, OSError, ValueError) as error:
            self.fail(error)

    def _send_rest(self, seconds: Float) -> bool:
        """Sends unsent bytes when the system takes them; returns whether something can be read."""
        self._poll.modify(self._descriptor, select.POLLIN | select.POLLOUT)
        ready = self._poll.poll(seconds * 1000)
        self._poll.modify(self._descriptor, select.POLLIN)
        self._channel.send_rest()
        return any(events & ~select.POLLOUT for _, events in ready)

    def _take_ready(self) -> None:
        """Takes the answers that have come, without waiting."""
        channel: Channel = self._channel
        before: Int = channel.bytes_in
        channel.read_ready()
        while (frame := channel.next_frame()) is not None:
            try:
                self._take(frame)
            finally:
                if frame.descriptors:
                    frame.close_descriptors()
        if channel.bytes_in == before:
            self._look_for_life()

    def _look_for_life(self) -> None:
        """Asks a server that is silent for a sign of life.

        Raises:
            Disconnected: it did not answer.
        """
        pulse = self._heartbeat.look(self._clock.monotonic(), self._channel.bytes_in)
        if pulse is Pulse.ASK:
            self._channel.send_soon(Ping(), most=_MOST_UNSENT_NBYTES)
        elif pulse is Pulse.GONE:
            raise Disconnected(f"no sign of life in {ASK_SECONDS + ANSWER_SECONDS:g} s")

    def _take(self, frame: Frame) -> None:
        if self._unpacker is not None:
            whole = self._unpacker.take(frame)
            if whole is None:
                return
            frame = whole
        message = frame.message
        if is_of(message, Answer):
            self._answered(message, frame.payload)
        elif isinstance(message, GrantBlocks):
            self.blocks.grant(message.blocks, message.sizes, frame.descriptors)
        elif isinstance(message, ForgetBlocks):
            self.blocks.forget(message.blocks)
        elif isinstance(message, Goodbye):
            self._take_goodbye(message)
        else:
            raise ProtocolError(f"expected an answer, got {type(message).__name__}")

    def _take_goodbye(self, message: Goodbye) -> None:
        reason = message.reason or "the server has ended the connection"
        if message.lacks:
            self.lacked = reason
            self.fail(Disconnected(reason))
        else:
            self.fail(Closed(f"{self._peer}: {reason}"))

    def _answered(self, answer: Any, payload: Payload) -> None:
        is_again = is_of(answer, SampledAgain)
        form = self._forms.form_of(answer, payload) if is_again or is_of(answer, Sampled) else None
        if form is None or not is_again or answer.count == 1:
            self._lock.take()
            try:
                self._settle(answer.number, answer, payload, form)
                self._wake()
            finally:
                self._lock.give()
            return
        payloads = split_payload(answer, payload)
        with self._lock:
            for number, one in enumerate(payloads, answer.number):
                self._settle(number, answer, one, form)
            self._wake()

    def _settle(self, number: Int, answer: Any, payload: Payload, form: BatchForm | None) -> None:
        has_blocks = is_of(answer, Sampled) or is_of(answer, SampledAgain) or is_of(answer, QueueBatch)
        names = named_blocks(answer) if has_blocks else ()
        # If the request was given up, they are given back at once.
        blocks = {each: self.blocks.array(each) for each in names} if names else {}
        reply = self._waiting.pop(number, None)
        if reply is None:
            listener = self._listeners.get(number)
            if listener is not None:  # Otherwise the request was given up.
                listener(answer)
        elif is_of(answer, Failed):
            reply.fail(answer.failure.error)
        else:
            reply.form, reply.blocks, reply.answer, reply.payload = form, blocks, answer, payload
            reply.is_done = True

    # ---- ending ----------------------------------------------------------------------------------------------------

    def cancel(self, reply: Reply) -> None:
        """Gives up on a request."""
        if self._forget(reply):
            self.ask_to_cancel(reply)

    def ask_to_cancel(self, reply: Reply) -> None:
        """Asks for an answer to a request at once; the one that it asked for may be under way, and comes before."""
        if self.failure is None:
            with suppress(Disconnected):
                self._channel.send_soon(Cancel(number=reply.number), most=_MOST_UNSENT_NBYTES)

    def _forget(self, reply: Reply) -> Bool:
        with self._lock:
            return self._waiting.pop(reply.number, None) is not None

    def end_waits(self, owner: object, error: Callable[[], BaseException]) -> None:
        """Ends the waits of an owner with an exception."""
        with self._lock:
            mine = [reply for reply in self._waiting.values() if reply.owner is owner]
            for reply in mine:
                reply.fail(error())
            self._wake()
        for reply in mine:
            self.cancel(reply)

    def fail(self, error: BaseException) -> None:
        """Ends the connection, and all waits; the first error counts."""
        with self._lock:
            if self.failure is not None:
                return
            is_closed = isinstance(error, Closed)
            text = str(error) if is_closed else f"the connection to {self._peer} has ended: {error}"
            self.failure = (Closed if is_closed else Disconnected)(text)
            waiting, self._waiting = self._waiting, {}
            for reply in waiting.values():
                reply.fail(type(self.failure)(str(self.failure)))
            self._wake()
        self._channel.shutdown()

    def close(self) -> None:
        """Ends the connection, when no thread reads it any more. A second call does nothing."""
        self.fail(Closed("the client is closed"))
        is_first: Bool = False
        with self._lock:
            while self._is_read and not self._is_closed:
                self._sleep(_TURN_SECONDS)
            is_first = not self._is_closed
            self._is_closed = self._is_read = True
        if is_first:
            self._channel.close()


def _seconds_left(end: Float) -> Float:
    left: Float = end - monotonic()
    turn: Float = _TURN_SECONDS
    return max(min(left, turn), 0.0)


def _is_done(reply: Awaited) -> bool:
    """Whether the answer is there, which another thread may have received."""
    return reply.is_done
