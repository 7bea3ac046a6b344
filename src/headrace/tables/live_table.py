"""A table at work: items behind a rate limiter, and the queues of inserts and samples that it does not admit yet.

Everything here runs under the replay's lock and returns at once. An insert that the limiter refuses is pending: the
call that opens the gate applies it, in order. A sample that it refuses is a ticket, which that call calls.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Any, Concatenate, ParamSpec, TypeVar

import numpy as np
from numpy.typing import NDArray

from headrace.statistics import TableDistribution, TableStatistics
from headrace.store.block import EpisodeBoundary, LaneBlock
from headrace.store.store import Store
from headrace.tables.description.rate_limiters import RateLimiter
from headrace.tables.description.table import Table, checked_size
from headrace.tables.distribution import SkippedKeys, distribution_of
from headrace.tables.draw import Draw
from headrace.tables.item_ring import FusedBatch, ItemRing
from headrace.tables.item_state import ItemState
from headrace.tables.new_items import NewItems
from headrace.tables.pending import Pending
from headrace.tables.sample_queue import SampleQueue
from headrace.tables.table_state import COUNTS, TableState
from headrace.tables.windows.buffer import WindowBuffer

P = ParamSpec("P")
T = TypeVar("T")


def _settling(change: Callable[Concatenate[LiveTable, P], T]) -> Callable[Concatenate[LiveTable, P], T]:
    """Makes a change settle the table if an error or Ctrl-C interrupts it."""

    @functools.wraps(change)
    def settling(self: LiveTable, /, *args: P.args, **kwargs: P.kwargs) -> T:
        try:
            return change(self, *args, **kwargs)
        except BaseException:
            self._settle()
            raise

    return settling


class LiveTable(SampleQueue):
    """The state of one table of a replay.

    Args:
        table: its description.
        store: where the steps are.
        ring: its items.
        now: returns the time in seconds.
        counts: its counts so far, by the names `COUNTS`; None for zeros.

    Attributes:
        new_priorities: float64[1], of the items for which a writer gives no priority; empty: the largest so far.
        has_warned_of_newest: whether it was logged that samples showed rows whose next rows are not known.
    """

    def __init__(
        self,
        table: Table,
        store: Store,
        ring: ItemRing,
        now: Callable[[], float],
        counts: Mapping[str, int] | None = None,
    ) -> None:
        super().__init__(table, ring, now, counts)
        self._table = table
        self._store = store
        priority = table.new_priority
        self.new_priorities = np.array([] if priority == "largest" else [priority], np.float64)
        self.has_warned_of_newest = False

    # ---- inserting -------------------------------------------------------------------------------------------------

    def takes_at_once(self, n: int) -> bool:
        """Returns whether n items would be inserted now."""
        pending = self._pending
        # Not `if pending`: that call takes 3 % of an append.
        if pending.count or pending.to_notify is not None:
            return False
        return self._never_blocks or self._insertable() >= n

    def append(
        self, block: LaneBlock, boundary: EpisodeBoundary | None, buffer: WindowBuffer, first_key: int
    ) -> None:
        """Commits a block's step and inserts its items (`ItemRing.append`), which the limiter admits."""
        self.ring.append(block, boundary, buffer, first_key)
        if self._waiting and buffer.total:
            self._call_tickets()

    def offer(self, new: NewItems, writer: Pending) -> None:
        """Inserts items now, or as soon as the limiter admits them, behind the items that wait already.

        If a selector of the user's own fails, the items stay pending and their writer is notified (`apply_pending`).

        Args:
            new: the items.
            writer: counts them while they are pending.

        Raises:
            ValueError: an item that is there or waits has one of their keys, or a key comes twice; they are not made.
            RuntimeError: such a selector failed before; the items are not made.
            StoreFull: there is no memory for some items. The caller must unpin the items that were not inserted.
        """
        pins = self._store.pins
        try:
            self.ring.check()
            if len(new.keys):
                self.ring.expect_keys(new.keys)
                self._pending.expect_keys(new.keys)
            takes_at_once = not self.is_custom and self.takes_at_once(len(new))
        except BaseException:
            new.unpin(pins)
            raise
        if not takes_at_once:
            self._pending.append(new, writer)
            self.apply_pending()
            return
        self.ring.insert(new)
        if self._waiting:
            self._call_tickets()

    def keep(self, new: NewItems, writer: Pending) -> None:
        """Lets items for which there is no memory wait, behind the others, until `apply_pending` finds some."""
        self._pending.keep(new, writer)

    def apply_pending(self) -> None:
        """Inserts the pending items that the limiter admits now, then calls the tickets that can be served."""
        self._pending.apply()
        if self._waiting:
            self._call_tickets()

    def can_insert(self, n: int) -> bool:
        """Returns whether n more items would be inserted now, behind those that wait."""
        # Rules: replay L7
        return self.limiter.can_insert(*self._counts, self._pending.count + n)

    def refuse_pending(self) -> None:
        """Empties the queue of pending items, releases their pages, and notifies their writers."""
        for new in self._pending.refuse():
            new.unpin(self._store.pins)

    # ---- sampling --------------------------------------------------------------------------------------------------

    @_settling
    def draw(self, n: int) -> Draw:
        """Draws a batch that can be served now (`can_sample`, `is_turn_of`)."""
        ring = self.ring
        drawn = Draw(n, ring.has_sequences)
        (ring.draw_distinct if self._is_distinct else ring.draw)(drawn, self.max_times)
        if self._pending or self._waiting:
            # An item that is inserted now may change the window of all items; those drawn keep theirs.
            drawn.windows = drawn.windows.copy()
            self.apply_pending()
        return drawn

    def draw_fused(self, batch: FusedBatch) -> tuple[NDArray[np.uint8], int] | None:
        """Draws a batch and copies its records; see `FusedBatch.sample`."""
        try:
            drawn = self.ring.draw_fused(batch)
            if drawn is not None and (self._pending.count or self._waiting):
                self.apply_pending()
            return drawn
        except BaseException:
            self._settle()
            raise

    def _settle(self) -> None:
        """Completes a change that an error or Ctrl-C has interrupted."""
        with suppress(RuntimeError):  # Of `check`; `apply_pending` notifies the writers.
            self.ring.check()
            self._remove_spent()
        self.apply_pending()

    @property
    def can_free_space(self) -> bool:
        """Whether sampling makes items leave: sampled items, or the oldest for pending ones."""
        return self._pending.count > 0 or (self.max_times > 0 and len(self.ring) > 0)

    # ---- changing --------------------------------------------------------------------------------------------------

    @_settling
    def update(self, keys: NDArray[np.uint64], priorities: NDArray[np.float64]) -> int:
        """Sets priorities; see `Replay.update_priorities`. Returns -1 if one is bad: then nothing has changed."""
        applied = self.ring.update(keys, priorities)
        if applied >= 0:
            self.updates += applied
            self.ignored_updates += len(keys) - applied
        return applied

    @_settling
    def delete(self, keys: NDArray[np.uint64]) -> int:
        """Removes items; see `Replay.delete`."""
        removed = self.ring.remove(keys)
        self.ignored_deletes += len(keys) - removed
        self.apply_pending()
        return removed

    def reset(self) -> None:
        """Removes all items and sets the counts to zero; see `Replay.reset`."""
        self.ring.clear()
        self._count_anew()
        self.apply_pending()

    def configure(self, max_size: int | None, rate_limiter: RateLimiter | None) -> None:
        """Changes the settings of the table, all or none."""
        # Rules: replay T9
        max_size = self.ring.max_size if max_size is None else max_size
        limiter = self.limiter if rate_limiter is None else rate_limiter
        self._change_settings(checked_size(self.name, max_size, limiter), limiter)

    @_settling
    def _change_settings(self, max_size: int, limiter: RateLimiter) -> None:
        # First, because only this can fail.
        self.ring.shrink_to(max_size)
        self._use_limiter(limiter)
        self._fail_impossible()
        self.apply_pending()

    def keep_to_settings(self) -> None:
        """Removes items that the settings do not allow: the settings may have changed since the items were stored."""
        # Without such items nothing is called: random numbers would be used up.
        self._remove_spent()
        if len(self.ring) > self.ring.max_size:
            self.ring.shrink_to(self.ring.max_size)

    def _remove_spent(self) -> None:
        """Removes the items that were sampled `max_times` times."""
        if self.max_times:
            spent = self.ring.keys_sampled(self.max_times)
            if len(spent):
                self.ring.remove(spent)

    # ---- looking ---------------------------------------------------------------------------------------------------

    def description(self) -> Table:
        """Returns the table with its present settings."""
        return Table(
            self.name,
            sampler=self._table.sampler,
            remover=self._table.remover,
            max_size=self.ring.max_size,
            rate_limiter=self.limiter,
            max_times_sampled=self.max_times,
            new_priority=self._table.new_priority,
        )

    def copy(self, buffers: dict[str, NDArray[Any]]) -> TableState[ItemState]:
        """Returns a copy of the table as it is now, into the arrays of `ItemRing.buffers_for_copy`."""
        counts = {name: int(getattr(self, name)) for name in COUNTS}
        return TableState(self.description(), counts, self.ring.copy(buffers))

    def statistics(self) -> TableStatistics:
        """Returns the counters so far, and the numbers of waiting calls."""
        return TableStatistics(
            name=self.name,
            size=len(self.ring),
            max_size=self.ring.max_size,
            max_times_sampled=self.max_times,
            inserts=self.inserts,
            samples=self.samples,
            deletes=self.deletes,
            resets=self.resets,
            unique_samples=self.ring.unique,
            updates=self.updates,
            ignored_updates=self.ignored_updates,
            ignored_deletes=self.ignored_deletes,
            pending_inserts=self._pending.count,
            waiting_samples=len(self._tickets),
            seconds_waiting_inserts=self._pending.seconds,
            seconds_waiting_samples=self._tickets.seconds,
            longest_waiting_insert=self._pending.longest,
            longest_waiting_sample=self._tickets.longest,
            samples_per_insert=self.limiter.samples_per_insert,
            samples_per_insert_so_far=self.samples / self.inserts if self.inserts else 0.0,
            min_size=self.limiter.min_size,
            min_diff=self.limiter.min_diff,
            max_diff=self.limiter.max_diff,
            bytes=self.ring.nbytes,
            total_weight=self.ring.total_weight,
            is_distinct=self._is_distinct,
        )

    def distribution(self, next_key: int, skipped: SkippedKeys) -> TableDistribution:
        """Returns the distribution of the items now; see `distribution_of`."""
        return distribution_of(self.name, self.ring.arrays, self._store, next_key, skipped)
