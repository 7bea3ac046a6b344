"""A table's items with arrays that grow: they are replaced by larger ones when they are full or mostly holes."""

from __future__ import annotations

import logging
from typing import Any

import numpy as np
from numpy.typing import NDArray

from headrace.errors import StoreFull
from headrace.kernels.numbers import Numbers
from headrace.store.store import Store
from headrace.tables.description.selectors import Selector
from headrace.tables.item_memory import ItemMemory, ItemShape, new_items, shape_for, with_selectors
from headrace.tables.item_state import ItemState, arrays_by_name, buffers_for_copy, state_of
from headrace.tables.items import changing, compaction, drawing, passes
from headrace.tables.items.items import Items
from headrace.tables.items.layout import (
    COUNTER_WORDS,
    FLAGS,
    HAS_SEQUENCES,
    LARGEST_PRIORITY,
    LIVE,
    MAX_SIZE,
    NO_PRIORITIES,
    NO_SLOT,
    NO_WINDOWS,
    PRIORITIZED,
    SPAN,
    UNIFORM,
    UNIQUE,
)

_LOGGER = logging.getLogger(__name__)
_SMALLEST = 1024


class GrowingItems:
    """Items in the order of insertion, in arrays that grow. The replay's lock is held throughout.

    Args:
        store: whose pages the items hold.
        max_size: the largest number of items.
        sampler, remover: descriptions of the selectors.
        random: the replay's generator.
        loaded: the items to begin with, whose arrays are used further; None for none.

    Attributes:
        items: the items for kernels.
        arrays: the arrays of `items`; those with one entry for each item or for all may be read and written.
        memory: where the arrays lie.
    """

    def __init__(
        self,
        store: Store,
        max_size: int,
        sampler: Selector,
        remover: Selector,
        random: np.random.Generator,
        loaded: ItemMemory | None = None,
    ) -> None:
        self._store = store
        # Parameters and counters of kernels; they outlive the arrays.
        self._counters = np.zeros(COUNTER_WORDS, np.int64)
        self._set_max_size(max_size)
        self._sampler = sampler
        self._remover = remover
        self._random = random
        self._numbers = Numbers(random)
        self._open(loaded)

    def _open(self, loaded: ItemMemory | None) -> None:
        if loaded is None:
            capacity = min(_SMALLEST, self.max_size + 1)
            self._use(self._new(shape_for(self._sampler, self._remover, capacity)))
        else:
            self._use(with_selectors(loaded, self._sampler, self._remover))

    def _new(self, shape: ItemShape) -> ItemMemory:
        """Returns empty arrays."""
        return new_items(shape, self._sampler, self._remover)

    def _use(self, memory: ItemMemory) -> None:
        """Goes on with these arrays."""
        items = self._items_in(memory)
        # No call from here on, after which Ctrl-C could come (test_interrupts.py).
        self.items = items
        self.arrays = memory.arrays
        self.memory = memory

    def _items_in(self, memory: ItemMemory) -> Items:
        return Items(memory.arrays, self._store.pins, self._numbers, self._counters)

    def _set_max_size(self, max_size: int) -> None:
        self.max_size = max_size
        self._counters[MAX_SIZE] = max_size

    # ---- properties ------------------------------------------------------------------------------------------------

    def __len__(self) -> int:
        return self.items.live

    @property
    def unique(self) -> int:
        """Items sampled at least once since the last reset."""
        return int(self.arrays.ring[UNIQUE])

    @property
    def has_sequences(self) -> bool:
        """Whether some item was more than one row since the last reset."""
        return bool(self.arrays.ring[FLAGS] & HAS_SEQUENCES)

    @property
    def has_windows(self) -> bool:
        """Whether each item has a window of its own; otherwise `window` is that of all."""
        return self.memory.shape.with_windows

    @property
    def window(self) -> NDArray[np.uint32]:
        """uint32[3]: the window of all items while they agree."""
        return self.arrays.common_window

    @property
    def total_weight(self) -> float | None:
        """Sum of the sampler's weights of the items; None for a sampler without weights."""
        sampler = self.arrays.sampler
        if sampler.kind == PRIORITIZED:
            return self.items.sampler.tree.total()
        return float(len(self)) if sampler.kind == UNIFORM else None

    @property
    def nbytes(self) -> int:
        """Bytes of the arrays."""
        flat = self.arrays
        arrays: list[NDArray[Any]] = [flat.records, flat.priorities, flat.windows, flat.last_updates]
        for index in (flat.sampler, flat.remover):
            arrays += [index.nodes, index.heap_slots, index.heap_positions]
        return sum(array.nbytes for array in arrays)

    def priorities_of(self, new: NDArray[np.float64]) -> NDArray[np.float64]:
        """Returns the priorities of new items; an empty array stands for the largest so far, as float64[1]."""
        return new if len(new) else self.arrays.ring.view(np.float64)[LARGEST_PRIORITY : LARGEST_PRIORITY + 1]

    def supply(self, max_times: int) -> int:
        """Returns the number of further samples that the items allow."""
        # Rules: replay L6
        return drawing.supply(self.items, max_times)

    def keys_sampled(self, times: int) -> NDArray[np.uint64]:
        """Returns the keys of items that were sampled at least `times` times."""
        live = self._live_slots()
        keys: NDArray[np.uint64] = self.arrays.keys[live[self.arrays.times[live] >= times]]
        return keys

    def all_keys(self) -> NDArray[np.uint64]:
        """Returns the keys of all items, in the order of insertion."""
        keys: NDArray[np.uint64] = self.arrays.keys[self._live_slots()]
        return keys

    def keys_that_remain(self, keys: NDArray[np.uint64]) -> NDArray[np.uint64]:
        """Returns those of some keys that have an item, in their order."""
        found: NDArray[np.uint64] = self.arrays.keys[self._found_slots(keys)]
        return found

    def place_of(self, key: int) -> tuple[int, NDArray[np.uint32]] | None:
        """Returns the first row and the window of an item; None if it has left."""
        slots = self._found_slots(np.array([key], np.uint64))
        if not len(slots):
            return None
        windows = self.arrays.windows
        return int(self.arrays.rows[slots[0]]), (windows[slots[0]] if len(windows) else self.window).copy()

    def _found_slots(self, keys: NDArray[np.uint64]) -> NDArray[np.int64]:
        """Returns the slots of those keys that have an item, one for each entry."""
        slots = np.empty(len(keys), np.int64)
        return slots[: changing.find_keys(self.items, keys, slots)]

    def _live_slots(self) -> NDArray[np.int64]:
        """Returns the slots of all items, in the order of insertion."""
        slots = np.empty(len(self), np.int64)
        passes.live_slots(self.items, slots)
        return slots

    # ---- copies ----------------------------------------------------------------------------------------------------

    def buffers_for_copy(self) -> dict[str, NDArray[Any]]:
        """Returns arrays for `copy`; needs no lock, since making them takes longer than filling them."""
        return buffers_for_copy(arrays_by_name(self.arrays))

    def copy(self, buffers: dict[str, NDArray[Any]]) -> ItemState:
        """Returns a copy of all that another ring needs to continue as this one would."""
        return state_of(self.arrays, buffers)

    # ---- growth ----------------------------------------------------------------------------------------------------

    def _remove_obstacle(self, stopped: int) -> None:
        """Makes the arrays that a kernel lacked when it stopped for this reason.

        Raises:
            StoreFull: there is no memory for larger arrays; the present ones stay as they are.
        """
        if stopped == NO_SLOT:
            self._grow()
        elif stopped == NO_WINDOWS:
            self._replace(with_windows=True)
        elif stopped == NO_PRIORITIES:
            self._replace(with_priorities=True)

    def _grow(self) -> None:
        """Closes the holes, and grows if the ring would still be nearly full."""
        ring, capacity = self.arrays.ring, self.items.capacity
        # Without holes one slot more than max_size is enough; with holes a quarter more keeps the moves rare.
        most = self.max_size + 1 if ring[SPAN] == ring[LIVE] else self.max_size + self.max_size // 4 + 64
        grown = capacity if ring[LIVE] <= capacity * 3 // 4 else max(capacity, min(2 * capacity, most))
        self._replace(capacity=max(grown, int(ring[LIVE]) + 1))

    def _close_holes(self) -> None:
        """Keeps at least half of the slots live: a uniform draw hits an item at every second try or better."""
        ring = self.arrays.ring
        if ring[SPAN] > 2 * ring[LIVE] + 64:
            try:
                self._replace()
            except StoreFull as error:
                # The call itself is done, so this is not an error of it.
                _LOGGER.warning("holes between items stay for now: %s", error)

    def _replace(self, **changes: Any) -> None:
        """Moves the items to new arrays, whose shape has these changes; without changes it closes the holes."""
        self._move_to(self.memory.shape._replace(**changes))

    def _move_to(self, shape: ItemShape) -> None:
        new = self._new(shape)
        compaction.move_items(self.items, self._items_in(new))
        self._use(new)
