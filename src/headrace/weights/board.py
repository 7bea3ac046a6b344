"""Sets of weights in memory that the processes of one machine share, for one reader or for several apart.

The memory holds *blocks* of two slots each, and an *address* for each kind of reader. An address says which slot to
read and under which number. The publisher writes the slot of a block that does not hold the newest set of the block:

    stamp[slot] = 0             the slot is being written
    copy the arrays
    stamp[slot] = k             it holds publication k
    record[s % 2] = s, number, slot, k
    sequence = s                record s is the newest of this address
    number                      written last: a reader that sees it finds the set

A reader reads the newest record of its address and copies the slot that it names. It reads the slot's stamp before and
after the copy. If one of them differs from k, the publisher has written two further sets into the block meanwhile, and
the reader looks again. There is no lock in the memory, so a reader or a publisher may be killed at any moment: the
newest complete set stays readable. (See L. Lamport, "Concurrent reading and writing", 1977; sequence locks use the same
idea.)

Block 0 is for sets that all addresses read. Each address has a block of its own for the sets meant for it alone. Memory
is taken when a block is first written.
"""

# Rules: collectors CW2, CW3, CW4, CW7

from __future__ import annotations

import mmap
import os
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from headrace.system import memory_file
from headrace.weights.fence import memory_fence
from headrace.weights.layout import WeightLayout

Arrays = Sequence[NDArray[Any] | None]

# 64-bit words of the line of an address: two cache lines, so that no reader shares one with another.
_LINE = 16
_SEQUENCE, _NUMBER, _RECORDS = 0, 1, (4, 8)
# Words of a record, after its sequence number.
_RECORD_NUMBER, _RECORD_SLOT, _RECORD_PUBLICATION = 1, 2, 3
_RECORD_WORDS = 4
# Words between the stamps of two slots: a cache line.
_STAMP = 8
_PAGE = 4096
NO_SLOT = -1


class Announcement(NamedTuple):
    """The newest record of an address.

    Attributes:
        sequence: counts the records of the address, from 1; 0: nothing was published.
        number: the version of the set.
        slot, publication: where the set is; NO_SLOT: the version has no set in this memory.
    """

    sequence: int
    number: int
    slot: int
    publication: int


NOTHING = Announcement(0, 0, NO_SLOT, 0)


class BoardShape(NamedTuple):
    """Places of the parts of the memory.

    Attributes:
        layout: of one set.
        addresses: the number of addresses.
    """

    layout: WeightLayout
    addresses: int

    @property
    def slots(self) -> int:
        """The number of slots: two of each block."""
        return 2 if self.addresses == 1 else 2 * (1 + self.addresses)

    @property
    def nbytes(self) -> int:
        """Bytes of the memory."""
        return self._start(self.slots)

    def line(self, address: int) -> int:
        """The first word of an address."""
        return _LINE * address

    def stamp(self, slot: int) -> int:
        """The word with the publication that a slot holds."""
        return _LINE * self.addresses + _STAMP * slot

    def views(self, memory: mmap.mmap, slot: int) -> tuple[NDArray[Any], ...]:
        """Returns the arrays of a slot."""
        start = self._start(slot)
        return tuple(place.view(memory, start) for place in self.layout.places)

    def raw(self, memory: mmap.mmap, slot: int) -> NDArray[np.uint8]:
        """Returns the bytes of a slot."""
        return np.frombuffer(memory, np.uint8, self.layout.nbytes, self._start(slot))

    def _start(self, slot: int) -> int:
        return _in_pages(8 * self.stamp(self.slots)) + slot * _in_pages(self.layout.nbytes)


