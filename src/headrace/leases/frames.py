"""Frames of a stream: a header, a message, descriptors of files, and a payload.

    4 bytes   "hrl1"
    4 bytes   length of the message
    4 bytes   number of descriptors that come along (Unix sockets only)
    8 bytes   length of the payload
    ...       the message, msgspec bytes; then the payload, raw

Numbers are little-endian. Both sides send `Hello` first. Every length is checked before memory is taken for it.
"""

from __future__ import annotations

import os
import struct
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, TypeAlias

import cython
import msgspec
import numpy as np

from headrace.errors import Disconnected
from headrace.leases.messages import VERSION, Hello, Message
from headrace.store.gather import Pool

if cython.compiled:
    from cython.cimports.cpython.bytearray import PyByteArray_AS_STRING
    from cython.cimports.headrace.leases.headers import read_header, triple, with_header
else:
    from headrace.kernels.kinds import Bool, Int

_MAGIC = b"hrl1"
_TLS_RECORDS = (b"\x15\x03", b"\x16\x03")
_HEADER = struct.Struct("<4sIIQ")
_HEADER_NBYTES = 20
MOST_DESCRIPTORS = 4
_LARGEST_HELLO = 1 << 16
_LARGEST_MESSAGE = 1 << 22
LARGEST_PAYLOAD = 1 << 30
# Payloads from this size on are received straight into their own memory.
_DIRECT_NBYTES = 1 << 16

# Up to this size they share buffers of one size, so that not every message costs page faults.
_POOLED_NBYTES = 1 << 21
_POOL = Pool()


def _of_python(value: Any) -> Any:
    """Returns a number of NumPy as one of Python; kernels that run as plain Python return such numbers."""
    if isinstance(value, np.generic):
        return value.item()
    raise TypeError(f"expected a value that msgspec can encode, got {type(value).__name__}")


_encode = msgspec.msgpack.Encoder(enc_hook=_of_python).encode

Payload: TypeAlias = bytes | memoryview


def payload_memory(nbytes: int) -> memoryview:
    """Returns memory for a payload; the system gives pages of a large one only as they are written."""
    is_pooled = _DIRECT_NBYTES <= nbytes <= _POOLED_NBYTES
    memory = _POOL.buffer(_POOLED_NBYTES)[:nbytes] if is_pooled else np.empty(nbytes, np.uint8)
    return memory.data


class ProtocolError(Disconnected):
    """The peer sent bytes that are not of the protocol."""


class Frame(NamedTuple):
    """A message with its payload and descriptors.

    Attributes:
        message: decoded.
        payload: the bytes that follow it.
        descriptors: owned by the receiver, which closes those that it does not keep.
    """

    message: Any
    payload: Payload
    descriptors: list[int]

    def close_descriptors(self) -> None:
        """Closes the descriptors."""
        while self.descriptors:
            os.close(self.descriptors.pop())


def encoded(message: Message, payload: Payload = b"", descriptors: int = 0) -> bytes:
    """Returns a frame as bytes; its descriptors are sent apart."""
    return b"".join((encoded_head(message, len(payload), descriptors), payload))


def encoded_head(message: Message, payload_nbytes: Int, descriptors: Int = 0) -> bytes:
    """Returns the bytes of a frame that come before its payload."""
    body: bytes = _encode(message)
    if cython.compiled:
        framed: bytes = with_header(body, descriptors, payload_nbytes)
        return framed
    else:
        return _HEADER.pack(_MAGIC, len(body), descriptors, payload_nbytes) + body


