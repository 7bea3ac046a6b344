"""Payloads on their way in."""

from __future__ import annotations

from headrace.leases.frames import Frame, Payload, ProtocolError, payload_memory
from headrace.server.compression import zstd
from headrace.server.messages.packed import Packed


class PayloadUnpacker:
    """Decompresses the payloads of one peer. One thread uses it.

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
        announced, self._announced = self._announced, None
        if announced is None:
            if not isinstance(frame.message, Packed):
                return frame
            self._check(frame.message)
            self._announced = frame.message
            return None
        if isinstance(frame.message, Packed):
            raise ProtocolError("the peer announced a compressed payload and sent none")
        return frame._replace(payload=self._unpacked(announced, frame.payload))

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

    def _unpacked(self, packed: Packed, payload: Payload) -> Payload:
        data = memoryview(payload)
        expected = sum(stored for _, stored in packed.buffers)
        if len(data) != expected:
            raise ProtocolError(f"the peer announced a payload of {expected} bytes, and sent {len(data)}")
        whole = payload_memory(sum(raw for raw, _ in packed.buffers))
        begin = end = 0
        for raw, stored in packed.buffers:
            source, destination = data[begin : begin + stored], whole[end : end + raw]
            begin, end = begin + stored, end + raw
            if stored == raw:
                destination[:] = source
                continue
            try:
                zstd.decompress_into(source, destination)
            except ValueError as error:
                raise ProtocolError(f"the peer sent a compressed payload that is not one: {error}") from error
        return whole
