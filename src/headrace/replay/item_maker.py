"""A writer's items: what its rules make of the steps that were just committed."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from headrace.replay.cutting import Cut, Windows, cut_block, cut_finals, new_windows, room_for
from headrace.replay.live_table import LiveTable, NewItems, Pending
from headrace.replay.rules import ItemRule
from headrace.store.block import LaneBlock

if TYPE_CHECKING:
    from headrace.replay.replay import Replay


@dataclass(frozen=True, slots=True)
class _Rule:
    """An `ItemRule` with what is needed of it at every step."""

    table: LiveTable
    cut: Cut
    priorities: NDArray[np.float64]


class ItemMaker:
    """Offers items to tables by a writer's rules. The replay's lock is held throughout.

    Args:
        replay: whose tables.
        rules: of the writer.
        pending: counts what waits.
    """

    def __init__(self, replay: Replay, rules: Sequence[ItemRule], pending: Pending) -> None:
        self._replay = replay
        self._arrays = replay.store.arrays
        self._pending = pending
        self.rules = tuple(rules)
        made = [_Rule(replay.live_table(rule.table), rule.cut, rule.priorities) for rule in rules]
        self._all = made
        # Most rules make an item of each transition at once; for these nothing has to be cut.
        self._every_row = [rule for rule, given in zip(made, rules, strict=True) if given.is_every_row]
        self._only = self._every_row[0] if len(made) == len(self._every_row) == 1 else None
        self._cut = [rule for rule, given in zip(made, rules, strict=True) if not given.is_every_row]

    def commit_and_make(self, block: LaneBlock) -> None:
        """Commit a block's step, one transition of every lane, and make the items that it completes."""
        only = self._only
        if only is not None and only.table.takes_at_once(block.lanes):
            only.table.append_step(block, self._replay.new_keys(block.lanes), only.priorities)
            return
        block.commit()
        self.make(block)

    def make(self, block: LaneBlock) -> None:
        """Of the step that a block committed last, one transition of every lane."""
        for rule in self._every_row:
            keys = self._replay.new_keys(block.lanes)
            rule.table.offer_rows(keys, block.newest_rows, rule.priorities, self._pending)
        for rule in self._cut:
            self._make_of_step(block, rule, 0)

    def make_marked(self, block: LaneBlock, ends: int) -> None:
        """Of the step that a block committed last, in which `ends` lanes hold their final row or some hold nothing."""
        for rule in self._all:
            self._make_of_step(block, rule, ends)

    def _make_of_step(self, block: LaneBlock, rule: _Rule, ends: int) -> None:
        out = new_windows(room_for(block.lanes, ends, rule.cut))
        cut_block(self._arrays, block.last // self._arrays.page_rows, 1, rule.cut, out)
        self._offer(rule, out)

    def make_last(self, rows: NDArray[np.int64], lanes: NDArray[np.int64]) -> None:
        """Of the ends of the episodes whose last rows in their lanes are `rows`."""
        for rule in self._all:
            out = new_windows(room_for(len(rows), len(rows), rule.cut))
            cut_finals(self._arrays, rows, lanes, rule.cut, out)
            self._offer(rule, out)

    def _offer(self, rule: _Rule, out: Windows) -> None:
        count = int(out.total[0])
        if count:
            keys = self._replay.new_keys(count)
            new = NewItems(keys, out.rows[:count], out.shapes[:count], rule.priorities, self._pending)
            rule.table.offer(new)

    def makes_items_of_the_next_step(self, lane_steps: NDArray[np.int64]) -> bool:
        """Whether the next step completes a window of some lane: only then is there an item to wait for (replay I4).

        Args:
            lane_steps: int64[lanes], steps of the episode that each lane is in.
        """
        for rule in self._all:
            starts = lane_steps - (rule.cut.length + rule.cut.lookahead - 1)
            if ((starts >= 0) & (starts % rule.cut.stride == 0)).any():
                return True
        return False
