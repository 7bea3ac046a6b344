"""The writer of a replay whose calls come from a client."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from headrace.errors import StoreFull
from headrace.replay.intake.intake import Intake
from headrace.replay.intake.row_writer import RowWriter
from headrace.replay.intake.step_rows import Values
from headrace.replay.replay import ReplayCore
from headrace.server.serving.writers.restoring_intake import RestoringIntake
from headrace.store.left_lanes import LeftLanes
from headrace.tables.description.rules import Rule
from headrace.tables.pending import Pending

_NO_ROWS: NDArray[np.int64] = np.empty(0, np.int64)
# A page of steps and one of final rows beside the lanes.
_PAGES_AHEAD = 2


class ServedRowWriter(RowWriter):
    """Writes the steps of a client: many at once, with pages ahead, and never waiting for items.

    The client counts its pending items; here none is too many.

    Args:
        replay, lanes, items, history: as `Replay.writer`.
        pending: the items of the same writer over an earlier connection, which still wait; None: there are none.

    Attributes:
        created: maps tables to the number of items that `create_item_as` made.
    """

    _intake: RestoringIntake
    _new_intake: type[Intake] = RestoringIntake

    def __init__(
        self,
        replay: ReplayCore,
        lanes: int,
        items: Sequence[Rule],
        history: int | None,
        pending: Pending | None = None,
    ) -> None:
        self._earlier_pending = pending
        self._is_restoring_rows = self._has_foreign_keys = False
        self.created: dict[str, int] = {}
        super().__init__(replay, lanes, items, history, sys.maxsize, 0)
        # Items of one call are made rule by rule: the keys of several rules need one step after the other.
        self._takes_many = self._only is not None and len(items) < 2
        self._steps_in_page = max(1, self._store.arrays.page_rows // lanes)
        self._extra_pages = _PAGES_AHEAD
        self._store.allow(_PAGES_AHEAD)
        self.record_items()

    def expect_foreign_keys(self) -> None:
        """Notes that the client has its keys from another server, until it is given some (`give_keys`)."""
        self._has_foreign_keys = True

    def give_keys(self, count: int) -> int:
        """Returns the first of `count` new keys, for `create_item_as`."""
        with self._lock:
            first = self._replay.keys.take(count)
        self._has_foreign_keys = False
        return first

    def count_at(self, slot: int) -> None:
        """Counts the items on disk; see `WriterCounts.open`."""
        with self._lock:
            self._intake.count_at(slot)

    def _new_pending(self) -> Pending:
        return self._earlier_pending or super()._new_pending()

    # ---- restoring -------------------------------------------------------------------------------------------------

    @property
    def streams(self) -> list[NDArray[np.int64]]:
        """See `RestoringIntake.streams`."""
        return self._intake.streams

    def restore_rows(self, lengths: NDArray[np.int64], streams: Sequence[NDArray[np.int64]]) -> None:
        """Begins to bring rows of an earlier connection into reach, without items.

        Args:
            lengths: int64[N], rows of the episode under way in each lane before the first of them.
            streams: of the same moment; see `streams`.

        Raises:
            ValueError: not one for each rule of streams.
        """
        with self._lock:
            for block, span in self._lanes.spans:
                block.lane_steps[:] = lengths[span]
            self._intake.restore_rows(streams)
        self._is_restoring_rows = True

    def make_missing_items(self, counts: Mapping[str, int]) -> None:
        """Makes items from here on, except for the next ones of each table, which exist.

        Args:
            counts: maps tables to their number.
        """
        with self._lock:
            self._intake.skip(counts)
        self._is_restoring_rows = False

    @property
    def to_skip(self) -> Mapping[str, int]:
        """Maps tables to the number of items that exist and were not found again yet."""
        return self._intake.to_skip

    @property
    def history(self) -> int:
        """Rows of a lane that stay in reach of later items."""
        return self._history

    @property
    def pending_items(self) -> Pending:
        """The items that wait for rate limiters."""
        return self._pending

    @property
    def completes_items(self) -> bool:
        """Whether the next step makes an item."""
        return self._intake.makes_items_of_the_next_step()

    # ---- pages -----------------------------------------------------------------------------------------------------

    def room(self) -> tuple[int, int]:
        """Takes pages ahead as far as they are free.

        Returns:
            The number of further vector steps, and of final rows beside the lanes, for which there are pages.
        """
        blocks = self._lanes.blocks
        with self._lock:
            try:
                for block in blocks:
                    block.make_room(self._steps_in_page)
            except StoreFull:
                pass  # The client is told, and asks again when it needs a page.
            return min(block.steps_ahead for block in blocks), blocks[0].finals_ahead if len(
                blocks
            ) == 1 else 0

    def suspend(self) -> LeftLanes | None:
        """Gives back the pages; returns what `resume` needs if the client comes back. Pending items stay.

        Another writer can use the rest of the last page, which shows that the episodes under way are over.
        """
        with self._lock:
            left = self._lanes.suspend()
            self._release()
            return left

    def resume(self, left: LeftLanes) -> bool:
        """Goes on in the pages of an earlier connection, before the first step; returns False if others use them."""
        with self._lock:
            self._lifetime.check_open()
            return self._only is not None and self._only.lanes == left.count and self._only.resume(left)

    def _release(self) -> None:
        super()._release()
        self._store.allow(-self._extra_pages)
        self._extra_pages = 0

    # ---- steps -----------------------------------------------------------------------------------------------------

    def append_many(self, steps: Values, first: int, most: int) -> int:
        """Appends vector steps, at least one, as many as the page has rows for.

        Args:
            steps: maps every column to an array `[steps, N, ...]`, checked.
            first: index of the first step to append.
            most: number of steps to append, >= 1.

        Returns:
            The number of steps that were appended.

        Raises:
            StoreFull: no free page; nothing is stored.
        """
        left = min(len(next(iter(steps.values()))) - first, most)
        if left == 1 or self._only is None or not self._takes_many:
            if self.lanes == 1:
                self.append_checked({name: column[first, 0] for name, column in steps.items()})
            else:
                self.append_checked({name: column[first] for name, column in steps.items()})
            return 1
        self._check_open()
        block = self._only
        block.make_room()
        count = min(left, (block.kernel.stop - block.row) // block.lanes)
        self._append_written({name: column[first:] for name, column in steps.items()}, count, _NO_ROWS)
        return count

    def create_item_as(self, key: int, table: str, length: int, priority: float | None, lane: int) -> None:
        """Makes an item with a key that the client was given ahead, unless it exists; see `WriterLike.create_item`.

        A key of another server, which may be in use here, is replaced by a new one.

        Raises:
            ValueError: these rows are not one window, or the key was not given out, or is in use; nothing is made.
        """
        if self._is_restoring_rows or self._intake.take_skip(table):
            return
        given: int | None = key
        if self._has_foreign_keys:
            given = None
        elif not 1 <= key < self._replay.keys.next:
            raise ValueError(f"key: expected one that the server gave out, got {key}")
        self._create_item(table, length, priority, lane, given)
        self.created[table] = self.created.get(table, 0) + 1