class FrameReader:
    """Reads frames from bytes that arrive in pieces of any size.

    Args:
        messages: union of the messages that may arrive after `Hello`.
        largest_payload: in bytes.

    >>> reader = FrameReader(Hello)
    >>> reader.feed(encoded(Hello(version=VERSION)) + encoded(Hello(version=7), b"behind"), [])
    >>> frame = reader.take()
    >>> frame.message, bytes(frame.payload)
    (Hello(version=7), b'behind')
    """

    def __init__(self, messages: Any, largest_payload: int = LARGEST_PAYLOAD) -> None:
        # Bound methods: a message looks up no name.
        self._decode_greeting: Callable[[Any], Any] = msgspec.msgpack.Decoder(Hello).decode
        self.expect(messages, _LARGEST_MESSAGE, largest_payload)
        self._bytes = bytearray()
        self._descriptors: deque[int] = deque()
        # Of the current frame, once its header is complete.
        self._has_header = False
        self._length = self._count = self._payload = 0
        # The payload of the current frame, if it is large: its memory, and the bytes received so far.
        self._large: memoryview | None = None
        self._received = 0
        # Bytes of the latest frame, without a large payload.
        self._latest = 0
        self._was_greeted = False

    def expect(self, messages: Any, largest_message: Int, largest_payload: Int) -> None:
        """Sets what may arrive from the next frame on.

        Args:
            messages: union of the messages.
            largest_message, largest_payload: in bytes.
        """
        self._decode: Callable[[Any], Any] = msgspec.msgpack.Decoder(messages).decode
        self._largest_message = largest_message
        self._largest_payload = largest_payload

    def feed(self, data: bytes, descriptors: Sequence[int]) -> None:
        """Adds received bytes and descriptors."""
        self._bytes += data
        if descriptors:
            self._descriptors += descriptors

    @property
    def missing(self) -> int:
        """Number of bytes still missing from the current frame; before its header is complete, those of the latest."""
        if not self._has_header:
            return self._latest
        return _HEADER_NBYTES + self._length + self._payload - len(self._bytes)

    @property
    def is_partial(self) -> bool:
        """Whether a part of a frame has arrived, and its rest has not."""
        return self._has_header or len(self._bytes) > 0

    @property
    def destination(self) -> memoryview | None:
        """Memory for the next bytes, when they are the rest of a large payload; `received` is called afterwards."""
        return None if self._large is None else self._large[self._received :]

    def received(self, nbytes: Int) -> None:
        """Notes bytes that were received into `destination`."""
        self._received += nbytes

    def take(self) -> Frame | None:
        """Returns the next frame; None while it is not complete.

        Raises:
            ProtocolError: the bytes are not of this protocol, or of another version of it, or descriptors came without
                a frame.
        """
        frame = self._take()
        if frame is None and len(self._descriptors) > MOST_DESCRIPTORS:
            raise ProtocolError(f"the peer sent {len(self._descriptors)} descriptors that belong to no frame")
        if frame is None or self._was_greeted:
            return frame
        if frame.message.version != VERSION:
            raise ProtocolError(
                f"expected version {VERSION} of Headrace's protocol, got {frame.message.version}; "
                "both sides need the same version of headrace"
            )
        self._was_greeted = True
        return self._take()

    def _take(self) -> Frame | None:
        if not self._has_header:
            if len(self._bytes) < _HEADER_NBYTES:
                return None
            if not self._takes_header():
                self._check_header()
        count: Int = self._count
        payload: Int = self._payload
        begin: Int = _HEADER_NBYTES + self._length
        if payload >= _DIRECT_NBYTES:
            if self._large is None and len(self._bytes) >= begin:
                self._begin_large(begin, payload)
            if self._large is None or self._received < payload:
                return None
            behind: Payload = self._large
            self._large = None
        elif len(self._bytes) < begin + payload:
            return None
        elif not payload:
            behind = b""
        else:
            behind = memoryview(self._bytes[begin : begin + payload])
        if len(self._descriptors) < count:
            # They come with the first byte of their frame, or before.
            raise ProtocolError(f"the peer announced {count} descriptors and sent {len(self._descriptors)}")
        message = self._decoded(begin)
        self._latest = begin if payload >= _DIRECT_NBYTES else begin + payload
        del self._bytes[: self._latest]
        self._has_header = False
        descriptors = [self._descriptors.popleft() for _ in range(count)] if count else []
        if cython.compiled:
            # The constructor of a NamedTuple is a function of Python.
            frame: Frame = triple(Frame, message, behind, descriptors)
            return frame
        else:
            return Frame(message, behind, descriptors)

    def _begin_large(self, begin: Int, payload: Int) -> None:
        """Reserves memory for a payload."""
        self._large = payload_memory(payload)
        early = self._bytes[begin : begin + payload]
        self._large[: len(early)] = early
        self._received = len(early)
        del self._bytes[begin : begin + payload]

    def _decoded(self, end: Int) -> Any:
        decode = self._decode if self._was_greeted else self._decode_greeting
        try:
            return decode(self._bytes[_HEADER_NBYTES:end])
        except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
            raise ProtocolError(f"the peer sent no message of this protocol: {error}") from error

    def _takes_header(self) -> Bool:
        """Takes the next header, if it is one of a message that may arrive; `_check_header` says why it is not."""
        if cython.compiled:
            begin = cython.cast(cython.p_uchar, PyByteArray_AS_STRING(self._bytes))
            length: Int = 0
            count: Int = 0
            payload: Int = 0
            if (
                self._was_greeted
                and read_header(begin, cython.address(length), cython.address(count), cython.address(payload))
                and length <= self._largest_message
                and count <= MOST_DESCRIPTORS
                and 0 <= payload <= self._largest_payload
            ):
                self._length, self._count, self._payload = length, count, payload
                self._has_header = True
                return True
        return False

    def _check_header(self) -> None:
        magic, length, count, payload = _HEADER.unpack_from(self._bytes)
        if magic != _MAGIC:
            hint = "; it speaks TLS, and this side does not (tls=)" if magic[:2] in _TLS_RECORDS else ""
            raise ProtocolError(
                f"the peer does not speak Headrace's protocol: expected {_MAGIC!r}, got {magic!r}{hint}"
            )
        longest = self._largest_message if self._was_greeted else _LARGEST_HELLO
        most = self._largest_payload if self._was_greeted else 0
        if length > longest or count > MOST_DESCRIPTORS or payload > most:
            raise ProtocolError(
                f"the peer announced {length} bytes, {count} descriptors and a payload of {payload} bytes; at most "
                f"{longest}, {MOST_DESCRIPTORS} and {most} are taken"
            )
        self._length, self._count, self._payload = length, count, payload
        self._has_header = True

    def close(self) -> None:
        """Closes the descriptors of incomplete frames."""
        while self._descriptors:
            os.close(self._descriptors.popleft())
