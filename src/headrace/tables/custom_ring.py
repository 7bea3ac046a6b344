"""Items with a selector that is written in plain Python: each goes in, is chosen and goes out one by one.

The items lie in the same arrays, and the same kernels change them. Only the choice differs: a kernel may serve one
role, and a user's index the other.
"""

from __future__ import annotations

import sys
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from headrace.errors import StoreFull
from headrace.store.store import Store
from headrace.tables.custom_index import CheckedIndex
from headrace.tables.description.selectors import AnySelector, CustomSelector, Selector
from headrace.tables.draw import Draw
from headrace.tables.item_memory import ItemMemory
from headrace.tables.item_ring import ItemRing
from headrace.tables.items import changing, drawing, inserting
from headrace.tables.items.layout import CUSTOM, LIVE, MAX_SIZE, SLOT, TIMES
from headrace.tables.new_items import NewItems

# The kernel that inserts never removes an item here.
_NO_LIMIT = sys.maxsize


class _NoKernel(Selector):
    """Stand-in for a user's selector, for which arrays and kernels keep no data."""

    kind: ClassVar[int] = CUSTOM


def new_ring(
    store: Store,
    max_size: int,
    sampler: AnySelector,
    remover: AnySelector,
    random: np.random.Generator,
    loaded: ItemMemory | None = None,
) -> ItemRing:
    """Returns the ring for these selectors; see `ItemRing` for the arguments."""
    if isinstance(sampler, CustomSelector) or isinstance(remover, CustomSelector):
        return CustomRing(store, max_size, sampler, remover, random, loaded)
    return ItemRing(store, max_size, sampler, remover, random, loaded)


