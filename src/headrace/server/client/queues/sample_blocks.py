"""Blocks for large samples in shared memory, which the server can hand out as batches."""

from __future__ import annotations

import mmap
import os
from typing import Any, NamedTuple

from numpy.typing import NDArray

from headrace.kernels.shared_count import SharedCount
from headrace.server.batch_buffers import BatchBuffer
from headrace.server.client.queues.ring_rows import RingRows
from headrace.server.client.queues.sample_ring import leaf_checks
from headrace.server.messages.sample_blocks import BlockLayout
from headrace.spec import Signature
from headrace.store.columns import RowColumns
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
    confirmed and the server needs it no more. While no block is free, samples lie in the ring.

    Args:
        layout: of the blocks.
        signature: of a sample.
        stored: number of the last sample that is in the queue.

    Attributes:
        descriptor: of the memory, for the server; `close_descriptor` closes it.
        is_in_block: whether the next sample lies in the block of the last one.
    """

    def __init__(self, layout: BlockLayout, signature: Signature, stored: SharedCount) -> None:
        self.descriptor = sealed_memory_file("headrace-batches", layout.nbytes)
        memory = memoryview(mmap.mmap(self.descriptor, layout.nbytes))
        self.is_in_block = False
        self._batch_size = layout.batch_size
        self._stored = stored
        self._first_of_batch = SharedCount(layout.first_of_batch(memory))
        self._is_held = [SharedCount(layout.is_held(memory, block)) for block in range(layout.count)]
        self._columns = [
            BatchBuffer(layout.specs, layout.batch_size, layout.leaves(memory, block)).columns
            for block in range(layout.count)
        ]
        checks = leaf_checks(signature)
        self._rows = [
            RowColumns(zip(range(len(columns)), columns, checks, strict=True)) for columns in self._columns
        ]
        # Number of the sample in the first row of each block, and the number after the last row of the newest.
        self._first = [-self._batch_size] * layout.count
        self._end = 0

    def close_descriptor(self) -> None:
        """Closes the descriptor; the memory goes with the last that uses it."""
        os.close(self.descriptor)

    def place(self, rows: RingRows) -> None:
        """Begins a block with the next sample, or leads it into the ring, where the last block has ended."""
        number = rows.written + 1
        if number < self._end:
            return
        # Wherever Ctrl-C comes below, this sample is placed again.
        self.is_in_block, self._end = True, number
        block = self._free_block() if number == self._next_of_batch(number) else -1
        if block >= 0:
            rows.lie_in(self._rows[block], self._batch_size)
            self._first[block], self._end = number, number + self._batch_size
        else:
            rows.lie_in_ring()
            self.is_in_block = False

    def next_place(self, number: int) -> int:
        """Returns the number of the sample, from `number` on, before which `place` must be called; 0: none is known."""
        return self._end if self.is_in_block else self._next_of_batch(number)

    def _next_of_batch(self, number: int) -> int:
        """Returns the number of the sample from `number` on that begins a batch; 0: it is not known."""
        first = self._first_of_batch.get()
        return number + (first - number) % self._batch_size if first > 0 else 0

    def _free_block(self) -> int:
        stored = self._stored.get()
        # The block that was used last is in the processor's cache.
        for block in sorted(range(len(self._first)), key=self._first.__getitem__, reverse=True):
            if self._first[block] + self._batch_size <= stored + 1 and not self._is_held[block].get():
                return block
        return -1

    def piece(self, first: int, count: int) -> Piece:
        """Returns the samples from `first` on, `count` at most, that lie together with it."""
        for block, begin in enumerate(self._first):
            if begin <= first < begin + self._batch_size:
                return Piece(min(count, begin + self._batch_size - first), block, first - begin)
        return Piece(min([first + count, *(begin for begin in self._first if begin > first)]) - first)

    def values(self, number: int) -> list[NDArray[Any]] | None:
        """Returns the leaves of a sample; None if it lies in no block."""
        _, block, row = self.piece(number, 1)
        return None if block < 0 else [column[row] for column in self._columns[block]]
