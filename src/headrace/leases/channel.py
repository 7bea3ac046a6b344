"""One end of a connection: frames are sent and received on a stream socket."""

from __future__ import annotations

import array
import os
import select
import socket
from collections.abc import Iterator, Sequence
from contextlib import suppress
from typing import Any

import cython
import numpy as np

from headrace.errors import Disconnected
from headrace.kernels.quick_lock import QuickLock
from headrace.leases.frames import (
    LARGEST_PAYLOAD,
    MOST_DESCRIPTORS,
    Frame,
    FrameReader,
    Payload,
    encoded,
    encoded_head,
)
from headrace.leases.messages import VERSION, Hello, Message
from headrace.leases.socket_errors import cause, disconnected, gone
from headrace.leases.unsent import MOST_PIECES, Unsent

if cython.compiled:
    from cython.cimports.headrace.kernels.sockets import HAS_SOCKETS, receive_now, send_now
else:
    from headrace.kernels.kinds import Bool, Int

_ANCILLARY_NBYTES = socket.CMSG_SPACE(MOST_DESCRIPTORS * 4) if hasattr(socket, "CMSG_SPACE") else 0
# To take more memory than a message needs costs more than to receive it.
_READ_NBYTES = 1 << 14
_MOST_READ_NBYTES = 1 << 18
_MOST_DIRECT_NBYTES = 1 << 20
_AT_ONCE = socket.MSG_DONTWAIT