class CustomRing(ItemRing):
    """An `ItemRing` with one or two selectors of the user's own."""

    def __init__(
        self,
        store: Store,
        max_size: int,
        sampler: AnySelector,
        remover: AnySelector,
        random: np.random.Generator,
        loaded: ItemMemory | None = None,
    ) -> None:
        super().__init__(store, max_size, for_kernels(sampler), for_kernels(remover), random, loaded)
        self._customs = (sampler, remover)
        self._use_indexes(*map(_index_of, self._customs))
        live = self._live_slots()
        for slot, key in zip(live.tolist(), self.arrays.keys[live].tolist(), strict=True):
            for index in self._indexes:
                index.insert(key, self.items.priority_of(slot))

    def _use_indexes(self, sampler: CheckedIndex | None, remover: CheckedIndex | None) -> None:
        self._sampler_index, self._remover_index = sampler, remover
        self._indexes = [index for index in (sampler, remover) if index is not None]

    def check(self) -> None:
        """See `ItemRing.check`."""
        for index in self._indexes:
            index.check()

    # ---- inserting and removing ------------------------------------------------------------------------------------

    def insert(self, new: NewItems) -> None:
        """See `ItemRing.insert`; the remover takes an item out after each insertion."""
        self.check()
        self.expect_keys(new.keys)
        self._shrink()
        for number in range(len(new)):
            self._put(new.after(number).until(1))
            self._shrink()

    def _put(self, new: NewItems) -> None:
        """Inserts one item."""
        key = int(new.keys[0]) if len(new.keys) else new.first_key
        priority = float(self.priorities_of(new.priorities)[0])
        # The indexes first: if one raises, the item was not inserted.
        for index in self._indexes:
            index.insert(key, priority)
        done = 0
        while not done:
            done, stopped = inserting.insert(
                self.items, key, new.keys[:0], new.rows, new.windows.reshape(-1), new.priorities
            )
            try:
                self._remove_obstacle(stopped)
            except StoreFull:
                self._forget([key])
                raise

    def _shrink(self) -> None:
        """Lets the remover take items out until there are at most `max_size`."""
        while self.arrays.ring[LIVE] > self.max_size:
            self._take_out(np.array([self._victim()]))

    def _victim(self) -> int:
        if self._remover_index is not None:
            keys, _ = self._remover_index.choose(1, self._random)
            return int(self._slots_of(keys, self._remover_index)[0])
        slot, _ = drawing.choose(self.items, self.items.remover)
        return slot

    def _take_out(self, slots: NDArray[np.int64]) -> None:
        # The indexes first: if one raises, the items were not removed.
        self._forget(self.arrays.keys[slots].tolist())
        changing.remove(self.items, slots)

    def _forget(self, keys: list[int]) -> None:
        for key in keys:
            for index in self._indexes:
                index.remove(key)

    def _set_max_size(self, max_size: int) -> None:
        self.max_size = max_size
        self._counters[MAX_SIZE] = _NO_LIMIT

    def shrink_to(self, max_size: int) -> None:
        """See `ItemRing.shrink_to`."""
        self.check()
        super().shrink_to(max_size)

    def remove(self, keys: NDArray[np.uint64]) -> int:
        """See `ItemRing.remove`."""
        self.check()
        slots = self._found_slots(keys)
        slots = slots[np.sort(np.unique(slots, return_index=True)[1])]
        self._take_out(slots)
        self._close_holes()
        return len(slots)

    def clear(self) -> None:
        """See `ItemRing.clear`; new indexes replace the present ones."""
        for index in self._indexes:
            index.check_uncalled()
        sampler, remover = map(_index_of, self._customs)
        super().clear()
        self._use_indexes(sampler, remover)

    def update(self, keys: NDArray[np.uint64], priorities: NDArray[np.float64]) -> int:
        """See `ItemRing.update`; an index gets every entry, in order."""
        self.check()
        applied = super().update(keys, priorities)
        if applied > 0:
            there = np.isin(keys, self.arrays.keys[self._found_slots(keys)])
            for key, priority in zip(keys[there].tolist(), priorities[there].tolist(), strict=True):
                for index in self._indexes:
                    index.update(key, priority)
        return applied

    # ---- drawing ---------------------------------------------------------------------------------------------------

    def draw(self, draw: Draw, max_times: int) -> None:
        """See `ItemRing.draw`."""
        self.check()
        if self._sampler_index is None:
            super().draw(draw, max_times)
            self._forget_spent(draw, max_times)
        elif max_times:
            self._draw_one_by_one(self._sampler_index, draw, max_times)
        else:
            self._choose(self._sampler_index, draw, 0, len(draw))
            self._fill_windows(draw)

    def draw_distinct(self, draw: Draw, max_times: int) -> None:
        """See `ItemRing.draw_distinct`; the sampler is `Uniform`."""
        self.check()
        super().draw_distinct(draw, max_times)
        self._forget_spent(draw, max_times)

    def _forget_spent(self, draw: Draw, max_times: int) -> None:
        """Removes from the indexes the items that left with these draws."""
        if max_times:
            self._forget(draw.keys[draw.spent(max_times)].tolist())

    def _draw_one_by_one(self, index: CheckedIndex, draw: Draw, max_times: int) -> None:
        windows = self._new_windows(draw)
        for number in range(len(draw)):
            self._choose(index, draw, number, number + 1)
            slot = draw.integers[SLOT, number : number + 1]
            if len(windows):
                windows[number] = self.arrays.windows[slot[0]]
            if draw.integers[TIMES, number] >= max_times:
                self._take_out(slot.copy())
                self._close_holes()

    def _choose(self, index: CheckedIndex, draw: Draw, start: int, stop: int) -> None:
        """Makes the draws `start:stop`."""
        keys, probabilities = index.choose(stop - start, self._random)
        draw.integers[SLOT, start:stop] = self._slots_of(keys, index)
        draw.probabilities[start:stop] = probabilities
        drawing.take(self.items, start, stop, draw.keys, draw.integers, draw.priorities)

    def _slots_of(self, keys: NDArray[np.uint64], index: CheckedIndex) -> NDArray[np.int64]:
        slots = self._found_slots(keys)
        if len(slots) < len(keys):
            gone = keys[~np.isin(keys, self.arrays.keys[slots])]
            raise index.refuse(f"expected keys of items that are there, got {gone[0]}, which is not")
        return slots


def for_kernels(selector: AnySelector) -> Selector:
    """Returns the selector for the arrays and kernels: a stand-in for a user's own selector."""
    return _NoKernel() if isinstance(selector, CustomSelector) else selector


def _index_of(selector: AnySelector) -> CheckedIndex | None:
    return CheckedIndex(selector) if isinstance(selector, CustomSelector) else None
