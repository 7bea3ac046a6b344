"""Items that wait for a table to take them."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from headrace.tables.item_ring import NO_KEYS
from headrace.tables.ticket import Ticket, TicketQueue


class Pending:
    """The items that a writer has waiting in all tables, and the tickets of calls that wait for them.

    Args:
        now: tells the time in seconds.

    Attributes:
        count: how many items wait.
        by_table: how many wait for each table.
        refused: how many will never go in, since the replay was closed.
        failures: by table, what a selector or rate limiter of the user's own raised when the items were to go in.
    """

    def __init__(self, now: Callable[[], float]) -> None:
        self.count = 0
        self.by_table: dict[str, int] = {}
        self.refused = 0
        self.failures: dict[str, BaseException] = {}
        self._tickets = TicketQueue(now)

    def ask(self, most: int, call: Callable[[Ticket], None], deadline: float | None = None) -> Ticket:
        """Makes a ticket that waits until at most `most` items are pending; see `LiveTable.ask`."""
        ticket = self._tickets.append(most, call, deadline)
        if self.failures and self.count > most:
            self._tickets.fail_all(lambda each: self.failure if each is ticket else None)
        self.left()
        return ticket

    def is_turn_of(self, ticket: Ticket) -> bool:
        """Returns whether so few items are pending now.

        Raises:
            RuntimeError: a table failed when items were to go in.
        """
        ticket.is_called = self.count <= ticket.wanted
        if not ticket.is_called and ticket.failure is not None:
            raise ticket.failure
        return ticket.is_called

    def leave(self, ticket: Ticket) -> None:
        """Takes back a ticket that is no longer wanted."""
        self._tickets.leave(ticket)

    def waiting_message(self, _most: int, seconds: float) -> str:
        """Returns the message of a wait for these items that has lasted so long."""
        waiting = ", ".join(f"{count} for table {name!r}" for name, count in self.by_table.items() if count)
        return (
            f"{self.count} items of this writer are still pending after {seconds:.3g} s: {waiting}. They stay "
            "queued; sample from the table, raise its rate limiter's bound, or wait longer"
        )

    def left(self) -> None:
        """Calls the tickets that wait for no fewer items than are pending now."""
        if self._tickets:
            self._tickets.call_all(lambda most: self.count <= most)

    def fail(self, table: str, failure: BaseException) -> None:
        """Notes that the items cannot go in as things are, and ends the tickets."""
        self.failures[table] = failure
        self._tickets.fail_all(lambda _: self.failure)

    @property
    def failure(self) -> RuntimeError | None:
        """The error of a table that failed when items were to go in; None: there is none."""
        for table, failure in self.failures.items():
            error = RuntimeError(
                f"table {table!r} failed while it took in items of this writer, {self.by_table.get(table, 0)} of which "
                f"are still pending: {failure!r}. `reset` empties the table and lets them in"
            )
            error.__cause__ = failure
            return error
        return None

    def raise_failure(self) -> None:
        """Raise `RuntimeError` if a table failed when items were to go in."""
        failure = self.failure
        if failure is not None:
            raise failure


@dataclass
class NewItems:
    """Items on their way into a table; their pages are pinned.

    Attributes:
        first_key: of the first; the others follow.
        keys: uint64[M], of items whose keys were given out ahead, in place of `first_key`; otherwise empty.
        rows: int64[M], first rows of the windows.
        windows: uint32[M, 3], or uint32[1, 3] for all.
        priorities: float64[M], or float64[1] for all.
        writer: whose pending items they count as.
        since: when they began to wait.
    """

    first_key: int
    rows: NDArray[np.int64]
    windows: NDArray[np.uint32]
    priorities: NDArray[np.float64]
    writer: Pending
    since: float = 0.0
    keys: NDArray[np.uint64] = field(default_factory=lambda: NO_KEYS)

    def split(self, count: int) -> tuple[NewItems, NewItems]:
        """The first `count` items, and the others."""
        per_item = len(self.priorities) > 1
        shapes = len(self.windows) > 1
        return (
            NewItems(
                self.first_key,
                self.rows[:count],
                self.windows[:count] if shapes else self.windows,
                self.priorities[:count] if per_item else self.priorities,
                self.writer,
                self.since,
                self.keys[:count],
            ),
            NewItems(
                self.first_key + count,
                self.rows[count:],
                self.windows[count:] if shapes else self.windows,
                self.priorities[count:] if per_item else self.priorities,
                self.writer,
                self.since,
                self.keys[count:],
            ),
        )


class PendingQueue:
    """The items that wait for one table, in the order in which they came. The replay's lock is held throughout.

    Ctrl-C may come after any call. So an item that is in its table is known by the table's own count, and taken off the
    queue in a step without calls; what an interrupt left undone the next `take_off` does.

    Args:
        table: its name.
        now: tells the time in seconds.

    Attributes:
        count: how many items wait.
        seconds: how long those waited that are in, summed.
        untold: the writer that is still to be told that items of it are in; None: there is none.
    """

    def __init__(self, table: str, now: Callable[[], float]) -> None:
        self._table = table
        self._now = now
        self._queue: deque[NewItems] = deque()
        self.count = 0
        self.seconds = 0.0
        # How many items had been inserted into the table when those at the head began to go in; -1: none do.
        self._before = -1
        self.untold: Pending | None = None

    def __bool__(self) -> bool:
        # Also where a writer is still to be told that its items are in.
        return bool(self._queue) or self.untold is not None

    @property
    def head(self) -> NewItems:
        """The items that go in next."""
        return self._queue[0]

    @property
    def longest(self) -> float:
        """Seconds for which the first has waited; 0 if there is none."""
        return self._now() - self.head.since if self.count else 0.0

    def writers(self) -> Iterator[Pending]:
        """The writers of the items."""
        return (new.writer for new in self._queue)

    def append(self, new: NewItems) -> None:
        """Let these items wait behind the others."""
        new.since = self._now()
        count, writer, table = len(new.rows), new.writer, self._table
        waiting = writer.by_table.get(table, 0)
        # No call from here on but the last, after which Ctrl-C could come.
        self.count += count
        writer.count += count
        writer.by_table[table] = waiting + count
        self._queue.append(new)

    def begin(self, inserted: int) -> None:
        """The items at the head go in from here on.

        Args:
            inserted: how many items were inserted into the table ever.
        """
        self._before = inserted

    def take_off(self, inserted: int) -> None:
        """Take off those that went in since `begin`, and tell their writer."""
        if self._before >= 0:
            self._take_off(self.head, inserted - self._before)
        if self.untold is not None:
            self.untold.left()
            self.untold = None

    def _take_off(self, head: NewItems, done: int) -> None:
        rest, writer, table = head.split(done)[1], head.writer, self._table
        seconds, left = self._now() - head.since, len(rest.rows)
        # No call from here on but the last, after which Ctrl-C could come.
        self.count -= done
        self.seconds += done * seconds
        writer.count -= done
        writer.by_table[table] -= done
        self.untold = writer if done else None
        self._before = -1
        if left:
            self._queue[0] = rest
        else:
            self._queue.popleft()

    def refuse(self) -> list[NewItems]:
        """Empty the queue, and tell the writers; returns what was in it."""
        refused = list(self._queue)
        self._queue.clear()
        self.count = 0
        for new in refused:
            new.writer.refused += len(new.rows)
            new.writer.count -= len(new.rows)
            new.writer.by_table[self._table] -= len(new.rows)
            new.writer.left()
        return refused
