"""A table's items with room to grow: the arrays of `ItemArrays`, made anew when they are full or mostly holes."""

from __future__ import annotations

import logging
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from headrace.errors import StoreFull
from headrace.kernels.numbers import Numbers
from headrace.store.block import LaneBlock, Seam
from headrace.store.memory.out_of_space import stored_without_items
from headrace.store.store import Store
from headrace.tables.description.selectors import Selector
from headrace.tables.item_memory import ItemMemory, ItemShape, new_items, shape_for, with_selectors
from headrace.tables.item_state import ItemState, arrays_by_name, room_for_copy, state_of
from headrace.tables.items import appending, changing, compaction, drawing, inserting
from headrace.tables.items.changing import unpin_items
from headrace.tables.items.items import Items
from headrace.tables.items.layout import (
    DEAD,
    DONE,
    FIRST,
    FLAGS,
    HAS_KEY_INDEX,
    HAS_SEQUENCES,
    LIVE,
    MAX_SIZE,
    NO_PRIORITIES,
    NO_SLOT,
    NO_WINDOWS,
    ONE_ROW,
    SIZE,
    SLOT,
    SPAN,
    TIMES,
    TOLD_WORDS,
    UNIQUE,
)
from headrace.tables.windows.cutting import Cutter

_LOGGER = logging.getLogger(__name__)
_SMALLEST = 1024
NO_KEYS = np.zeros(0, np.uint64)


class FusedBatch(Protocol):
    """Batches of one shape, whose items are drawn and whose records are copied in one call."""

    @property
    def batch(self) -> int:
        """The number of items of a batch."""

    def sample(self, items: Items) -> tuple[NDArray[np.uint8], int] | None:
        """Draws a batch.

        Args:
            items: of the table.

        Returns:
            The batch's memory and the number of unknown places in it; None if the items have other windows, and nothing
            is drawn.
        """


