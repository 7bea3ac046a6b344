"""The items of one table, as arrays in the order of insertion, with the data of each selector.

Items lie in a ring. A new item goes in at the end. The slot of a removed item is marked, and the ends of the ring move
over marked slots. So the order of insertion needs no list, and the newest and the oldest item are at the ends. A
uniform draw is a random slot, drawn again if it is marked (`ItemRing` keeps at least half of the slots live).

The position of an item in the ring is its sequence; its key is its public name. Keys that are made at insertion rise
along the ring, so a key is found by interpolation, without an index. Keys that were given out ahead may come in any
order: the first that does not rise makes an index of all keys (`KeyIndex`), which stays until the next reset.

Priorities and windows have arrays only after two items differ, last updates only for a heap.
"""

from __future__ import annotations

import cython
import numpy as np
from numpy.typing import NDArray

from headrace.tables.items.layout import COUNTER_WORDS, IndexArrays, ItemArrays

if not cython.compiled:
    from headrace.kernels.hints import in_order, power, prefetch
    from headrace.kernels.kinds import Bool, Doubles, Float, Int, Longs, ULong
    from headrace.kernels.numbers import Numbers
    from headrace.store.pages.pinning import Pins
    from headrace.tables.indexes.heap import Heap
    from headrace.tables.indexes.key_index import KeyIndex
    from headrace.tables.indexes.sum_tree import SumTree
    from headrace.tables.items.layout import (
        COUNT,
        DEAD,
        ENTRIES,
        ENTRY_KEY,
        ENTRY_PRIORITY,
        ENTRY_ROW,
        ENTRY_SLOT,
        ENTRY_TIMES,
        ENTRY_UPDATE,
        ENTRY_WINDOW,
        ENTRY_WORDS,
        FIRST,
        FLAGS,
        HAS_KEY_INDEX,
        HEAP,
        INSERTED,
        LIVE,
        LOOKAHEAD,
        PRIORITIZED,
        PRIORITY_OF_ALL,
        REAL,
        RECORD_ROW,
        RECORD_TIMES,
        RECORD_WORDS,
        SAMPLED,
        SPAN,
        WINDOW_WORDS,
    )

_SCRATCH = 256
LARGEST = 1.7976931348623157e308
"""The largest finite float64."""


class Index:
    """The index of one selector over a table's items; it is empty for FIFO, LIFO, UNIFORM and CUSTOM.

    The parents of a sum tree are updated by `refresh`, once for many changes.

    Args:
        arrays: of the index.
        priorities, last_updates: of the items.
    """

    def __init__(self, arrays: IndexArrays, priorities: Doubles, last_updates: Longs) -> None:
        self.kind = arrays.kind
        self.exponent = arrays.exponent
        self.tree = SumTree(arrays.nodes, arrays.levels)
        self.heap = Heap(arrays.heap_slots, arrays.heap_positions, arrays.sign, priorities, last_updates)

    def insert(self, slot: Int, priority: Float) -> None:
        """Adds an item."""
        if self.kind == PRIORITIZED:
            self.tree.nodes[slot] = weight(self.exponent, priority)
        elif self.kind == HEAP:
            self.heap.push(slot)

    def update(self, slot: Int, priority: Float) -> None:
        """Sets the priority of an item."""
        if self.kind == PRIORITIZED:
            self.tree.nodes[slot] = weight(self.exponent, priority)
        elif self.kind == HEAP:
            self.heap.moved(slot)

    def remove(self, slot: Int) -> None:
        """Removes an item."""
        if self.kind == PRIORITIZED:
            self.tree.nodes[slot] = 0.0
        elif self.kind == HEAP:
            self.heap.remove(slot)

    def refresh(self, slots: Longs, first: Int, count: Int) -> None:
        """Updates the data derived from `slots[first : first + count]`, which have changed."""
        if self.kind == PRIORITIZED:
            self.tree.refresh(slots, first, count)


