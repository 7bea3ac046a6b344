"""The items of a table as plain arrays in the order of the ring, for checkpoints.

Slots, those of removed items included, and the capacity stay the same, because a random draw finds an item by its slot.
Selectors' indexes are left out; they are rebuilt from the items, bit for bit the same.

A checkpoint is read straight into the arrays of a ring: `empty_memory` makes them, `segments` gives the place of each
part of a file, and `finish_items` adds the data that the file does not hold.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from headrace.tables.description.selectors import Selector
from headrace.tables.item_memory import ItemMemory, new_items, shape_for
from headrace.tables.items.layout import (
    CHANGES,
    FIRST,
    PRIORITY_OF_ALL,
    REMOVER_KIND,
    SAMPLER_KIND,
    SPAN,
    ItemArrays,
)

# Names of the arrays in files.
RECORDS, LAST_UPDATES = "items", "touches"
PER_ITEM = (RECORDS, "priorities", "windows", LAST_UPDATES)


@dataclass
class ItemState:
    """Everything that is not derived.

    Attributes:
        capacity: slots of the ring.
        ring: int64[RING_WORDS].
        priority: of every item that has none of its own.
        window: uint32[3], of every item that has none of its own.
        arrays: by name, `[SPAN, ...]` from the oldest item on. "items" is uint32[SPAN, 4]: key, row and times side by
            side; the others are those of `ItemArrays`. "priorities" and "windows" are there where each item has its
            own, LAST_UPDATES with a heap.
    """

    capacity: int
    ring: NDArray[np.int64]
    priority: float
    window: NDArray[np.uint32]
    arrays: dict[str, NDArray[Any]]


def arrays_by_name(items: ItemArrays) -> dict[str, NDArray[Any]]:
    """Returns the arrays with an entry for each slot, by the names of `PER_ITEM`."""
    arrays: tuple[NDArray[Any], ...] = (items.records, items.priorities, items.windows, items.last_updates)
    return {name: array for name, array in zip(PER_ITEM, arrays, strict=True) if len(array)}


def buffers_for_copy(arrays: dict[str, NDArray[Any]]) -> dict[str, NDArray[Any]]:
    """Returns arrays as large as those of the items, written once so that filling them costs no page faults."""
    buffers = {name: np.empty_like(array) for name, array in arrays.items()}
    for name, array in arrays.items():
        # The items may change meanwhile: only the pages of memory matter here.
        np.copyto(buffers[name], array)
    return buffers


def state_of(items: ItemArrays, buffers: dict[str, NDArray[Any]]) -> ItemState:
    """Returns a copy of the items, in the buffers that are large enough.

    Args:
        items: of a ring.
        buffers: from `buffers_for_copy`; the ring may have changed since.
    """
    first, span = int(items.ring[FIRST]), int(items.ring[SPAN])
    arrays = {}
    for name, array in arrays_by_name(items).items():
        target = buffers.get(name)
        if target is None or len(target) < span:
            target = np.empty((span, *array.shape[1:]), array.dtype)
        arrays[name] = np.concatenate(segments(array, first, span), out=target[:span])
    return ItemState(
        len(items.rows),
        items.ring.copy(),
        float(items.common[PRIORITY_OF_ALL]),
        items.common_window.copy(),
        arrays,
    )


def segments(array: NDArray[Any], first: int, span: int) -> list[NDArray[Any]]:
    """Returns the parts of an array by slot that hold `span` items from slot `first` on, in the order of the ring."""
    until_end = min(span, len(array) - first)
    return [array[first : first + until_end], array[: span - until_end]]


def fill_ring(array: NDArray[Any], first: int, values: NDArray[Any]) -> None:
    """Copies values in the order of the ring into an array by slot, from slot `first` on."""
    done = 0
    for part in segments(array, first, len(values)):
        part[:] = values[done : done + len(part)]
        done += len(part)


def empty_memory(capacity: int, names: set[str], sampler: Selector, remover: Selector) -> ItemMemory:
    """Returns the arrays of a ring for saved arrays of these names; the selectors may be others than then."""
    has_windows, has_priorities = "windows" in names, "priorities" in names
    shape = shape_for(sampler, remover, capacity, with_windows=has_windows, with_priorities=has_priorities)
    return new_items(shape, sampler, remover)


def finish_items(items: ItemArrays, state: ItemState, names: set[str]) -> None:
    """Fills in the values that hold for all items, and the arrays that were not saved. Indexes stay empty.

    Args:
        items: empty but for the arrays `names`.
        state: without arrays.
        names: of the arrays that were saved.
    """
    first, span = int(state.ring[FIRST]), int(state.ring[SPAN])
    items.common[PRIORITY_OF_ALL] = state.priority
    items.common_window[:] = state.window
    for word in range(len(state.ring)):
        if word not in (SAMPLER_KIND, REMOVER_KIND):
            items.ring[word] = state.ring[word]
    if len(items.priorities) and "priorities" not in names:
        for part in segments(items.priorities, first, span):
            part[:] = state.priority
    if len(items.last_updates) and LAST_UPDATES not in names:
        # The order of the last updates was not needed before: it is that of insertion.
        fill_ring(items.last_updates, first, np.arange(span))
        items.ring[CHANGES] = span
