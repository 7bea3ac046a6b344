"""One client of a server, in the thread of the selector."""

from __future__ import annotations

import logging
import time
import weakref
from collections.abc import Callable, Sequence
from typing import Protocol

import cython
from msgspec import UNSET, UnsetType

from headrace.clock import Clock
from headrace.errors import AuthenticationError, Disconnected, HeadraceError
from headrace.leases.channel import Channel
from headrace.leases.checking import LeaseError, MissingMessages
from headrace.leases.frames import LARGEST_PAYLOAD, Frame, ProtocolError
from headrace.leases.messages import Goodbye, Message
from headrace.server.compression import zstd
from headrace.server.compression.choice import CompressedColumns
from headrace.server.compression.packing import PayloadPacker
from headrace.server.compression.payload_work import PayloadWork
from headrace.server.compression.unpacking import PayloadUnpacker
from headrace.server.heartbeat import ANSWER_SECONDS, ASK_SECONDS, Heartbeat, Pulse
from headrace.server.messages import handshake, requests
from headrace.server.messages.answers import Done
from headrace.server.messages.handshake import Proof, Refusal, Welcome
from headrace.server.messages.packed import Packed
from headrace.server.messages.writing import WriterRequest
from headrace.server.serving.batches.batch_arena import BatchArena
from headrace.server.serving.client_requests import ClientRequests, Services
from headrace.server.serving.handshake import ServerHandshake
from headrace.server.serving.packed_traffic import PackedTraffic
from headrace.system import has_sealed_memory

if not cython.compiled:
    from headrace.kernels.kinds import Bool, Int

_LOGGER = logging.getLogger(__name__)
_NO_LIMIT = 1 << 62
_REFUSAL_SECONDS = 0.1


class Host(Services, Protocol):
    """The server of a connection, as the connection calls it.

    Attributes:
        token: that clients must know.
        version: of Headrace.
        payload_work: threads for large payloads.
        clock: of the heartbeat.
    """

    token: bytes | None
    version: str
    payload_work: PayloadWork
    clock: Clock

    def count_welcome(self) -> None:
        """Counts a client whose handshake succeeded."""

    def has_ended(self, connection: ServedConnection, error: BaseException) -> None:
        """Counts a connection that has ended."""


