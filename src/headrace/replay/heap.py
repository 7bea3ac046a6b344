"""A binary heap of slots by priority; ties go to the slot least recently inserted or updated."""

# Rules: replay S5

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from headrace.store.jit import Bool, Int, kernel


class Heap(NamedTuple):
    """A heap whose root is the next slot.

    Attributes:
        slots: int64[capacity + 1]: the heap; the last word is its size.
        places: int64[capacity]: where each slot stands in it.
        sign: +1 for the smallest priority first, -1 for the largest.
    """

    slots: NDArray[np.int64]
    places: NDArray[np.int64]
    sign: float


def new_heap(capacity: int, sign: float) -> Heap:
    """An empty heap for slots 0..capacity-1."""
    return Heap(np.zeros(capacity + 1, np.int64), np.zeros(capacity, np.int64), sign)


@kernel
def _before(
    heap: Heap, priorities: NDArray[np.float64], touches: NDArray[np.int64], one: Int, other: Int
) -> Bool:
    a, b = heap.sign * priorities[one], heap.sign * priorities[other]
    return a < b or (a == b and touches[one] < touches[other])


@kernel
def _put(heap: Heap, place: Int, slot: Int) -> None:
    heap.slots[place] = slot
    heap.places[slot] = place


@kernel
def _rise(heap: Heap, priorities: NDArray[np.float64], touches: NDArray[np.int64], place: Int) -> Int:
    slot = heap.slots[place]
    while place > 0:
        parent = (place - 1) // 2
        if not _before(heap, priorities, touches, slot, heap.slots[parent]):
            break
        _put(heap, place, heap.slots[parent])
        place = parent
    _put(heap, place, slot)
    return place


@kernel
def _sink(heap: Heap, priorities: NDArray[np.float64], touches: NDArray[np.int64], place: Int) -> None:
    size = heap.slots[-1]
    slot = heap.slots[place]
    while True:
        child = 2 * place + 1
        if child >= size:
            break
        if child + 1 < size and _before(heap, priorities, touches, heap.slots[child + 1], heap.slots[child]):
            child += 1
        if not _before(heap, priorities, touches, heap.slots[child], slot):
            break
        _put(heap, place, heap.slots[child])
        place = child
    _put(heap, place, slot)


@kernel
def heap_push(heap: Heap, priorities: NDArray[np.float64], touches: NDArray[np.int64], slot: Int) -> None:
    """Add a slot, whose priority and touch are set already."""
    place = heap.slots[-1]
    heap.slots[-1] = place + 1
    heap.slots[place] = slot
    _rise(heap, priorities, touches, place)


@kernel
def heap_moved(heap: Heap, priorities: NDArray[np.float64], touches: NDArray[np.int64], slot: Int) -> None:
    """Put a slot right whose priority or touch changed."""
    _sink(heap, priorities, touches, _rise(heap, priorities, touches, heap.places[slot]))


@kernel
def heap_remove(heap: Heap, priorities: NDArray[np.float64], touches: NDArray[np.int64], slot: Int) -> None:
    """Take a slot out."""
    place = heap.places[slot]
    size = heap.slots[-1] - 1
    heap.slots[-1] = size
    if place == size:
        return
    _put(heap, place, heap.slots[size])
    heap_moved(heap, priorities, touches, heap.slots[place])
