"""A table at work: items behind a gate, and the queues of inserts and of samples that the gate does not let through.

Everything here runs under the replay's lock and returns at once. An insert that the gate refuses is pending: the call
that opens the gate applies it, in order. A sample that it refuses is a ticket, which that call calls (`ticket.py`).
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from headrace.errors import Closed, StoreFull
from headrace.statistics import TableDistribution, TableStatistics
from headrace.store.block import LaneBlock, Seam
from headrace.tables.description.rate_limiters import RateLimiter
from headrace.tables.description.selectors import CustomSelector, Uniform
from headrace.tables.description.table import Table, check_size
from headrace.tables.distribution import SkippedKeys, distribution_of
from headrace.tables.item_ring import FusedBatch, ItemRing
from headrace.tables.item_state import ItemState
from headrace.tables.items.changing import unpin_items
from headrace.tables.items.layout import INVENTED, LOOKAHEAD, STREAM
from headrace.tables.pending import NewItems, Pending, PendingQueue
from headrace.tables.table_state import COUNTS, TableState
from headrace.tables.ticket import Ticket, TicketQueue
from headrace.tables.windows.cutting import Cutter

if TYPE_CHECKING:
    from headrace.store.store import Store


_LOGGER = logging.getLogger(__name__)


@dataclass
class Draw:
    """A batch of draws.

    Attributes:
        keys: uint64[B].
        integers: int64[4, B]: rows SLOT, TIMES, SIZE, ROW of `drawing`.
        floats: float64[2, B]: rows PROBABILITY, PRIORITY.
        windows: uint32[B, 3], or uint32[3] if all items agree: real rows, invented rows, lookahead.
        has_sequences: whether the table was given items of more than one row before these draws.
    """

    keys: NDArray[np.uint64]
    integers: NDArray[np.int64]
    floats: NDArray[np.float64]
    windows: NDArray[np.uint32]
    has_sequences: bool


class LiveTable:
    """The state of one table of a replay.

    Args:
        table: its description.
        store: where the steps are.
        ring: its items.
        now: tells the time in seconds.
        counts: what it has counted, by the names `COUNTS`; None for nothing.
    """

    def __init__(
        self,
        table: Table,
        store: Store,
        ring: ItemRing,
        now: Callable[[], float],
        counts: Mapping[str, int] | None = None,
    ) -> None:
        self._table = table
        self.name = table.name
        self._use_limiter(table.rate_limiter)
        self.max_times = table.max_times_sampled
        self._without_replacement = isinstance(table.sampler, Uniform) and not table.sampler.replacement
        self._takes_items_out = self._without_replacement or bool(self.max_times)
        self._is_never_fused = self._without_replacement or isinstance(table.sampler, CustomSelector)
        self.is_custom = isinstance(table.sampler, CustomSelector) or isinstance(
            table.remover, CustomSelector
        )
        self._store = store
        self._now = now
        self.ring = ring
        counts = {**dict.fromkeys(COUNTS, 0), **(counts or {})}
        self.updates = counts["updates"]
        self.ignored_updates, self.ignored_deletes = counts["ignored_updates"], counts["ignored_deletes"]
        self.resets = 0
        # Together with what went into the ring, and was drawn from it, these are `inserts` and `samples`.
        self._inserts_before = counts["inserts"] - ring.items.inserted
        self._samples_before = counts["samples"] - ring.items.sampled
        self._pending = PendingQueue(self.name, now)
        self._tickets = TicketQueue(now)
        self._waiting = self._tickets.queue
        self.failure: BaseException | None = None
        # Whether it was said that samples showed rows of which nothing is known ahead.
        self.has_warned_of_newest = False
        self._told: list[Pending] = []

    def _use_limiter(self, limiter: RateLimiter) -> None:
        self.limiter = limiter
        self._never_blocks = limiter.never_blocks_inserts

    # ---- counts ----------------------------------------------------------------------------------------------------
    # The kernels count what went in and was drawn: so it is known after any error, Ctrl-C included.

    @property
    def inserts(self) -> int:
        """Items that were inserted."""
        return self._inserts_before + self.ring.items.inserted

    @property
    def samples(self) -> int:
        """Items that were sampled, each as often as it was."""
        return self._samples_before + self.ring.items.sampled

    @property
    def deletes(self) -> int:
        """Items that left: each that was inserted is there or left."""
        return self.inserts - len(self.ring)

    @property
    def _counts(self) -> tuple[int, int, int]:
        """Inserts, samples and deletes, for the limiter."""
        items = self.ring.items
        inserts = self._inserts_before + items.inserted
        return inserts, self._samples_before + items.sampled, inserts - items.live

    # ---- inserting -------------------------------------------------------------------------------------------------

    def takes_at_once(self, n: int) -> bool:
        """Whether n items would go in now."""
        pending = self._pending
        # Not `if pending`: that call takes 3 % of an append.
        if pending.count or pending.untold is not None:
            return False
        return self._never_blocks or self.limiter.insertable(*self._counts) >= n

    def append(self, block: LaneBlock, seam: Seam | None, cutter: Cutter, first_key: int) -> None:
        """Commit a block's step and insert the items that it completes; see `ItemRing.append`. The gate is open."""
        self.ring.append(block, seam, cutter, first_key)
        if self._waiting and cutter.total:
            self._call_tickets()

    def offer(self, new: NewItems) -> None:
        """Insert items now, or as soon as the gate lets them in, behind those that wait already.

        A selector of the user's own that fails leaves them pending, and their writer is told (`settle`).

        Raises:
            RuntimeError: such a selector failed before; these items are not made.
            StoreFull: there is no room for them; those that were not inserted are not made.
        """
        try:
            self.ring.check()
            takes_at_once = not self.is_custom and self.takes_at_once(len(new.rows))
        except BaseException:
            unpin_items(self._store.pins, new.rows, new.windows)
            raise
        if takes_at_once:
            before = self.inserts
            try:
                self._apply(new)
            except StoreFull:
                rest = new.split(self.inserts - before)[1]
                unpin_items(self._store.pins, rest.rows, rest.windows)
                raise
            if self._waiting:
                self._call_tickets()
            return
        self._pending.append(new)
        self.settle()

    def _apply(self, new: NewItems) -> None:
        self.ring.insert(new.first_key, new.rows, new.windows, new.priorities, new.keys)

    def _failed(self) -> None:
        """A change ended with an error half way, or Ctrl-C came: apply what it lets in.

        Where a selector of the user's own is broken, `settle` tells the writers whose items wait.
        """
        with suppress(RuntimeError):  # Of `check`.
            self.ring.check()
            self._remove_spent()
        self.settle()

    def settle(self) -> None:
        """Apply what the gate lets in now, then let those look that wait to sample.

        What a selector or rate limiter of the user's own raises here is told to the writers whose items wait. Whoever
        opened the gate has done what it was to do, and may be holding a batch.
        """
        if self._pending or self._told:
            try:
                self.ring.check()
                self._apply_pending()
                self._told = self._forgiven()
            except StoreFull as error:
                # Whoever opened the gate has nothing to do with it: they go on waiting, for the next time.
                _LOGGER.warning("items of table %r stay pending: %s", self.name, error)
            except Exception as error:  # Whatever the user's code raises.
                _LOGGER.error(
                    "table %r: %d pending items cannot go in: %r", self.name, self._pending.count, error
                )
                self._tell(error)
        if self._waiting:
            self._call_tickets()

    def _apply_pending(self) -> None:
        pending, ring = self._pending, self.ring
        # What an interrupt has left undone.
        pending.take_off(ring.items.inserted)
        while pending:
            room = self.limiter.insertable(*self._counts)
            if room < 1:
                return
            head = pending.head
            pending.begin(ring.items.inserted)
            try:
                self._apply(head if room >= len(head.rows) else head.split(int(room))[0])
            except Exception as error:
                if not isinstance(error, StoreFull):
                    self._told.append(head.writer)
                raise
            finally:
                pending.take_off(ring.items.inserted)

    def _tell(self, failure: BaseException) -> None:
        """Tell the writers whose items wait why they cannot go in."""
        writers = [*self._told, *self._pending.writers()]
        self._told = list({id(writer): writer for writer in writers}.values())
        for writer in self._told:
            writer.fail(self.name, failure)

    def _forgiven(self) -> list[Pending]:
        """Nobody is told of a failure any more."""
        for writer in self._told:
            writer.failures.pop(self.name, None)
        return []

    def can_insert(self, n: int) -> bool:
        """Whether n more items would be applied now, behind those that wait."""
        # Rules: replay L7
        return self.limiter.can_insert(*self._counts, self._pending.count + n)

    def refuse_pending(self) -> list[NewItems]:
        """Empty the queue of pending items and tell their writers; returns them."""
        self._told = self._forgiven()
        return self._pending.refuse()

    # ---- sampling --------------------------------------------------------------------------------------------------

    def can_sample(self, n: int) -> bool:
        """Whether a batch of n would be served now, behind those that wait."""
        # Rules: replay L7
        return not self._waiting and self._admits(n)

    def _admits(self, n: int) -> bool:
        """Whether the gate is open for a batch of n and the items suffice."""
        # Rules: replay L6
        items = self.ring.items
        # Not by `_counts`: that call takes 2 % of a batch.
        inserts = self._inserts_before + items.inserted
        if not self.limiter.can_sample(
            inserts, self._samples_before + items.sampled, inserts - items.live, n
        ):
            return False
        if not self._takes_items_out:
            return True
        size = items.live
        if self._without_replacement and size < n:
            return False
        # Every item allows at least one sample, so only a table smaller than the batch has to be looked through.
        return not self.max_times or size >= n or self.ring.supply(self.max_times) >= n

    def ask(self, n: int, call: Callable[[Ticket], None], deadline: float | None = None) -> Ticket:
        """Makes a ticket for a batch of n, behind those that wait already.

        Args:
            n: samples of one batch.
            call: see `Ticket.call`. Called before this returns if the batch can be served now or never. It may draw in
                the call, and then leaves (`leave`).
            deadline: see `expire_tickets`.
        """
        # Rules: replay L10, L11
        ticket = self._tickets.append(n, call, deadline)
        self._call_tickets()
        if not ticket.is_called and ticket.failure is None:
            failure = self._failure_of(ticket)
            if failure is not None:
                self._tickets.fail(failure, ticket)
        return ticket

    def is_turn_of(self, ticket: Ticket) -> bool:
        """Returns whether the ticket's batch can be drawn now; it waits on if the gate has closed since the call.

        Raises:
            Exception: the ticket's failure.
        """
        if ticket.failure is None:
            ticket.is_called = self._tickets.is_first(ticket) and self._admits(ticket.wanted)
            if ticket.is_called:
                return True
        failure = ticket.failure or self._failure_of(ticket)
        if failure is not None:
            raise failure
        return False

    def leave(self, ticket: Ticket) -> None:
        """Takes back a ticket, whose batch was drawn or is no longer wanted."""
        self._tickets.leave(ticket)
        if self._waiting:
            self._call_tickets()

    def expire_tickets(self) -> float | None:
        """Ends the tickets whose deadline has come with `DeadlineExceeded`; returns the next deadline."""
        next_deadline = self._tickets.expire(
            lambda ticket, seconds: self.waiting_message(ticket.wanted, seconds)
        )
        self._call_tickets()
        return next_deadline

    def _call_tickets(self) -> None:
        self._tickets.call_in_order(self._may_go)

    def _may_go(self, n: int) -> bool:
        self.ring.check()
        if self._admits(n):
            return True
        # A batch that could be served when it was asked for, before earlier ones were drawn.
        self._refuse_impossible(n)
        return False

    def forget_tickets(self) -> None:
        """In a forked child: the threads that wait are not here, so nothing has to wait behind them."""
        self._tickets.clear()

    def fail(self, failure: BaseException) -> None:
        """End every wait to sample with this error, now and later; with another than `Closed`, what can be drawn is."""
        self.failure = failure
        is_closed = isinstance(failure, Closed)
        self._tickets.fail_all(
            lambda ticket: self._failure_of(ticket) if is_closed or not ticket.is_called else None
        )

    def _failure_of(self, ticket: Ticket) -> BaseException | None:
        """Returns why the ticket cannot be served, now and later."""
        try:
            self.ring.check()
            self._refuse_impossible(ticket.wanted)
        except Exception as error:
            return error
        if isinstance(self.failure, Closed):
            return Closed(str(self.failure))
        return self.failure

    def _refuse_impossible(self, n: int) -> None:
        largest = self.limiter.largest_batch()
        size = self.ring.max_size
        if self._without_replacement or self.max_times:
            largest = min(largest, size * (1 if self._without_replacement else self.max_times))
        if n > largest and not self._admits(n):
            raise ValueError(
                f"table {self.name!r}: a batch of {n} could never be served: at most {largest:g} samples are allowed "
                f"at once ({self.limiter}, max_size={size}, max_times_sampled={self.max_times})"
            )

    def waiting_message(self, n: int, seconds: float) -> str:
        """Returns the message of a wait for n samples that has lasted so long."""
        return (
            f"table {self.name!r}: a sample of {n} waited {seconds:.3g} s: size {len(self.ring)}, "
            f"inserts {self.inserts}, samples {self.samples}, deletes {self.deletes}, "
            f"{self._pending.count} inserts pending ({self.limiter}). Insert more, ask for less, or wait longer"
        )

    def draw(self, n: int) -> Draw:
        """Draw a batch that can be served now (`can_sample`, `is_turn_of`)."""
        try:
            return self._draw(n)
        except BaseException:
            self._failed()
            raise

    def _draw(self, n: int) -> Draw:
        ring = self.ring
        drawn = Draw(
            np.empty(n, np.uint64),
            np.empty((4, n), np.int64),
            np.empty((2, n)),
            ring.window,
            ring.has_sequences,
        )
        draw = ring.draw_distinct if self._without_replacement else ring.draw
        drawn.windows = draw(drawn.keys, drawn.integers, drawn.floats, self.max_times)
        if self._pending or self._waiting:
            # What goes in now may bring another window for all; these items keep theirs.
            drawn.windows = drawn.windows.copy()
            self.settle()
        return drawn

    @property
    def can_draw_fused(self) -> bool:
        """Whether a draw takes nothing out and all items have as many rows: `draw_fused` may be used."""
        ring, window = self.ring, self.ring.window
        return not (
            self.max_times
            or self._is_never_fused
            or ring.has_windows
            or window[INVENTED]
            or window[LOOKAHEAD] == STREAM
        )

    def draw_fused(self, batch: FusedBatch) -> tuple[NDArray[np.uint8], int] | None:
        """As `draw`, and copy the records of the batch; see `FusedBatch.sample`."""
        try:
            drawn = self.ring.draw_fused(batch)
            if drawn is not None and (self._pending.count or self._waiting):
                self.settle()
            return drawn
        except BaseException:
            self._failed()
            raise

    @property
    def has_waiting(self) -> bool:
        """Whether a sample waits."""
        return len(self._tickets) > 0

    @property
    def gives_room(self) -> bool:
        """Whether sampling lets items leave, or lets items in for which others leave."""
        return self._pending.count > 0 or (self.max_times > 0 and len(self.ring) > 0)

    # ---- changing --------------------------------------------------------------------------------------------------

    def update(self, keys: NDArray[np.uint64], priorities: NDArray[np.float64]) -> int:
        """Set priorities; see `Replay.update_priorities`. Returns -1 if one is bad: then nothing has changed."""
        try:
            applied = self.ring.update(keys, priorities)
        except BaseException:
            self._failed()
            raise
        if applied < 0:
            return applied
        self.updates += applied
        self.ignored_updates += len(keys) - applied
        return applied

    def delete(self, keys: NDArray[np.uint64]) -> int:
        """Remove items; see `Replay.delete`."""
        try:
            removed = self.ring.remove(keys)
            self.ignored_deletes += len(keys) - removed
            self.settle()
            return removed
        except BaseException:
            self._failed()
            raise

    def reset(self) -> None:
        """Remove all items and begin to count anew; see `Replay.reset`."""
        self.ring.clear()
        self._inserts_before, self._samples_before = -self.ring.items.inserted, -self.ring.items.sampled
        self.resets += 1
        self.settle()

    def configure(self, max_size: int | None, rate_limiter: RateLimiter | None) -> None:
        """Change a live table: what can fail comes first, so that its settings change all or not at all."""
        # Rules: replay T9
        max_size = self.ring.max_size if max_size is None else max_size
        limiter = self.limiter if rate_limiter is None else rate_limiter
        check_size(self.name, max_size, limiter)
        try:
            self.ring.shrink_to(max_size)
            self._use_limiter(limiter)
            self._tickets.fail_all(
                lambda ticket: None if self._admits(ticket.wanted) else self._failure_of(ticket)
            )
            self.settle()
        except BaseException:
            self._failed()
            raise

    def description(self) -> Table:
        """The table with its settings of now."""
        return Table(
            self.name,
            sampler=self._table.sampler,
            remover=self._table.remover,
            max_size=self.ring.max_size,
            rate_limiter=self.limiter,
            max_times_sampled=self.max_times,
        )

    def copy(self, room: dict[str, NDArray[Any]]) -> TableState[ItemState]:
        """The table as it is now (`ItemRing.room_for_copy` gives the room)."""
        counts = {name: int(getattr(self, name)) for name in COUNTS}
        return TableState(self.description(), counts, self.ring.copy(room))

    def keep_to_settings(self) -> None:
        """Remove what the settings do not allow: they may be others than when the items were stored."""
        # Where nothing is to go nothing is touched: random numbers would be used up.
        self._remove_spent()
        if len(self.ring) > self.ring.max_size:
            self.ring.shrink_to(self.ring.max_size)

    def _remove_spent(self) -> None:
        """Remove the items that were sampled as often as they may be."""
        if self.max_times:
            spent = self.ring.keys_sampled(self.max_times)
            if len(spent):
                self.ring.remove(spent)

    def statistics(self) -> TableStatistics:
        """Returns the counters so far, and what waits now."""
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
        )

    def distribution(self, next_key: int, skipped: SkippedKeys) -> TableDistribution:
        """Returns the distribution of the items now; see `distribution_of`."""
        return distribution_of(self.name, self.ring, self._store, next_key, skipped)
