"""Blocks for large samples in shared memory, which the server can hand out as batches."""

from __future__ import annotations

import mmap
import os
from collections.abc import Sequence
from typing import Any, NamedTuple

from numpy.typing import NDArray

from headrace.kernels.shared_count import SharedCount
from headrace.server.batch_buffers import BatchBuffer
from headrace.server.messages.sample_blocks import BlockLayout
from headrace.system import sealed_memory_file


class Piece(NamedTuple):
    """Samples of consecutive numbers that lie together.

    Attributes:
        length: number of samples.
        block: index of their block; -1: they lie in no block.
        row: of the first of them in the block.
    """

    length: int
    block: int = -1
    row: int = 0


class SampleBlocks:
    """The blocks of one connection.

    A block is begun with a sample that begins a batch, as the server says. It is written again when all its samples are
    confirmed and the server needs it no more. While no block is free, samples lie elsewhere.

    Args:
        layout: of the blocks.
        stored: number of the last sample that is in the queue.

    Attributes:
        descriptor: of the memory, for the server; `close_descriptor` closes it.
    """

    def __init__(self, layout: BlockLayout, stored: SharedCount) -> None:
        self.descriptor = sealed_memory_file("headrace-batches", layout.nbytes)
        memory = memoryview(mmap.mmap(self.descriptor, layout.nbytes))
        self._batch_size = layout.batch_size
        self._stored = stored
        self._first_of_batch = SharedCount(layout.first_of_batch(memory))
        self._is_held = [SharedCount(layout.is_held(memory, block)) for block in range(layout.count)]
        self._columns: list[list[NDArray[Any]]] = [
            BatchBuffer(layout.specs, layout.batch_size, layout.leaves(memory, block)).columns
            for block in range(layout.count)
        ]
        # Numbers of the samples in the first row of each block, and in the last row that is written.
        self._first = [0] * layout.count
        self._last = [0] * layout.count
        self._block = -1
        self._end = 0

    def close_descriptor(self) -> None:
        """Closes the descriptor; the memory goes with the last that uses it."""
        os.close(self.descriptor)

    def write(self, number: int, values: Sequence[Any]) -> bool:
        """Copies a sample into a block; returns False if it has no place in one.

        Args:
            number: of the sample, one more than that of the sample before.
            values: one per leaf, checked.
        """
        if number >= self._end and not self._begin(number):
            return False
        row = number - self._first[self._block]
        for column, value in zip(self._columns[self._block], values, strict=True):
            column[row] = value
        self._last[self._block] = number
        return True

    def _begin(self, number: int) -> bool:
        """Begins a block with a sample, if the sample would begin a batch and a block is free."""
        first = self._first_of_batch.get()
        if first <= 0 or (number - first) % self._batch_size:
            return False
        stored = self._stored.get()
        # The block that was used last is in the processor's cache.
        for block in sorted(range(len(self._last)), key=self._last.__getitem__, reverse=True):
            if self._last[block] <= stored and not self._is_held[block].get():
                self._block, self._first[block], self._last[block] = block, number, number - 1
                self._end = number + self._batch_size
                return True
        return False

    def piece(self, first: int, count: int) -> Piece:
        """Returns the samples from `first` on, at most `count`, that lie together with it."""
        for block, (begin, last) in enumerate(zip(self._first, self._last, strict=True)):
            if begin <= first <= last:
                return Piece(min(count, last + 1 - first), block, first - begin)
        return Piece(min([first + count, *(begin for begin in self._first if begin > first)]) - first)

    def values(self, number: int) -> list[NDArray[Any]] | None:
        """Returns the leaves of a sample; None if it lies in no block."""
        _, block, row = self.piece(number, 1)
        return None if block < 0 else [column[row] for column in self._columns[block]]