class ItemRing:
    """Items in the order of insertion, with their sampler's and remover's index. The replay's lock is held throughout.

    Args:
        store: whose pages the items hold.
        max_size: the most items.
        sampler, remover: descriptions of the selectors.
        random: the replay's generator.
        loaded: what is in it from the beginning, which the ring makes its own; None for nothing.

    Attributes:
        items: what kernels are given.
        arrays: the arrays of that; of one item or all, they may be read and written here.
        memory: where they lie.
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
        self._told = np.zeros(TOLD_WORDS, np.int64)
        self._set_max_size(max_size)
        self._sampler = sampler
        self._remover = remover
        self._random = random
        self._numbers = Numbers(random)
        self._open(loaded)

    def _open(self, loaded: ItemMemory | None) -> None:
        if loaded is None:
            capacity = min(_SMALLEST, self.max_size + 1)
            self._use(self._new(capacity, with_windows=False, with_priorities=False))
        else:
            self._use(with_selectors(loaded, self._sampler, self._remover))

    def _shape(self, capacity: int, *, with_windows: bool, with_priorities: bool) -> ItemShape:
        return shape_for(
            self._sampler, self._remover, capacity, with_windows=with_windows, with_priorities=with_priorities
        )

    def _new(self, capacity: int, *, with_windows: bool, with_priorities: bool) -> ItemMemory:
        shape = self._shape(capacity, with_windows=with_windows, with_priorities=with_priorities)
        return new_items(shape, self._sampler, self._remover)

    def _use(self, memory: ItemMemory) -> None:
        items = self._items_in(memory)
        # No call from here on, after which Ctrl-C could come (test_interrupts.py).
        self.items = items
        self.arrays = memory.arrays
        self.memory = memory

    def _items_in(self, memory: ItemMemory) -> Items:
        return Items(memory.arrays, self._store.pins, self._numbers, self._told)

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
        """Whether items have windows of their own; otherwise `window` is everybody's."""
        return len(self.arrays.windows) > 0

    @property
    def window(self) -> NDArray[np.uint32]:
        """uint32[3]: the window of all items, as long as they agree."""
        return self.arrays.common_window

    @property
    def nbytes(self) -> int:
        """Bytes of the arrays."""
        flat = self.arrays
        arrays: list[NDArray[Any]] = [flat.records, flat.priorities, flat.windows, flat.touches]
        for index in (flat.sampler, flat.remover):
            arrays += [index.nodes, index.heap_slots, index.heap_places]
        return sum(array.nbytes for array in arrays)

    def check(self) -> None:
        """Raise `RuntimeError` if a selector of the user's own failed; those of Headrace do not."""

    # ---- inserting and removing ------------------------------------------------------------------------------------

    def insert(
        self,
        first_key: int,
        rows: NDArray[np.int64],
        windows: NDArray[np.uint32],
        priorities: NDArray[np.float64],
        keys: NDArray[np.uint64] = NO_KEYS,
    ) -> None:
        """Insert items; the remover takes others for them where there are too many.

        Args:
            first_key: of the first; the others follow. Above all keys that were inserted before.
            keys: uint64[M], of items whose keys were given out ahead, in place of `first_key`; in any order.
            rows: int64[M].
            windows: uint32[M, 3], or uint32[1, 3] for all.
            priorities: float64[M], or float64[1] for all.

        Raises:
            ValueError: an item has one of these keys, or two of them are the same; nothing has changed.
        """
        if len(keys):
            self._expect_keys(keys)
        while True:
            done, stopped = inserting.insert(
                self.items, first_key, keys, rows, windows.reshape(-1), priorities
            )
            if stopped == DONE:
                return
            first_key += done
            keys = keys[done:]
            rows = rows[done:]
            windows = windows[done:] if len(windows) > 1 else windows
            priorities = priorities[done:] if len(priorities) > 1 else priorities
            self._remove_obstacle(stopped)

    def _expect_keys(self, keys: NDArray[np.uint64]) -> None:
        """Makes a key index if these keys do not rise beyond those that are there."""
        rises = keys[0] > self.items.newest_key() and bool((keys[1:] > keys[:-1]).all())
        if not rises and not self.arrays.ring[FLAGS] & HAS_KEY_INDEX:
            self.items.use_key_index()
        if not rises and (len(self._found_slots(keys)) or len(np.unique(keys)) < len(keys)):
            raise ValueError(f"keys: expected keys of no item, each once, got {keys}")

    def append(self, block: LaneBlock, seam: Seam | None, cutter: Cutter, first_key: int) -> None:
        """Commit a block's step and insert the items that it completes.

        Args:
            block: of the step.
            seam: which lanes hold nothing and which episodes end; None for a transition of every lane.
            cutter: cuts them; its `total` tells how many were completed.
            first_key: of the first item.
        """
        if seam is None:
            done, stopped = appending.append(self.items, block.kernel, cutter, first_key)
        else:
            done, stopped = appending.append_ends(self.items, block.kernel, cutter, first_key, *seam)
        if stopped != DONE:
            rows, shapes = cutter.windows()
            self._insert_rest(
                stopped, done, first_key, rows, shapes if seam else shapes[:1], cutter.priorities
            )

    def _insert_rest(
        self,
        stopped: int,
        done: int,
        first_key: int,
        rows: NDArray[np.int64],
        windows: NDArray[np.uint32],
        priorities: NDArray[np.float64],
    ) -> None:
        """Go on where a kernel stopped that had committed a step and inserted `done` of its items; see `insert`."""
        rest, of_rest = rows[done:], windows[done:] if len(windows) > 1 else windows
        before = self.items.inserted - done
        try:
            self._remove_obstacle(stopped)
            ItemRing.insert(self, first_key + done, rest, of_rest, priorities)
        except StoreFull as error:
            inserted = self.items.inserted - before
            missing = windows[inserted:] if len(windows) > 1 else windows
            raise self._items_refused(error, rows[inserted:], missing) from error.__cause__

    def _items_refused(
        self, error: StoreFull, rows: NDArray[np.int64], windows: NDArray[np.uint32]
    ) -> StoreFull:
        """The error of a step that is stored, of which these items are not."""
        unpin_items(self._store.pins, rows, windows)
        return stored_without_items(error, len(rows))

    def _remove_obstacle(self, stopped: int) -> None:
        """Let a kernel go on that stopped for this.

        Raises:
            StoreFull: there is no memory for larger arrays; those there are stay as they are.
        """
        if stopped == NO_SLOT:
            self._make_room()
        elif stopped == NO_WINDOWS:
            self._replace(self.items.capacity, with_windows=True)
        elif stopped == NO_PRIORITIES:
            self._replace(self.items.capacity, with_priorities=True)

    def shrink_to(self, max_size: int) -> None:
        """Set another largest size; items leave at once."""
        before = self.max_size
        self._set_max_size(max_size)
        try:
            self.insert(0, np.zeros(0, np.int64), ONE_ROW, np.zeros(1))
        except BaseException:
            self._set_max_size(before)
            raise
        self._close_holes()

    def remove(self, keys: NDArray[np.uint64]) -> int:
        """Remove the items of these keys; returns how many there were."""
        slots = np.unique(self._found_slots(keys))
        changing.remove(self.items, slots)
        self._close_holes()
        return len(slots)

    def clear(self) -> None:
        """Remove all items, and forget which were sampled and that any had several rows."""
        changing.remove(self.items, self._live_slots())
        self.items.forget_keys()
        self.arrays.ring[UNIQUE] = self.arrays.ring[FLAGS] = 0

    def update(self, keys: NDArray[np.uint64], priorities: NDArray[np.float64]) -> int:
        """Set priorities; returns how many entries named an item that is there."""
        if not self.arrays.priorities.shape[0]:
            self._replace(self.arrays.rows.shape[0], with_priorities=True)
        return changing.update(self.items, keys, priorities)

    # ---- copies ----------------------------------------------------------------------------------------------------

    def room_for_copy(self) -> dict[str, NDArray[Any]]:
        """Arrays for `copy`; made without the lock, since making them takes longer than filling them."""
        return room_for_copy(arrays_by_name(self.arrays))

    def copy(self, room: dict[str, NDArray[Any]]) -> ItemState:
        """All that another ring needs to go on as this one would."""
        return state_of(self.arrays, room)

    # ---- room ------------------------------------------------------------------------------------------------------

    def _make_room(self) -> None:
        """Close the holes, and grow if the ring would still be nearly full."""
        ring, capacity = self.arrays.ring, self.arrays.rows.shape[0]
        # Without holes one slot more than max_size is enough; with holes a quarter more keeps the moves rare.
        most = self.max_size + 1 if ring[SPAN] == ring[LIVE] else self.max_size + self.max_size // 4 + 64
        grown = capacity if ring[LIVE] <= capacity * 3 // 4 else max(capacity, min(2 * capacity, most))
        self._replace(max(grown, int(ring[LIVE]) + 1))

    def _close_holes(self) -> None:
        """Keep at least half of the slots live: a uniform draw hits an item at every second try or better."""
        ring = self.arrays.ring
        if ring[SPAN] > 2 * ring[LIVE] + 64:
            try:
                self._replace(self.arrays.rows.shape[0])
            except StoreFull as error:
                # Only tidying: what was asked for is done, so this is no error of the call.
                _LOGGER.warning("holes between items stay for now: %s", error)

    def _replace(self, capacity: int, *, with_windows: bool = False, with_priorities: bool = False) -> None:
        new = self._new(
            capacity,
            with_windows=with_windows or self.has_windows,
            with_priorities=with_priorities or len(self.arrays.priorities) > 0,
        )
        compaction.move_items(self.items, self._items_in(new))
        self._use(new)

    # ---- drawing ---------------------------------------------------------------------------------------------------

    def draw(
        self,
        keys: NDArray[np.uint64],
        integers: NDArray[np.int64],
        floats: NDArray[np.float64],
        max_times: int,
    ) -> NDArray[np.uint32]:
        """Draw a batch into the arrays (see `drawing.take`); the caller has made sure that it can be served.

        Returns:
            The windows, uint32[B, 3], or uint32[3] if all agree.
        """
        if max_times:
            return self._draw_and_remove(keys, integers, floats, max_times)
        drawing.draw(self.items, keys, integers, *floats)
        return self._windows_of(integers[SLOT])

    def draw_fused(self, batch: FusedBatch) -> tuple[NDArray[np.uint8], int] | None:
        """Draw a batch and copy its records; see `FusedBatch.sample`."""
        return batch.sample(self.items)

    def draw_distinct(
        self,
        keys: NDArray[np.uint64],
        integers: NDArray[np.int64],
        floats: NDArray[np.float64],
        max_times: int,
    ) -> NDArray[np.uint32]:
        """Draws like `draw`, uniformly, each item at most once."""
        # Rules: replay S7
        count = len(keys)
        probabilities, priorities = floats
        integers[SLOT] = self._distinct_slots(count)
        probabilities[:] = 1.0 / len(self)
        drawing.take(self.items, 0, count, keys, integers, priorities)
        windows = self._windows_of(integers[SLOT])
        if not max_times:
            return windows
        spent = integers[TIMES] >= max_times
        # Each removal makes the table smaller for the draws after it (replay L5).
        gone = np.cumsum(spent) - spent
        integers[SIZE] -= gone
        probabilities[:] = 1.0 / integers[SIZE]
        changing.remove(self.items, integers[SLOT][spent])
        self._close_holes()
        return windows

    def _draw_and_remove(
        self,
        keys: NDArray[np.uint64],
        integers: NDArray[np.int64],
        floats: NDArray[np.float64],
        max_times: int,
    ) -> NDArray[np.uint32]:
        windows = np.zeros((len(keys) if self.has_windows else 0, 3), np.uint32)
        probabilities, priorities = floats
        drawing.draw_and_remove(self.items, max_times, keys, integers, probabilities, priorities, windows)
        self._close_holes()
        return windows if len(windows) else self.window

    def _windows_of(self, slots: NDArray[np.int64]) -> NDArray[np.uint32]:
        return self.arrays.windows[slots] if self.has_windows else self.window

    def _distinct_slots(self, count: int) -> NDArray[np.int64]:
        """Draws slots of different items, every sequence of them with the same chance.

        Places are drawn in random order and those of items that left are passed over: no list of the items is needed.
        """
        ring, rows = self.arrays.ring, self.arrays.rows
        span, live = int(ring[SPAN]), int(ring[LIVE])
        wanted = count
        while True:
            places = self._random.choice(span, wanted, replace=False)
            slots: NDArray[np.int64] = (ring[FIRST] + places) % len(rows)
            if span > live:
                slots = slots[rows[slots] != DEAD]
            if len(slots) >= count:
                return slots[:count]
            # At least half of the places are items, or nearly so (`_close_holes`).
            wanted = min(span, max(2 * wanted, count * span // live + 8))

    def _found_slots(self, keys: NDArray[np.uint64]) -> NDArray[np.int64]:
        """The slots of those keys that are there, one for each entry."""
        slots = np.empty(len(keys), np.int64)
        return slots[: changing.find_keys(self.items, keys, slots)]

    def _live_slots(self) -> NDArray[np.int64]:
        """The slots of all items, in the order of insertion."""
        slots = np.empty(len(self), np.int64)
        compaction.live_slots(self.items, slots)
        return slots

    def _set_max_size(self, max_size: int) -> None:
        self.max_size = max_size
        self._told[MAX_SIZE] = max_size

    def keys_sampled(self, times: int) -> NDArray[np.uint64]:
        """The keys of items that were sampled at least so often."""
        live = self._live_slots()
        keys: NDArray[np.uint64] = self.arrays.keys[live[self.arrays.times[live] >= times]]
        return keys

    def supply(self, max_times: int) -> int:
        """How many more samples the items allow."""
        # Rules: replay L6
        return drawing.supply(self.items, max_times)
