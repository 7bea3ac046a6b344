"""The batch arena of a connection: memory for large batches that a client of the same machine maps.

It consists of blocks, each a sealed memory file whose descriptor is sent once. A block is lent with an answer, and may
be written again when the client has given it back, which it does when no array over it is alive. The client may write
into its batches. So nothing is in a block but the arrays of batches, and the server never reads them.
"""

from __future__ import annotations

import mmap
import os
import weakref
from collections.abc import Iterable
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from headrace.store.gather import Pool
from headrace.system import sealed_memory_file

# More than this is sent as payload, and is the client's own memory.
_MOST_NBYTES = 1 << 30
# Up to this size of the arena it keeps all blocks: those of each request that a loader has on its way.
_KEPT_NBYTES = _MOST_NBYTES // 2


class NewBlock(NamedTuple):
    """A block that the client does not know yet; its descriptor belongs to the caller."""

    number: int
    nbytes: int
    descriptor: int

    def close(self) -> None:
        """Closes the descriptor."""
        os.close(self.descriptor)


class _Block:
    """A block.

    Attributes:
        number: in its arena.
        nbytes: its size.
        address: of its first byte.
        root: the array over all of it, to which every array over the block refers.
        lent: how often it is lent.
    """

    def __init__(self, number: int, root: NDArray[np.uint8]) -> None:
        self.number, self.nbytes, self.lent = number, root.nbytes, 0
        self.address = address_of(root)
        self.root = weakref.ref(root)


class BatchArena(Pool):
    """Output buffers for large batches, in blocks that one client maps.

    >>> arena = BatchArena()
    >>> array = arena.empty((1 << 20,), np.dtype(np.uint8))
    >>> arena.place_of(array)
    (0, 0)
    >>> [block] = arena.take_new()
    >>> block.nbytes >= 1 << 20
    True
    >>> block.close()
    """

    def __init__(self) -> None:
        self._blocks: dict[int, _Block] = {}
        self._by_root: dict[int, _Block] = {}
        self._new_blocks: list[NewBlock] = []
        self._forgotten: list[int] = []
        self._nbytes = 0
        self._numbers = 0
        super().__init__()

    def _new(self, nbytes: int) -> NDArray[np.uint8]:
        if self._nbytes + nbytes > _MOST_NBYTES:
            return super()._new(nbytes)
        descriptor = sealed_memory_file("headrace-batch", nbytes)
        try:
            root = np.frombuffer(mmap.mmap(descriptor, nbytes), np.uint8)
        except BaseException:
            os.close(descriptor)
            raise
        block = _Block(self._numbers, root)
        self._numbers += 1
        self._nbytes += nbytes
        self._blocks[block.number] = self._by_root[id(root)] = block
        # The callback must not keep the arena alive, which refers to the root.
        weakref.finalize(root, _forget, weakref.ref(self), block, id(root)).atexit = False
        self._new_blocks.append(NewBlock(block.number, nbytes, descriptor))
        return root

    def _may_keep(self, count: int) -> bool:
        return self._nbytes <= _KEPT_NBYTES or super()._may_keep(count)

    def forget(self, block: _Block, root: int) -> None:
        """Notes that no array over a block is alive, and that none will be made."""
        self._by_root.pop(root, None)
        self._forgotten.append(block.number)
        if not block.lent:
            self._drop(block)

    def _drop(self, block: _Block) -> None:
        if self._blocks.pop(block.number, None) is not None:
            self._nbytes -= block.nbytes

    def _is_unused(self, buffers: list[NDArray[np.uint8]], place: int) -> bool:
        block = self._by_root.get(id(buffers[place]))
        return (block is None or not block.lent) and super()._is_unused(buffers, place)

    def place_of(self, array: NDArray[Any]) -> tuple[int, int] | None:
        """Returns the block of an array and its first byte there; None: it lies elsewhere."""
        root = array.base
        block = self._by_root.get(id(root))
        if block is None or block.root() is not root:
            return None
        return block.number, address_of(array) - block.address

    # ---- lending ---------------------------------------------------------------------------------------------------

    def take_new(self) -> list[NewBlock]:
        """Returns the blocks that were made since the last call."""
        new, self._new_blocks = self._new_blocks, []
        return new

    def take_forgotten(self) -> list[int]:
        """Returns the blocks that will not be used again, of which the client was not told."""
        forgotten, self._forgotten = self._forgotten, []
        return forgotten

    def lend(self, blocks: Iterable[int]) -> None:
        """Notes that an answer refers to these blocks."""
        for number in blocks:
            self._blocks[number].lent += 1

    def give_back(self, blocks: Iterable[int]) -> None:
        """Notes that the client has no array over these blocks from one answer; unknown ones are ignored."""
        for number in blocks:
            block = self._blocks.get(number)
            if block is not None and block.lent:
                block.lent -= 1
                if not block.lent and block.root() is None:
                    self._drop(block)

    def close(self) -> None:
        """Closes the descriptors that were not sent, and keeps no block: a server may hold the arena for longer."""
        for block in self.take_new():
            block.close()
        self.clear()


def address_of(array: NDArray[Any]) -> int:
    """Returns the address of an array's first byte; `array.ctypes` takes ten times as long."""
    address: int = array.__array_interface__["data"][0]
    return address


def _forget(arena: weakref.ref[BatchArena], block: _Block, root: int) -> None:
    found = arena()
    if found is not None:
        found.forget(block, root)
