"""A writer's items: what its rules make of the steps that were just committed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, TypeAlias

import numpy as np
from numpy.typing import NDArray

from headrace.errors import StoreFull
from headrace.replay.chosen import Chosen
from headrace.store.block import LaneBlock, Seam, WrittenSteps
from headrace.store.layout import LINKED
from headrace.store.room import stored_without_items
from headrace.tables.description.rules import Rule
from headrace.tables.items.layout import CHOSEN, CONTINUE, WHOLE
from headrace.tables.live_table import LiveTable
from headrace.tables.pending import NewItems, Pending
from headrace.tables.windows.cutting import Cutter, pin_before

if TYPE_CHECKING:
    from headrace.replay.replay import ReplayCore


Made: TypeAlias = tuple[int, range]
"""Items that one rule made at once: its number among the writer's, and their keys in order."""


@dataclass(eq=False, slots=True)
class _Rule:
    """A `Rule` with what is needed of it at every step.

    Attributes:
        cutter: holds the rule as numbers, and cuts its windows.
        given: the priorities of the items that it makes next, where they are not those of the rule.
        streams: the cutter of each block, where windows go on over the ends of episodes.
    """

    number: int
    table: LiveTable
    cutter: Cutter
    given: NDArray[np.float64] | None = None
    streams: dict[LaneBlock, Cutter] = field(default_factory=dict)

    def take_priorities(self, count: int) -> NDArray[np.float64]:
        if self.given is None:
            return self.cutter.priorities
        taken, self.given = self.given[:count], self.given[count:]
        assert len(taken) == count, "a priority was given for every item"
        return taken

    def cutter_of(self, block: LaneBlock, rule: Rule) -> Cutter:
        cutter = self.cutter
        if cutter.end != CONTINUE:
            return cutter
        if block not in self.streams:
            self.streams[block] = Cutter(cutter.pins, rule.cut, cutter.priorities, block.lanes)
        return self.streams[block]


