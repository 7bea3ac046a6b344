"""Destinations of committed steps: a replay, whose tables get items of them, or a store alone."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

import numpy as np
from numpy.typing import NDArray

from headrace.replay.intake.intake import Intake
from headrace.replay.local import LocalReplay
from headrace.replay.waiter import wait_until_pending
from headrace.store.block import LaneBlock, WrittenSteps
from headrace.store.store import Store
from headrace.tables.description.rules import ItemRule, checked_rules
from headrace.tables.pending import Pending


class Destination:
    """A store: steps become rows. Subclasses make more of them. Its calls are made with the store's lock held.

    Args:
        store: of the rows.
    """

    def __init__(self, store: Store) -> None:
        self.store = store

    def new_block(self, lanes: int) -> LaneBlock:
        """Returns the lanes of the writer; the rows that items need stay in reach."""
        self._block = LaneBlock(self.store, lanes, 1)
        return self._block

    def open(self, observed: Iterable[str]) -> None:
        """Notes that steps will come, whose final rows hold these columns."""

    def close(self) -> None:
        """Notes that no more steps will come."""

    def check_open(self) -> None:
        """Raises `Closed` if no more steps can be taken in; a store alone is closed after its grantor."""

    def commit(self, written: WrittenSteps) -> None:
        """Takes in steps that are written."""
        self._block.commit_written(written)

    def end(self, lanes: NDArray[np.int64], final_rows: NDArray[np.int64]) -> None:
        """Ends the open episodes of these lanes after their last step."""
        self._block.end_written(lanes, final_rows)

    def drop(self, lanes: NDArray[np.int64]) -> None:
        """Ends the open episodes of these lanes without final rows; no further item is made of them."""
        self._block.drop(lanes)


class ReplayItems(Destination):
    """A replay: steps become rows, and items of its tables.

    Args:
        replay: of this process.
        rules: of the items.
        all_applied: called under the replay's lock when no item waits for a rate limiter any more.
    """

    def __init__(
        self, replay: LocalReplay, rules: Sequence[ItemRule], all_applied: Callable[[], None] = lambda: None
    ) -> None:
        super().__init__(replay.store)
        self._replay = replay
        self._rules = checked_rules(rules)
        self.pending = _PendingItems(replay, self.describe_pending, all_applied)

    def new_block(self, lanes: int) -> LaneBlock:
        """See `Destination.new_block`."""
        history = max((rule.reach for rule in self._rules), default=1)
        self._intake = Intake(self._replay, lanes, self._rules, history, self.pending)
        return self._intake.lanes.blocks[0]

    def open(self, observed: Iterable[str]) -> None:
        """See `Destination.open`."""
        self._replay.declarations.declare_final_columns(observed)
        self._replay.writers.opened(self)

    def close(self) -> None:
        """See `Destination.close`."""
        self._replay.writers.closed(self)

    def fail(self, failure: BaseException) -> None:
        """Notes that the writer has failed: waits that only its steps could end raise this error."""
        self._replay.writers.failed(self, failure)

    def check_open(self) -> None:
        """See `Destination.check_open`."""
        self._replay.check_open()

    def commit(self, written: WrittenSteps) -> None:
        """See `Destination.commit`."""
        self._intake.commit_written(written)
        self._intake.finish_call()

    def end(self, lanes: NDArray[np.int64], final_rows: NDArray[np.int64]) -> None:
        """See `Destination.end`."""
        self._intake.end_written(lanes, final_rows)
        self._intake.finish_call()

    def drop(self, lanes: NDArray[np.int64]) -> None:
        """See `Destination.drop`."""
        self._intake.drop(lanes)
        self._intake.end_streams(lanes)

    @property
    def has_pending(self) -> bool:
        """Whether items wait for a rate limiter."""
        return self.pending.count > 0

    def wait_pending(self, most: int) -> None:
        """Returns when fewer than `most` items wait for a rate limiter.

        Raises:
            RuntimeError: a table failed to insert them.
            Closed: the replay was closed.
        """
        wait_until_pending(self.pending, most - 1, self._replay.lock, self._replay.clock, None)

    def describe_pending(self) -> str:
        """Describes the items that wait for rate limiters; empty if there are none."""
        with self._replay.lock:
            waiting = {name: count for name, count in self.pending.by_table.items() if count}
            return ", ".join(
                f"{count} for table {name!r} ({self._describe_table(name)})"
                for name, count in waiting.items()
            )

    def _describe_table(self, name: str) -> str:
        live = self._replay.live_table(name)
        return f"size {len(live.ring)}, inserts {live.inserts}, samples {live.samples}, {live.limiter}"


class _PendingItems(Pending):
    """Items that wait for rate limiters, with a call when the last of them is in its table."""

    def __init__(
        self, replay: LocalReplay, describe: Callable[[], str], all_applied: Callable[[], None]
    ) -> None:
        super().__init__(replay.clock.monotonic)
        self._describe = describe
        self._all_applied = all_applied

    def waiting_message(self, _most: int, seconds: float) -> str:
        """See `Pending.waiting_message`."""
        return f"waited {seconds:.3g} s for items to go in: {self._describe()}"

    def left(self) -> None:
        """See `Pending.left`."""
        super().left()
        if not self.count:
            self._all_applied()
