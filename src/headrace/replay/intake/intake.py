"""The one way in: steps of any source become rows of a replay, and windows of them items of its tables."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from headrace.errors import StoreFull
from headrace.replay.intake.lanes import Lanes
from headrace.replay.intake.rule_windows import RuleWindows, rule_windows
from headrace.replay.intake.selection import Selection
from headrace.replay.intake.step_rows import StepRows, Values
from headrace.replay.intake.writer_like import Made
from headrace.replay.local import LocalReplay
from headrace.store.block import EpisodeBoundary, LaneBlock, WrittenSteps
from headrace.store.memory.out_of_space import stored_without_items
from headrace.tables.description.rules import Rule
from headrace.tables.items.layout import CONTINUE, SELECTED, WHOLE
from headrace.tables.live_table import LiveTable
from headrace.tables.new_items import ItemsLeft, NewItems
from headrace.tables.pending import Pending
from headrace.tables.windows.buffer import Windows

_NOTHING_SELECTED = Selection({}, {})
_NO_KEYS = np.zeros(0, np.uint64)


class Intake:
    """Takes in the steps of one source: a writer of this process, or a page writer elsewhere.

    Rows are written first: by `rows`, or by a page writer. The calls of this class make them part of the store and
    offer the items that they complete to the tables. The replay's lock is held throughout.

    Args:
        replay: of this process.
        lanes: number N of lanes.
        rules: of the items.
        history: newest rows of each lane that stay in reach of later windows.
        pending: counts the items that wait for a rate limiter.

    Attributes:
        lanes: the lanes in their blocks.
        rows: writes values.
        rules: as above.
        made: the items that were made, in order; None while they are not recorded.
        refused: the error that kept items of stored rows out of their table; None: there was none.
        is_given: whether priorities or windows are given for this call; the source forgets them after it.
        source: of the items; see `NewItems`.
    """

    def __init__(
        self, replay: LocalReplay, lanes: int, rules: Sequence[Rule], history: int, pending: Pending
    ) -> None:
        self._replay = replay
        self._keys = replay.keys
        self._store = store = replay.store
        self._pending = pending
        self.rules = tuple(rules)
        tables = [replay.live_table(rule.table) for rule in rules]
        across = max((rule.reach for rule in rules if rule.window_rule.end == CONTINUE), default=0)
        self.lanes = Lanes(store, lanes, history, across)
        self.rows = StepRows(store, self.lanes)
        self._windows = windows = [
            rule_windows(number, rule, table, store, self.lanes)
            for number, (rule, table) in enumerate(zip(rules, tables, strict=True))
        ]
        self.made: list[Made] | None = None
        self.refused: Exception | None = None
        # Items of stored rows for which there was no memory, since `refused` was raised last.
        self._left_out = 0
        self.is_given = False
        self.source = -1
        # In a step that is a transition of every lane, rules of single rows come first.
        self._of_transitions = sorted(windows, key=lambda each: not each.buffer.is_every_row)
        # A selector of the user's own is told of items one by one, and may fail: not together with the step.
        self._customs = [table for table in tables if table.is_custom]
        alone = len(windows) == 1 and not self._customs
        in_one_call = alone and windows[0].buffer.end not in (CONTINUE, WHOLE, SELECTED)
        self._only = windows[0] if in_one_call else None

    # ---- what the next call makes ----------------------------------------------------------------------------------

    def give_priorities(self, priorities: Mapping[int, NDArray[np.float64]]) -> None:
        """See `WriterLike.give_priorities`."""
        self.is_given = True
        for each in self._windows:
            each.given = priorities.get(each.number)

    def select(self, selection: Selection) -> None:
        """See `WriterLike.select_windows`; for written steps masks are bool[steps, N]."""
        self.is_given = True
        for each in self._windows:
            each.select(selection)

    def finish_call(self) -> None:
        """Ends a call of the source: priorities and windows that were given for it are those of no later call.

        Raises:
            Exception: what kept items of stored rows out of their table, unless items are recorded; see
                `raise_refused`.
        """
        if self.is_given:
            self.give_priorities({})
            self.select(_NOTHING_SELECTED)
            self.is_given = False
        # A source that records items looks for itself, after it has noted that the rows are stored.
        if self.made is None:
            self.raise_refused()

    def raise_refused(self) -> None:
        """See `WriterLike.raise_refused`."""
        error, self.refused = self.refused, None
        left_out, self._left_out = self._left_out, 0
        if isinstance(error, StoreFull):
            error = stored_without_items(error, left_out)
        if error is not None:
            raise error

    def makes_items_of_the_next_step(self) -> bool:
        """Returns whether the next step completes a window of some lane, so that it makes an item."""
        # Rules: replay I4
        return any(each.completes_with_the_next_step() for each in self._windows)

    # ---- one step --------------------------------------------------------------------------------------------------

    def commit(self, block: LaneBlock, ends: EpisodeBoundary | None = None) -> None:
        """Commits a block's step, and makes the items that it completes.

        Args:
            block: its columns are written.
            ends: which lanes hold nothing and which episodes end; None for a transition of every lane.

        Raises:
            StoreFull: no memory for the items; nothing changed. If the step is stored all the same, see `_leave_out`.
        """
        only = self._only
        if only is not None and only.given is None:
            table, buffer = only.table, only.buffer
            if (
                ends is None
                and self.made is None
                and buffer.is_every_row
                and table.takes_at_once(block.lanes)
            ):
                # The number of items is that of the lanes, because counting them takes 5 % of a step of one lane.
                key = self._keys.take(block.lanes)
                try:
                    table.append(block, None, buffer, key)
                except ItemsLeft as error:
                    self._leave_out(table, error, error.items)
                return
            most = block.lanes
            if ends is not None:
                most = buffer.most(most, len(ends.ended) + ends.final.tobytes().count(1))
            if table.takes_at_once(most):
                key, items = self._keys.ahead(most), table.ring.items
                before, kept = items.inserted, 0
                try:
                    table.append(block, ends, buffer, key)
                except ItemsLeft as error:
                    kept = self._leave_out(table, error, error.items)
                finally:
                    # No call before: Ctrl-C must not come between items and their keys (test_interrupts.py).
                    made = items.inserted - before + kept
                    self._keys.next = key + made
                    if self.made is not None and made:
                        self.made.append((0, range(key, key + made)))
                return
        self.check_tables()
        self._commit_anyway(block, ends)

    def check_tables(self) -> None:
        """Raises what keeps a step from being taken: a closed replay, or an index of the user's own that failed.

        Raises:
            Closed: the replay is closed.
            RuntimeError: see `CheckedIndex.check`.
        """
        self._replay.check_open()
        for table in self._customs:
            table.ring.check()

    def _commit_anyway(self, block: LaneBlock, ends: EpisodeBoundary | None) -> None:
        """Does `commit` for a step that is stored in any case: items that cannot be inserted are refused."""
        if ends is None:
            block.commit()
            self._make_of_step(block, self._of_transitions)
            return
        block.commit_ends(ends.final, ends.idle)
        self._make_of_step(block, self._windows)
        if len(ends.ended):
            block.commit_finals(ends.ended, ends.first)
            self._make_of_ends(block, block.last + ends.ended, ends.ended)

    def append(
        self, values: Values, spans: Sequence[tuple[LaneBlock, slice]], ends: EpisodeBoundary | None = None
    ) -> None:
        """Writes and commits a step block by block. Once one block is stored all are, so a retry doubles no lane.

        Args:
            values: columns `[N, ...]`, which fit.
            spans: blocks whose pages hold the step, with their lanes.
            ends: of all lanes; None for a transition of every lane.
        """
        for number, (block, lanes) in enumerate(spans):
            row = block.row
            try:
                self.rows.write_block(block, lanes, values)
                self.commit(block, _of_lanes(ends, lanes))
            except BaseException as error:
                is_stored = block.row != row
                if number == 0 and not is_stored:
                    raise
                for other, its_lanes in spans[number + is_stored :]:
                    self.rows.write_block(other, its_lanes, values)
                    self._commit_anyway(other, _of_lanes(ends, its_lanes))
                # Items without memory are noted as refused; Ctrl-C goes on.
                if is_stored or not isinstance(error, Exception):
                    raise
                return

    def append_ends(
        self, values: Values, spans: Sequence[tuple[LaneBlock, slice]], ends: EpisodeBoundary, finals: Values
    ) -> None:
        """Writes and commits a step in which episodes end or lanes hold nothing: all of it is stored, or nothing.

        Args:
            values, spans: see `append`.
            ends: of all lanes; `first` is not read.
            finals: columns `[m, ...]` of the final rows of the lanes `ended`, zero in the others.

        Raises:
            StoreFull: no free page for the final rows; nothing changed.
        """
        ended, done = ends.ended, 0
        if len(ended):
            self.require_finals(ended, 1)
            first = -1
            if len(self.lanes.blocks) == len(spans) == 1 and len(ended) < self.lanes.count:
                # Their final rows are written with the step, up to the space left in the page for these.
                first, free = self.lanes.blocks[0].make_room_for_finals()
                done = min(free, len(ended))
                self.rows.write_finals(first, finals, slice(0, done))
            ends = EpisodeBoundary(ends.final, ends.idle, ended[:done], first)
        self.append(values, spans, ends)
        if done < len(ended):
            self.end(ended[done:], {name: value[done:] for name, value in finals.items()})

    # ---- ends of episodes ------------------------------------------------------------------------------------------

    def require_finals(self, lanes: NDArray[np.int64], ahead: int) -> None:
        """Makes sure that final rows of these lanes can be stored, after `ahead` further steps.

        Raises:
            StoreFull: no free page.
        """
        needed: list[int] = []
        for block, inner, _ in self.lanes.by_block(lanes):
            needed += block.pages_for_finals(len(inner), ahead)
        self._store.require(needed)

    def end(self, lanes: NDArray[np.int64], values: Values) -> None:
        """Ends the episodes of some lanes with final rows, whose pages are free (`require_finals`).

        Args:
            lanes: int64[m], rising.
            values: columns `[m, ...]` of the final rows, zero in the others.
        """
        for block, inner, here in self.lanes.by_block(lanes):
            picked = {name: value[here] for name, value in values.items()}
            if len(inner) == block.lanes:
                self._end_inside(block, picked)
            else:
                self._end_beside(block, inner, picked)

    def _end_inside(self, block: LaneBlock, values: Values) -> None:
        """All lanes of a block end: their final rows are its next step."""
        block.make_room()
        self.rows.write_finals(block.row, values, slice(0, block.lanes))
        block.commit_final()
        self._make_of_step(block, self._windows)

    def _end_beside(self, block: LaneBlock, lanes: NDArray[np.int64], values: Values) -> None:
        """Final rows of some lanes of a block stand in a page of their own: a step of the block has one row a lane."""
        done = 0
        while done < len(lanes):
            first, free = block.make_room_for_finals()
            some = lanes[done : done + free]
            self.rows.write_finals(first, values, slice(done, done + len(some)))
            block.commit_finals(some, first)
            self._make_of_ends(block, block.last + some, some)
            done += len(some)

    def cut(self, lanes: NDArray[np.int64], end: int | None = None) -> None:
        """Ends the episodes of some lanes without final rows.

        Args:
            lanes: int64[m], rising.
            end: number of an `EndOfEpisode` that replaces those of the rules; None keeps these.
        """
        for block, inner, _ in self.lanes.by_block(lanes):
            rows = block.last + inner
            block.end_without_final(inner)
            self._make_of_ends(block, rows, inner, end)

    def drop(self, lanes: NDArray[np.int64]) -> None:
        """Ends the episodes of some lanes without final rows and without further items."""
        for block, inner, _ in self.lanes.by_block(lanes):
            block.drop(inner)

    def end_streams(self, lanes: NDArray[np.int64]) -> None:
        """Starts new streams in some lanes: no window crosses this point."""
        for block, inner, _ in self.lanes.by_block(lanes):
            for each in self._windows:
                each.end_streams(block, inner)

    # ---- many steps ------------------------------------------------------------------------------------------------

    def commit_written(self, written: WrittenSteps) -> None:
        """Commits steps of the only block, whose columns are written already, and makes the items that they complete.

        Items without memory are refused (`refused`): the steps are stored.
        """
        (block,) = self.lanes.blocks
        block.commit_written(written)
        if written.steps:
            for each in self._windows:
                self._offer(each, each.of_steps(block, written.page, written.steps))

    def end_written(self, lanes: NDArray[np.int64], final_rows: NDArray[np.int64]) -> None:
        """Ends open episodes of the only block with final rows that are written already.

        Args:
            lanes: int64[m], rising.
            final_rows: int64[m], rows of the store; see `WrittenSteps`.
        """
        (block,) = self.lanes.blocks
        block.end_written(lanes, final_rows)
        self._make_of_ends(block, block.last + lanes, lanes)

    # ---- items -----------------------------------------------------------------------------------------------------

    def create_item(
        self, table: str, length: int, priority: float | None, lane: int, given_key: int | None = None
    ) -> int:
        """Makes an item of the last `length` rows of a lane; returns its key, or -1 if these are not one window.

        Args:
            table, length, priority, lane: see `WriterLike.create_item`.
            given_key: a key that `ItemKeys` gave out ahead, for this item; None: the next key.
        """
        live, start = self._replay.live_table(table), self.first_of_last(length, lane)
        if start < 0:
            return -1
        self._store.pins.pin_window(start, length, 1)
        key = self._keys.take(1) if given_key is None else given_key
        keys = _NO_KEYS if given_key is None else np.array([given_key], np.uint64)
        shape = np.array([[length, 0, 0]], np.uint32)
        priorities = live.new_priorities if priority is None else np.array([float(priority)])
        new = NewItems(key, np.array([start]), shape, priorities, keys, self.source)
        try:
            live.offer(new, self._pending)
        except StoreFull:
            new.unpin(self._store.pins)
            raise
        return key

    def first_of_last(self, length: int, lane: int) -> int:
        """Returns the first of the last `length` rows of a lane, or -1 if these are not one window."""
        block, inner = self.lanes.find(lane)
        tail = block.tail(inner)
        return -1 if tail < 0 else self._store.window.follow(tail, 1 - length)

    def _make_of_step(self, block: LaneBlock, windows: Sequence[RuleWindows]) -> None:
        page = block.last // self._store.arrays.page_rows
        for each in windows:
            self._offer(each, each.of_steps(block, page, 1))

    def _make_of_ends(
        self, block: LaneBlock, rows: NDArray[np.int64], lanes: NDArray[np.int64], end: int | None = None
    ) -> None:
        if block.last < 0:  # All their steps are in another store.
            return
        for each in self._windows:
            self._offer(each, each.of_ends(block, rows, lanes, end))

    def _offer(self, of: RuleWindows, windows: Windows) -> None:
        """Makes items of windows of a rule; those that cannot be inserted are refused."""
        rows, shapes = windows
        count = len(rows)
        if of.left_out:
            self._refuse_left_out(of)
        if not count:
            return
        key, before = self._keys.take(count), of.table.inserts
        if self.made is not None:
            self.made.append((of.number, range(key, key + count)))
        new = NewItems(key, rows, shapes, of.take_priorities(count), source=self.source)
        try:
            if of.given is not None:
                self._check_priorities(of, new)
            of.table.offer(new, self._pending)
        except StoreFull as error:
            inserted = of.table.inserts - before
            self._note_made(inserted + self._leave_out(of.table, error, new.after(inserted)))
        except Exception as error:  # Also what a selector or rate limiter of the user's own raises.
            self._note_made(of.table.inserts - before)
            self.refused = self.refused or error

    def _check_priorities(self, of: RuleWindows, new: NewItems) -> None:
        """Releases the pages of new items for which too few priorities were given.

        Raises:
            ValueError: so it is.
        """
        count, given = len(new), len(new.priorities)
        if given < count:
            new.unpin(self._store.pins)
            raise ValueError(
                f"priorities: table {of.rule.table!r}: expected one for each of the {count} items, got {given}"
            )

    def _refuse_left_out(self, of: RuleWindows) -> None:
        """Notes that selected windows were not made."""
        rule, count, of.left_out = of.rule, of.left_out, 0
        self.refused = self.refused or ValueError(
            f"table {rule.table!r}: {count} selected windows were not made: expected {rule.reach} rows of an episode "
            "in reach"
        )

    def _note_made(self, count: int) -> None:
        """Notes that only the first `count` of the items that were noted last exist."""
        if self.made:
            number, keys = self.made[-1]
            self.made[-1] = number, keys[:count]

    def _leave_out(self, table: LiveTable, error: StoreFull, items: NewItems) -> int:  # noqa: ARG002 - see subclass
        """Refuses items of stored rows, for which there is no memory.

        Args:
            table: of the items.
            error: says what there is no memory for.
            items: still pinned.

        Returns:
            The number of them that exist all the same.
        """
        items.unpin(self._store.pins)
        self._left_out += len(items)
        self.refused = self.refused or error
        return 0


def _of_lanes(ends: EpisodeBoundary | None, lanes: slice) -> EpisodeBoundary | None:
    """Returns the part of `ends` of a block's lanes; None if each of them holds a transition."""
    if ends is None:
        return None
    final, idle = ends.final[lanes], ends.idle[lanes]
    if not len(ends.ended) and not any_set(final) and not any_set(idle):
        return None
    return EpisodeBoundary(final, idle, ends.ended, ends.first)


def any_set(mask: NDArray[np.bool_]) -> bool:
    """Whether some element is True; takes a tenth of the time of `mask.any()` for some hundred elements."""
    return 1 in mask.tobytes()
