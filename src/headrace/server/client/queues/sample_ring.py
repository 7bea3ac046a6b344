"""The memory of samples that are sent and not confirmed."""

from __future__ import annotations

import mmap
import os
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from headrace.forking import ForkFollowers
from headrace.kernels.shared_count import SharedCount
from headrace.server.client.queues.ring_rows import RingRows
from headrace.server.messages.samples import COUNT_NBYTES, SampleLayout
from headrace.spec import ArraySpec, Signature
from headrace.store.columns import NARROW_ROW, Check
from headrace.system import has_gil, sealed_memory_file
from headrace.trajectories.columns.leaf_reader import LeafCheck, reader
from headrace.trees import Leaf, compile_tree

_RINGS = ForkFollowers()


class SampleRing:
    """Places for samples, used in turn: sample n, counted from 1, lies in place `(n - 1) % places`.

    Args:
        signature: of a sample.
        layout: of a sample.
        places: number of places.
        is_shared: True: memory that the server can map.

    Attributes:
        places: see above.
        rows: writes samples.
        may_be_quiet: whether `rows.put` may be used: other threads cannot come between its steps.
        descriptors: of the shared memory, for the server.

    >>> import numpy as np
    >>> signature = Signature.like(np.zeros(2, np.int16))
    >>> ring = SampleRing(signature, SampleLayout(signature), 64, is_shared=False)
    >>> for number in (1, 2):
    ...     ring.rows.append([np.full(2, number)])
    >>> [bytes(part).hex() for part in ring.parts(1, 2)]
    ['01000100000000000200020000000000']
    """

    def __init__(self, signature: Signature, layout: SampleLayout, places: int, *, is_shared: bool) -> None:
        self.places = places
        self._layout = layout
        self._sample_nbytes = layout.nbytes
        count_offset = layout.count_offset(places)
        nbytes = count_offset + COUNT_NBYTES
        descriptor = sealed_memory_file("headrace-samples", nbytes) if is_shared else -1
        self.descriptors: tuple[int, ...] = (descriptor,) if is_shared else ()
        # Takes memory when it is first written: many clients send nothing.
        memory = mmap.mmap(descriptor, nbytes)
        self._bytes = memoryview(memory)[: places * layout.nbytes]
        self.rows = _rows_of(signature, layout, places, self._bytes)
        _RINGS.add(self)
        self.may_be_quiet = has_gil() and layout.nbytes <= NARROW_ROW
        self._shared_count = np.frombuffer(memory, np.int64, 1, count_offset) if is_shared else None

    def restore(self, number: int, values: Sequence[NDArray[Any]]) -> None:
        """Copies a sample, which was written elsewhere, into its place; `values` are its leaves."""
        for column, value in zip(self._layout.columns(self._bytes), values, strict=True):
            column[(number - 1) % self.places] = value

    def parts(self, first: int, count: int) -> list[memoryview]:
        """Returns the bytes of samples, in one piece, or in two at the end of the ring."""
        begin, size = (first - 1) % self.places, self._sample_nbytes
        end = begin + count
        if end <= self.places:
            return [self._bytes[begin * size : end * size]]
        return [self._bytes[begin * size :], self._bytes[: (end - self.places) * size]]

    def samples(self) -> NDArray[np.uint8]:
        """Returns the bytes of all places, uint8[places, nbytes]."""
        return np.frombuffer(self._bytes, np.uint8).reshape(self.places, self._sample_nbytes)

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

    # ---- forks -----------------------------------------------------------------------------------------------------

    def before_fork(self) -> None:
        """Does nothing: samples are written in one step."""

    def after_fork_in_parent(self) -> None:
        """Does nothing."""

    def after_fork_in_child(self) -> None:
        """Leads every sample to the call that refuses it: the memory is the parent's."""
        self.rows.take_over()


def leaf_checks(signature: Signature) -> list[Check]:
    """Returns the check of each leaf of a sample."""
    return [LeafCheck(path, spec).check for path, spec in signature.columns.items()]


def _rows_of(signature: Signature, layout: SampleLayout, places: int, memory: memoryview) -> RingRows:
    node = compile_tree(signature.tree, lambda node: isinstance(node, ArraySpec))
    read = None if isinstance(node, Leaf) else reader(node)
    return RingRows(zip(layout.columns(memory), leaf_checks(signature), strict=True), places, read)