class Channel:
    """One end of a connection. Sending is thread-safe; one thread receives.

    Args:
        connection: a connected stream socket, owned by the channel.
        messages: union of the messages that may arrive.

    Attributes:
        bytes_in, bytes_out: received and sent so far.

    >>> one, other = Channel.pair(Hello)
    >>> one.send(Hello(version=3))
    >>> other.receive().message
    Hello(version=3)
    >>> one.close(); other.close()
    """

    def __init__(self, connection: socket.socket, messages: Any) -> None:
        self._socket = connection
        self._passes_descriptors = connection.family == getattr(socket, "AF_UNIX", None)
        self._sending = QuickLock()
        self._reader = FrameReader(messages)
        self._unsent = Unsent()
        self._has_greeted = self._is_held = self._is_due = False
        # Messages that wait for others; and whether one of them is to be sent at the end of `hold`.
        self._held: list[bytes] = []
        self._held_nbytes = 0
        self.bytes_in = self.bytes_out = 0
        # Descriptors that came with the bytes read last.
        self._arrived = np.zeros(MOST_DESCRIPTORS, np.int32)

    @classmethod
    def pair(cls, messages: Any) -> tuple[Channel, Channel]:
        """Returns two connected ends."""
        one, other = socket.socketpair(socket.AF_UNIX, socket.SOCK_STREAM)
        return cls(one, messages), cls(other, messages)

    def fileno(self) -> int:
        """The descriptor of the socket; -1 when it is closed."""
        return self._socket.fileno()

    @property
    def is_ready(self) -> bool:
        """Whether messages can be sent: no handshake has to come first."""
        return True

    # ---- sending ---------------------------------------------------------------------------------------------------

    def send(self, *messages: Message, payload: Payload = b"", descriptors: tuple[int, ...] = ()) -> None:
        """Sends a frame for each message, in one piece; returns when the system has taken all of it.

        A worker uses it: it waits while its collector is stopped, and its connection ends with the collector. A
        process that serves its user sends with `send_soon`, and waits for the peer's answer with a time limit.

        Args:
            messages: at least one.
            payload: of the last message.
            descriptors: of the last message; they stay open in this process.

        Raises:
            Disconnected: the peer is gone.
        """
        self._sending.take()
        try:
            data = self._framed(messages, payload, descriptors)
            # Compiled, unlike the rest: beside frames that fill the caches, a report of a rollout takes 6 us less.
            sent = 0 if descriptors else self._send_at_once([data])
            while sent < len(data):
                sent += self._send_some([memoryview(data)[sent:]], () if sent else descriptors, 0)
        except OSError as error:
            raise gone(error) from cause(error)
        finally:
            self._sending.give()

    def send_soon(
        self,
        *messages: Message,
        payload: Payload = b"",
        parts: Sequence[memoryview] = (),
        descriptors: tuple[int, ...] = (),
        most: int = LARGEST_PAYLOAD,
    ) -> bool:
        """Sends frames without waiting for the peer; `send_rest` sends the part that the system does not take at once.

        Between `hold` and `send_held` messages without a payload wait for others.

        Args:
            messages, payload, descriptors: see `send`.
            parts: the payload in pieces of bytes, which are not copied: they must not change before they are sent.
            most: number of unsent bytes beyond which the connection ends.

        Returns:
            Whether everything is sent.

        Raises:
            Disconnected: the peer is gone, or does not read.
        """
        with self._sending:
            if self._is_held and not (payload or parts or descriptors):
                self._hold_back(messages)
                self._is_due = True
                return True
            pieces = self._pieces(messages, payload, parts, descriptors)
            if self._held:
                self._unsent.keep([self._take_held()], (), 0)
            try:
                # Most messages are sent here, with no other work.
                sent = 0 if self._unsent.nbytes or descriptors else self._send_at_once(pieces)
                if sent == _nbytes(pieces):
                    return True
                self._unsent.keep(pieces, descriptors, sent)
                is_sent = self._send_unsent()
            except OSError as error:
                raise gone(error) from cause(error)
            if self._unsent.nbytes > most:
                self.shutdown()
                raise Disconnected(f"the peer does not read: {self._unsent.nbytes} bytes are unsent")
            return is_sent

    def _pieces(
        self,
        messages: Sequence[Message],
        payload: Payload,
        parts: Sequence[memoryview],
        descriptors: Sequence[int],
    ) -> Sequence[Payload]:
        """Returns the bytes of frames; the parts stay pieces of their own."""
        if not parts:
            return [self._framed(messages, payload, descriptors)]
        *others, last = messages
        head = encoded_head(last, _nbytes(parts), len(descriptors))
        if others or not self._has_greeted:
            head = self._greeted([*map(encoded, others), head])
        return [head, *parts]

    def hold(self) -> None:
        """Lets messages without a payload wait until `send_held`, which sends them in one piece."""
        self._is_held = True

    def keeps(self, message: Message) -> Bool:
        """Adds a message to those that wait for others; returns False, and does nothing, outside of `hold`."""
        self._sending.take()
        try:
            if self._is_held:
                self._hold_back((message,))
                self._is_due = True
            return self._is_held
        finally:
            self._sending.give()

    def send_later(self, *messages: Message) -> None:
        """Lets messages wait for the next one that is sent, or for `send_waiting`; the peer needs them no earlier."""
        with self._sending:
            self._hold_back(messages)

    def send_waiting(self) -> None:
        """Sends the messages of `send_later`, at the end of `hold` if it was begun.

        Raises:
            Disconnected: the peer is gone.
        """
        with self._sending:
            if self._is_held:
                self._is_due = True
            else:
                self._send_held()

    def _hold_back(self, messages: Sequence[Message]) -> None:
        data = self._framed(messages, b"", ())
        self._held += [data]
        self._held_nbytes += len(data)

    def _take_held(self) -> bytes:
        """Returns the messages that wait for others, which wait no more."""
        data: bytes = self._held[0] if len(self._held) == 1 else b"".join(self._held)
        self._held.clear()
        self._held_nbytes = 0
        self._is_due = False
        return data

    def send_held(self) -> None:
        """Ends `hold`. If nothing but messages of `send_later` waits, they go on waiting.

        Raises:
            Disconnected: the peer is gone.
        """
        # A thread in `send_soon` that has seen the hold would add its message after this call, behind later ones.
        self._sending.take()
        try:
            self._is_held = False
            if self._is_due:
                self._send_held()
        finally:
            self._sending.give()

    def _send_held(self) -> None:
        if not self._held:
            return
        data = self._take_held()
        try:
            sent = 0 if self._unsent.nbytes else self._send_at_once([data])
            if sent < len(data):
                self._unsent.keep([data], (), sent)
                self._send_unsent()
        except OSError as error:
            raise gone(error) from cause(error)

    @property
    def unsent(self) -> int:
        """Number of bytes that the system has not taken yet; without messages of `send_later` that wait for others."""
        return self._unsent.nbytes + (self._held_nbytes if self._is_held else 0)

    def send_rest(self) -> bool:
        """Sends unsent bytes as far as the system takes them; returns whether everything is sent.

        Raises:
            Disconnected: the peer is gone.
        """
        with self._sending, disconnected():
            return self._send_unsent()

    def _send_unsent(self) -> Bool:
        unsent = self._unsent
        while unsent.nbytes:
            pieces, descriptors = unsent.next_pieces()
            try:
                sent = self._send_some(pieces, descriptors, socket.MSG_DONTWAIT)
            except BlockingIOError:
                return False
            unsent.drop(sent)
        return True

    def _send_at_once(self, pieces: Sequence[Payload]) -> Int:
        """Sends pieces when nothing else is unsent; returns the number of bytes that the system has taken."""
        try:
            return self._send_some(pieces[:MOST_PIECES], (), socket.MSG_DONTWAIT)
        except BlockingIOError:
            return 0

    def _send_some(self, pieces: Sequence[Payload], descriptors: Sequence[int], flags: Int) -> Int:
        if descriptors:
            # `socket.send_fds` of Python ignores the flags, and waits.
            passed = (socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", descriptors))
            sent = self._socket.sendmsg(pieces, [passed], flags)
        elif len(pieces) == 1 and flags == _AT_ONCE and _is_compiled() and type(pieces[0]) is bytes:
            sent = self._send_bytes(pieces[0])
        elif len(pieces) == 1:
            sent = self._socket.send(pieces[0], flags)
        else:
            sent = self._socket.sendmsg(pieces, [], flags)
        self.bytes_out += sent
        return sent

    def _send_bytes(self, data: bytes) -> Int:
        """Does the same as `_send_some` for one piece, with one call of the system."""
        if cython.compiled:
            descriptor: Int = self._socket.fileno()
            begin: cython.p_uchar = data
            nbytes: Int = len(data)
            with cython.nogil:
                sent: Int = send_now(descriptor, begin, nbytes)
            if sent < 0:
                raise OSError(-sent, os.strerror(-sent))
            return sent
        else:
            return 0

    def _framed(self, messages: Sequence[Message], payload: Payload, descriptors: Sequence[int]) -> bytes:
        *others, last = messages
        if not others and not payload and self._has_greeted:
            return encoded_head(last, 0, len(descriptors))
        frames = [encoded(message) for message in others]
        frames.append(encoded(last, payload, len(descriptors)))
        return self._greeted(frames)

    def _greeted(self, frames: Sequence[bytes]) -> bytes:
        if not self._has_greeted:
            self._has_greeted = True
            frames = [encoded(Hello(version=VERSION)), *frames]
        return b"".join(frames)

    # ---- receiving -------------------------------------------------------------------------------------------------

    def receive(self) -> Frame:
        """Returns the next frame as soon as it is complete.

        Raises:
            Disconnected: the peer has ended, or sends bytes that are not frames.
        """
        while (frame := self.next_frame()) is None:
            with disconnected():
                self._read(0)
        return frame

    def expect(self, messages: Any, largest_message: int, largest_payload: int) -> None:
        """Sets what may arrive from the next frame on; see `FrameReader.expect`."""
        self._reader.expect(messages, largest_message, largest_payload)

    @property
    def is_within_frame(self) -> bool:
        """Whether a part of a frame has arrived, and its rest has not."""
        return self._reader.is_partial

    def receive_ready(self) -> Iterator[Frame]:
        """Returns the frames that are complete with what has arrived, without waiting for more; see `read_ready`.

        Raises:
            Disconnected: see `receive`.
        """
        self.read_ready()
        return self.received()

    def read_ready(self) -> Bool:
        """Reads what has arrived, without waiting; `next_frame` then returns what is complete.

        It reads at most 1 MiB, so that a peer that sends much does not delay others.

        Returns:
            Whether something had arrived.

        Raises:
            Disconnected: see `receive`.
        """
        try:
            return self._read(socket.MSG_DONTWAIT)
        except BlockingIOError:
            return False
        except OSError as error:
            raise gone(error) from cause(error)

    def received(self) -> Iterator[Frame]:
        """Yields the frames that are complete, without reading; the rest of an iteration that was stopped.

        Raises:
            Disconnected: the peer sends bytes that are not frames.
        """
        while (frame := self.next_frame()) is not None:
            yield frame

    def next_frame(self) -> Frame | None:
        """Returns the next frame of those that are complete, without reading; see `received`."""
        return self._reader.take()

    def _read(self, flags: Int) -> Bool:
        """Reads some bytes; returns whether there were any. It may raise `BlockingIOError` instead."""
        destination = self._reader.destination
        if destination is not None:
            nbytes: Int = self._socket.recv_into(destination[:_MOST_DIRECT_NBYTES], 0, flags)
            if not nbytes:
                raise Disconnected("the peer has ended")
            self._reader.received(nbytes)
            self.bytes_in += nbytes
            return True
        missing: Int = self._reader.missing
        if missing <= _READ_NBYTES and flags == _AT_ONCE and _is_compiled():
            return self._read_small()
        size = _READ_NBYTES if missing <= _READ_NBYTES else min(missing, _MOST_READ_NBYTES)
        if self._passes_descriptors:
            data, ancillary, _, _ = self._socket.recvmsg(size, _ANCILLARY_NBYTES, flags)
        else:
            data, ancillary = self._socket.recv(size, flags), []
        self._feed(data, _received(ancillary) if ancillary else [])
        return True

    def _read_small(self) -> Bool:
        """Does the same as `_read` where most messages are small, with one call of the system.

        The methods of a socket make a tuple and lists, and give the interpreter lock away and wait for it again.
        """
        if cython.compiled:
            count: cython.int = 0
            data = receive_now(self._socket.fileno(), cython.address(self._arrived[0]), cython.address(count))
            if data is None:
                return False
            self._feed(data, [self._arrived[place] for place in range(count)] if count else [])
            return True
        else:
            return False

    def _feed(self, data: bytes, descriptors: Sequence[int]) -> None:
        """Gives the reader bytes of the peer."""
        if not data:
            raise Disconnected("the peer has ended")
        self.bytes_in += len(data)
        self._reader.feed(data, descriptors)

    # ---- ending ----------------------------------------------------------------------------------------------------

    @property
    def has_hung_up(self) -> bool:
        """Whether the peer has ended; also true while bytes of it are still to be received."""
        poll = select.poll()
        poll.register(self.fileno(), getattr(select, "POLLRDHUP", 0))
        return bool(poll.poll(0))

    def shutdown(self) -> None:
        """Ends a `receive` of another thread, on both sides."""
        with suppress(OSError):  # The other side was first, or it is closed already.
            self._socket.shutdown(socket.SHUT_RDWR)

    def close(self) -> None:
        """Closes the socket."""
        self._socket.close()
        self._reader.close()
        self._unsent.close()


def _is_compiled() -> Bool:
    """Whether sockets are read and written by compiled calls."""
    if cython.compiled:
        has_sockets: Bool = HAS_SOCKETS
        return has_sockets
    else:
        return False


def _nbytes(pieces: Sequence[Payload]) -> Int:
    """Returns the number of bytes of all pieces."""
    found: Int = 0
    for piece in pieces:
        found += len(piece)
    return found


def _received(ancillary: list[Any]) -> list[int]:
    found = array.array("i")
    for level, kind, data in ancillary:
        if level == socket.SOL_SOCKET and kind == socket.SCM_RIGHTS:
            found.frombytes(data[: len(data) - len(data) % found.itemsize])
    for descriptor in found:
        os.set_inheritable(descriptor, False)
    return list(found)
