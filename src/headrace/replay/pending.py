"""Items that wait for a table to take them, and waiting itself."""

from __future__ import annotations

import contextlib
import threading
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from headrace.clock import Clock

# Seconds. A Ctrl-C between Python's last look for signals and the moment the thread sleeps does not wake it.
_LONGEST_WAIT = 0.5


def wait_on(condition: threading.Condition, clock: Clock, left: float | None) -> None:
    """Wait until the condition is notified, `left` seconds are over, or a moment has passed: then look, and wait again.

    Ctrl-C ends it within a second, and the condition's lock, an RLock that is held once, is held again.
    """
    # Rules: replay L12
    try:
        clock.wait(condition, _LONGEST_WAIT if left is None else min(left, _LONGEST_WAIT))
    except BaseException:
        # It may hit `Condition.wait` where it has given the lock up and would not take it again.
        with contextlib.suppress(RuntimeError):
            condition.release()
        condition.acquire()
        raise


class Pending:
    """How many items a writer has waiting in all tables, and where it waits for room or for the last of them."""

    def __init__(self, lock: threading.RLock) -> None:
        self.count = 0
        self.by_table: dict[str, int] = {}
        self.refused = 0
        # By table: what a selector or rate limiter of the user's own raised when the items were to go in.
        self.failures: dict[str, BaseException] = {}
        self.changed = threading.Condition(lock)

    def add(self, table: str, count: int) -> None:
        """Count items that wait (or, negative, that do no longer)."""
        self.count += count
        self.by_table[table] = self.by_table.get(table, 0) + count
        if count < 0:
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
