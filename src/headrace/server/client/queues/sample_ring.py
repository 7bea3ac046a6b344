"""The memory of samples that are sent and not confirmed."""

from __future__ import annotations

import mmap
import os
from collections.abc import Sequence
from typing import Any

import numpy as np

from headrace.kernels.shared_count import SharedCount
from headrace.server.messages.samples import COUNT_NBYTES, SampleLayout
from headrace.system import sealed_memory_file


class SampleRing:
    """Places for samples, used in turn: sample n, counted from 1, lies in place `(n - 1) % places`.

    Args:
        layout: of a sample.
        is_shared: True: memory that the server can map.

    Attributes:
        places: number of places.
        descriptors: of the shared memory, for the server.

    >>> import numpy as np
    >>> from headrace.spec import Signature
    >>> ring = SampleRing(SampleLayout(Signature.like(np.zeros(2, np.int16))), is_shared=False)
    >>> for number in (1, 2):
    ...     ring.write(number, [np.full(2, number)])
    >>> [bytes(part).hex() for part in ring.parts(1, 2)]
    ['01000100000000000200020000000000']
    """

    def __init__(self, layout: SampleLayout, *, is_shared: bool) -> None:
        self.places = layout.places
        self._sample_nbytes = layout.nbytes
        nbytes = layout.count_offset + COUNT_NBYTES
        descriptor = sealed_memory_file("headrace-samples", nbytes) if is_shared else -1
        self.descriptors: tuple[int, ...] = (descriptor,) if is_shared else ()
        # Takes memory when it is first written: many clients send nothing.
        memory = mmap.mmap(descriptor, nbytes)
        self._bytes = memoryview(memory)[: layout.places * layout.nbytes]
        self._columns = layout.columns(self._bytes)
        self._shared_count = np.frombuffer(memory, np.int64, 1, layout.count_offset) if is_shared else None
        self._one_column = self._columns[0] if len(self._columns) == 1 else None

    def write(self, number: int, values: Sequence[Any]) -> None:
        """Copies a sample into its place; the values are one per leaf, and checked."""
        place = (number - 1) % self.places
        if self._one_column is not None:  # A loop costs as much as the copy of a small sample.
            self._one_column[place] = values[0]
            return
        # The lengths are equal by construction, and asking zip for it costs as much as one leaf.
        for column, value in zip(self._columns, values):  # noqa: B905
            column[place] = value

    def parts(self, first: int, count: int) -> list[memoryview]:
        """Returns the bytes of samples, in one piece, or in two at the end of the ring."""
        begin, size = (first - 1) % self.places, self._sample_nbytes
        end = begin + count
        if end <= self.places:
            return [self._bytes[begin * size : end * size]]
        return [self._bytes[begin * size :], self._bytes[: (end - self.places) * size]]

    def count(self) -> SharedCount:
        """Returns the number of the last stored sample over a new connection; the server writes it in shared memory.

        Otherwise it is one of its own, since the thread that reads an earlier connection may still write there.
        """
        return SharedCount(np.zeros(1, np.int64) if self._shared_count is None else self._shared_count)

    def close(self) -> None:
        """Closes the descriptor; the memory goes with the last that uses it."""
        for descriptor in self.descriptors:
            os.close(descriptor)
        self.descriptors = ()
