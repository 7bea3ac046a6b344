"""Frames on a stream socket: a header, a message, file descriptors (Unix sockets only), and a payload.

    4 bytes   "hrl1"
    4 bytes   length of the message
    4 bytes   number of descriptors that come along
    8 bytes   length of the payload
    ...       the message, msgspec bytes; then the payload, raw

Numbers are little-endian. Both sides send `Hello` first. Every length is checked before memory is taken for it.
"""

from __future__ import annotations

import array
import os
import socket
import struct
import threading
from collections import deque
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import Any, NamedTuple, TypeAlias

import msgspec

from headrace.errors import Disconnected
from headrace.leases.messages import VERSION, Hello, Message

_MAGIC = b"hrl1"
_HEADER = struct.Struct("<4sIIQ")
_MOST_DESCRIPTORS = 4
_ANCILLARY_NBYTES = socket.CMSG_SPACE(_MOST_DESCRIPTORS * 4) if hasattr(socket, "CMSG_SPACE") else 0
_LARGEST_HELLO = 1 << 16
_LARGEST_MESSAGE = 1 << 22
LARGEST_PAYLOAD = 1 << 30
# To take more memory than a message needs costs more than to receive it.
_READ_NBYTES = 1 << 14
_MOST_READ_NBYTES = 1 << 18

Payload: TypeAlias = bytes | memoryview


class Frame(NamedTuple):
    """A message with what came along.

    Attributes:
        message: decoded.
        payload: the bytes behind it.
        descriptors: the receiver's own; it closes those that it does not keep.
    """

    message: Any
    payload: bytes
    descriptors: list[int]


def encoded(message: Message, payload: Payload = b"", descriptors: int = 0) -> bytes:
    """A frame as bytes."""
    body = msgspec.msgpack.encode(message)
    return b"".join((_HEADER.pack(_MAGIC, len(body), descriptors, len(payload)), body, payload))


class FrameReader:
    """Takes frames out of bytes that come in pieces of any size.

    Args:
        messages: the union of the messages that may come, after `Hello`.
        largest_payload: bytes.

    >>> reader = FrameReader(Hello)
    >>> reader.feed(encoded(Hello(version=VERSION)) + encoded(Hello(version=7), b"behind"), [])
    >>> reader.take()
    Frame(message=Hello(version=7), payload=b'behind', descriptors=[])
    """

    def __init__(self, messages: Any, largest_payload: int = LARGEST_PAYLOAD) -> None:
        self._decoder: msgspec.msgpack.Decoder[Any] = msgspec.msgpack.Decoder(messages)
        self._greeting: msgspec.msgpack.Decoder[Any] = msgspec.msgpack.Decoder(Hello)
        self._largest_payload = largest_payload
        self._bytes = bytearray()
        self._descriptors: deque[int] = deque()
        self._header: tuple[int, int, int] | None = None
        self._was_greeted = False

    def feed(self, data: bytes, descriptors: list[int]) -> None:
        """Add what was received."""
        self._bytes += data
        self._descriptors += descriptors

    @property
    def missing(self) -> int:
        """Bytes that the frame under way still lacks, as far as is known."""
        if self._header is None:
            return 0
        length, _, payload = self._header
        return _HEADER.size + length + payload - len(self._bytes)

    def take(self) -> Frame | None:
        """The next frame; None while it is not complete.

        Raises:
            Disconnected: what came is not of this protocol, or speaks another version of it.
        """
        frame = self._take()
        if frame is None or self._was_greeted:
            return frame
        if frame.message.version != VERSION:
            raise Disconnected(
                f"expected version {VERSION} of the lease protocol, got {frame.message.version}; "
                "both sides need the same version of headrace"
            )
        self._was_greeted = True
        return self._take()

    def _take(self) -> Frame | None:
        if self._header is None:
            if len(self._bytes) < _HEADER.size:
                return None
            self._header = self._checked_header()
        length, count, payload = self._header
        end = _HEADER.size + length + payload
        if len(self._bytes) < end or len(self._descriptors) < count:
            return None
        with memoryview(self._bytes) as whole:
            body, behind = whole[_HEADER.size : _HEADER.size + length], bytes(whole[end - payload : end])
            try:
                message = (self._decoder if self._was_greeted else self._greeting).decode(body)
            except msgspec.MsgspecError as error:
                raise Disconnected(f"the peer sent no message of this protocol: {error}") from error
            finally:
                body.release()
        del self._bytes[:end]
        self._header = None
        return Frame(message, behind, [self._descriptors.popleft() for _ in range(count)])

    def _checked_header(self) -> tuple[int, int, int]:
        magic, length, count, payload = _HEADER.unpack_from(self._bytes)
        if magic != _MAGIC:
            raise Disconnected(
                f"the peer does not speak the lease protocol: expected {_MAGIC!r}, got {magic!r}"
            )
        longest = _LARGEST_MESSAGE if self._was_greeted else _LARGEST_HELLO
        most = self._largest_payload if self._was_greeted else 0
        if length > longest or count > _MOST_DESCRIPTORS or payload > most:
            raise Disconnected(
                f"the peer announced {length} bytes, {count} descriptors and a payload of {payload} bytes; at most "
                f"{longest}, {_MOST_DESCRIPTORS} and {most} are taken"
            )
        return length, count, payload

    def close(self) -> None:
        """Close the descriptors that came with frames that are not complete."""
        while self._descriptors:
            os.close(self._descriptors.popleft())