class ServedConnection:
    """One client. It is a `Peer` of the selector.

    Args:
        channel: of an accepted socket; the connection owns it.
        is_unix: whether its socket passes descriptors.
        host: the server.
    """

    def __init__(self, channel: Channel, host: Host, *, is_unix: bool) -> None:
        self.channel = channel
        self.channel.expect(handshake.ToServer, handshake.LARGEST_NBYTES, 0)
        self._host = host
        # Asked after each message.
        self._most_unread = host.limits.unread_nbytes
        self._most_queued = host.limits.queued_nbytes
        self._is_unix = is_unix
        self._handshake: ServerHandshake | None = ServerHandshake(host.token)
        # After the handshake.
        self._requests: ClientRequests | None = None
        self._packed: PackedTraffic | None = None
        self._heartbeat = Heartbeat()
        self._is_ending = False
        self._has_ended = False
        host.selector.add(self)
        # A connection that has ended before must not be held until then.
        late = weakref.WeakMethod(self._end_late_handshake)
        host.selector.call_at(time.monotonic() + host.limits.handshake_timeout, lambda: _call(late))

    @property
    def is_full(self) -> Bool:
        """See `Peer.is_full`."""
        return self._is_full()

    def _is_full(self) -> Bool:
        if self._packed is not None and (self._packed.is_unpacking or self.unsent > self._most_unread):
            return True
        unsent: Int = self.channel.unsent
        if unsent > self._most_unread:
            return True
        if self._requests is None:
            return False
        queued: Int = self._requests.queued_nbytes
        return queued > self._most_queued

    @property
    def is_at_work(self) -> bool:
        """See `Peer.is_at_work`: while a request is decompressed."""
        return self._packed is not None and self._packed.is_unpacking

    @property
    def unsent(self) -> int:
        """Number of bytes of messages that the system has not taken yet, about."""
        waiting = 0 if self._packed is None else self._packed.waiting_nbytes
        return self.channel.unsent + waiting

    @property
    def waits(self) -> bool:
        """See `Peer.waits`."""
        return self._is_full() or (self._requests is not None and self._requests.waits)

    @property
    def is_welcome(self) -> bool:
        """Whether the handshake succeeded."""
        return self._requests is not None

    def look(self) -> None:
        """See `Peer.look`. Ends a client that is silent while the server holds something for it."""
        if self._requests is None:
            return
        if self._packed is not None:
            self._packed.look()
        self._requests.look()
        if not self._requests.are_open:
            self._heartbeat.restart()
            return
        # A client that waits sends a `Ping` when the server is silent, and reads what it is sent.
        moved = self.channel.bytes_in + self.channel.bytes_out
        pulse = self._heartbeat.look(self._host.clock.monotonic(), moved)
        if pulse is Pulse.ASK and self.is_full:
            self.send(
                Done()
            )  # Nothing of the client is read now, so its own question stays without an answer.
        elif pulse is Pulse.GONE:
            raise Disconnected(f"no sign of life in {ASK_SECONDS + ANSWER_SECONDS:g} s")

    # ---- messages --------------------------------------------------------------------------------------------------

    def take(self, frame: Frame) -> None:
        """See `Peer.take`. A request that fails is answered with its error; anything else ends the connection."""
        if self._is_ending:
            return
        if self._packed is not None:
            self._packed.take(frame)
        elif self._requests is not None:
            self._requests.take(frame)
        elif self._handshake is not None:
            self._shake_hands(self._handshake, frame.message)

    def _take_unpacked(self, frame: Frame) -> None:
        if self._requests is not None and not self._is_ending:
            self._requests.take(frame)

    def send(
        self, *messages: Message, parts: Sequence[memoryview] = (), descriptors: tuple[int, ...] = ()
    ) -> None:
        """Sends messages without waiting; a client that is gone is noticed by the selector."""
        if not self.channel.is_ready:
            return  # It would wait for a handshake that may never end.
        # Most answers are one message within `Channel.hold`: a call with lists of arguments takes twice as long.
        if len(messages) == 1 and not (parts or descriptors) and self.channel.keeps(messages[0]):
            return
        try:
            self._host.selector.send(self, *messages, parts=parts, descriptors=descriptors, most=_NO_LIMIT)
        except Disconnected as error:
            _LOGGER.debug("an answer was not sent: %s", error)

    # ---- handshake -------------------------------------------------------------------------------------------------

    def _shake_hands(self, shaking: ServerHandshake, message: Message) -> None:
        if not shaking.is_greeted:
            self.send(shaking.challenge(message))
            return
        try:
            mac = shaking.own_proof(message)
        except AuthenticationError as error:
            self._is_ending = True
            refusal = str(error)
            self._host.selector.call_at(time.monotonic() + _REFUSAL_SECONDS, lambda: self._refuse(refusal))
            return
        assert isinstance(message, Proof)
        in_place = self._is_unix and message.in_place and has_sealed_memory()
        self._handshake = None
        largest = self._host.limits.payload_nbytes
        packer = None if self._is_unix else _agreed_packer(message.compressed)
        packed = None
        if packer is not None:
            packed = self._packed = PackedTraffic(
                packer,
                PayloadUnpacker(largest),
                self._host.payload_work,
                self.send,
                self._take_unpacked,
                lambda: self._host.selector.look(self),
            )
        self._send_answer = self.send if packed is None else packed.send
        self._requests = ClientRequests(
            self._host, self._send_answer, BatchArena() if in_place else None, packed
        )
        self.channel.expect(requests.AnyRequest | WriterRequest | Packed, requests.LARGEST_NBYTES, largest)
        self._host.count_welcome()
        self.send(
            Welcome(
                mac=mac,
                version=self._host.version,
                in_place=in_place,
                served=self._host.served.described,
                compresses=UNSET if packer is None else True,
                payload_nbytes=largest if largest < LARGEST_PAYLOAD else UNSET,
            )
        )

    def _refuse(self, reason: str) -> None:
        if not self._has_ended:
            self.send(Refusal(kind="authentication", reason=reason))
            self.drop(AuthenticationError(reason))

    def _end_late_handshake(self) -> None:
        if self._handshake is not None and not self._has_ended and not self._is_ending:
            self.drop(Disconnected("the handshake was not finished in time"))

    # ---- ending ----------------------------------------------------------------------------------------------------

    @property
    def is_saving(self) -> bool:
        """Whether a checkpoint that the client asked for is not answered yet."""
        return self._requests is not None and self._requests.is_saving

    @property
    def is_packing(self) -> bool:
        """Whether a payload of a request or an answer is compressed or decompressed."""
        return self._packed is not None and self._packed.is_busy

    def refuse_waiting(self, reason: str) -> None:
        """Refuses requests that wait, and those that would have to wait from here on."""
        if self._requests is not None:
            self._requests.refuse_waiting(reason)

    def say_goodbye(self, reason: str) -> None:
        """Takes no further request."""
        if self._has_ended or self._is_ending:
            return
        self._is_ending = True
        if self._requests is not None:
            self._requests.stop()
            self._send_answer(Goodbye(reason=reason, stops=True))
        else:
            self.send(Refusal(kind="closed", reason=reason))

    def drop(self, error: BaseException) -> None:
        """Ends the connection from this side."""
        self._host.selector.remove(self)
        self.end(error)

    def end(self, error: BaseException) -> None:
        """See `Peer.end`."""
        if self._has_ended:
            return
        self._has_ended = True
        if isinstance(error, LeaseError | ProtocolError):
            reason = str(error)
            if self._handshake:
                self.send(Refusal(kind="protocol", reason=reason))
            else:
                self.send(Goodbye(reason=reason, lacks=isinstance(error, MissingMessages)))
        if not isinstance(error, HeadraceError | LeaseError):
            _LOGGER.error("a connection ended", exc_info=error)
        if self._packed is not None:
            self._packed.close()
        if self._requests is not None:
            self._requests.close()
        self._host.has_ended(self, error)
        self.channel.close()


def _agreed_packer(wanted: list[str] | UnsetType) -> PayloadPacker | None:
    """Returns the packer for a client that wants these columns compressed; None where this process has no zstd."""
    if wanted is UNSET or not zstd.is_installed():
        return None
    return PayloadPacker(CompressedColumns(tuple(wanted)))


def _call(method: weakref.WeakMethod[Callable[[], None]]) -> None:
    """Calls a method if its object is still there."""
    found = method()
    if found is not None:
        found()
