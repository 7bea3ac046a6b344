"""Answers to one client; the large arrays of batches in memory that it maps."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from headrace.leases.messages import Message
from headrace.server.compression.packing import PayloadPacker
from headrace.server.messages.answers import ForgetBlocks, GrantBlocks
from headrace.server.serving.batches.batch_answers import PlacedArrays, placed
from headrace.server.serving.batches.batch_arena import BatchArena
from headrace.store.gather import Pool

_DESCRIPTORS_A_FRAME = 4


class Send(Protocol):
    """Sends messages to the client."""

    def __call__(
        self, *messages: Message, parts: Sequence[memoryview] = (), descriptors: tuple[int, ...] = ()
    ) -> None:
        """See `PeerSelector.send`."""


class SendPacked(Protocol):
    """Sends answers with compressed payloads to the client.

    Attributes:
        packer: of the payloads.
    """

    packer: PayloadPacker

    def send_columns(
        self, message: Message, parts: Sequence[memoryview], paths: Sequence[str | None]
    ) -> None:
        """See `BatchSender.send_columns`."""


class BatchSender:
    """Sends answers to one client.

    Args:
        send: messages.
        arena: for large batches, if the client maps memory.
        packed: sends batches, if the client wants them compressed.

    Attributes:
        send, arena: see above.
        packer: of batches; None: they are not compressed.
        pool: of memory for arrays that will be sent.
    """

    def __init__(self, send: Send, arena: BatchArena | None, packed: SendPacked | None = None) -> None:
        self.send = send
        self.arena = arena
        self._packed = packed
        self.packer = None if packed is None else packed.packer
        self.pool = arena or Pool()

    def placed_copies(self, columns: Mapping[str, NDArray[Any]]) -> PlacedArrays:
        """Returns where columns lie that the sender may keep; those that the client can map are copies."""
        arrays = columns.values()
        if self.arena is None:
            return placed(arrays, None, columns)
        copies = []
        for array in arrays:
            copy = self.arena.empty(array.shape, array.dtype)
            np.copyto(copy, array)
            copies.append(copy)
        return placed(copies, self.arena)

    def send_batch(self, message: Message, arrays: PlacedArrays) -> None:
        """Sends an answer that refers to arrays."""
        if self.arena is not None:
            self.arena.lend(arrays.blocks)
            self._grant_blocks(self.arena)
        self.send_columns(message, arrays.parts, arrays.paths)

    def send_columns(
        self, message: Message, parts: Sequence[memoryview], paths: Sequence[str | None] | None
    ) -> None:
        """Sends an answer with a payload.

        Args:
            message: the answer.
            parts: of the payload.
            paths: of the column of each part; None: they are sent as they are.
        """
        if self._packed is None or paths is None:
            self.send(message, parts=parts)
        else:
            self._packed.send_columns(message, parts, paths)

    def _grant_blocks(self, arena: BatchArena) -> None:
        new = arena.take_new()
        for first in range(0, len(new), _DESCRIPTORS_A_FRAME):
            some = new[first : first + _DESCRIPTORS_A_FRAME]
            try:
                self.send(
                    GrantBlocks(blocks=[each.number for each in some], sizes=[each.nbytes for each in some]),
                    descriptors=tuple(each.descriptor for each in some),
                )
            finally:
                for each in some:
                    each.close()
        forgotten = arena.take_forgotten()
        if forgotten:
            self.send(ForgetBlocks(blocks=forgotten))

    def return_blocks(self, blocks: list[int]) -> None:
        """Takes blocks of the arena back."""
        if self.arena is not None:
            self.arena.give_back(blocks)

    def close(self) -> None:
        """Releases the memory of a client that is gone."""
        if self.arena is not None:
            self.arena.close()
