"""The items of a table as plain arrays in the order of the ring: what a checkpoint keeps of it.

Slots stay where they are, marked ones included, and so does the capacity: a draw at random finds an item by its slot.
Selectors' indexes are left out; they are made anew from the items, bit for bit the same.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from headrace.replay.items import (
    FIRST,
    PRIORITY_OF_ALL,
    REMOVER_KIND,
    RING_WORDS,
    SAMPLER_KIND,
    SPAN,
    TOUCHES,
    Items,
)

PER_ITEM = ("keys", "rows", "times", "priorities", "windows", "touches")


@dataclass
class ItemState:
    """Everything that is not derived.

    Attributes:
        capacity: slots of the ring.
        ring: int64[RING_WORDS].
        priority: of every item that has none of its own.
        window: uint32[3], of every item that has none of its own.
        arrays: by name (`items.Items`), `[SPAN, ...]` from the oldest item on. "priorities" and "windows" are there
            where each item has its own, "touches" with a heap.
        scratch: room of the ring's scratch arrays; how random numbers are used up depends on it.
    """

    capacity: int
    ring: NDArray[np.int64]
    priority: float
    window: NDArray[np.uint32]
    arrays: dict[str, NDArray[Any]]
    scratch: int


def room_for_copy(items: Items) -> dict[str, NDArray[Any]]:
    """Arrays as large as those of the items, written once so that filling them costs no page faults."""
    room = {}
    for name in PER_ITEM:
        array = getattr(items, name)
        if len(array):
            room[name] = np.empty_like(array)
            room[name].fill(0)
    return room


def state_of(items: Items, room: dict[str, NDArray[Any]], scratch: int) -> ItemState:
    """A copy of the items, into `room` where it is large enough."""
    first, span, capacity = int(items.ring[FIRST]), int(items.ring[SPAN]), len(items.rows)
    until_end = min(span, capacity - first)
    arrays = {}
    for name in PER_ITEM:
        source = getattr(items, name)
        if len(source):
            target = room.get(name)
            if target is None or len(target) < span:
                target = np.empty((span, *source.shape[1:]), source.dtype)
            target[:until_end] = source[first : first + until_end]
            target[until_end:span] = source[: span - until_end]
            arrays[name] = target[:span]
    return ItemState(
        capacity,
        items.ring.copy(),
        float(items.common[PRIORITY_OF_ALL]),
        items.common_window.copy(),
        arrays,
        scratch,
    )


def fill_items(items: Items, state: ItemState) -> None:
    """Put items into an empty ring of their capacity, whose selectors may be others. Indexes are left empty."""
    first, span = int(state.ring[FIRST]), int(state.ring[SPAN])
    until_end = min(span, state.capacity - first)

    def put(array: NDArray[Any], values: NDArray[Any]) -> None:
        array[first : first + until_end] = values[:until_end]
        array[: span - until_end] = values[until_end:]

    items.common[PRIORITY_OF_ALL] = state.priority
    items.common_window[:] = state.window
    for word in range(RING_WORDS):
        if word not in (SAMPLER_KIND, REMOVER_KIND):
            items.ring[word] = state.ring[word]
    for name in PER_ITEM:
        target = getattr(items, name)
        if name in state.arrays and len(target):
            put(target, state.arrays[name])
    if len(items.priorities) and "priorities" not in state.arrays:
        put(items.priorities, np.full(span, state.priority))
    if len(items.touches) and "touches" not in state.arrays:
        # Nothing asked for the order of touches before: it is that of insertion.
        put(items.touches, np.arange(span))
        items.ring[TOUCHES] = span