class _Memory:
    """The mapped memory of a board."""

    def __init__(self, descriptor: int, shape: BoardShape, access: int) -> None:
        self.descriptor = descriptor
        self.shape = shape
        self._mapping = mmap.mmap(descriptor, shape.nbytes, access=access)
        self.words = memoryview(self._mapping).cast("q")
        self._slots: dict[int, tuple[NDArray[Any], ...]] = {}
        self._is_closed = False

    @property
    def is_closed(self) -> bool:
        """Whether the memory was released."""
        return self._is_closed

    def slot(self, slot: int) -> tuple[NDArray[Any], ...]:
        """Returns the arrays of a slot."""
        if slot not in self._slots:
            self._slots[slot] = self.shape.views(self._mapping, slot)
        return self._slots[slot]

    def close(self) -> None:
        """Releases the memory. Further calls do nothing."""
        if not self._is_closed:
            self._is_closed = True
            self._slots.clear()
            self.words.release()
            self._mapping.close()
            os.close(self.descriptor)

    def __del__(self) -> None:
        if hasattr(self, "_is_closed"):
            self.close()


class WeightBoard(_Memory):
    """Publisher of sets of weights. Not thread-safe: the owner has a lock.

    Args:
        layout: of one set.
        addresses: readers that can be given sets apart.

    >>> layout = WeightLayout({"w": np.zeros(2)})
    >>> board = WeightBoard(layout, addresses=2)
    >>> board.publish([np.ones(2)], 1)
    >>> board.publish([np.full(2, 5.0)], 2, addresses=[1])
    >>> readers = [BoardReader(os.dup(board.descriptor), layout, address, 2) for address in range(2)]
    >>> [(reader.newest().number, reader.copy(reader.newest())) for reader in readers]
    [(1, [array([1., 1.])]), (2, [array([5., 5.])])]
    >>> for end in (*readers, board): end.close()
    """

    def __init__(self, layout: WeightLayout, addresses: int = 1) -> None:
        shape = BoardShape(layout, addresses)
        super().__init__(memory_file("headrace-weights", shape.nbytes), shape, mmap.ACCESS_WRITE)
        self._publications = 0
        # The last announcement of each address, noted when the memory is closed.
        self._last: list[Announcement] = []

    def newest(self, address: int = 0) -> Announcement:
        """Returns what an address announces."""
        if self.is_closed:
            return self._last[address]
        # No copy of it is kept: Ctrl-C could come between both, and readers would take the next set for this one
        # (test_interrupts_of_weights.py).
        words, line = self.words, self.shape.line(address)
        sequence = words[line + _SEQUENCE]
        if sequence == 0:
            return NOTHING
        record = line + _RECORDS[sequence % 2]
        return Announcement(*words[record : record + _RECORD_WORDS])

    def copy(self, address: int = 0) -> list[NDArray[Any]] | None:
        """Returns a copy of the newest set of an address; None before the first."""
        slot = self.newest(address).slot
        return None if slot == NO_SLOT else [array.copy() for array in self.slot(slot)]

    def raw(self, slot: int) -> NDArray[np.uint8]:
        """Returns the bytes of a slot, laid out as `layout` says, in place."""
        return self.shape.raw(self._mapping, slot)

    def publish(self, arrays: Arrays, number: int, addresses: Iterable[int] | None = None) -> None:
        """Makes a set the newest, without waiting for readers.

        Args:
            arrays: in the order of the layout; None: as in the newest set of the address.
            number: its version.
            addresses: the addresses that it is meant for; None: all.
        """
        if addresses is not None:
            self._publish_apart(arrays, number, addresses)
            return
        everywhere = range(self.shape.addresses)
        if all(array is not None for array in arrays):
            apart: list[int] = []
        else:
            # Addresses whose newest set is their own keep their own arrays.
            apart = [address for address in everywhere if self.newest(address).slot > 1]
        together = [address for address in everywhere if address not in apart]
        if together:
            source = self.newest(together[0]).slot
            slot, publication = self._write(0, arrays, source)
            for address in together:
                self._announce(address, number, slot, publication)
        self._publish_apart(arrays, number, apart)

    def close(self) -> None:
        """See `_Memory.close`. `newest` still tells what was announced last."""
        if not self.is_closed:
            self._last = [self.newest(address) for address in range(self.shape.addresses)]
        super().close()

    def _publish_apart(self, arrays: Arrays, number: int, addresses: Iterable[int]) -> None:
        for address in addresses:
            block = 0 if self.shape.addresses == 1 else 1 + address
            slot, publication = self._write(block, arrays, self.newest(address).slot)
            self._announce(address, number, slot, publication)

    def renumber(self, number: int) -> None:
        """Gives the newest sets of all addresses another version."""
        for address in range(self.shape.addresses):
            newest = self.newest(address)
            self._announce(address, number, newest.slot, newest.publication)

    def _write(self, block: int, arrays: Arrays, source: int) -> tuple[int, int]:
        """Writes a set into the slot of a block that is free; `source` is the slot of arrays that are not given."""
        words, slot = self.words, self._free_slot(block)
        stamp, publication = self.shape.stamp(slot), self._publications + 1
        kept = self.slot(source) if source != NO_SLOT else ()
        words[stamp] = 0
        memory_fence()
        for index, (place, array) in enumerate(zip(self.slot(slot), arrays, strict=True)):
            if array is not None:
                np.copyto(place, array)
            elif kept:
                np.copyto(place, kept[index])
        memory_fence()
        words[stamp] = publication
        memory_fence()
        self._publications = publication
        return slot, publication

    def _free_slot(self, block: int) -> int:
        """Returns the slot of a block that no address announces. Ctrl-C may have left none: then the older one."""
        announced = {self.newest(address).slot for address in range(self.shape.addresses)}
        words, shape, slots = self.words, self.shape, (2 * block, 2 * block + 1)
        return min(slots, key=lambda slot: (slot in announced, words[shape.stamp(slot)]))

    def _announce(self, address: int, number: int, slot: int, publication: int) -> None:
        words, line = self.words, self.shape.line(address)
        sequence = words[line + _SEQUENCE] + 1
        record = line + _RECORDS[sequence % 2]
        words[record] = 0
        memory_fence()
        words[record + _RECORD_NUMBER] = number
        words[record + _RECORD_SLOT] = slot
        words[record + _RECORD_PUBLICATION] = publication
        memory_fence()
        words[record] = sequence
        memory_fence()
        words[line + _SEQUENCE] = sequence
        memory_fence()
        words[line + _NUMBER] = number


