"""Memory in which a client collects steps; over a Unix socket the server reads them there."""

from __future__ import annotations

import mmap
import os
import weakref
from collections import deque
from typing import Any

import numpy as np
from numpy.typing import NDArray

from headrace.server.messages.columns import packed_arrays
from headrace.server.messages.operations import StepsPlace
from headrace.spec import Signature
from headrace.system import sealed_memory_file

# A message costs the server as much processor time as 20 frames of 84x84x4 bytes; 1 MiB holds 37 of them.
_BLOCK_NBYTES = 1 << 20
_MOST_STEPS = 256
# Smaller blocks cost less as payloads than a mapping for each writer does.
_LEAST_SHARED_NBYTES = 1 << 16
_LEAST_BLOCKS = 4


class StepBlock:
    """Columns of some vector steps.

    Args:
        signature: of a step.
        lanes: number of lanes.
        capacity: number of vector steps.
        memory: of the columns, one behind the other.
        offset: of this memory in that which is shared with the server; -1: it is not shared.

    Attributes:
        columns: maps names to arrays `[capacity, lanes, ...]`, little-endian.
        memory, offset, capacity: see above.
    """

    __slots__ = ("__weakref__", "capacity", "columns", "memory", "offset")

    def __init__(
        self, signature: Signature, lanes: int, capacity: int, memory: NDArray[np.uint8], offset: int = -1
    ) -> None:
        self.capacity, self.memory, self.offset = capacity, memory, offset
        self.columns: dict[str, NDArray[Any]] = {}
        begin = 0
        for name, spec in signature.columns.items():
            end = begin + capacity * lanes * spec.nbytes
            flat = memory[begin:end].view(spec.dtype.newbyteorder("<"))
            self.columns[name] = flat.reshape(capacity, lanes, *spec.shape)
            begin = end


class SharedSteps:
    """Steps that the server reads in shared memory, which is not written again while this object is alive.

    Args:
        block: in which they lie.
        first: index of the first of them.
        count: their number.

    Attributes:
        place: see `StepsPlace`.
        payload: other values of the operation, which travel with the message.
    """

    __slots__ = ("_block", "_count", "payload", "place")

    def __init__(self, block: StepBlock, first: int, count: int) -> None:
        self._block, self._count = block, count
        self.payload = b""
        self.place = StepsPlace(block.offset, block.capacity, first)

    def __len__(self) -> int:
        """Number of bytes, those of the payload included."""
        return self._block.memory.nbytes // self._block.capacity * self._count + len(self.payload)

    def packed(self) -> bytes:
        """Returns the whole payload for a server that does not map the memory."""
        steps = slice(self.place.first, self.place.first + self._count)
        return packed_arrays(column[steps] for column in self._block.columns.values()) + self.payload


class StepMemory:
    """Blocks for the steps of one writer; one that is shared is used again when no steps refer to it.

    Args:
        signature: of a step.
        lanes: number of lanes.
        shared_nbytes: memory that may be shared with the server, 0 over TCP.
        payload_nbytes: of steps that are sent together, unless they lie in shared memory.

    Attributes:
        shared_nbytes: bytes of the memory that is shared; 0: none is.
        descriptors: of this memory, for the server.

    >>> StepMemory(Signature.like({"n": np.int16(0)}), lanes=2, shared_nbytes=0).block().columns["n"].shape
    (256, 2)
    """

    def __init__(
        self, signature: Signature, lanes: int, shared_nbytes: int, payload_nbytes: int = _BLOCK_NBYTES
    ) -> None:
        self._signature, self.lanes = signature, lanes
        step_nbytes = lanes * signature.nbytes
        self._capacity = max(1, min(_MOST_STEPS, _BLOCK_NBYTES // max(1, step_nbytes)))
        self._capacity_of_payload = max(1, min(self._capacity, payload_nbytes // max(1, step_nbytes)))
        self._step_nbytes = step_nbytes
        self._block_nbytes = self._capacity * step_nbytes
        count = 0 if self._block_nbytes < _LEAST_SHARED_NBYTES else shared_nbytes // self._block_nbytes
        if count < _LEAST_BLOCKS:
            count = 0
        # The block that was used last is taken first, since it is in the processor's cache.
        self._free = deque(reversed(range(count)))
        self._used: dict[int, weakref.ref[StepBlock]] = {}
        self.shared_nbytes = count * self._block_nbytes
        self.descriptors: tuple[int, ...] = ()
        if count:
            descriptor = sealed_memory_file("headrace-steps", self.shared_nbytes)
            self.descriptors = (descriptor,)
            self._close = weakref.finalize(self, os.close, descriptor)
            self._memory = np.frombuffer(mmap.mmap(descriptor, self.shared_nbytes), np.uint8)

    def block(self) -> StepBlock:
        """Returns a block of arbitrary content, in memory of its own while all shared blocks are in use."""
        nbytes = self._block_nbytes
        if not self._free:
            capacity = self._capacity_of_payload
            own = np.empty(capacity * self._step_nbytes, np.uint8)
            return StepBlock(self._signature, self.lanes, capacity, own)
        number = self._free.pop()
        offset = number * nbytes
        memory = self._memory[offset : offset + nbytes]
        block = StepBlock(self._signature, self.lanes, self._capacity, memory, offset)
        free, used = self._free, self._used

        def died(_: weakref.ref[StepBlock]) -> None:
            # It may be called at any moment, in any thread; these operations are atomic.
            del used[number]
            free.append(number)

        used[number] = weakref.ref(block, died)
        return block

    def close(self) -> None:
        """Closes the descriptor; the memory goes with the last block. A second call does nothing."""
        if self.descriptors:
            self.descriptors = ()
            self._close()
