"""What kernels that change a table are given: one array of handles for its items, its store and room to work in."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from headrace.replay.item_memory import ItemMemory, open_items
from headrace.replay.items import ONE_ROW, WINDOW_WORDS, Items, Scratch
from headrace.store.handles import Handles, opened
from headrace.store.jit import Int, opening
from headrace.store.layout import StoreArrays
from headrace.store.memory import open_store
from headrace.store.store import Store

# The places of the arrays; SCRATCH is the first of several.
_STORE_MEMORY, _STORE_PLACES, _NUMBERS, _ONE_ROW, _ITEM_MEMORY, _ITEM_PLACES, _SCRATCH = range(7)
_ALL = 10
# The numbers.
_PAGE_ROWS, _MAX_SIZE = range(2)
_NOTHING: NDArray[Any] = np.zeros(0, np.int64)


class TableHandles:
    """The handles of a table, which its ring keeps up to date.

    Args:
        store: whose pages the items hold.

    Attributes:
        words: int64[...], for `open_store_of`, `open_items_of` and what else is below.
    """

    def __init__(self, store: Store) -> None:
        self._numbers = np.array([store.arrays.page_rows, 0], np.int64)
        later = [_NOTHING] * (_ALL - _ITEM_MEMORY)
        self._handles = Handles(store.memory, store.places, self._numbers, ONE_ROW, *later)
        self.words = self._handles.words

    def use(self, memory: ItemMemory) -> None:
        """The items are in this memory now."""
        self._handles.replace(_ITEM_MEMORY, memory.memory, memory.places)

    def use_scratch(self, scratch: Scratch) -> None:
        """Kernels work in this room now."""
        self._handles.replace(_SCRATCH, *scratch)

    def limit(self, max_size: int) -> None:
        """Kernels that insert take victims when there are more items than this."""
        self._numbers[_MAX_SIZE] = max_size


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
    return opened(table, _NUMBERS, np.int64)[_MAX_SIZE]


@opening
def open_one_row_of(table: NDArray[np.int64]) -> NDArray[np.uint32]:
    """The window of items that are one row, uint32[1, 3]."""
    return opened(table, _ONE_ROW, np.uint32).reshape((1, WINDOW_WORDS))