class ItemMaker:
    """Offers items to tables by a writer's rules. The replay's lock is held throughout.

    Args:
        replay: whose tables.
        rules: of the writer.
        pending: counts what waits.

    Attributes:
        made: what was made, in order, for whoever asks; None while nobody does.
        refused: what kept items of rows that are stored out of their table. It is told when the rest of the step is
            stored too, and whoever writes has noted that.
    """

    def __init__(self, replay: ReplayCore, rules: Sequence[Rule], pending: Pending) -> None:
        self._replay = replay
        self._arrays = replay.store.arrays
        self._pins = replay.store.pins
        self._pending = pending
        self.rules = tuple(rules)
        self._chosen = Chosen({}, {})
        self._first_lanes: dict[LaneBlock, int] = {}
        self.made: list[Made] | None = None
        self.refused: Exception | None = None
        made = [
            _Rule(number, replay.live_table(rule.table), Cutter(self._pins, rule.cut, rule.priorities))
            for number, rule in enumerate(rules)
        ]
        self._all = made
        # Most rules make an item of each transition at once; for these nothing has to be cut.
        self._every_row = [rule for rule, given in zip(made, rules, strict=True) if given.is_every_row]
        # A selector of the user's own is told of items one by one, and may fail: not together with the step.
        self._customs = [rule.table for rule in made if rule.table.is_custom]
        alone = len(made) == 1 and not self._customs
        self._only = made[0] if alone and self._every_row else None
        self._only_cut = made[0] if alone and made[0].cutter.end not in (CONTINUE, WHOLE, CHOSEN) else None
        self._not_every_row = [
            rule for rule, given in zip(made, rules, strict=True) if not given.is_every_row
        ]

    def give_priorities(self, priorities: Mapping[int, NDArray[np.float64]]) -> None:
        """The items that these rules make from now on have these priorities, in their order.

        Args:
            priorities: rule's number to float64[m]; m items are made before the next call of this.
        """
        self._only = self._only_cut = None
        for number, values in priorities.items():
            self._all[number].given = values

    def note_blocks(self, first_lanes: Mapping[LaneBlock, int]) -> None:
        """Which of the writer's lanes is the first of each block."""
        self._first_lanes = dict(first_lanes)

    def choose(self, chosen: Chosen) -> None:
        """The next call makes these items of the rules whose windows are chosen."""
        self._chosen = chosen

    def commit_and_make(self, block: LaneBlock) -> None:
        """Commit a block's step, one transition of every lane, and make the items that it completes."""
        only, lanes = self._only, block.lanes
        if only is not None and only.table.takes_at_once(lanes):
            table, key, row = only.table, self._replay.new_keys(lanes), block.kernel.row
            before = 0 if self.made is None else table.inserts
            try:
                table.append_step(block, key, only.cutter.priority)
            except StoreFull as error:
                self._refuse_if_stored(error, block, row)
            if self.made is not None:
                self.made.append((0, range(key, key + table.inserts - before)))
            return
        if self._append_and_cut(block, None):
            return
        if self._replay.is_closed:
            self._replay.check_open()
        for table in self._customs:
            table.ring.check()
        self.commit_then_make(block)

    def commit_then_make(self, block: LaneBlock) -> None:
        """As `commit_and_make`, of a step that is stored in any case: items that cannot go in are refused."""
        block.commit()
        self.make(block)

    def commit_and_make_seam(self, block: LaneBlock, seam: Seam) -> None:
        """Does the same as `commit_and_make`, where some lanes hold nothing and the episodes of some end."""
        if self._append_and_cut(block, seam):
            return
        for table in self._customs:
            table.ring.check()
        if np.count_nonzero(seam.idle):
            block.commit_idle(seam.idle)
            self.make_marked(block, has_finals=False)
        else:
            self.commit_and_make(block)
        if len(seam.ended):
            block.commit_finals(seam.ended, seam.first)
            self.make_last(block, block.last + seam.ended, seam.ended)

    def commit_written_and_make(self, block: LaneBlock, written: WrittenSteps) -> None:
        """Commit steps whose columns are written already, and make the items that they complete.

        Items that find no room are refused (`refused`): the steps are stored.
        """
        block.commit_written(written)
        page = written.page
        for rule in self._all:
            cutter = rule.cutter_of(block, self.rules[rule.number])
            if cutter.end != CHOSEN and written.steps:
                self._offer(rule, *cutter.cut_steps(page, written.steps))

    def _append_and_cut(self, block: LaneBlock, seam: Seam | None) -> bool:
        """Commit a step and make its items in one call, where one rule alone makes any and its table takes them."""
        rule = self._only_cut
        if rule is None:
            return False
        table, cutter = rule.table, rule.cutter
        most = block.lanes if seam is None else cutter.most(block.lanes, len(seam.ended))
        if not table.takes_at_once(most):
            return False
        row, key, items = block.kernel.row, self._replay.keys_ahead(most), table.ring.items
        before = items.inserted
        try:
            if seam is None:
                table.append_and_cut(block, cutter, key)
            else:
                table.append_seam_and_cut(block, seam, cutter, key)
        except StoreFull as error:
            self._refuse_if_stored(error, block, row)
        finally:
            # No call before: Ctrl-C must not come between items and their keys (test_interrupts.py).
            made = items.inserted - before
            self._replay.next_key = key + made
            self._note_made(rule, key, made)
        return True

    def make(self, block: LaneBlock) -> None:
        """Of the step that a block committed last, one transition of every lane."""
        for rule in self._every_row:
            key, before = self._new_keys(rule, block.lanes), rule.table.inserts
            priorities = rule.take_priorities(block.lanes)
            try:
                rule.table.offer_rows(key, block.newest_rows, priorities, self._pending)
            except Exception as error:
                self._refuse(error, block.lanes, rule.table.inserts - before)
        for rule in self._not_every_row:
            self._make_of_step(block, rule, self._chosen.rows)

    def make_marked(self, block: LaneBlock, *, has_finals: bool) -> None:
        """Of the step that a block committed last, in which some lanes hold their final row or some hold nothing."""
        chosen = self._chosen.finals if has_finals else self._chosen.rows
        for rule in self._all:
            self._make_of_step(block, rule, chosen)

    def _make_of_step(self, block: LaneBlock, rule: _Rule, chosen: Mapping[int, NDArray[np.bool_]]) -> None:
        cutter = rule.cutter_of(block, self.rules[rule.number])
        if cutter.end == CHOSEN:
            self._make_chosen(block, rule, chosen, np.arange(block.lanes), block.newest_rows)
            return
        self._offer(rule, *cutter.cut_steps(block.last // self._arrays.page_rows, 1))

    def make_last(
        self, block: LaneBlock, rows: NDArray[np.int64], lanes: NDArray[np.int64], end: int | None = None
    ) -> None:
        """Handles episode ends; `rows` are the last rows of these episodes.

        Args:
            block: of the lanes.
            rows, lanes: int64[m].
            end: the number of an end that these have in place of their rule's.
        """
        for rule in self._all:
            cutter = rule.cutter_of(block, self.rules[rule.number])
            if cutter.end == CHOSEN:
                linked = (self._arrays.steps[rows].astype(np.int64) & LINKED) != 0
                finals = self._arrays.links[rows[linked]].astype(np.int64) - 1
                self._make_chosen(block, rule, self._chosen.finals, lanes[linked], finals)
                continue
            if end is not None and cutter.end not in (WHOLE, CONTINUE):
                cutter = Cutter(self._pins, self.rules[rule.number].cut._replace(end=end), cutter.priorities)
            self._offer(rule, *cutter.cut_finals(rows))

    def end_streams(self, block: LaneBlock, lanes: NDArray[np.int64]) -> None:
        """Starts a new stream in these lanes: no window crosses this point."""
        for rule in self._all:
            if rule.cutter.end == CONTINUE:
                rule.cutter_of(block, self.rules[rule.number]).end_streams(lanes)

    def _make_chosen(
        self,
        block: LaneBlock,
        rule: _Rule,
        chosen: Mapping[int, NDArray[np.bool_]],
        lanes: NDArray[np.int64],
        newest: NDArray[np.int64],
    ) -> None:
        """Of the newest rows of these lanes of a block."""
        if rule.number not in chosen:
            return
        ends = newest[chosen[rule.number][self._first_lanes[block] + lanes]]
        if not len(ends):
            return
        given = self.rules[rule.number]
        starts = np.empty(len(ends), np.int64)
        pin_before(self._pins, ends, given.reach - 1, given.length, starts)
        self._offer(rule, starts, np.array([[1, 0, rule.cutter.lookahead]], np.uint32))

    def _offer(self, rule: _Rule, rows: NDArray[np.int64], shapes: NDArray[np.uint32]) -> None:
        count = len(rows)
        if count:
            key, before = self._new_keys(rule, count), rule.table.inserts
            new = NewItems(key, rows, shapes, rule.take_priorities(count), self._pending)
            try:
                rule.table.offer(new)
            except Exception as error:  # Also what a selector or rate limiter of the user's own raises.
                self._refuse(error, count, rule.table.inserts - before)

    def _refuse_if_stored(self, error: StoreFull, block: LaneBlock, row: int) -> None:
        """Note an error of a call that was to commit the step at `row`, unless that has failed too."""
        if block.row == row:
            raise error
        self.refused = self.refused or error

    def _refuse(self, error: Exception, count: int, inserted: int) -> None:
        """Of the `count` items that were made last only so many are in their table."""
        if self.made:
            rule, keys = self.made[-1]
            self.made[-1] = rule, keys[:inserted]
        if isinstance(error, StoreFull):
            error = stored_without_items(error, count - inserted)
        self.refused = self.refused or error

    def _new_keys(self, rule: _Rule, count: int) -> int:
        key = self._replay.new_keys(count)
        self._note_made(rule, key, count)
        return key

    def _note_made(self, rule: _Rule, key: int, count: int) -> None:
        if self.made is not None and count:
            self.made.append((rule.number, range(key, key + count)))

    def makes_items_of_the_next_step(self, lane_steps: NDArray[np.int64]) -> bool:
        """Whether the next step completes a window of some lane: only then is there an item to wait for.

        Args:
            lane_steps: int64[lanes], steps of the episode that each lane is in.
        """
        # Rules: replay I4
        for rule in self._all:
            cutter = rule.cutter
            if cutter.end == CHOSEN:
                if any(lanes.any() for lanes in self._chosen.rows.values()):
                    return True
                continue
            if cutter.end == CONTINUE:
                if any(cutter.completes_a_stream() for cutter in rule.streams.values()):
                    return True
                continue
            starts = lane_steps - (cutter.length + cutter.lookahead - 1)
            if cutter.end != WHOLE and ((starts >= 0) & (starts % cutter.stride == 0)).any():
                return True
        return False
