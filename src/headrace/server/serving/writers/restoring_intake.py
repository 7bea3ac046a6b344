"""The intake of a client's writer, which takes in again what was sent before a connection was lost."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from headrace.errors import StoreFull
from headrace.replay.intake.intake import Intake
from headrace.replay.intake.rule_windows import RuleWindows, StreamWindows
from headrace.tables.live_table import LiveTable
from headrace.tables.new_items import NewItems
from headrace.tables.windows.buffer import Windows

_ALL = 1 << 62


class RestoringIntake(Intake):
    """Takes in rows whose items were made before, and makes only those that are missing.

    Items of one writer go into a table in one order, also when the steps are sent again, so their count says which of
    them were made.

    Attributes:
        to_skip: maps tables to the number of items that are made already.
    """

    to_skip: Mapping[str, int] = {}

    def count_at(self, source: int) -> None:
        """Counts the items on disk; see `NewItems.source`. No step goes into a table together with its items then."""
        self.source = source
        self._only = None

    @property
    def streams(self) -> list[NDArray[np.int64]]:
        """State of the rules whose windows go on over the ends of episodes; see `StreamWindows.streams`."""
        return [each.streams for each in self._windows if isinstance(each, StreamWindows)]

    def restore_rows(self, streams: Sequence[NDArray[np.int64]]) -> None:
        """Makes no items from here on: the rows are only brought into reach of later windows.

        Args:
            streams: before the first of them.

        Raises:
            ValueError: not one for each such rule.
        """
        self._normal = self._windows, self._of_transitions, self._only
        # A window may begin before the first row that is sent again. Streams remember rows by themselves.
        rules = [each for each in self._windows if isinstance(each, StreamWindows)]
        if len(streams) != len(rules):
            raise ValueError(f"streams: expected those of {len(rules)} rules, got {len(streams)}")
        for rule, rows in zip(rules, streams, strict=True):
            rule.restore_streams(rows)
        self._windows = self._of_transitions = list[RuleWindows](rules)
        self._only = None
        self.to_skip = {each.table.name: _ALL for each in rules}

    def skip(self, counts: Mapping[str, int]) -> None:
        """Ends `restore_rows`: items are made again, except for the next ones of each table, which exist.

        Args:
            counts: maps tables to their number.
        """
        self._windows, self._of_transitions, self._only_later = self._normal
        self.to_skip = {table: count for table, count in counts.items() if count > 0}
        self._end_skipping()

    def take_skip(self, table: str) -> bool:
        """Returns whether the next item of a table exists already, and counts it."""
        left = self.to_skip.get(table, 0)
        if left:
            self._count_skipped(table, 1)
        return bool(left)

    def _count_skipped(self, table: str, count: int) -> None:
        self.to_skip = {**self.to_skip, table: self.to_skip[table] - count}
        self._end_skipping()

    def _end_skipping(self) -> None:
        if not any(self.to_skip.values()):
            self.to_skip = {}
            self._only = self._only_later

    def _leave_out(self, table: LiveTable, error: StoreFull, items: NewItems) -> int:  # noqa: ARG002 - it is logged
        """Lets the items wait until there is memory: the client does not wait for the answer to each step."""
        table.keep(items, self._pending)
        return len(items)

    def _offer(self, of: RuleWindows, windows: Windows) -> None:
        """See `Intake._offer`."""
        table = of.table.name
        skipped = min(len(windows.rows), self.to_skip.get(table, 0))
        if not skipped:
            super()._offer(of, windows)
            return
        existing = NewItems(0, *windows, of.take_priorities(skipped))
        existing.until(skipped).unpin(self._store.pins)
        rest = existing.after(skipped)
        if self.to_skip[table] < _ALL // 2:
            self._count_skipped(table, skipped)
        super()._offer(of, Windows(rest.rows, rest.windows))
