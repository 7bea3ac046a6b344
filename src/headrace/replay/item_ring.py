"""A table's items with room to grow: the arrays of `ItemArrays`, made anew when they are full or mostly holes."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from headrace.errors import StoreFull
from headrace.kernels.numbers import Numbers
from headrace.replay.item_memory import ItemMemory, ItemShape, new_items, shape_for, with_selectors
from headrace.replay.item_state import ItemState, arrays_by_name, room_for_copy, state_of
from headrace.replay.selectors import Selector
from headrace.store.block import LaneBlock, Seam
from headrace.store.room import stored_without_items
from headrace.store.store import Store
from headrace.tables import changing, drawing, inserting, moving
from headrace.tables.appending import append_and_cut, append_seam_and_cut
from headrace.tables.changing import unpin_items
from headrace.tables.cutting import Cutter
from headrace.tables.items import Items
from headrace.tables.layout import (
    DEAD,
    FIRST,
    HAS_SEQUENCES,
    INSERTED,
    LIVE,
    MAX_SIZE,
    ONE_ROW,
    PRIORITIZED,
    SAMPLED,
    SPAN,
    TOLD_WORDS,
    UNIFORM,
    UNIQUE,
)

if TYPE_CHECKING:
    from headrace.replay.quick import QuickBatches

_LOGGER = logging.getLogger(__name__)
_SMALLEST = 1024
_NO_NUMBERS = np.zeros(0, np.float64)


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
        # What kernels are told and count; it outlives the arrays.
        self._told = np.zeros(TOLD_WORDS, np.int64)
        self._set_max_size(max_size)
        self._sampler = sampler
        self._remover = remover
        self._random = random
        self._numbers = Numbers(random)
        self._random_victims = remover.kind in (UNIFORM, PRIORITIZED)
        self._random_draws = sampler.kind in (UNIFORM, PRIORITIZED)
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
        return int(self.arrays.ring[LIVE])

    @property
    def inserted(self) -> int:
        """How many items went in ever; up to date after any error, Ctrl-C included."""
        return int(self._told[INSERTED])

    @property
    def sampled(self) -> int:
        """How many items were drawn ever; up to date after any error, Ctrl-C included."""
        return int(self._told[SAMPLED])

    @property
    def unique(self) -> int:
        """Items sampled at least once since the last reset."""
        return int(self.arrays.ring[UNIQUE])

    @property
    def has_sequences(self) -> bool:
        """Whether some item was more than one row since the last reset."""
        return bool(self.arrays.ring[HAS_SEQUENCES])

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
        pins: int = 0,
    ) -> int:
        """Insert items; returns how many left for them.

        Args:
            first_key: of the first; the others follow.
            rows: int64[M].
            windows: uint32[M, 3], or uint32[1, 3] for all.
            priorities: float64[M], or float64[1] for all.
            pins: references that each item still has to take on its page: 0, or 1 for items of one row.
        """
        left = 0
        while True:
            uniforms = self._random.random(2 * len(rows) + 8) if self._random_victims else _NO_NUMBERS
            done, gone, stopped = inserting.insert_into(
                self._table, first_key, rows, windows, priorities, pins, uniforms
            )
            left += int(gone)
            if stopped == inserting.DONE:
                return left
            first_key += done
            rows = rows[done:]
            windows = windows[done:] if len(windows) > 1 else windows
            priorities = priorities[done:] if len(priorities) > 1 else priorities
            self._remove_obstacle(stopped)

    def append_step(self, block: LaneBlock, first_key: int, priorities: NDArray[np.float64]) -> int:
        """Commit a block's step and insert an item of each of its rows; returns how many items left for them."""
        uniforms = self._random.random(2 * block.lanes + 8) if self._random_victims else _NO_NUMBERS
        try:
            done, left, stopped = inserting.append_step(
                self._table, block.handles, block.row_to_commit(), first_key, priorities, uniforms
            )
            block.committed()
        except BaseException:
            block.catch_up()
            raise
        if stopped == inserting.DONE:
            return int(left)
        rows = block.newest_rows
        return int(left) + self._insert_rest(stopped, done, first_key, rows, ONE_ROW, priorities, 1)

    def append_and_cut(self, block: LaneBlock, cutter: Cutter, first_key: int) -> int:
        """Commit a block's step and insert the items that it completes; returns how many items left for them.

        Args:
            cutter: with room for one window of each lane; its `out` tells which were completed.
        """
        uniforms = self._random.random(2 * block.lanes + 8) if self._random_victims else _NO_NUMBERS
        try:
            done, left, stopped = append_and_cut(
                self._table, block.handles, cutter.handles, block.row_to_commit(), first_key, uniforms
            )
            block.committed()
        except BaseException:
            block.catch_up()
            raise
        if stopped == inserting.DONE:
            return int(left)
        out = cutter.out
        rows = out.rows[: out.total[0]]
        return int(left) + self._insert_rest(
            stopped, done, first_key, rows, out.shapes[:1], cutter.priorities
        )

    def append_seam_and_cut(self, block: LaneBlock, seam: Seam, cutter: Cutter, first_key: int) -> int:
        """Does the same as `append_and_cut`, where some lanes hold nothing and the episodes of some end.

        Args:
            cutter: with room for all the windows.
        """
        uniforms = self._random.random(2 * block.lanes + 8) if self._random_victims else _NO_NUMBERS
        try:
            done, left, stopped = append_seam_and_cut(
                self._table,
                block.handles,
                cutter.handles,
                block.row_to_commit(),
                first_key,
                uniforms,
                block.no_lanes,
                *seam,
                block.steps_committed + 1,
            )
            block.committed()
        except BaseException:
            block.catch_up()
            raise
        if stopped == inserting.DONE:
            return int(left)
        out = cutter.out
        rows = out.rows[: out.total[0]]
        windows = out.shapes[: out.total[0]] if len(seam.ended) else out.shapes[:1]
        return int(left) + self._insert_rest(stopped, done, first_key, rows, windows, cutter.priorities)

    def _commit_and_cut(self, block: LaneBlock, seam: Seam, cutter: Cutter) -> None:
        """The part of `append_seam_and_cut` that leaves the items as they are."""
        store, (found, shapes, lanes, total) = self._store, cutter.out
        carve = (store.memory, store.places, store.arrays.page_rows)
        total[0] = 0
        block.commit_idle(seam.idle)
        page = block.last // store.arrays.page_rows
        cut_block_in(*carve, page, *cutter.cut, found, shapes, lanes, total)
        if len(seam.ended):
            block.commit_finals(seam.ended, seam.first)
            rows = block.last + seam.ended
            cut_finals_in(*carve, rows, seam.ended, *cutter.cut, found, shapes, lanes, total)

    def _insert_rest(
        self,
        stopped: int,
        done: int,
        first_key: int,
        rows: NDArray[np.int64],
        windows: NDArray[np.uint32],
        priorities: NDArray[np.float64],
        pins: int = 0,
    ) -> int:
        """Go on where a kernel stopped that had committed a step and inserted `done` of its items; see `insert`."""
        rest, of_rest = rows[done:], windows[done:] if len(windows) > 1 else windows
        before = self.inserted - done
        try:
            self._remove_obstacle(stopped)
            return ItemRing.insert(self, first_key + done, rest, of_rest, priorities, pins)
        except StoreFull as error:
            inserted = self.inserted - before
            missing = windows[inserted:] if len(windows) > 1 else windows
            raise self._items_refused(error, rows[inserted:], missing, pins) from error.__cause__

    def _items_refused(
        self, error: StoreFull, rows: NDArray[np.int64], windows: NDArray[np.uint32], pins: int
    ) -> StoreFull:
        """The error of a step that is stored, of which these items are not."""
        if not pins:
            unpin_items(self._store.pins, rows, windows)
        return stored_without_items(error, len(rows))

    def _remove_obstacle(self, stopped: int) -> None:
        """Let a kernel go on that stopped for this.

        Raises:
            StoreFull: there is no memory for larger arrays; those there are stay as they are.
        """
        if stopped == inserting.NO_SLOT:
            self._make_room()
        elif stopped == inserting.NO_WINDOWS:
            self._replace(len(self.arrays.rows), with_windows=True)
        elif stopped == inserting.NO_PRIORITIES:
            self._replace(len(self.arrays.rows), with_priorities=True)

    def shrink_to(self, max_size: int) -> int:
        """Set another largest size; returns how many items left at once."""
        before = self.max_size
        self._set_max_size(max_size)
        try:
            left = self.insert(0, np.zeros(0, np.int64), self.arrays.common_window[None], self.arrays.common)
        except BaseException:
            self._set_max_size(before)
            raise
        self._close_holes()
        return left

    def remove(self, keys: NDArray[np.uint64]) -> int:
        """Remove the items of these keys; returns how many there were."""
        slots = np.empty(len(keys), np.int64)
        found = changing.find_keys(self.items, keys, slots)
        slots = np.unique(slots[:found])
        changing.remove(self.items, slots)
        self._close_holes()
        return len(slots)

    def clear(self) -> None:
        """Remove all items, and forget which were sampled and that any had several rows."""
        changing.remove(self.items, self._live_slots())
        self.arrays.ring[UNIQUE] = self.arrays.ring[HAS_SEQUENCES] = 0

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
        moving.move_items(self.items, self._items_in(new))
        self._use(new)

    # ---- drawing ---------------------------------------------------------------------------------------------------

    def draw(
        self,
        keys: NDArray[np.uint64],
        integers: NDArray[np.int64],
        floats: NDArray[np.float64],
        max_times: int,
    ) -> tuple[NDArray[np.uint32], int]:
        """Draw a batch into the arrays (see `drawing.take`); the caller has made sure that it can be served.

        Returns:
            The windows, uint32[B, 3], or uint32[3] if all agree; and how many items left, sampled `max_times` times.
        """
        if max_times:
            return self._draw_and_remove(keys, integers, floats, max_times)
        drawn = 0
        while drawn < len(keys):
            uniforms = self._random.random(len(keys) - drawn) if self._random_draws else _NO_NUMBERS
            drawn = drawing.draw_from(self._table, drawn, uniforms, keys, integers, floats)
        return self._windows_of(integers[drawing.SLOT]), 0

    def draw_quick(self, quick: QuickBatches) -> tuple[NDArray[np.uint8], int] | None:
        """Draw a batch and copy its records; see `QuickBatches.sample`."""
        return quick.sample(self._table, self._numbers)

    def draw_distinct(
        self,
        keys: NDArray[np.uint64],
        integers: NDArray[np.int64],
        floats: NDArray[np.float64],
        max_times: int,
    ) -> tuple[NDArray[np.uint32], int]:
        """As `draw`, uniformly, every item at most once."""
        # Rules: replay S7
        count = len(keys)
        integers[drawing.SLOT] = self._distinct_slots(count)
        floats[drawing.PROBABILITY] = 1.0 / len(self)
        drawing.take_from(self._table, 0, count, keys, integers, floats)
        windows = self._windows_of(integers[drawing.SLOT])
        if not max_times:
            return windows, 0
        spent = integers[drawing.TIMES] >= max_times
        # Each removal makes the table smaller for the draws after it (replay L5).
        gone = np.cumsum(spent) - spent
        integers[drawing.SIZE] -= gone
        floats[drawing.PROBABILITY] = 1.0 / integers[drawing.SIZE]
        gone_slots = integers[drawing.SLOT][spent]
        changing.remove(self.items, gone_slots)
        self._close_holes()
        return windows, int(spent.sum())

    def _draw_and_remove(
        self,
        keys: NDArray[np.uint64],
        integers: NDArray[np.int64],
        floats: NDArray[np.float64],
        max_times: int,
    ) -> tuple[NDArray[np.uint32], int]:
        windows = np.zeros((len(keys) if self.has_windows else 0, 3), np.uint32)
        drawn = removed = 0
        while drawn < len(keys):
            uniforms = self._random.random(2 * (len(keys) - drawn)) if self._random_draws else _NO_NUMBERS
            drawn, gone = drawing.draw_and_remove(
                self._table, max_times, drawn, uniforms, keys, integers, floats, windows
            )
            removed += gone
            self._close_holes()
        return (windows if len(windows) else self.window), removed

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

    def _live_slots(self) -> NDArray[np.int64]:
        """The slots of all items, in the order of insertion."""
        slots = np.empty(len(self), np.int64)
        moving.live_slots(self.items, slots)
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