class Channel:
    """One end of a connection. Sending is thread-safe; one thread receives.

    Args:
        connection: a connected stream socket, the channel's own from here on.
        messages: the union of the messages that may come.

    >>> one, other = Channel.pair(Hello)
    >>> one.send(Hello(version=3))
    >>> other.receive().message
    Hello(version=3)
    >>> one.close(); other.close()
    """

    def __init__(self, connection: socket.socket, messages: Any) -> None:
        self._socket = connection
        self._sending = threading.Lock()
        self._reader = FrameReader(messages)
        # Unsent data: bytes, and the descriptors that belong to the first of them.
        self._unsent: deque[tuple[memoryview, list[int]]] = deque()
        self._waiting = 0
        self._has_greeted = False

    @classmethod
    def pair(cls, messages: Any) -> tuple[Channel, Channel]:
        """Two connected ends."""
        one, other = socket.socketpair(socket.AF_UNIX, socket.SOCK_STREAM)
        return cls(one, messages), cls(other, messages)

    def fileno(self) -> int:
        """The descriptor of the socket; -1 when it is closed."""
        return self._socket.fileno()

    # ---- sending ---------------------------------------------------------------------------------------------------

    def send(self, *messages: Message, payload: Payload = b"", descriptors: tuple[int, ...] = ()) -> None:
        """Send a frame for each message, all in one piece; wait until the system has taken all of it.

        Args:
            messages: at least one.
            payload: comes with the last one.
            descriptors: of this process; they come with the last one.

        Raises:
            Disconnected: the peer is gone.
        """
        with self._sending, _disconnected():
            data = self._framed(messages, payload, descriptors)
            sent = self._send_some(data, descriptors, 0)
            if sent < len(data):
                self._socket.sendall(memoryview(data)[sent:])

    def send_soon(
        self,
        *messages: Message,
        payload: Payload = b"",
        descriptors: tuple[int, ...] = (),
        most: int = LARGEST_PAYLOAD,
    ) -> bool:
        """Send frames without waiting for the peer; `send_rest` sends what the system does not take at once.

        Args:
            messages, payload, descriptors: see `send`.
            most: bytes that may wait; more of them end the connection.

        Returns:
            Whether nothing waits.

        Raises:
            Disconnected: the peer is gone, or does not read.
        """
        with self._sending, _disconnected():
            data = self._framed(messages, payload, descriptors)
            # The caller may close its own.
            self._unsent.append((memoryview(data), [os.dup(each) for each in descriptors]))
            self._waiting += len(data)
            is_sent = self._send_unsent()
            if self._waiting > most:
                self.shutdown()
                raise Disconnected(f"the peer does not read: {self._waiting} bytes wait for it")
            return is_sent

    def send_rest(self) -> bool:
        """Send what waits, as far as the system takes it; returns whether nothing is left.

        Raises:
            Disconnected: the peer is gone.
        """
        with self._sending, _disconnected():
            return self._send_unsent()

    def _send_unsent(self) -> bool:
        while self._unsent:
            data, descriptors = self._unsent[0]
            try:
                sent = self._send_some(data, descriptors, socket.MSG_DONTWAIT)
            except BlockingIOError:
                return False
            _close(descriptors)
            self._waiting -= sent
            if sent == len(data):
                self._unsent.popleft()
            else:
                self._unsent[0] = (data[sent:], [])
        return True

    def _send_some(self, data: Payload, descriptors: Sequence[int], flags: int) -> int:
        if not descriptors:
            return self._socket.send(data, flags)
        return socket.send_fds(self._socket, [data], list(descriptors), flags)

    def _framed(self, messages: tuple[Message, ...], payload: Payload, descriptors: tuple[int, ...]) -> bytes:
        *others, last = messages
        frames = [encoded(message) for message in others]
        frames.append(encoded(last, payload, len(descriptors)))
        if not self._has_greeted:
            self._has_greeted = True
            frames.insert(0, encoded(Hello(version=VERSION)))
        return b"".join(frames)

    # ---- receiving -------------------------------------------------------------------------------------------------

    def receive(self) -> Frame:
        """The next frame, as soon as it is complete.

        Raises:
            Disconnected: the peer has ended, or sends something else than frames.
        """
        while (frame := self._reader.take()) is None:
            self._read(0)
        return frame

    def receive_ready(self) -> Iterator[Frame]:
        """Yields the frames that are complete with what has arrived, without waiting for more.

        At most 256 KiB are read, so that a peer that sends much does not keep others waiting.

        Raises:
            Disconnected: as `receive`.
        """
        with suppress(BlockingIOError):
            self._read(socket.MSG_DONTWAIT)
        while (frame := self._reader.take()) is not None:
            yield frame

    def _read(self, flags: int) -> None:
        size = min(max(_READ_NBYTES, self._reader.missing), _MOST_READ_NBYTES)
        with _disconnected():
            data, ancillary, _, _ = self._socket.recvmsg(size, _ANCILLARY_NBYTES, flags)
        if not data:
            raise Disconnected("the peer has ended")
        self._reader.feed(data, _received(ancillary))

    # ---- ending ----------------------------------------------------------------------------------------------------

    def shutdown(self) -> None:
        """End a `receive` of another thread, here and on the other side."""
        with suppress(OSError):  # The other side was first, or it is closed already.
            self._socket.shutdown(socket.SHUT_RDWR)

    def close(self) -> None:
        """Give the socket back."""
        self._socket.close()
        self._reader.close()
        for _, descriptors in self._unsent:
            _close(descriptors)


@contextmanager
def _disconnected() -> Iterator[None]:
    try:
        yield
    except (Disconnected, BlockingIOError):
        raise
    except OSError as error:
        raise Disconnected(f"the peer is gone: {error}") from error


def _received(ancillary: list[Any]) -> list[int]:
    found = array.array("i")
    for level, kind, data in ancillary:
        if level == socket.SOL_SOCKET and kind == socket.SCM_RIGHTS:
            found.frombytes(data[: len(data) - len(data) % found.itemsize])
    for descriptor in found:
        os.set_inheritable(descriptor, False)
    return list(found)


def _close(descriptors: list[int]) -> None:
    while descriptors:
        os.close(descriptors.pop())
