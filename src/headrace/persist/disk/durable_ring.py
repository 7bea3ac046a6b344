"""A table's items in a file: the same ring, where every change is all or nothing, whenever the process is killed.

Two things make it so. A change in place is a transaction with a journal (`journal.py`). An operation that replaces the
arrays (growth, compaction, a reset) writes a new file, a *generation*, beside the old one, and one store of eight bytes
says which of the two counts.

Arrays are never made anew inside a transaction, so what could stop a kernel half way is seen to before it begins.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from headrace.errors import StoreFull
from headrace.persist.disk.generations import Generations
from headrace.store.block import LaneBlock, Seam
from headrace.store.store import Store
from headrace.tables.description.table import Table, kernel_selectors
from headrace.tables.item_memory import ItemMemory, ItemShape, new_items, with_selectors
from headrace.tables.item_ring import NO_KEYS, FusedBatch, ItemRing
from headrace.tables.items import compaction, journal
from headrace.tables.items.appending import commit_ends
from headrace.tables.items.layout import (
    ACTIVE,
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
    TOUCHES,
    UPDATES,
)
from headrace.tables.items.recovery import pin_items
from headrace.tables.windows.cutting import Cutter

JOURNAL_WORDS = journal.words_for(1024)
"""Of a journal to begin with."""

# A change of more slots than the journal has room for writes the file of items anew. So a large table has a longer
# journal: then that costs at most 32 items of the file for each item of a batch.
_SLOTS_OF_AN_ENTRY, _MOST_ENTRIES = 16, 1 << 16

T = TypeVar("T")


class DurableRing(ItemRing):
    """See `ItemRing`; every method that changes items is one transaction.

    Args:
        store: whose pages the items hold.
        table: description of the table.
        random: the replay's generator.
        files: where the arrays lie.
        found: what is there already; None begins empty.
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
        self._found = found
        self._journal_words = JOURNAL_WORDS
        self._in_transaction = False
        super().__init__(store, table.max_size, *kernel_selectors(table), random)

    def _open(self, loaded: ItemMemory | None) -> None:
        found = self._found
        if found is None:
            super()._open(loaded)
            return
        self._journal_words = found.shape.journal
        shape = self._shape(
            found.shape.capacity,
            with_windows=found.shape.with_windows,
            with_priorities=found.shape.with_priorities,
        )._replace(journal=found.shape.journal)
        if shape == found.shape:
            self._go_on_with(with_selectors(found, self._sampler, self._remover))
        else:
            # Other selectors keep other arrays.
            new = self._new_of(shape)
            compaction.move_items(self._items_in(found), self._items_in(new))
            self._use(new)

    def _shape(self, capacity: int, *, with_windows: bool, with_priorities: bool) -> ItemShape:
        shape = super()._shape(capacity, with_windows=with_windows, with_priorities=with_priorities)
        entries = min(capacity // _SLOTS_OF_AN_ENTRY, _MOST_ENTRIES)
        return shape._replace(journal=max(self._journal_words, journal.words_for(entries)))

    def _new(self, capacity: int, *, with_windows: bool, with_priorities: bool) -> ItemMemory:
        shape = self._shape(capacity, with_windows=with_windows, with_priorities=with_priorities)
        return self._new_of(shape)

    def _new_of(self, shape: ItemShape) -> ItemMemory:
        assert not self._in_transaction, "arrays are made anew between transactions only"
        return new_items(shape, self._sampler, self._remover, self._files.new)

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
        self._journal_words = memory.shape.journal
        # Together with what goes in from now on it is the table's count of inserts.
        self._inserts_before = memory.arrays.ring[INSERTS] - self._told[INSERTED]
        self._samples_before = memory.arrays.ring[SAMPLES] - self._told[SAMPLED]

    # ---- transactions ----------------------------------------------------------------------------------------------

    def _as_one(self, entries: int, change: Callable[[], T]) -> T:
        """Do all of a change or nothing of it.

        Args:
            entries: slots that are written, at most.
        """
        if journal.words_for(entries) > self._journal_words:
            self._grow_journal(journal.words_for(2 * entries))
        items = self.arrays
        journal.begin(items)
        self._in_transaction = True
        try:
            return change()
        finally:
            # No call in here: what Ctrl-C has begun, another must not end.
            self._in_transaction = False
            # After any interruption, every inserted item exists or was removed.
            items.ring[INSERTS] = self._inserts_before + self._told[INSERTED]
            items.ring[DELETES] = items.ring[INSERTS] - items.ring[LIVE]
            items.ring[SAMPLES] = self._samples_before + self._told[SAMPLED]
            items.journal[ACTIVE] = 0

    def _grow_journal(self, words: int) -> None:
        before = self._journal_words
        self._journal_words = words
        try:
            self._replace(len(self.arrays.rows))
        except BaseException:
            # The old arrays stay, and their journal is as long as it was.
            self._journal_words = before
            raise

    def _close_holes(self) -> None:
        if not self._in_transaction:
            super()._close_holes()

    # ---- changes ---------------------------------------------------------------------------------------------------

    def insert(
        self,
        first_key: int,
        rows: NDArray[np.int64],
        windows: NDArray[np.uint32],
        priorities: NDArray[np.float64],
        keys: NDArray[np.uint64] = NO_KEYS,
    ) -> None:
        """See `ItemRing.insert`."""
        insert = partial(super().insert, first_key, rows, windows, priorities, keys)
        self._insertion(len(rows), windows, priorities, insert)

    def append(self, block: LaneBlock, seam: Seam | None, cutter: Cutter, first_key: int) -> None:
        """See `ItemRing.append`."""
        if seam is None:
            append = partial(super().append, block, seam, cutter, first_key)
            self._insertion(block.lanes, cutter.step_shape, cutter.priorities, append)
            return
        # How many windows there are and of which shapes is known when they are cut.
        commit_ends(block.kernel, cutter, *seam)
        rows, windows = cutter.windows()
        try:
            self.insert(first_key, rows, windows, cutter.priorities)
        except StoreFull as error:
            raise self._items_refused(error, rows, windows) from error.__cause__

    def _insertion(
        self,
        most: int,
        windows: NDArray[np.uint32],
        priorities: NDArray[np.float64],
        insert: Callable[[], None],
    ) -> None:
        """Insert up to so many items as one."""
        self._prepare(most, windows, priorities)
        excess = max(0, len(self) - self.max_size)
        self._as_one(2 * most + excess, insert)

    def _prepare(self, count: int, windows: NDArray[np.uint32], priorities: NDArray[np.float64]) -> None:
        """See to it that so many items go in without arrays made anew on the way."""
        items = self.arrays
        empty = len(self) == 0
        has_windows = self.has_windows or (
            count > 0 and bool((windows != (windows[0] if empty else items.common_window)).any())
        )
        first = priorities[0] if empty else items.common[PRIORITY_OF_ALL]
        has_priorities = len(items.priorities) > 0 or (count > 0 and bool((priorities != first).any()))
        capacity = len(items.rows)
        if items.ring[SPAN] + count > capacity:
            capacity = self._capacity_for(count)
        elif has_windows == self.has_windows and has_priorities == (len(items.priorities) > 0):
            return
        self._replace(capacity, with_windows=has_windows, with_priorities=has_priorities)

    def _capacity_for(self, count: int) -> int:
        """Slots for so many items more, with some to spare so that holes are closed rarely."""
        needed, capacity = len(self) + count, len(self.arrays.rows)
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
        """See `ItemRing.clear`; a new generation without items, so that it needs no journal however many there are."""
        old, arrays = self.items, self.arrays
        capacity, has_priorities = len(arrays.rows), len(arrays.priorities) > 0
        new = self._new(capacity, with_windows=self.has_windows, with_priorities=has_priorities)
        for word in (TOUCHES, UPDATES, IGNORED_UPDATES, IGNORED_DELETES):
            new.arrays.ring[word] = arrays.ring[word]
        self._use(new)
        pin_items(old, -1)

    def update(self, keys: NDArray[np.uint64], priorities: NDArray[np.float64]) -> int:
        """See `ItemRing.update`."""
        if not len(self.arrays.priorities):
            self._replace(len(self.arrays.rows), with_priorities=True)
        update = super().update

        def change() -> int:
            applied = update(keys, priorities)
            if applied >= 0:
                self.arrays.ring[UPDATES] += applied
                self.arrays.ring[IGNORED_UPDATES] += len(keys) - applied
            return applied

        return self._as_one(len(keys), change)

    def draw(self, *arrays: Any, **options: Any) -> NDArray[np.uint32]:
        """See `ItemRing.draw`."""
        return self._drawn(super().draw, *arrays, **options)

    def draw_fused(self, batch: FusedBatch) -> tuple[NDArray[np.uint8], int] | None:
        """See `ItemRing.draw_fused`."""
        return self._as_one(2 * batch.batch, partial(super().draw_fused, batch))

    def draw_distinct(self, *arrays: Any, **options: Any) -> NDArray[np.uint32]:
        """See `ItemRing.draw_distinct`."""
        return self._drawn(super().draw_distinct, *arrays, **options)

    def _drawn(
        self,
        draw: Callable[..., NDArray[np.uint32]],
        keys: NDArray[np.uint64],
        *arrays: Any,
        **options: Any,
    ) -> NDArray[np.uint32]:
        # A draw counts one slot, and may remove it.
        found = self._as_one(2 * len(keys), partial(draw, keys, *arrays, **options))
        self._close_holes()
        return found
