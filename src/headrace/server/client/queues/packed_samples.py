"""Samples on their way to a queue, compressed leaf by leaf."""

from __future__ import annotations

from collections.abc import Sequence

from headrace.server.compression.packing import PackedPayload, PayloadPacker
from headrace.server.messages.samples import SampleLayout


class PackedSamples:
    """Packs the samples for one queue over one connection.

    Args:
        layout: of a sample.
        packer: of payloads to the server; None: they are not compressed.

    >>> import numpy as np
    >>> from headrace.server.compression.choice import CompressedColumns
    >>> from headrace.spec import Signature
    >>> layout = SampleLayout(Signature.like({"reward": np.float32(0), "frame": np.zeros(7056, np.uint8)}))
    >>> samples = PackedSamples(layout, PayloadPacker(CompressedColumns(("",))))
    >>> before, parts = samples.packed([memoryview(bytes(2 * layout.nbytes))])
    >>> [raw for raw, _ in before[0].buffers]
    [7056, 8, 7056, 8]
    """

    def __init__(self, layout: SampleLayout, packer: PayloadPacker | None) -> None:
        self._packer = packer
        self._nbytes = layout.nbytes
        # First and last byte of each part of a sample, and its path if it may be compressed.
        self._cuts: list[tuple[int, int, str | None]] = []
        done = 0
        for path, leaf in layout.leaves.items():
            if packer is not None and packer.takes(path, leaf.stop - leaf.start):
                if done < leaf.start:
                    self._cuts.append((done, leaf.start, None))
                self._cuts.append((leaf.start, leaf.stop, path))
                done = leaf.stop
        if self._cuts and done < layout.nbytes:
            self._cuts.append((done, layout.nbytes, None))

    @property
    def are_packed(self) -> bool:
        """Whether samples may be compressed."""
        return self._packer is not None and bool(self._cuts)

    def packed(self, pieces: Sequence[memoryview]) -> PackedPayload:
        """Returns samples as they travel; `pieces` are the bytes of some samples each."""
        if self._packer is None or not self.are_packed:
            return PackedPayload((), pieces)
        parts: list[memoryview] = []
        paths: list[str | None] = []
        for piece in pieces:
            for begin in range(0, len(piece), self._nbytes):
                parts += [piece[begin + first : begin + end] for first, end, _ in self._cuts]
                paths += [path for *_, path in self._cuts]
        return self._packer.packed(parts, paths)