class Items:
    """The items of a table, and what kernels need beside them.

    Args:
        arrays: of the items. Other arrays need another object.
        pins: of the store whose pages the items hold; None if no item is inserted or removed, and no row is read.
        numbers: random numbers, of the replay's generator; None if nothing is drawn.
        counters: int64[COUNTER_WORDS], see `layout.MAX_SIZE`; None if nothing is inserted or drawn.
    """

    def __init__(
        self,
        arrays: ItemArrays,
        pins: Pins | None,
        numbers: Numbers | None = None,
        counters: NDArray[np.int64] | None = None,
    ) -> None:
        if pins is not None:
            self.pins = pins
            self.window = pins.window
        if numbers is not None:
            self.numbers = numbers
        self.counters = np.zeros(COUNTER_WORDS, np.int64) if counters is None else counters
        self.records = arrays.records.reshape(-1)
        self.keys = arrays.records.reshape(-1).view(np.uint64)
        self.priorities = arrays.priorities
        self.priority_bits = arrays.priorities.view(np.int64)
        self.windows = arrays.windows.reshape(-1)
        self.last_updates = arrays.last_updates
        self.common = arrays.common
        self.common_window = arrays.common_window
        self.ring = arrays.ring
        self.ring_floats = arrays.ring.view(np.float64)
        self.journal = arrays.journal
        self.sampler = Index(arrays.sampler, arrays.priorities, arrays.last_updates)
        self.remover = Index(arrays.remover, arrays.priorities, arrays.last_updates)
        self.capacity = len(arrays.records)
        self.changed = np.empty(_SCRATCH, np.int64)
        self.uniforms = np.empty(_SCRATCH, np.float64)
        self.key_index = KeyIndex(self.keys, np.empty(0, np.int64), 0)
        self.has_key_index = False
        self.keys_differ = True
        if self.ring[FLAGS] & HAS_KEY_INDEX:
            self.use_key_index()

    def provide_scratch(self, changes: int) -> None:
        """Makes the scratch arrays large enough for a kernel that changes or draws `changes` items."""
        if changes > self.changed.shape[0]:
            self.uniforms = np.empty(2 * changes, np.float64)
            self.changed = np.empty(2 * changes, np.int64)

    def use_key_index(self) -> None:
        """Makes an index, by which keys are found from now on; `keys_differ` tells whether each key is unique."""
        bits: Int = 1
        size: Int = 2
        while size < 2 * self.capacity:
            bits += 1
            size *= 2
        self.key_index = KeyIndex(self.keys, np.full(size, -1, np.int64), bits)
        self.ring[FLAGS] |= HAS_KEY_INDEX
        self.has_key_index = True
        self.keys_differ = self._index_keys()

    def forget_keys(self) -> None:
        """Finds keys without an index, in a ring that is empty."""
        self.has_key_index = False
        self.key_index = KeyIndex(self.keys, np.empty(0, np.int64), 0)
        self.ring[FLAGS] &= ~HAS_KEY_INDEX

    def _index_keys(self) -> Bool:
        """Adds every item to an empty index; returns whether their keys differ."""
        differ: Bool = True
        # The words may come from a file, and are not checked yet.
        if not (0 <= self.ring[FIRST] < self.capacity and 0 <= self.ring[SPAN] <= self.capacity):
            return False
        for place in range(self.ring[SPAN]):
            slot: Int = self.slot_at(place)
            if self.is_dead(slot):
                continue
            if self.key_index.find(self.key_of(slot)) >= 0:
                differ = False
            else:
                self.key_index.insert(slot)
        return differ

    def newest_key(self) -> int:
        """Returns the key at the end of the ring; 0, which no item has, if the ring is empty."""
        if self.ring[SPAN] == 0:
            return 0
        return self.key_of(self.slot_at(self.ring[SPAN] - 1))

    @property
    def live(self) -> int:
        """Number of items."""
        return cython.cast(Int, self.ring[LIVE])

    @property
    def inserted(self) -> int:
        """Number of items ever inserted; right after any error, Ctrl-C included."""
        return cython.cast(Int, self.counters[INSERTED])

    @property
    def sampled(self) -> int:
        """Number of samples ever drawn; right after any error, Ctrl-C included."""
        return cython.cast(Int, self.counters[SAMPLED])

    # ---- one item ----------------------------------------------------------------------------------------------------

    def slot_at(self, place: Int) -> Int:
        """Returns the slot of the item that is `place` positions after the oldest."""
        slot: Int = self.ring[FIRST] + place
        return slot - self.capacity if slot >= self.capacity else slot

    def key_of(self, slot: Int) -> ULong:
        """Returns the key of an item."""
        return cython.cast(ULong, self.keys[2 * slot])

    def row_of(self, slot: Int) -> Int:
        """Returns the first row of an item's window, or DEAD."""
        return cython.cast(Int, self.records[RECORD_WORDS * slot + RECORD_ROW])

    def is_dead(self, slot: Int) -> Bool:
        """Returns whether the item of this slot was removed."""
        return self.row_of(slot) == DEAD

    def priority_of(self, slot: Int) -> Float:
        """Returns the priority of an item."""
        priority: Float = self.priorities[slot] if self.priorities.shape[0] else self.common[PRIORITY_OF_ALL]
        return priority

    def window_of(self, slot: Int, word: Int) -> Int:
        """Returns one word of an item's window."""
        if self.windows.shape[0]:
            return cython.cast(Int, self.windows[WINDOW_WORDS * slot + word])
        return cython.cast(Int, self.common_window[word])

    def ask_for(self, slot: Int) -> None:
        """Prefetches an item."""
        prefetch(self.records, RECORD_WORDS * slot)
        prefetch(self.priorities, slot)

    def find_slot(self, key: ULong) -> Int:
        """Returns the slot of a key, or -1."""
        if self.has_key_index:
            return self.key_index.find(key)
        return self._find_rising(key)

    def _find_rising(self, key: ULong) -> Int:
        """Returns the slot of a key, or -1.

        Keys rise along the ring, evenly when one table gets them all: the first guess of an interpolation is right, and
        every further one leaves at most half of what was left.
        """
        low: Int = 0
        high: Int = self.ring[SPAN] - 1
        interpolates = True
        while low <= high:
            first: ULong = self.key_of(self.slot_at(low))
            last: ULong = self.key_of(self.slot_at(high))
            if key < first or key > last:
                return -1
            guess: Int = (low + high) // 2
            if interpolates and last > first:
                slots_per_key = cython.cast(Float, high - low) / cython.cast(Float, last - first)
                guess = low + cython.cast(Int, cython.cast(Float, key - first) * slots_per_key)
            guess = min(max(low, guess), high)
            slot: Int = self.slot_at(guess)
            found: ULong = self.key_of(slot)
            if found == key:
                return -1 if self.is_dead(slot) else slot
            if found < key:
                low = guess + 1
            else:
                high = guess - 1
            interpolates = not interpolates
        return -1

    def remember(self, slot: Int) -> None:
        """Saves a slot in the journal (`journal.py`) before it is written; does nothing without a journal."""
        if self.journal.shape[0] == 0:
            return
        place: Int = ENTRIES + ENTRY_WORDS * self.journal[COUNT]
        self.journal[place + ENTRY_SLOT] = slot
        self.journal[place + ENTRY_KEY] = cython.cast(Int, self.keys[2 * slot])
        self.journal[place + ENTRY_ROW] = self.row_of(slot)
        self.journal[place + ENTRY_TIMES] = cython.cast(Int, self.records[RECORD_WORDS * slot + RECORD_TIMES])
        if self.priorities.shape[0]:
            self.journal[place + ENTRY_PRIORITY] = self.priority_bits[slot]
        if self.last_updates.shape[0]:
            self.journal[place + ENTRY_UPDATE] = self.last_updates[slot]
        if self.windows.shape[0]:
            for word in range(WINDOW_WORDS):
                self.journal[place + ENTRY_WINDOW + word] = self.window_of(slot, word)
        # The entry is stored before the number that counts it, and both before the slot changes.
        in_order()
        self.journal[COUNT] += 1
        in_order()

    def remove_slot(self, slot: Int) -> None:
        """Removes an item from both selectors, from the ring, and from its pages."""
        self.sampler.remove(slot)
        self.remover.remove(slot)
        self.pin(slot, -1)
        self.remember(slot)
        if self.has_key_index:
            self.key_index.remove(slot)
        self.records[RECORD_WORDS * slot + RECORD_ROW] = DEAD
        self.ring[LIVE] -= 1
        self.close_ends()

    def pin(self, slot: Int, change: Int) -> None:
        """Adds `change` to the references of each page under the rows of an item."""
        real = self.window_of(slot, REAL)
        self.pins.pin_rows(self.row_of(slot), real, self.window_of(slot, LOOKAHEAD), change)

    def close_ends(self) -> None:
        """Moves the ends of the ring over the slots of removed items."""
        while self.ring[SPAN] > 0 and self.is_dead(self.ring[FIRST]):
            self.ring[FIRST] = self.slot_at(1)
            self.ring[SPAN] -= 1
        while self.ring[SPAN] > 0 and self.is_dead(self.slot_at(self.ring[SPAN] - 1)):
            self.ring[SPAN] -= 1

    def fill(self, index: Index) -> None:
        """Adds every item to an empty index, in the order of insertion."""
        if index.kind == PRIORITIZED:
            for place in range(self.ring[SPAN]):
                slot: Int = self.slot_at(place)
                if not self.is_dead(slot):
                    index.tree.nodes[slot] = weight(index.exponent, self.priority_of(slot))
            index.tree.rebuild()
        elif index.kind == HEAP:
            for place in range(self.ring[SPAN]):
                slot = self.slot_at(place)
                if not self.is_dead(slot):
                    index.heap.push(slot)


def weight(exponent: Float, priority: Float) -> Float:
    """Returns the weight of a priority, limited so that no weight and no sum leaves the range of a float."""
    # Rules: replay S4
    # NaN too: another thread may write into a user's array after it was checked.
    if not priority > 0.0:
        return 0.0
    # 2**32 of the heaviest still have a finite sum.
    raised: Float = priority if exponent == 1.0 else power(priority, exponent)
    return min(max(raised, 5e-324), 1e290)


def is_priority(priority: Float) -> Bool:
    """Returns whether a number is finite and >= 0. Comparisons with NaN are false."""
    return 0.0 <= priority <= LARGEST
