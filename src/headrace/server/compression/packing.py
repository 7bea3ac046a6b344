"""Payloads on their way out."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from headrace.leases.messages import Message
from headrace.server.compression import zstd
from headrace.server.compression.choice import CompressedColumns
from headrace.server.messages.packed import Packed

# Of a smaller buffer the two sides' calls cost more time than its bytes do on a line of 1 Gbit/s.
_LEAST_NBYTES = 1 << 10
# A buffer that shrinks by less travels as it is: the receiver need not decompress it.
_LEAST_GAIN = 1 / 8
# A payload that shrinks by less travels as it is: the receiver need not copy its other buffers.
_LEAST_GAIN_OF_PAYLOAD = 1 / 16
# Buffers of a column that are not tried after one that did not shrink.
_RESTS = 15


class PackedPayload(NamedTuple):
    """A payload as it travels.

    Attributes:
        before: messages that come before that of the payload.
        parts: the payload in pieces.
    """

    before: Sequence[Message]
    parts: Sequence[memoryview]


class PayloadPacker:
    """Compresses the columns of payloads to one peer. Thread-safe.

    Args:
        columns: to be compressed.

    >>> packer = PayloadPacker(CompressedColumns(("frame",)))
    >>> before, parts = packer.packed([memoryview(bytes(7056)), memoryview(b"reward")], ["frame", "reward"])
    >>> before[0].buffers[1], len(parts[0]) < 100
    ((6, 6), True)
    """

    def __init__(self, columns: CompressedColumns) -> None:
        self._columns = columns
        self._chosen: dict[str, bool] = {}
        # Maps columns that did not shrink to the number of buffers that are not tried.
        self._rests: dict[str, int] = {}

    def takes(self, path: str | None, nbytes: int) -> bool:
        """Whether a buffer may be compressed.

        Args:
            path: of the column; None: it is not of a column.
            nbytes: of the buffer.
        """
        if path is None or nbytes < _LEAST_NBYTES:
            return False
        chosen = self._chosen.get(path)
        if chosen is None:
            chosen = self._chosen[path] = self._columns.has(path)
        return chosen

    def tried_nbytes(self, parts: Sequence[memoryview], paths: Sequence[str | None]) -> int:
        """Returns the number of bytes that `packed` compresses, also in vain.

        Args:
            parts, paths: see `packed`.
        """
        return sum(
            len(part)
            for part, path in zip(parts, paths, strict=True)
            if path is not None and self.takes(path, len(part)) and not self._rests.get(path)
        )

    def packed(self, parts: Sequence[memoryview], paths: Sequence[str | None]) -> PackedPayload:
        """Returns a payload as it travels.

        Args:
            parts: of the payload, which must not change before they are sent.
            paths: of their columns; None: a part is not of a column.
        """
        stored = [self._stored(part, path) for part, path in zip(parts, paths, strict=True)]
        nbytes = sum(map(len, parts))
        gained = nbytes - sum(map(len, stored))
        if not gained or gained < _LEAST_GAIN_OF_PAYLOAD * nbytes:
            return PackedPayload((), parts)
        buffers = [(len(part), len(one)) for part, one in zip(parts, stored, strict=True)]
        return PackedPayload([Packed(buffers=buffers)], stored)

    def _stored(self, part: memoryview, path: str | None) -> memoryview:
        """Returns a part compressed, or as it is if that gains little."""
        if path is None or not self.takes(path, len(part)):
            return part
        rests = self._rests.get(path, 0)
        if rests:
            self._rests[path] = rests - 1
            return part
        found = zstd.compressed(part)
        if len(found) > (1 - _LEAST_GAIN) * len(part):
            self._rests[path] = _RESTS
            return part
        return memoryview(found)
