"""Items with a selector that is written in plain Python: each goes in, is chosen and goes out one by one.

The items lie in the same arrays and the same kernels change them. The difference is the chooser: a kernel may serve one
role, and a user's index the other. Tables without such a selector know nothing of this.
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
from headrace.tables.item_memory import ItemMemory
from headrace.tables.item_ring import NO_KEYS, ItemRing
from headrace.tables.items import changing, drawing, inserting
from headrace.tables.items.layout import CUSTOM, LIVE, MAX_SIZE, PRIORITY, PROBABILITY, SLOT, TIMES

# The kernel that inserts never takes a victim here.
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
    """The ring for these selectors; see `ItemRing` for the arguments."""
    if isinstance(sampler, CustomSelector) or isinstance(remover, CustomSelector):
        return CustomRing(store, max_size, sampler, remover, random, loaded)
    return ItemRing(store, max_size, sampler, remover, random, loaded)


class CustomRing(ItemRing):
    """An `ItemRing` one or both of whose selectors are a user's own."""

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

    def insert(
        self,
        first_key: int,
        rows: NDArray[np.int64],
        windows: NDArray[np.uint32],
        priorities: NDArray[np.float64],
        keys: NDArray[np.uint64] = NO_KEYS,
    ) -> None:
        """See `ItemRing.insert`; the remover takes its victim after each item."""
        self.check()
        if len(keys):
            self._expect_keys(keys)
        self._shrink()
        for number in range(len(rows)):
            window = windows[number : number + 1] if len(windows) > 1 else windows
            priority = priorities[number : number + 1] if len(priorities) > 1 else priorities
            key = int(keys[number]) if len(keys) else first_key + number
            self._put(key, rows[number : number + 1], window, priority)
            self._shrink()

    def _put(
        self,
        key: int,
        row: NDArray[np.int64],
        window: NDArray[np.uint32],
        priority: NDArray[np.float64],
    ) -> None:
        # First, so that an item of which an index could not be told is not there.
        for index in self._indexes:
            index.insert(int(key), float(priority[0]))
        done = 0
        while not done:
            done, stopped = inserting.insert(self.items, key, NO_KEYS, row, window.reshape(-1), priority)
            try:
                self._remove_obstacle(stopped)
            except StoreFull:
                self._forget([int(key)])
                raise

    def _shrink(self) -> None:
        """Let the remover take items until there are no more than `max_size`."""
        while self.arrays.ring[LIVE] > self.max_size:
            slot = self._victim()
            self._take_out(np.array([slot]))

    def _victim(self) -> int:
        if self._remover_index is not None:
            keys, _ = self._remover_index.choose(1, self._random)
            return int(self._slots_of(keys, self._remover_index)[0])
        slot, _ = drawing.choose(self.items, self.items.remover)
        return slot

    def _take_out(self, slots: NDArray[np.int64]) -> None:
        # First, so that items of which an index could not be told are still there.
        self._forget(self.arrays.keys[slots].tolist())
        changing.remove(self.items, slots)

    def _forget(self, keys: list[int]) -> None:
        for key in keys:
            for index in self._indexes:
                index.remove(key)

    def _set_max_size(self, max_size: int) -> None:
        self.max_size = max_size
        self._told[MAX_SIZE] = _NO_LIMIT

    def shrink_to(self, max_size: int) -> None:
        """See `ItemRing.shrink_to`."""
        self.check()
        super().shrink_to(max_size)

    def remove(self, keys: NDArray[np.uint64]) -> int:
        """See `ItemRing.remove`."""
        self.check()
        slots = self._found_slots(keys)
        slots = slots[np.sort(np.unique(self.arrays.keys[slots], return_index=True)[1])]
        self._take_out(slots)
        self._close_holes()
        return len(slots)

    def clear(self) -> None:
        """See `ItemRing.clear`; new indexes take the place of those there were."""
        for index in self._indexes:
            index.check_uncalled()
        sampler, remover = map(_index_of, self._customs)
        super().clear()
        self._use_indexes(sampler, remover)

    def update(self, keys: NDArray[np.uint64], priorities: NDArray[np.float64]) -> int:
        """See `ItemRing.update`; an index is told of every entry, in order."""
        self.check()
        applied = super().update(keys, priorities)
        if applied > 0:
            there = np.isin(keys, self.arrays.keys[self._found_slots(keys)])
            for key, priority in zip(keys[there].tolist(), priorities[there].tolist(), strict=True):
                for index in self._indexes:
                    index.update(key, priority)
        return applied

    # ---- drawing ---------------------------------------------------------------------------------------------------

    def draw(
        self,
        keys: NDArray[np.uint64],
        integers: NDArray[np.int64],
        floats: NDArray[np.float64],
        max_times: int,
    ) -> NDArray[np.uint32]:
        """See `ItemRing.draw`."""
        self.check()
        if self._sampler_index is None:
            drawn = super().draw(keys, integers, floats, max_times)
            self._forget_spent(keys, integers, max_times)
            return drawn
        if max_times:
            return self._draw_one_by_one(self._sampler_index, keys, integers, floats, max_times)
        self._choose(self._sampler_index, 0, len(keys), integers, floats)
        drawing.take(self.items, 0, len(keys), keys, integers, floats[PRIORITY])
        return self._windows_of(integers[SLOT])

    def draw_distinct(
        self,
        keys: NDArray[np.uint64],
        integers: NDArray[np.int64],
        floats: NDArray[np.float64],
        max_times: int,
    ) -> NDArray[np.uint32]:
        """See `ItemRing.draw_distinct`; the sampler is `Uniform`."""
        self.check()
        drawn = super().draw_distinct(keys, integers, floats, max_times)
        self._forget_spent(keys, integers, max_times)
        return drawn

    def _forget_spent(self, keys: NDArray[np.uint64], integers: NDArray[np.int64], max_times: int) -> None:
        """Tell the indexes of the items that left with these draws."""
        if max_times:
            self._forget(keys[integers[TIMES] >= max_times].tolist())

    def _draw_one_by_one(
        self,
        index: CheckedIndex,
        keys: NDArray[np.uint64],
        integers: NDArray[np.int64],
        floats: NDArray[np.float64],
        max_times: int,
    ) -> NDArray[np.uint32]:
        windows = np.zeros((len(keys) if self.has_windows else 0, 3), np.uint32)
        for place in range(len(keys)):
            self._choose(index, place, place + 1, integers, floats)
            drawing.take(self.items, place, place + 1, keys, integers, floats[PRIORITY])
            slot = integers[SLOT, place : place + 1]
            if len(windows):
                windows[place] = self.arrays.windows[slot[0]]
            if integers[TIMES, place] >= max_times:
                self._take_out(slot.copy())
                self._close_holes()
        return windows if len(windows) else self.window

    def _choose(
        self,
        index: CheckedIndex,
        start: int,
        stop: int,
        integers: NDArray[np.int64],
        floats: NDArray[np.float64],
    ) -> None:
        keys, probabilities = index.choose(stop - start, self._random)
        integers[SLOT, start:stop] = self._slots_of(keys, index)
        floats[PROBABILITY, start:stop] = probabilities

    # ---- items by key ----------------------------------------------------------------------------------------------

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
