"""Blocks of a client, which the queue can hand out as batches."""

from __future__ import annotations

import mmap
from typing import Any

from numpy.typing import NDArray

from headrace.kernels.shared_count import SharedCount
from headrace.leases.checking import LeaseError
from headrace.server.adopted_batch import AdoptedBatch, BlockRows
from headrace.server.batch_buffers import BatchBuffer
from headrace.server.messages.sample_blocks import BlockLayout


class ClientBlocks:
    """The blocks of one connection, mapped by the server.

    The client can write to a block at any time. It holds samples of this client alone, and only values: the queue
    relies on none of them.

    Args:
        layout: of the blocks.
        descriptor: of a sealed memory file of their size; the caller closes it.

    Attributes:
        first_of_batch: the number of a sample that would begin a batch, for the client; 0: none is known.
    """

    def __init__(self, layout: BlockLayout, descriptor: int) -> None:
        # Rules: server LP1, LP5
        memory = memoryview(mmap.mmap(descriptor, layout.nbytes))
        self._layout = layout
        self._leaves = [layout.leaves(memory, block) for block in range(layout.count)]
        self._columns = [
            BatchBuffer(layout.specs, layout.batch_size, leaves).read_only() for leaves in self._leaves
        ]
        self.first_of_batch = SharedCount(layout.first_of_batch(memory))
        # The client reads these numbers. The server reads its own set.
        self._is_held = [SharedCount(layout.is_held(memory, block)) for block in range(layout.count)]
        self._held: set[int] = set()

    def rows(self, block: int, first: int, count: int) -> list[NDArray[Any]]:
        """Returns rows of a block, one array for each leaf, read-only.

        Raises:
            LeaseError: there are no such rows.
        """
        layout = self._layout
        if not (block < layout.count and 0 <= first <= first + count <= layout.batch_size):
            raise LeaseError(
                f"expected rows of {layout.count} blocks of {layout.batch_size} rows, got {count} from {first} on in "
                f"block {block}"
            )
        return [column[first : first + count] for column in self._columns[block]]

    def adopt(self, block: int) -> AdoptedBatch | None:
        """See `SharedBlocks.adopt`."""
        if block in self._held:
            return None
        specs, leaves = self._layout.specs, self._leaves[block]
        # A byte that the client writes may be no bool.
        in_place = [
            None if spec.dtype.kind == "b" else leaf for spec, leaf in zip(specs, leaves, strict=True)
        ]
        batch = AdoptedBatch(BlockRows(self, block, 0), specs, self._layout.batch_size, in_place)
        self._held.add(block)
        self._is_held[block].set(1)
        return batch

    def release(self, block: int) -> None:
        """See `SharedBlocks.release`. Any thread may call it at any time, so it takes no lock."""
        self._held.discard(block)
        self._is_held[block].set(0)
