"""Payloads on their way in."""

from __future__ import annotations

from typing import NamedTuple

from headrace.leases.frames import Frame, ProtocolError, payload_memory
from headrace.server.compression import zstd
from headrace.server.messages.packed import Packed


class PackedFrame(NamedTuple):
    """A frame whose payload is compressed, as it was announced.

    Attributes:
        frame: as it came.
        announced: its buffers, checked.
    """

    frame: Frame
    announced: Packed

    @property
    def nbytes(self) -> int:
        """Bytes of the payload, decompressed."""
        return sum(raw for raw, _ in self.announced.buffers)

    def unpacked(self) -> Frame:
        """Returns the frame with its payload decompressed.

        Raises:
            ProtocolError: the payload is not what was announced.
        """
        data, buffers = memoryview(self.frame.payload), self.announced.buffers
        whole = payload_memory(self.nbytes)
        begin = end = 0
        for raw, stored in buffers:
            source, destination = data[begin : begin + stored], whole[end : end + raw]
            begin, end = begin + stored, end + raw
            if stored == raw:
                destination[:] = source
                continue
            try:
                zstd.decompress_into(source, destination)
            except ValueError as error:
                raise ProtocolError(f"the peer sent a compressed payload that is not one: {error}") from error
        return self.frame._replace(payload=whole)


class PayloadUnpacker:
    """Finds the compressed payloads of one peer. One thread uses it.

    Every number of the peer is checked before memory is taken for it, and nothing is decompressed beyond it.

    Args:
        most_nbytes: of a payload, decompressed.
    """

    def __init__(self, most_nbytes: int) -> None:
        self._most_nbytes = most_nbytes
        self._announced: Packed | None = None

    def take(self, frame: Frame) -> Frame | None:
        """Returns a frame with its payload decompressed; None: the frame only announces the next one.

        Raises:
            ProtocolError: the peer sent something that is not what it announced, or too much.
        """
        found = self.take_packed(frame)
        return found.unpacked() if isinstance(found, PackedFrame) else found

    def take_packed(self, frame: Frame) -> Frame | PackedFrame | None:
        """Does the same as `take`, and leaves it to the caller to decompress the payload."""
        announced, self._announced = self._announced, None
        if announced is None:
            if not isinstance(frame.message, Packed):
                return frame
            self._check(frame.message)
            self._announced = frame.message
            return None
        if isinstance(frame.message, Packed):
            raise ProtocolError("the peer announced a compressed payload and sent none")
        expected = sum(stored for _, stored in announced.buffers)
        if len(frame.payload) != expected:
            raise ProtocolError(
                f"the peer announced a payload of {expected} bytes, and sent {len(frame.payload)}"
            )
        return PackedFrame(frame, announced)

    def _check(self, packed: Packed) -> None:
        nbytes = 0
        for raw, stored in packed.buffers:
            if not 0 <= stored <= raw:
                raise ProtocolError(f"expected a compressed buffer smaller than {raw} bytes, got {stored}")
            nbytes += raw
        if nbytes > self._most_nbytes:
            raise ProtocolError(
                f"the peer announced a compressed payload of {nbytes} bytes; at most {self._most_nbytes} are taken"
            )
