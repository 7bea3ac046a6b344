"""Blocks of the server's batch arena, as the client maps them."""

from __future__ import annotations

import mmap
import os
import weakref
from collections import deque
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from headrace.leases.frames import ProtocolError
from headrace.system import is_sealed


class MappedBlocks:
    """Maps blocks, and notes when no array over one of them is alive.

    Args:
        may_map: whether the client asked for shared memory; otherwise a server that grants blocks breaks the protocol.

    Attributes:
        returned: blocks without arrays, which `take_returned` returns.
    """

    def __init__(self, *, may_map: bool) -> None:
        self._may_map = may_map
        self._blocks: dict[int, mmap.mmap] = {}
        self._alive: dict[int, weakref.ref[NDArray[np.uint8]]] = {}
        # A weak reference may call back at any moment; these operations are atomic.
        self.returned: deque[int] = deque()
        self._tokens = 0

    def grant(self, blocks: Sequence[int], sizes: Sequence[int], descriptors: Sequence[int]) -> None:
        """Maps new blocks; the caller closes the descriptors.

        Raises:
            ProtocolError: they are not sealed memory files of these sizes.
        """
        if not self._may_map or not len(blocks) == len(sizes) == len(descriptors):
            raise ProtocolError("the server granted memory that was not asked for")
        for number, nbytes, descriptor in zip(blocks, sizes, descriptors, strict=True):
            if nbytes < 1 or os.fstat(descriptor).st_size < nbytes or not is_sealed(descriptor):
                raise ProtocolError(f"the server granted a block of {nbytes} bytes that is not sealed memory")
            self._blocks[number] = mmap.mmap(descriptor, nbytes)

    def forget(self, blocks: Sequence[int]) -> None:
        """Unmaps blocks, each as soon as no array over it is alive."""
        for number in blocks:
            self._blocks.pop(number, None)

    def array(self, number: int) -> NDArray[np.uint8]:
        """Returns a new array over a whole block, which is given back when this array is garbage.

        Raises:
            ProtocolError: the server did not grant it.
        """
        block = self._blocks.get(number)
        if block is None:
            raise ProtocolError(f"the server sent a batch in block {number}, which it did not grant")
        root = np.frombuffer(block, np.uint8)
        self._tokens += 1
        token, alive, returned = self._tokens, self._alive, self.returned

        def died(_: Any) -> None:
            alive.pop(token, None)
            returned.append(number)

        alive[token] = weakref.ref(root, died)
        return root

    def take_returned(self) -> list[int]:
        """Returns the blocks without arrays since the last call."""
        if not self.returned:
            return []
        found = []
        while self.returned:
            found.append(self.returned.popleft())
        return found
