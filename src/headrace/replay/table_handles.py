"""What kernels that change a table are given: one array of handles for its items, its store and room to work in."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from headrace.replay.item_memory import ItemMemory, open_items
from headrace.replay.items import ONE_ROW, WINDOW_WORDS, Items, Scratch
from headrace.store.handles import handles_of, opened
from headrace.store.jit import Int, kernel, opening
from headrace.store.layout import StoreArrays
from headrace.store.memory import open_store
from headrace.store.store import Store

# The places of the arrays; SCRATCH is the first of several.
_STORE_MEMORY, _STORE_PLACES, _NUMBERS, _ONE_ROW, _ITEM_MEMORY, _ITEM_PLACES, _SCRATCH = range(7)
ITEMS = slice(_ITEM_MEMORY, _SCRATCH)
"""The places of what `item_handles` gives."""
ROOM = slice(_SCRATCH, _SCRATCH + len(Scratch._fields))
"""The places of the handles of a `Scratch`."""
# The numbers of `new_numbers`.
_PAGE_ROWS, MAX_SIZE, INSERTED, SAMPLED = range(4)
_NOTHING: NDArray[Any] = np.zeros(0, np.int64)


def new_numbers(store: Store) -> NDArray[np.int64]:
    """Rows of a page, the most items (MAX_SIZE), and how many were inserted (INSERTED) and sampled (SAMPLED) ever.

    Kernels count what they insert and draw by themselves: so it is known after Ctrl-C too, whose error comes in place
    of what a kernel returns.
    """
    return np.array([store.arrays.page_rows, 0, 0, 0], np.int64)


def table_handles(store: Store, numbers: NDArray[np.int64]) -> NDArray[np.int64]:
    """Handles, int64[arrays, 2], for `open_store_of`, `open_items_of` and what else is below.

    Those of the items and of the room to work in are still to be assigned, at ITEMS and ROOM.
    """
    later = [_NOTHING] * (ROOM.stop - ITEMS.start)
    return handles_of(store.memory, store.places, numbers, ONE_ROW, *later)


def item_handles(memory: ItemMemory) -> NDArray[np.int64]:
    """The handles of the items."""
    return handles_of(memory.memory, memory.places)


@opening
def open_memory_of(table: NDArray[np.int64]) -> tuple[NDArray[np.uint8], NDArray[np.int64]]:
    """The memory and the places of the store."""
    places = opened(table, _STORE_PLACES, np.int64)
    return opened(table, _STORE_MEMORY, np.uint8), places.reshape((places.shape[0] // 2, 2))


@opening
def open_store_of(table: NDArray[np.int64]) -> StoreArrays:
    """The store."""
    memory, places = open_memory_of(table)
    return open_store(memory, places, opened(table, _NUMBERS, np.int64)[_PAGE_ROWS])


@opening
def open_items_of(table: NDArray[np.int64]) -> Items:
    """The items."""
    places = opened(table, _ITEM_PLACES, np.int64)
    return open_items(opened(table, _ITEM_MEMORY, np.uint8), places.reshape((places.shape[0] // 2, 2)))


@opening
def open_scratch_of(table: NDArray[np.int64]) -> Scratch:
    """The room to work in."""
    return Scratch(
        opened(table, _SCRATCH, np.int64),
        opened(table, _SCRATCH + 1, np.int64),
        opened(table, _SCRATCH + 2, np.int64),
        opened(table, _SCRATCH + 3, np.float64),
    )


@opening
def max_size_of(table: NDArray[np.int64]) -> Int:
    """The most items."""
    return opened(table, _NUMBERS, np.int64)[MAX_SIZE]


@opening
def open_one_row_of(table: NDArray[np.int64]) -> NDArray[np.uint32]:
    """The window of items that are one row, uint32[1, 3]."""
    return opened(table, _ONE_ROW, np.uint32).reshape((1, WINDOW_WORDS))


@kernel
def count_inserted(table: NDArray[np.int64], count: Int) -> None:
    """So many items more went in."""
    opened(table, _NUMBERS, np.int64)[INSERTED] += count


@kernel
def count_sampled(table: NDArray[np.int64], count: Int) -> None:
    """So many items more were sampled."""
    opened(table, _NUMBERS, np.int64)[SAMPLED] += count
