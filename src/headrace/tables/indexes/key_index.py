"""A hash table from keys to slots, for items whose keys do not rise in the order of insertion.

Open addressing with linear probing. A removal closes its gap, so there are no marks of removed keys: D. E. Knuth, "The
Art of Computer Programming", volume 3, section 6.4, algorithm R.
"""

from __future__ import annotations

import cython

if not cython.compiled:
    from headrace.kernels.kinds import Int, Longs, ULong, ULongs


class KeyIndex:
    """The slots of keys.

    Args:
        keys: uint64[2 * capacity], of the items: the key of a slot stands at twice its number.
        slots: int64[2**bits], more than there are items, filled with -1; empty for an index that is not used.
        bits: as above, at most 32.
    """

    def __init__(self, keys: ULongs, slots: Longs, bits: Int) -> None:
        self.keys = keys
        self.slots = slots
        self.shift = 32 - bits
        self.mask = slots.shape[0] - 1

    def insert(self, slot: Int) -> None:
        """Adds a slot, whose key is set already."""
        place: Int = self._home(self.keys[2 * slot])
        while self.slots[place] >= 0:
            place = (place + 1) & self.mask
        self.slots[place] = slot

    def find(self, key: ULong) -> Int:
        """Returns the slot of a key, or -1."""
        place: Int = self._home(key)
        while self.slots[place] >= 0:
            slot: Int = self.slots[place]
            if self.keys[2 * slot] == key:
                return slot
            place = (place + 1) & self.mask
        return -1

    def remove(self, slot: Int) -> None:
        """Takes a slot out, whose key is still there; nothing happens if the slot is not in the index."""
        gap: Int = self._home(self.keys[2 * slot])
        while self.slots[gap] != slot:
            if self.slots[gap] < 0:
                return
            gap = (gap + 1) & self.mask
        place: Int = gap
        while True:
            place = (place + 1) & self.mask
            other: Int = self.slots[place]
            if other < 0:
                break
            # A slot may move back to the gap unless the search for its key begins after the gap.
            if ((place - self._home(self.keys[2 * other])) & self.mask) >= ((place - gap) & self.mask):
                self.slots[gap] = other
                gap = place
        self.slots[gap] = -1

    def _home(self, key: ULong) -> Int:
        """Returns where the search for a key begins: neighbouring keys of several clients are scattered."""
        low: Int = cython.cast(Int, key & 0x7FFFFFFF)
        home: Int = ((low * 1640531527) >> self.shift) & self.mask
        return home
