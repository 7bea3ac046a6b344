"""Items that wait for a table to take them."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from headrace.clock import Clock


class Pending:
    """How many items a writer has waiting in all tables, and where it waits for room or for the last of them."""

    def __init__(self, lock: threading.RLock) -> None:
        self.count = 0
        self.by_table: dict[str, int] = {}
        self.refused = 0
        # By table: what a selector or rate limiter of the user's own raised when the items were to go in.
        self.failures: dict[str, BaseException] = {}
        self.changed = threading.Condition(lock)

    def left(self) -> None:
        """Tell whoever waits that items of the writer wait no longer."""
        self.changed.notify_all()

    def fail(self, table: str, failure: BaseException) -> None:
        """Tell whoever waits that the items cannot go in as things are."""
        self.failures[table] = failure
        self.changed.notify_all()

    def raise_failure(self) -> None:
        """Raise `RuntimeError` if a table failed when items were to go in."""
        for table, failure in self.failures.items():
            raise RuntimeError(
                f"table {table!r} failed while it took in items of this writer, {self.by_table.get(table, 0)} of which "
                f"are still pending: {failure!r}. `reset` empties the table and lets them in"
            ) from failure


@dataclass
class NewItems:
    """Items on their way into a table; their pages are pinned.

    Attributes:
        first_key: of the first; the others follow.
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
            ),
            NewItems(
                self.first_key + count,
                self.rows[count:],
                self.windows[count:] if shapes else self.windows,
                self.priorities[count:] if per_item else self.priorities,
                self.writer,
                self.since,
            ),
        )


class PendingQueue:
    """The items that wait for one table, in the order in which they came. The replay's lock is held throughout.

    Ctrl-C may come after any call. So an item that is in its table is known by the table's own count, and taken off the
    queue in a step without calls; what an interrupt left undone the next `take_off` does.

    Args:
        table: its name.
        clock: tells how long they waited.

    Attributes:
        count: how many items wait.
        seconds: how long those waited that are in, summed.
        untold: the writer that is still to be told that items of it are in; None: there is none.
    """

    def __init__(self, table: str, clock: Clock) -> None:
        self._table = table
        self._clock = clock
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

    def writers(self) -> Iterator[Pending]:
        """The writers of the items."""
        return (new.writer for new in self._queue)

    def append(self, new: NewItems) -> None:
        """Let these items wait behind the others."""
        new.since = self._clock.monotonic()
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
        seconds, left = self._clock.monotonic() - head.since, len(rest.rows)
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
