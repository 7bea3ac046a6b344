"""Contract of arenas, the memory of rows: private memory, shared memory, files, and yours."""

from __future__ import annotations

import gc
import os
from abc import ABC, abstractmethod
from pathlib import Path

import numpy as np

from headrace.spec import ArraySpec, Signature
from headrace.store.block import LaneBlock
from headrace.store.memory.arena import Arena
from headrace.store.store import Store
from headrace.testing.forks import in_forked_child
from headrace.testing.pytest_hypothesis import pytest

_NBYTES = 1 << 20
_LARGE = 1 << 30
_LITTLE = 64 << 20


class StorageContract(ABC):
    """Tests of an arena for `Store(make_arena=...)`. Derive from it and define `make`; pytest does the rest.

    An arena begins with zeros. Arrays over it share its bytes, and keep them when it is closed. Reserved bytes that
    were never written take no memory. If the arena can be shared, every process that maps its descriptor sees the same
    bytes, until `make_private`.

    >>> class TestShared(StorageContract):
    ...     def make(self, nbytes):
    ...         return Arena.shared(nbytes)
    >>> TestShared().test_it_begins_with_zeros()
    """

    @abstractmethod
    def make(self, nbytes: int) -> Arena:
        """Returns a fresh arena of `nbytes` bytes."""

    def attach(self, arena: Arena) -> Arena:
        """Returns the arena as mapped by another process that has received the descriptor."""
        return Arena.attach(os.dup(arena.descriptor), arena.nbytes)

    def test_it_begins_with_zeros(self) -> None:
        """Every byte of a fresh arena is 0."""
        arena = self.make(_NBYTES)
        assert arena.nbytes == _NBYTES
        assert not arena.array(0, (_NBYTES,), np.uint8).any()
        arena.close()

    def test_arrays_are_its_bytes(self) -> None:
        """Arrays over the same bytes read what one of them writes, and no other byte changes."""
        arena = self.make(_NBYTES)
        whole = arena.array(0, (_NBYTES,), np.uint8)
        one, other = arena.array(4096, (10, 3), np.float32), arena.array(_NBYTES - 40, (5,), np.int64)
        one[:] = 1.5
        other[:] = -7
        assert (arena.array(4096, (10, 3), np.float32) == 1.5).all(), "what was written is not there"
        assert (arena.array(_NBYTES - 40, (5,), np.int64) == -7).all()
        assert (whole[4096 : 4096 + 120].view(np.float32) == 1.5).all(), "the offset is not kept"
        assert not whole[:4096].any()
        assert not whole[4096 + 120 : -40].any()
        arena.sync()
        assert (one == 1.5).all()
        arena.close()

    def test_an_array_over_the_end_is_refused(self) -> None:
        """An array never reaches memory outside the arena."""
        arena = self.make(_NBYTES)
        with pytest.raises((TypeError, ValueError)):
            arena.array(_NBYTES - 8, (2,), np.int64)
        arena.close()

    def test_arrays_outlive_it(self) -> None:
        """The memory is freed with the last array, also after `close`; a second `close` does nothing."""
        arena = self.make(_NBYTES)
        part = arena.array(0, (100,), np.int64)[10:20]
        part[:] = 3
        arena.close()
        arena.close()
        del arena
        gc.collect()
        # Freed memory would be reused by these.
        others = [self.make(_NBYTES).array(0, (_NBYTES,), np.uint8) for _ in range(3)]
        for other in others:
            other[:] = 0xFF
        assert (part == 3).all(), "the memory was given back while an array was over it"

    def test_a_reservation_takes_no_memory(self) -> None:
        """A gigabyte with one written page takes little memory: stores reserve more than the machine has."""
        before = _resident()
        arena = self.make(_LARGE)
        array = arena.array(_LARGE - 4096, (512,), np.int64)
        array[:] = 1
        assert array.sum() == 512
        assert _resident() - before < _LITTLE, "the reservation takes memory"
        if arena.is_shareable:
            assert os.fstat(arena.descriptor).st_blocks * 512 < _LITTLE, "the file is not sparse"
        arena.close()

    def test_it_says_whether_it_can_be_shared(self) -> None:
        """An arena that cannot be shared has no descriptor."""
        arena = self.make(_NBYTES)
        if arena.is_shareable:
            assert arena.descriptor >= 0
        else:
            with pytest.raises(ValueError, match="descriptor"):
                _ = arena.descriptor
        arena.close()

    def test_who_attaches_sees_the_same_bytes(self) -> None:
        """Both ways, at once, and also after the first is closed."""
        arena = self.make(_NBYTES)
        if not arena.is_shareable:
            return
        here = arena.array(4096, (8,), np.int64)
        here[:] = range(8)
        attached = self.attach(arena)
        there = attached.array(4096, (8,), np.int64)
        assert there.tolist() == list(range(8)), "what was written before is not seen"
        there[:] = range(10, 18)
        assert here.tolist() == list(range(10, 18)), "what the other writes is not seen"
        arena.close()
        here[0] = -1
        assert there[0] == -1
        attached.close()

    def test_a_forked_child_shares_it_until_it_makes_it_private(self) -> None:
        """`make_private` keeps the bytes, and what either writes afterwards the other does not see."""
        arena = self.make(_NBYTES)
        array = arena.array(4096, (2,), np.int64)
        array[:] = 1

        def write() -> list[int]:
            array[0] = 5
            arena.make_private()
            array[1] = 6
            return [int(value) for value in array]

        assert in_forked_child(write) == [5, 6]
        assert array.tolist() == [5 if arena.is_shareable else 1, 1]
        arena.close()

    def test_nothing_is_left_open(self) -> None:
        """Closed or forgotten, it gives its descriptors back with the last array."""
        before = _descriptors()
        arena = self.make(_NBYTES)
        array = arena.array(0, (10,), np.uint8)
        arena.close()
        del array, arena
        self.make(_NBYTES)
        gc.collect()
        assert _descriptors() == before

    def test_a_store_lives_in_it(self) -> None:
        """The code above does not know which place it is."""
        signature = Signature({"x": ArraySpec(2, np.float32)})
        store = Store(signature, 100, make_arena=self.make)
        block = LaneBlock(store, 1, 10)
        for step in range(60):
            block.make_room()
            store.columns["x"][block.row] = step
            block.commit()
        assert store.columns["x"][block.last].tolist() == [59, 59]
        assert store.statistics().rows >= 10
        store.close()


def _resident() -> int:
    """Bytes of this process that are in memory."""
    _need_proc()
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE")


def _descriptors() -> int:
    _need_proc()
    return len(os.listdir("/proc/self/fd"))


def _need_proc() -> None:
    if not Path("/proc/self").exists():
        pytest.skip("this system does not tell what a process holds")