class BoardReader(_Memory):
    """Reads the sets of one address. It cannot change the memory.

    Args:
        descriptor: of the memory, which the reader then owns.
        layout: of one set.
        address: of this reader.
        addresses: their number.
    """

    def __init__(self, descriptor: int, layout: WeightLayout, address: int = 0, addresses: int = 1) -> None:
        super().__init__(descriptor, BoardShape(layout, addresses), mmap.ACCESS_READ)
        self._line = self.shape.line(address)

    @property
    def sequence(self) -> int:
        """Changes with every publication for this address: one read of a shared integer.

        Raises:
            ValueError: after `close`.
        """
        return self.words[self._line]

    @property
    def number(self) -> int:
        """The version of the newest set: one read of a shared integer.

        Raises:
            ValueError: after `close`.
        """
        return self.words[self._line + _NUMBER]

    def newest(self) -> Announcement | None:
        """Returns the newest record; None if it was replaced twice while it was read."""
        words, line = self.words, self._line
        sequence = words[line + _SEQUENCE]
        if sequence == 0:
            return NOTHING
        record = line + _RECORDS[sequence % 2]
        memory_fence()
        found = Announcement(
            words[record],
            words[record + _RECORD_NUMBER],
            words[record + _RECORD_SLOT],
            words[record + _RECORD_PUBLICATION],
        )
        memory_fence()
        return found if found.sequence == sequence == words[record] else None

    def copy(self, announced: Announcement) -> list[NDArray[Any]] | None:
        """Returns a copy of an announced set; None if the publisher has replaced it meanwhile."""
        stamp = self.shape.stamp(announced.slot)
        if self.words[stamp] != announced.publication:
            return None
        memory_fence()
        arrays = [array.copy() for array in self.slot(announced.slot)]
        memory_fence()
        return arrays if self.words[stamp] == announced.publication else None


def _in_pages(nbytes: int) -> int:
    return -(-nbytes // _PAGE) * _PAGE
