"""Layout of blocks for large samples in the memory that a client shares with the server.

A block is laid out as a batch: its leaves follow each other in the order of the signature, each an array
`[batch_size, ...]`. So the queue can hand a block out as a batch, without a copy.

The memory begins with a page that the server writes. Its first 8 bytes are the number of a sample that would begin a
batch, 0 if none is known. From byte 64 on follow 8 bytes for each block: 1 while the server needs the block, 0
otherwise.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from headrace.spec import ArraySpec, Signature

# A batch in place saves the server's copy of each sample. It costs about as much as a copy of this many bytes.
_LEAST_SAMPLE_NBYTES = 1 << 12
_LEAST_BLOCK_NBYTES = 1 << 16
_MOST_NBYTES = 1 << 26
# One that is written, three that wait in the queue, two that a consumer holds.
_MOST_BLOCKS = 6
_LEAST_BLOCKS = 2
_LEAF_ALIGNMENT = 64
# Systems map memory from multiples of their page size, which is 64 KiB at most.
_ALIGNMENT = 1 << 16
_FIRST_WORD = 8


class BlockLayout:
    """Where the blocks and their leaves lie.

    Args:
        signature: of a sample.
        batch_size: samples in a batch; 0: unknown.

    Attributes:
        specs: of the leaves of a sample.
        batch_size: see above.
        count: number of blocks; 0 where samples are too small, or batches too large.
        nbytes: of the whole memory.

    >>> layout = BlockLayout(Signature.like({"frame": np.zeros((84, 84, 4), np.uint8), "reward": 0.0}), 256)
    >>> layout.count, layout.nbytes
    (6, 43712512)
    """

    def __init__(self, signature: Signature, batch_size: int) -> None:
        self.specs: list[ArraySpec] = list(signature.columns.values())
        self.batch_size = batch_size
        self._leaves: list[slice] = []
        end = 0
        for spec in self.specs:
            nbytes = batch_size * spec.nbytes
            self._leaves.append(slice(end, end + nbytes))
            end += _aligned(nbytes, _LEAF_ALIGNMENT)
        self._block_nbytes = _aligned(end, _ALIGNMENT)
        self.count = self._worthwhile_count()
        self.nbytes = _ALIGNMENT + self.count * self._block_nbytes

    def _worthwhile_count(self) -> int:
        # The server copies bools, because a client could write bytes there that are no bools.
        in_place = sum(spec.nbytes for spec in self.specs if spec.dtype.kind != "b")
        if in_place < _LEAST_SAMPLE_NBYTES or self.batch_size * in_place < _LEAST_BLOCK_NBYTES:
            return 0
        count = min(_MOST_BLOCKS, _MOST_NBYTES // self._block_nbytes)
        return count if count >= _LEAST_BLOCKS else 0

    def leaves(self, memory: memoryview, block: int) -> list[memoryview]:
        """Returns the bytes of each leaf of a block."""
        begin = _ALIGNMENT + block * self._block_nbytes
        return [memory[begin + leaf.start : begin + leaf.stop] for leaf in self._leaves]

    @staticmethod
    def first_of_batch(memory: memoryview) -> NDArray[np.int64]:
        """Returns the number of a sample that would begin a batch, int64[1] over the memory."""
        return np.frombuffer(memory, np.int64, 1)

    @staticmethod
    def is_held(memory: memoryview, block: int) -> NDArray[np.int64]:
        """Returns whether the server needs a block, int64[1] over the memory."""
        return np.frombuffer(memory, np.int64, 1, 8 * (_FIRST_WORD + block))


def _aligned(nbytes: int, to: int) -> int:
    return math.ceil(nbytes / to) * to
