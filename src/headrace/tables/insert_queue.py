"""Inserts that wait for a table: items that its rate limiter does not admit yet are pending."""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable, Iterable
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from headrace.errors import StoreFull
from headrace.tables.item_ring import ItemRing
from headrace.tables.new_items import NewItems
from headrace.tables.pending import Pending

_LOGGER = logging.getLogger(__name__)
_MOST_OLD_KEYS = 1024


class _Waiting(NamedTuple):
    """Items of one writer that wait.

    Attributes:
        items: the items.
        writer: counts them as pending.
        since: the time at which they began to wait, in seconds.
    """

    items: NewItems
    writer: Pending
    since: float


class InsertQueue:
    """The items that wait for one table, in order of arrival. The replay's lock is held throughout.

    Ctrl-C may come after any call. So an inserted item is known by the ring's own count, and taken off the queue in a
    step without calls; the next `apply` completes a step that an interrupt prevented.

    Args:
        table: its name.
        ring: its items.
        insertable: returns the number of items that the rate limiter lets in now.
        now: returns the time in seconds.

    Attributes:
        count: number of items that wait.
        seconds: sum of the waits of the items that were inserted.
        to_notify: the writer that does not know yet that items of it were inserted; None: there is none.
    """

    def __init__(
        self, table: str, ring: ItemRing, insertable: Callable[[], float], now: Callable[[], float]
    ) -> None:
        self._table = table
        self._ring = ring
        self._insertable = insertable
        self._now = now
        self._queue: deque[_Waiting] = deque()
        self.count = 0
        self.seconds = 0.0
        # Writers whose items found no memory at the last attempt.
        self._lacking: list[Pending] = []
        # The keys that were given out ahead for items that wait, and some of items that went in.
        self._given_keys: set[int] = set()
        # The ring's count of insertions when those at the head began to go in; -1: none do.
        self._before = -1
        self.to_notify: Pending | None = None
        # Writers that were notified of a failure.
        self._failed: list[Pending] = []

    def __bool__(self) -> bool:
        return bool(self._queue) or self.to_notify is not None

    @property
    def longest(self) -> float:
        """Seconds for which the first item has waited; 0 if there is none."""
        return self._now() - self._queue[0].since if self.count else 0.0

    def append(self, new: NewItems, writer: Pending) -> None:
        """Puts items behind the others."""
        waiting = _Waiting(new, writer, self._now())
        if len(new.keys):
            self._note_keys(new.keys)
        count, table = len(new), self._table
        of_table = writer.by_table.get(table, 0)
        # No call from here on but the last, after which Ctrl-C could come.
        self.count += count
        writer.count += count
        writer.by_table[table] = of_table + count
        self._queue.append(waiting)

    def keep(self, new: NewItems, writer: Pending) -> None:
        """Puts items behind the others for which there was no memory."""
        self.append(new, writer)
        self._note_lacking((*self._lacking, writer))

    def _note_lacking(self, writers: Iterable[Pending]) -> None:
        """Notes with these writers that there is no memory for their items, and with no others."""
        for writer in self._lacking:
            writer.without_memory.discard(self._table)
        self._lacking = list({id(writer): writer for writer in writers}.values())
        for writer in self._lacking:
            writer.without_memory.add(self._table)

    def expect_keys(self, keys: NDArray[np.uint64]) -> None:
        """Refuses keys of items that wait.

        Raises:
            ValueError: an item has one of them.
        """
        taken = self._given_keys.intersection(keys.tolist())
        if taken and (taken := taken & self._keys_that_wait()):
            raise ValueError(f"keys: expected keys of no item, got {sorted(taken)}, of items that wait")

    def _keys_that_wait(self) -> set[int]:
        """Returns the keys that were given out ahead for items that wait."""
        return {key for waiting in self._queue for key in waiting.items.keys.tolist()}

    def _note_keys(self, keys: NDArray[np.uint64]) -> None:
        """Notes keys of items that will wait; forgets those of items that went in when there are many."""
        if len(self._given_keys) > 2 * self.count + _MOST_OLD_KEYS:
            self._given_keys = self._keys_that_wait()
        self._given_keys.update(keys.tolist())

    def apply(self) -> None:
        """Inserts the items that the rate limiter lets in now.

        An error of a selector or rate limiter of the user's own is noted with the writers whose items wait: the caller
        that opened the gate has completed its own change.
        """
        if not (self or self._failed):
            return
        try:
            self._ring.check()
            self._insert()
            self._note_lacking(())
            self._forgive()
        except StoreFull as error:
            # The caller did not ask for these items: they wait for the next attempt. There may be many.
            log = _LOGGER.debug if self._lacking else _LOGGER.warning
            log("items of table %r stay pending: %s", self._table, error)
            self._note_lacking(waiting.writer for waiting in self._queue)
        except Exception as error:  # Of the user's code.
            _LOGGER.error("table %r: %d pending items cannot go in: %r", self._table, self.count, error)
            self._notify_failure(error)

    def _insert(self) -> None:
        # Completes a step that Ctrl-C prevented.
        self._take_off()
        while self:
            admitted = self._insertable()
            if admitted < 1:
                return
            head = self._queue[0]
            self._before = self._ring.items.inserted
            try:
                self._ring.insert(
                    head.items if admitted >= len(head.items) else head.items.until(int(admitted))
                )
            except Exception as error:
                if not isinstance(error, StoreFull):
                    self._failed.append(head.writer)
                raise
            finally:
                self._take_off()

    def _take_off(self) -> None:
        """Takes off the items that were inserted, and notifies their writer."""
        if self._before >= 0:
            self._take_off_head(self._queue[0], self._ring.items.inserted - self._before)
        if self.to_notify is not None:
            self.to_notify.left()
            self.to_notify = None

    def _take_off_head(self, head: _Waiting, done: int) -> None:
        rest, writer, table = head._replace(items=head.items.after(done)), head.writer, self._table
        seconds, left = self._now() - head.since, len(head.items) - done
        # No call from here on but the last, after which Ctrl-C could come.
        self.count -= done
        self.seconds += done * seconds
        writer.count -= done
        writer.by_table[table] -= done
        self.to_notify = writer if done else None
        self._before = -1
        if left:
            self._queue[0] = rest
        else:
            self._queue.popleft()

    def _notify_failure(self, failure: BaseException) -> None:
        """Notifies the writers of the waiting items of the failure."""
        writers = [*self._failed, *(waiting.writer for waiting in self._queue)]
        self._failed = list({id(writer): writer for writer in writers}.values())
        for writer in self._failed:
            writer.fail(self._table, failure)

    def _forgive(self) -> None:
        """Takes back the failures of which writers were notified."""
        for writer in self._failed:
            writer.failures.pop(self._table, None)
        self._failed = []

    def refuse(self) -> list[NewItems]:
        """Empties the queue and notifies the writers; returns the items that waited."""
        self._forgive()
        refused = list(self._queue)
        self._queue.clear()
        self.count = 0
        self._note_lacking(())
        for items, writer, _ in refused:
            writer.refused += len(items)
            writer.count -= len(items)
            writer.by_table[self._table] -= len(items)
            writer.left()
        return [waiting.items for waiting in refused]
