"""A table's items with the changes and draws of a table whose selectors are Headrace's own."""

from __future__ import annotations

from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from headrace.errors import ItemNotFound, StoreFull
from headrace.store.block import EpisodeBoundary, LaneBlock
from headrace.tables.draw import Draw
from headrace.tables.item_arrays import GrowingItems
from headrace.tables.items import appending, changing, drawing, inserting
from headrace.tables.items.items import Items
from headrace.tables.items.layout import (
    DEAD,
    DONE,
    FIRST,
    FLAGS,
    HAS_KEY_INDEX,
    LARGEST_PRIORITY,
    LIVE,
    ROW,
    SIZE,
    SLOT,
    SPAN,
    TIMES,
    UNIQUE,
    WINDOW_WORDS,
)
from headrace.tables.new_items import ItemsLeft, NewItems
from headrace.tables.windows.buffer import WindowBuffer


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


class ItemRing(GrowingItems):
    """Items in the order of insertion, with their sampler's and remover's index; see `GrowingItems`."""

    def check(self) -> None:
        """Raises `RuntimeError` if a selector of the user's own failed; those of Headrace do not."""

    # ---- inserting and removing ------------------------------------------------------------------------------------

    def insert(self, new: NewItems) -> None:
        """Inserts items; the remover takes items out where there are too many.

        Raises:
            ValueError: an item has one of the keys, or a key comes twice; nothing has changed.
            StoreFull: there is no memory for larger arrays; the first items may be inserted.
        """
        self.expect_keys(new.keys)
        while True:
            done, stopped = inserting.insert(
                self.items, new.first_key, new.keys, new.rows, new.windows.reshape(-1), new.priorities
            )
            if stopped == DONE:
                return
            new = new.after(done)
            self._remove_obstacle(stopped)

    def expect_keys(self, keys: NDArray[np.uint64]) -> None:
        """Makes a key index if these keys do not rise beyond those of the ring.

        Raises:
            ValueError: an item has one of the keys, or a key comes twice.
        """
        if not len(keys) or (keys[0] > self.items.newest_key() and (keys[1:] > keys[:-1]).all()):
            return
        if not self.arrays.ring[FLAGS] & HAS_KEY_INDEX:
            self.items.use_key_index()
        if len(self._found_slots(keys)) or len(np.unique(keys)) < len(keys):
            raise ValueError(f"keys: expected keys of no item, each once, got {keys}")

    def append(
        self, block: LaneBlock, boundary: EpisodeBoundary | None, buffer: WindowBuffer, first_key: int
    ) -> None:
        """Commits a block's step and inserts the items that it completes.

        Args:
            block: of the step.
            boundary: the lanes that hold nothing and the episodes that end; None for a transition of every lane.
            buffer: cuts the windows; its `total` is their number.
            first_key: of the first item.

        Raises:
            StoreFull: there is no memory for larger arrays; nothing has changed. `ItemsLeft`: the step is committed.
        """
        if boundary is None:
            done, stopped = appending.append(self.items, block.kernel, buffer, first_key)
        else:
            done, stopped = appending.append_ends(self.items, block.kernel, buffer, first_key, *boundary)
        if stopped != DONE:
            rows, shapes = buffer.windows()
            new = NewItems(first_key, rows, shapes if boundary else shapes[:1], buffer.priorities)
            self._insert_rest(stopped, new.after(done))

    def _insert_rest(self, stopped: int, rest: NewItems) -> None:
        """Goes on where a kernel stopped that had committed a step; see `append`."""
        before = self.items.inserted
        try:
            self._remove_obstacle(stopped)
            ItemRing.insert(self, rest)
        except StoreFull as error:
            raise ItemsLeft(error, rest.after(self.items.inserted - before)) from error.__cause__

    def shrink_to(self, max_size: int) -> None:
        """Sets another largest size; items leave at once."""
        before = self.max_size
        self._set_max_size(max_size)
        try:
            self.insert(NewItems.none())
        except BaseException:
            self._set_max_size(before)
            raise
        self._close_holes()

    def remove(self, keys: NDArray[np.uint64]) -> int:
        """Removes the items of these keys; returns their number."""
        slots = np.unique(self._found_slots(keys))
        changing.remove(self.items, slots)
        self._close_holes()
        return len(slots)

    def clear(self) -> None:
        """Removes all items, and forgets which were sampled and that any had several rows."""
        changing.remove(self.items, self._live_slots())
        self.items.forget_keys()
        self.arrays.ring[UNIQUE] = self.arrays.ring[FLAGS] = 0
        self.arrays.ring.view(np.float64)[LARGEST_PRIORITY] = 1.0

    def update(self, keys: NDArray[np.uint64], priorities: NDArray[np.float64]) -> int:
        """Sets priorities; returns the number of entries whose key has an item."""
        if not self.memory.shape.with_priorities:
            self._replace(with_priorities=True)
        return changing.update(self.items, keys, priorities)

    # ---- drawing ---------------------------------------------------------------------------------------------------

    def draw(self, draw: Draw, max_times: int) -> None:
        """Draws a batch; the caller has checked that the items suffice.

        Args:
            draw: filled.
            max_times: samples after which an item leaves; 0 for no limit.
        """
        if max_times:
            self._draw_and_remove(draw, max_times)
        else:
            drawing.draw(self.items, draw.keys, draw.integers, *draw.floats)
            self._fill_windows(draw)

    def draw_fused(self, batch: FusedBatch) -> tuple[NDArray[np.uint8], int] | None:
        """Draws a batch and copies its records; see `FusedBatch.sample`."""
        return batch.sample(self.items)

    def draw_distinct(self, draw: Draw, max_times: int) -> None:
        """Draws like `draw`, uniformly, each item at most once."""
        # Rules: replay S7
        draw.integers[SLOT] = self._distinct_slots(len(draw), self._random)
        draw.probabilities[:] = 1.0 / len(self)
        drawing.take(self.items, 0, len(draw), draw.keys, draw.integers, draw.priorities)
        self._fill_windows(draw)
        if not max_times:
            return
        spent = draw.spent(max_times)
        # Each removal makes the table smaller for the draws after it (replay L5).
        draw.integers[SIZE] -= np.cumsum(spent) - spent
        draw.probabilities[:] = 1.0 / draw.integers[SIZE]
        changing.remove(self.items, draw.integers[SLOT][spent])
        self._close_holes()

    def peek(self, random: np.random.Generator) -> Draw:
        """Returns a draw of one item that counts and changes nothing; every item has the same chance.

        Args:
            random: not the replay's generator, whose next draws stay the same.

        Raises:
            ItemNotFound: there is no item.
        """
        if not len(self):
            raise ItemNotFound("the table has no items")
        return self._look_at(self._distinct_slots(1, random), 1.0 / len(self))

    def get(self, keys: NDArray[np.uint64]) -> Draw:
        """Returns a draw of the items of these keys, in their order, that counts and changes nothing.

        Raises:
            ItemNotFound: some keys have no item.
        """
        slots = self._found_slots(keys)
        if len(slots) < len(keys):
            missing = keys[~np.isin(keys, self.arrays.keys[slots])].tolist()
            raise ItemNotFound(
                f"keys: no items with {len(missing)} of {len(keys)} keys, such as {missing[:5]}"
            )
        return self._look_at(slots, np.nan)

    def _look_at(self, slots: NDArray[np.int64], probability: float) -> Draw:
        """Returns a draw of the items in these slots."""
        draw = Draw(len(slots), self.has_sequences)
        draw.keys[:] = self.arrays.keys[slots]
        draw.integers[SLOT] = slots
        draw.integers[TIMES] = self.arrays.times[slots]
        draw.integers[SIZE] = len(self)
        draw.integers[ROW] = self.arrays.rows[slots]
        draw.probabilities[:] = probability
        draw.priorities[:] = [self.items.priority_of(slot) for slot in slots.tolist()]
        self._fill_windows(draw)
        return draw

    def _draw_and_remove(self, draw: Draw, max_times: int) -> None:
        windows = self._new_windows(draw)
        drawing.draw_and_remove(
            self.items,
            max_times,
            draw.keys,
            draw.integers,
            draw.probabilities,
            draw.priorities,
            windows,
        )
        self._close_holes()

    def _fill_windows(self, draw: Draw) -> None:
        draw.windows = self.arrays.windows[draw.integers[SLOT]] if self.has_windows else self.window

    def _new_windows(self, draw: Draw) -> NDArray[np.uint32]:
        """Returns the array for windows that are copied draw by draw, empty where all items agree."""
        windows = np.zeros((len(draw) if self.has_windows else 0, WINDOW_WORDS), np.uint32)
        draw.windows = windows if len(windows) else self.window
        return windows

    def _distinct_slots(self, count: int, random: np.random.Generator) -> NDArray[np.int64]:
        """Draws slots of different items, every sequence of them with the same chance.

        Slots are drawn in random order, and those of removed items are skipped: no list of the items is needed.
        """
        ring, rows = self.arrays.ring, self.arrays.rows
        span, live = int(ring[SPAN]), int(ring[LIVE])
        wanted = count
        while True:
            offsets = random.choice(span, wanted, replace=False)
            slots: NDArray[np.int64] = (ring[FIRST] + offsets) % len(rows)
            if span > live:
                slots = slots[rows[slots] != DEAD]
            if len(slots) >= count:
                return slots[:count]
            # At least about half of the slots have an item (`_close_holes`).
            wanted = min(span, max(2 * wanted, count * span // live + 8))
