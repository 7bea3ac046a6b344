"""Items of a source of steps: the windows that its rules cut from the rows as they are committed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from headrace.errors import StoreFull
from headrace.replay.intake.chosen import Chosen
from headrace.replay.intake.writer_like import Made
from headrace.store.block import LaneBlock, Seam, WrittenSteps
from headrace.store.layout import LINKED
from headrace.store.memory.out_of_space import stored_without_items
from headrace.tables.description.rules import Rule
from headrace.tables.items.layout import CHOSEN, CONTINUE, WHOLE
from headrace.tables.live_table import LiveTable
from headrace.tables.pending import NewItems, Pending
from headrace.tables.windows.cutting import Cutter, pin_before

if TYPE_CHECKING:
    from headrace.replay.replay import ReplayCore

_NOTHING_CHOSEN = Chosen({}, {})


@dataclass(eq=False, slots=True)
class _RuleState:
    """A rule with its table and the buffer of its windows.

    Attributes:
        number: of the rule.
        given: the priorities of the items that the next call makes; None for those of the rule.
        streams: by block, the buffers of a rule whose windows go on over the ends of episodes.
    """

    number: int
    rule: Rule
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

    def cutter_of(self, block: LaneBlock) -> Cutter:
        cutter = self.cutter
        if cutter.end != CONTINUE:
            return cutter
        if block not in self.streams:
            self.streams[block] = Cutter(cutter.pins, self.rule.cut, cutter.priorities, block.lanes)
        return self.streams[block]

    def completes_with_the_next_row(self, lane_steps: NDArray[np.int64]) -> bool:
        """Whether the next row of some lane completes a window."""
        cutter = self.cutter
        if cutter.end == CONTINUE:
            return any(each.completes_a_stream() for each in self.streams.values())
        starts = lane_steps - (cutter.length + cutter.lookahead - 1)
        return cutter.end != WHOLE and bool(((starts >= 0) & (starts % cutter.stride == 0)).any())


class ItemBuilder:
    """Commits steps and offers the items that they complete to the tables. The replay's lock is held throughout.

    Args:
        replay: has the tables.
        rules: of the source.
        pending: counts the items that wait for a rate limiter.

    Attributes:
        rules: as above.
        made: the items that were made, in order; None while they are not recorded.
        refused: the error that kept items of stored rows out of their table; None: there was none.
        is_given: whether priorities or windows are given for the next call; the writer forgets them after it.
    """

    def __init__(self, replay: ReplayCore, rules: Sequence[Rule], pending: Pending) -> None:
        self._replay = replay
        self._arrays = replay.store.arrays
        self._pins = replay.store.pins
        self._pending = pending
        self.rules = tuple(rules)
        self._chosen = _NOTHING_CHOSEN
        self._first_lanes: dict[LaneBlock, int] = {}
        self.made: list[Made] | None = None
        self.refused: Exception | None = None
        self.is_given = False
        states = [
            _RuleState(
                number, rule, replay.live_table(rule.table), Cutter(self._pins, rule.cut, rule.priorities)
            )
            for number, rule in enumerate(rules)
        ]
        self._states = states
        # In a step that is a transition of every lane, rules of single rows come first.
        self._of_transitions = sorted(states, key=lambda state: not state.cutter.is_every_row)
        # A selector of the user's own is told of items one by one, and may fail: not together with the step.
        self._customs = [state.table for state in states if state.table.is_custom]
        alone = len(states) == 1 and not self._customs
        in_one_call = alone and states[0].cutter.end not in (CONTINUE, WHOLE, CHOSEN)
        self._only = states[0] if in_one_call else None

    def note_blocks(self, first_lanes: Mapping[LaneBlock, int]) -> None:
        """Notes the first lane of each block, counted among all lanes of the source."""
        self._first_lanes = dict(first_lanes)

    def give_priorities(self, priorities: Mapping[int, NDArray[np.float64]]) -> None:
        """Sets the priorities of the items that the next call makes.

        Args:
            priorities: rule's number to float64[m], in the order of its m items.
        """
        self.is_given = True
        for state in self._states:
            state.given = priorities.get(state.number)

    def choose(self, chosen: Chosen) -> None:
        """The next call makes these items of the rules whose windows are chosen."""
        self.is_given = True
        self._chosen = chosen

    def forget_given(self) -> None:
        """Ends the call for which priorities and windows were given: the next one has those of the rules."""
        self.is_given = False
        self._chosen = _NOTHING_CHOSEN
        for state in self._states:
            state.given = None

    # ---- steps -----------------------------------------------------------------------------------------------------

    def commit(self, block: LaneBlock, ends: Seam | None = None) -> None:
        """Commits a block's step and makes the items that it completes.

        Args:
            block: its columns are written.
            ends: which lanes hold nothing and which episodes end; None for a transition of every lane.

        Raises:
            StoreFull: there is no room for the items; nothing changed. Where the step is stored all the same, the error
                is in `refused`.
        """
        state = self._only
        if state is not None and state.given is None:
            table, cutter = state.table, state.cutter
            if (
                ends is None
                and self.made is None
                and cutter.is_every_row
                and table.takes_at_once(block.lanes)
            ):
                # The number of items is that of the lanes, because counting them takes 5 % of a step of one lane.
                row, key = block.kernel.row, self._replay.new_keys(block.lanes)
                try:
                    table.append(block, None, cutter, key)
                except StoreFull as error:
                    if block.kernel.row == row:
                        raise
                    self.refused = self.refused or error
                return
            most = block.lanes
            if ends is not None:
                most = cutter.most(most, len(ends.ended) + ends.final.tobytes().count(1))
            if table.takes_at_once(most):
                row, key, items = block.kernel.row, self._replay.keys_ahead(most), table.ring.items
                before = items.inserted
                try:
                    table.append(block, ends, cutter, key)
                except StoreFull as error:
                    if block.kernel.row == row:
                        raise
                    self.refused = self.refused or error
                finally:
                    # No call before: Ctrl-C must not come between items and their keys (test_interrupts.py).
                    made = items.inserted - before
                    self._replay.next_key = key + made
                    if self.made is not None and made:
                        self.made.append((0, range(key, key + made)))
                return
        if self._replay.is_closed:
            self._replay.check_open()
        for table in self._customs:
            table.ring.check()
        self.commit_anyway(block, ends)

    def commit_anyway(self, block: LaneBlock, ends: Seam | None = None) -> None:
        """Does `commit` for a step that is stored in any case: items that cannot be inserted are refused."""
        if ends is None:
            block.commit()
            self._make(block, self._of_transitions, self._chosen.rows)
            return
        block.commit_ends(ends.final, ends.idle)
        self._make(block, self._states, self._chosen.finals if ends.final.any() else self._chosen.rows)
        if len(ends.ended):
            block.commit_finals(ends.ended, ends.first)
            self.make_last(block, block.last + ends.ended, ends.ended)

    def commit_written_and_make(self, block: LaneBlock, written: WrittenSteps) -> None:
        """Commits steps whose columns are written already, and makes the items that they complete.

        Items that find no room are refused (`refused`): the steps are stored.
        """
        block.commit_written(written)
        for state in self._states:
            if state.cutter.end != CHOSEN and written.steps:
                self._offer(state, *state.cutter_of(block).cut_steps(written.page, written.steps))

    def make_of_finals(self, block: LaneBlock) -> None:
        """Makes the items that the step completes which a block committed last: the final rows of all its lanes."""
        self._make(block, self._states, self._chosen.finals)

    def _make(
        self, block: LaneBlock, states: Sequence[_RuleState], chosen: Mapping[int, NDArray[np.bool_]]
    ) -> None:
        for state in states:
            cutter = state.cutter_of(block)
            if cutter.end == CHOSEN:
                self._make_chosen(block, state, chosen, np.arange(block.lanes), block.newest_rows)
            else:
                self._offer(state, *cutter.cut_steps(block.last // self._arrays.page_rows, 1))

    def make_last(
        self, block: LaneBlock, rows: NDArray[np.int64], lanes: NDArray[np.int64], end: int | None = None
    ) -> None:
        """Handles episode ends; `rows` are the last rows of these episodes.

        Args:
            block: of the lanes.
            rows, lanes: int64[m].
            end: the number of an end that these have in place of their rule's.
        """
        for state in self._states:
            cutter = state.cutter_of(block)
            if cutter.end == CHOSEN:
                linked = (self._arrays.steps[rows].astype(np.int64) & LINKED) != 0
                finals = self._arrays.links[rows[linked]].astype(np.int64) - 1
                self._make_chosen(block, state, self._chosen.finals, lanes[linked], finals)
                continue
            if end is not None and cutter.end not in (WHOLE, CONTINUE):
                cutter = Cutter(self._pins, state.rule.cut._replace(end=end), cutter.priorities)
            self._offer(state, *cutter.cut_finals(rows))

    def end_streams(self, block: LaneBlock, lanes: NDArray[np.int64]) -> None:
        """Starts a new stream in these lanes: no window crosses this point."""
        for state in self._states:
            if state.cutter.end == CONTINUE:
                state.cutter_of(block).end_streams(lanes)

    def _make_chosen(
        self,
        block: LaneBlock,
        state: _RuleState,
        chosen: Mapping[int, NDArray[np.bool_]],
        lanes: NDArray[np.int64],
        newest: NDArray[np.int64],
    ) -> None:
        """Makes the items that end with the newest rows of these lanes of a block."""
        if state.number not in chosen:
            return
        ends = newest[chosen[state.number][self._first_lanes[block] + lanes]]
        if not len(ends):
            return
        rule = state.rule
        starts = np.empty(len(ends), np.int64)
        pin_before(self._pins, ends, rule.reach - 1, rule.length, starts)
        self._offer(state, starts, np.array([[1, 0, state.cutter.lookahead]], np.uint32))

    # ---- items -----------------------------------------------------------------------------------------------------

    def _offer(self, state: _RuleState, rows: NDArray[np.int64], shapes: NDArray[np.uint32]) -> None:
        count = len(rows)
        if not count:
            return
        key, before = self._replay.new_keys(count), state.table.inserts
        if self.made is not None:
            self.made.append((state.number, range(key, key + count)))
        try:
            state.table.offer(NewItems(key, rows, shapes, state.take_priorities(count), self._pending))
        except Exception as error:  # Also what a selector or rate limiter of the user's own raises.
            self._refuse(error, count, state.table.inserts - before)

    def _refuse(self, error: Exception, count: int, inserted: int) -> None:
        """Notes that only so many of the `count` items that were made last are in their table."""
        if self.made:
            number, keys = self.made[-1]
            self.made[-1] = number, keys[:inserted]
        if isinstance(error, StoreFull):
            error = stored_without_items(error, count - inserted)
        self.refused = self.refused or error

    def makes_items_of_the_next_step(self, lane_steps: NDArray[np.int64]) -> bool:
        """Whether the next step completes a window of some lane: only then is there an item to wait for.

        Args:
            lane_steps: int64[lanes], steps of the episode that each lane is in.
        """
        # Rules: replay I4
        return any(
            any(lanes.any() for lanes in self._chosen.rows.values())
            if state.cutter.end == CHOSEN
            else state.completes_with_the_next_row(lane_steps)
            for state in self._states
        )
