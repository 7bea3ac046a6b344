"""A batch in the memory of the client that sent all its samples."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple, Protocol

import numpy as np

from headrace import forking
from headrace.server.batch_buffers import BatchBuffer
from headrace.spec import ArraySpec

Array = np.ndarray[Any, Any]


class SharedBlocks(Protocol):
    """Blocks of one client, each laid out as a batch."""

    def adopt(self, block: int) -> AdoptedBatch | None:
        """Returns a block as an empty batch; None if the server still needs what it held before."""

    def release(self, block: int) -> None:
        """Gives a block back to the client."""


class BlockRows(NamedTuple):
    """Rows of a block.

    Attributes:
        blocks: of the client.
        block: index of the block.
        first: index of the first row.
    """

    blocks: SharedBlocks
    block: int
    first: int


class AdoptedBatch(BatchBuffer):
    """A batch in a block of a client, which writes its samples there.

    The client writes a row before it sends the sample, and not again before the block is given back. The batch has no
    places for others.

    Args:
        rows: the first row of the block.
        specs: of the leaves of a sample.
        batch_size: rows of a batch.
        leaves: of the block, one for each leaf. None: the leaf is copied into memory of this process.
    """

    __slots__ = ("_fork_events", "_rows_of_client")

    def __init__(
        self,
        rows: BlockRows,
        specs: Sequence[ArraySpec],
        batch_size: int,
        leaves: Sequence[memoryview | None],
    ) -> None:
        super().__init__(specs, batch_size, leaves)
        self.is_small = False
        self._rows_of_client = rows
        self._fork_events: int | None = None

    def is_continued_by(self, rows: BlockRows) -> bool:
        """Whether rows of a client are the next ones of this batch."""
        return rows == self._rows_of_client._replace(first=len(self.done))

    def add(self, samples: Sequence[Array]) -> None:
        """Adds the next rows, whose values the client has written in place.

        Args:
            samples: these rows, an array `[n, ...]` for each leaf.
        """
        first = len(self.done)
        last = first + len(samples[0])
        for column, values, is_own in zip(self.columns, samples, self.is_own, strict=True):
            if is_own:
                column[first:last] = values
        self.done += range(first, last)

    def writable(self) -> list[Array]:
        """See `BatchBuffer.writable`."""
        self._fork_events = forking.events
        return super().writable()

    def read_only(self) -> list[Array]:
        """See `BatchBuffer.read_only`."""
        self._fork_events = forking.events
        return super().read_only()

    def is_reusable(self) -> bool:
        """Returns False, and gives the block back; see `BatchBuffer.is_reusable`."""
        # A forked child may have arrays over the block, so the client must not write there any more.
        if self._fork_events == forking.events:
            self.release()
        return False

    def release(self) -> None:
        """Gives the block back, of which no array was handed out."""
        self._rows_of_client.blocks.release(self._rows_of_client.block)
