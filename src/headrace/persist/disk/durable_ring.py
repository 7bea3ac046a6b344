"""A table's items in a file: every change is complete or undone, whenever the process is killed.

A change in place is a transaction with a journal (`journal.py`). An operation that replaces the arrays (growth,
compaction, a reset) writes a new file, a *generation*, beside the old one. Then one store of eight bytes makes the new
file count.

Arrays are never replaced inside a transaction. So a transaction begins with all arrays that its kernel needs.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from headrace.errors import StoreFull
from headrace.persist.disk.generations import Generations
from headrace.persist.disk.writer_counts import UNCOUNTED, WriterCounts
from headrace.store.block import EpisodeBoundary, LaneBlock
from headrace.store.store import Store
from headrace.tables.description.table import Table, kernel_selectors
from headrace.tables.draw import Draw
from headrace.tables.item_memory import ItemMemory, ItemShape, new_items, shape_for, with_selectors
from headrace.tables.item_ring import FusedBatch, ItemRing
from headrace.tables.items import compaction, journal
from headrace.tables.items.appending import commit_ends
from headrace.tables.items.layout import (
    ACTIVE,
    CHANGES,
    DELETES,
    IGNORED_DELETES,
    IGNORED_UPDATES,
    INSERTED,
    INSERTS,
    LIVE,
    PRIORITY_OF_ALL,
    SAMPLED,
    SAMPLES,
    SPAN,
    UPDATES,
)
from headrace.tables.items.passes import pin_items
from headrace.tables.new_items import ItemsLeft, NewItems
from headrace.tables.windows.buffer import WindowBuffer

JOURNAL_WORDS = journal.words_for(1024)
"""Words of the shortest journal."""

# A change of more slots than the journal has entries writes a new file of items. So a large table has a longer
# journal: a new file costs at most 32 items for each item of a batch.
_SLOTS_OF_AN_ENTRY, _MOST_ENTRIES = 16, 1 << 16

T = TypeVar("T")


class DurableRing(ItemRing):
    """See `ItemRing`; every method that changes items is one transaction.

    Args:
        store: whose pages the items hold.
        table: description of the table.
        random: the replay's generator.
        files: where the arrays lie.
        found: the items to begin with; None for none.
    """

    def __init__(
        self,
        store: Store,
        table: Table,
        random: np.random.Generator,
        files: Generations,
        found: ItemMemory | None = None,
    ) -> None:
        self._files = files
        self._writers: WriterCounts | None = None
        self._number = 0
        self._in_transaction = False
        super().__init__(store, table.max_size, *kernel_selectors(table), random, found)

    def _open(self, loaded: ItemMemory | None) -> None:
        if loaded is None:
            super()._open(loaded)
            return
        found = loaded.shape
        shape = shape_for(
            self._sampler,
            self._remover,
            found.capacity,
            with_windows=found.with_windows,
            with_priorities=found.with_priorities,
        )._replace(journal=found.journal)
        if shape == found:
            self._go_on_with(with_selectors(loaded, self._sampler, self._remover))
        else:
            # Other selectors keep other arrays.
            new = self._new(shape)
            compaction.move_items(self._items_in(loaded), self._items_in(new))
            self._use(new)

    def _new(self, shape: ItemShape) -> ItemMemory:
        assert not self._in_transaction, "arrays are replaced between transactions only"
        entries = min(shape.capacity // _SLOTS_OF_AN_ENTRY, _MOST_ENTRIES)
        words = max(shape.journal, JOURNAL_WORDS, journal.words_for(entries))
        return new_items(shape._replace(journal=words), self._sampler, self._remover, self._files.new)

    def _use(self, memory: ItemMemory) -> None:
        generation = self._files.generation
        try:
            self._files.turn()
        finally:
            # Ctrl-C may come when the new file counts already and the old one is being removed.
            if self._files.generation > generation:
                self._go_on_with(memory)

    def _go_on_with(self, memory: ItemMemory) -> None:
        super()._use(memory)
        # With the items that go in from now on, this is the table's count of inserts.
        self._inserts_before = memory.arrays.ring[INSERTS] - self._counters[INSERTED]
        self._samples_before = memory.arrays.ring[SAMPLES] - self._counters[SAMPLED]

    # ---- transactions ----------------------------------------------------------------------------------------------

    def _as_one(self, entries: int, change: Callable[[], T]) -> T:
        """Does all of a change or nothing of it.

        Args:
            entries: upper bound of the number of slots that are written.
            change: writes them.
        """
        if journal.words_for(entries) > self.memory.shape.journal:
            self._replace(journal=journal.words_for(2 * entries))
        items = self.arrays
        journal.begin(items)
        self._in_transaction = True
        try:
            return change()
        finally:
            # No call in here: a second Ctrl-C must not interrupt the end of the transaction.
            self._in_transaction = False
            # After any interruption, every inserted item exists or was removed.
            items.ring[INSERTS] = self._inserts_before + self._counters[INSERTED]
            items.ring[DELETES] = items.ring[INSERTS] - items.ring[LIVE]
            items.ring[SAMPLES] = self._samples_before + self._counters[SAMPLED]
            items.journal[ACTIVE] = 0

    def _close_holes(self) -> None:
        if not self._in_transaction:
            super()._close_holes()

    # ---- changes ---------------------------------------------------------------------------------------------------

    def insert(self, new: NewItems) -> None:
        """See `ItemRing.insert`."""
        insert = partial(super().insert, new)
        writers, number = self._writers, self._number
        if new.source == UNCOUNTED or writers is None:
            self._insertion(len(new), new.windows, new.priorities, insert)
            return
        writers.begin(number, new.source, int(self.arrays.ring[INSERTS]))
        try:
            self._insertion(len(new), new.windows, new.priorities, insert)
        finally:
            writers.end(number, int(self.arrays.ring[INSERTS]))

    def count_writers(self, writers: WriterCounts, number: int) -> None:
        """Counts the items of clients' writers from here on.

        Args:
            writers: of the store.
            number: of the table.
        """
        self._writers, self._number = writers, number

    def append(
        self, block: LaneBlock, boundary: EpisodeBoundary | None, buffer: WindowBuffer, first_key: int
    ) -> None:
        """See `ItemRing.append`."""
        if boundary is None:
            append = partial(super().append, block, boundary, buffer, first_key)
            self._insertion(block.lanes, buffer.step_shape, buffer.priorities, append)
            return
        # The number and the shapes of the windows are known when they are cut.
        commit_ends(block.kernel, buffer, *boundary)
        new = NewItems(first_key, *buffer.windows(), buffer.priorities)
        try:
            self.insert(new)
        except StoreFull as error:
            raise ItemsLeft(error, new) from error.__cause__

    def _insertion(
        self,
        most: int,
        windows: NDArray[np.uint32],
        priorities: NDArray[np.float64],
        insert: Callable[[], None],
    ) -> None:
        """Inserts up to `most` items as one."""
        self._prepare(most, windows, priorities)
        excess = max(0, len(self) - self.max_size)
        self._as_one(2 * most + excess, insert)

    def _prepare(self, count: int, windows: NDArray[np.uint32], priorities: NDArray[np.float64]) -> None:
        """Replaces the arrays if that many items would not go into them."""
        items, shape = self.arrays, self.memory.shape
        priorities = self.priorities_of(priorities)
        if count:
            is_empty = len(self) == 0
            window = windows[0] if is_empty else items.common_window
            priority = priorities[0] if is_empty else items.common[PRIORITY_OF_ALL]
            shape = shape._replace(
                with_windows=shape.with_windows or bool((windows != window).any()),
                with_priorities=shape.with_priorities or bool((priorities != priority).any()),
            )
        if items.ring[SPAN] + count > shape.capacity:
            self._move_to(shape._replace(capacity=self._capacity_for(count)))
        elif shape != self.memory.shape:
            self._move_to(shape)

    def _capacity_for(self, count: int) -> int:
        """Returns slots for `count` more items, and spare ones so that holes are closed rarely."""
        needed, capacity = len(self) + count, self.items.capacity
        if needed <= capacity * 3 // 4:
            return capacity
        most = self.max_size + self.max_size // 4 + 64 + count
        return max(needed, capacity, min(2 * capacity, most))

    def remove(self, keys: NDArray[np.uint64]) -> int:
        """See `ItemRing.remove`."""
        remove = super().remove

        def change() -> int:
            removed = remove(keys)
            self.arrays.ring[IGNORED_DELETES] += len(keys) - removed
            return removed

        removed = self._as_one(len(keys), change)
        self._close_holes()
        return removed

    def clear(self) -> None:
        """See `ItemRing.clear`; a new generation without items, which needs no journal."""
        old, arrays = self.items, self.arrays
        new = self._new(self.memory.shape)
        for word in (CHANGES, UPDATES, IGNORED_UPDATES, IGNORED_DELETES):
            new.arrays.ring[word] = arrays.ring[word]
        self._use(new)
        pin_items(old, -1)

    def update(self, keys: NDArray[np.uint64], priorities: NDArray[np.float64]) -> int:
        """See `ItemRing.update`."""
        if not self.memory.shape.with_priorities:
            self._replace(with_priorities=True)
        update = super().update

        def change() -> int:
            applied = update(keys, priorities)
            if applied >= 0:
                self.arrays.ring[UPDATES] += applied
                self.arrays.ring[IGNORED_UPDATES] += len(keys) - applied
            return applied

        return self._as_one(len(keys), change)

    def draw(self, draw: Draw, max_times: int) -> None:
        """See `ItemRing.draw`."""
        self._drawn(draw, partial(super().draw, draw, max_times))

    def draw_distinct(self, draw: Draw, max_times: int) -> None:
        """See `ItemRing.draw_distinct`."""
        self._drawn(draw, partial(super().draw_distinct, draw, max_times))

    def draw_fused(self, batch: FusedBatch) -> tuple[NDArray[np.uint8], int] | None:
        """See `ItemRing.draw_fused`."""
        return self._as_one(2 * batch.batch, partial(super().draw_fused, batch))

    def _drawn(self, draw: Draw, change: Callable[[], None]) -> None:
        # A draw counts one slot, and may remove it.
        self._as_one(2 * len(draw), change)
        self._close_holes()
