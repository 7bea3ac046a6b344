"""A binary heap of slots by priority; ties go to the slot least recently inserted or updated."""

# Rules: replay S5

from __future__ import annotations

import cython

if not cython.compiled:
    from headrace.kernels.kinds import Bool, Doubles, Float, Int, Longs


class Heap:
    """A heap whose root is the next slot.

    Args:
        slots: int64[capacity + 1]: the heap; the last word is its size.
        positions: int64[capacity]: where each slot stands in it.
        sign: +1 for the smallest priority first, -1 for the largest.
        priorities, last_updates: float64 and int64, of each slot; after a change of them `moved` is called.
    """

    def __init__(
        self, slots: Longs, positions: Longs, sign: Float, priorities: Doubles, last_updates: Longs
    ) -> None:
        self.slots = slots
        self.positions = positions
        self.sign = sign
        self.priorities = priorities
        self.last_updates = last_updates
        # Where the size stands.
        self.end = slots.shape[0] - 1

    def push(self, slot: Int) -> None:
        """Adds a slot, whose priority and last update are set already."""
        place: Int = self.slots[self.end]
        self.slots[self.end] = place + 1
        self.slots[place] = slot
        self._rise(place)

    def moved(self, slot: Int) -> None:
        """Restores the order after the priority or the last update of a slot changed."""
        self._sink(self._rise(self.positions[slot]))

    def remove(self, slot: Int) -> None:
        """Removes a slot."""
        place: Int = self.positions[slot]
        size: Int = self.slots[self.end] - 1
        self.slots[self.end] = size
        if place == size:
            return
        self._put(place, self.slots[size])
        self.moved(self.slots[place])

    def _before(self, one: Int, other: Int) -> Bool:
        a: Float = self.sign * self.priorities[one]
        b: Float = self.sign * self.priorities[other]
        return a < b or (a == b and self.last_updates[one] < self.last_updates[other])

    def _put(self, place: Int, slot: Int) -> None:
        self.slots[place] = slot
        self.positions[slot] = place

    def _rise(self, place: Int) -> Int:
        slot: Int = self.slots[place]
        while place > 0:
            parent = (place - 1) // 2
            if not self._before(slot, self.slots[parent]):
                break
            self._put(place, self.slots[parent])
            place = parent
        self._put(place, slot)
        return place

    def _sink(self, place: Int) -> None:
        size: Int = self.slots[self.end]
        slot: Int = self.slots[place]
        while True:
            child: Int = 2 * place + 1
            if child >= size:
                break
            if child + 1 < size and self._before(self.slots[child + 1], self.slots[child]):
                child += 1
            if not self._before(self.slots[child], slot):
                break
            self._put(place, self.slots[child])
            place = child
        self._put(place, slot)
