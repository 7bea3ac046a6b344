"""Memory of batches, which is reused only when no array over it is alive.

A consumer gets arrays over the memory of a `BatchBuffer`, each with its own owner object. Every array that NumPy
derives from them refers to this owner. So the owner dies with the last such array, and a weak reference reports it.
Then the memory may be written again. Taking it from a pool avoids the page faults of a fresh array of some megabytes.
A consumer that owns its batch gets copies of a small buffer instead.
"""

from __future__ import annotations

import math
import operator
import weakref
from collections import deque
from collections.abc import Iterator, Sequence
from typing import Any

import cython
import numpy as np

from headrace.spec import ArraySpec

if cython.compiled:
    from cython.cimports.cpython.object import PyObject_LengthHint
else:
    from headrace.kernels.kinds import Int

Array = np.ndarray[Any, Any]
# To watch the arrays over a buffer takes about as long as to copy a batch of this size.
_MOST_SMALL_NBYTES = 1 << 14


class BatchBuffer:
    """One batch: a contiguous array for each leaf.

    Attributes:
        columns: arrays `[batch_size, ...]` for the senders to write into.
        places: gives each row once; empty unless the batch is open.
        done: the rows written so far, in the order in which they were finished; a new list for each batch.
        is_own: of each leaf, whether its memory was taken for this buffer.
        is_small: whether copies for a consumer cost less than to watch arrays over the buffer.

    Args:
        specs: of the leaves of a sample.
        batch_size: rows of a batch.
        leaves: memory of each leaf; None takes new memory.
    """

    if not cython.compiled:
        __slots__ = ("_memory", "_rows", "_shapes", "columns", "done", "is_own", "is_small", "places")

    def __init__(
        self, specs: Sequence[ArraySpec], batch_size: int, leaves: Sequence[memoryview | None] | None = None
    ) -> None:
        self._rows = range(batch_size)
        self._shapes = [((batch_size, *spec.shape), np.dtype(spec.dtype.type)) for spec in specs]
        given = [None] * len(specs) if leaves is None else leaves
        self.is_own = [memory is None for memory in given]
        self.is_small = batch_size * sum(spec.nbytes for spec in specs) <= _MOST_SMALL_NBYTES
        self._memory = [
            memoryview(bytearray(math.prod(shape) * dtype.itemsize)) if memory is None else memory
            for (shape, dtype), memory in zip(self._shapes, given, strict=True)
        ]
        self.columns = [self._array(index, memory) for index, memory in enumerate(self._memory)]
        for column, is_own in zip(self.columns, self.is_own, strict=True):
            if is_own:
                column.fill(0)  # takes the pages now, not one by one under the first samples
        self.places: Iterator[int] = iter(())
        self.done: list[int] = []

    def open(self) -> None:
        """Starts a new batch: all places are free."""
        self.done = []
        self.places = iter(self._rows)

    @property
    def places_left(self) -> int:
        """The number of places that are free."""
        if cython.compiled:
            left: Int = PyObject_LengthHint(self.places, 0)
            return left
        else:
            return operator.length_hint(self.places)

    def close(self) -> int:
        """Takes all places that are left, in one step, and returns their number."""
        return len(list(self.places))

    def writable(self) -> list[Array]:
        """Returns new arrays over the whole memory, for a caller that will own it."""
        return [self._array(index, memory) for index, memory in enumerate(self._memory)]

    def read_only(self) -> list[Array]:
        """Returns new read-only arrays over the whole memory."""
        return [self._array(index, memory.toreadonly()) for index, memory in enumerate(self._memory)]

    def is_reusable(self) -> bool:
        """Returns whether a queue may use the buffer again; called when no array over it is alive."""
        return True

    def _array(self, index: int, memory: memoryview) -> Array:
        shape, dtype = self._shapes[index]
        return np.ndarray(shape, dtype, buffer=memory)


class BatchBuffers:
    """The buffers that no queue slot uses: makes them, lends them out, takes them back when no array refers to them.

    Args:
        specs: one per leaf.
        batch_size: rows of a batch.
        keep: maximum number of unused buffers kept for later.
    """

    def __init__(self, specs: Sequence[ArraySpec], batch_size: int, keep: int) -> None:
        self._specs = list(specs)
        self._batch_size = batch_size
        self._keep = keep
        # A weak reference may call back at any moment, even inside another call of this class on the same thread.
        # So this class uses atomic operations and no lock.
        self._unused: deque[BatchBuffer] = deque()
        self._leases: set[Lease] = set()

    def provide(self, count: Int) -> None:
        """Makes sure that the next `count` calls of `get` need no new memory."""
        while len(self._unused) < count:
            self._unused.append(BatchBuffer(self._specs, self._batch_size))

    def get(self) -> BatchBuffer:
        """Returns the buffer that was returned last; its contents are arbitrary."""
        try:
            return self._unused.pop()
        except IndexError:
            return BatchBuffer(self._specs, self._batch_size)

    def put_back(self, buffer: BatchBuffer) -> None:
        """Takes back a buffer over which no array is alive."""
        if buffer.is_reusable() and len(self._unused) < self._keep:
            self._unused.append(buffer)

    def lend(self, buffer: BatchBuffer, arrays: Sequence[Array]) -> Lease:
        """Watches arrays over a buffer that stays in the caller's hands."""
        return Lease(buffer, arrays, self)

    def abandon(self, lease: Lease) -> None:
        """Gives a lent buffer up: it comes back to the unused ones when its last array dies."""
        self._leases.add(lease)
        if lease.over:
            self.returned(lease)

    def returned(self, lease: Lease) -> None:
        """Called by an abandoned lease when its last array has died."""
        try:
            self._leases.remove(lease)
        except KeyError:
            return  # Not abandoned, or somebody else was here first.
        self.put_back(lease.buffer)


class Lease:
    """Arrays over one buffer that were handed out.

    Attributes:
        buffer: what the arrays look at.
    """

    if not cython.compiled:
        __slots__ = ("__weakref__", "_dead", "_watched", "buffer")

    def __init__(self, buffer: BatchBuffer, arrays: Sequence[Array], home: BatchBuffers) -> None:
        self.buffer = buffer
        self._dead: list[None] = []
        # Neither the queue nor the lease may be kept alive by arrays that outlive them.
        home_reference, dead, count = weakref.ref(home), self._dead, len(arrays)
        self_reference = weakref.ref(self)

        def died(_: weakref.ref[Array]) -> None:
            dead.append(None)
            owner, lease = home_reference(), self_reference()
            if len(dead) == count and owner is not None and lease is not None:
                owner.returned(lease)

        self._watched = [weakref.ref(array, died) for array in arrays]

    @property
    def over(self) -> bool:
        """Whether every array is dead."""
        return len(self._dead) == len(self._watched)
