"""Windows of one rule, found in the rows as they are committed: in an episode, over its end, or selected."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from headrace.replay.intake.lanes import Lanes
from headrace.replay.intake.selection import Selection
from headrace.store.block import LaneBlock
from headrace.store.layout import FINAL, LINKED, USED
from headrace.store.store import Store
from headrace.tables.description.rules import Rule
from headrace.tables.items.layout import CONTINUE, SELECTED, WHOLE
from headrace.tables.live_table import LiveTable
from headrace.tables.windows.buffer import WindowBuffer, Windows, pin_before

_NO_WINDOWS = Windows(np.empty(0, np.int64), np.empty((1, 3), np.uint32))


class RuleWindows:
    """A rule whose windows lie in one episode each.

    Args:
        number: of the rule.
        rule: the rule.
        table: of its items.
        store: of the rows.
        lanes: of the source.

    Attributes:
        number, rule, table: as above.
        priorities: float64[1], of the items of the rule; empty: the largest so far.
        buffer: the buffer of its windows.
        given: float64[m], the priorities of the items of this call; None: that of the rule.
        left_out: number of selected windows that were not made since the caller looked last: their first rows are not
            in reach.
    """

    def __init__(self, number: int, rule: Rule, table: LiveTable, store: Store, lanes: Lanes) -> None:
        self.number = number
        self.rule = rule
        self.table = table
        priorities = rule.priorities
        self.priorities = priorities if len(priorities) else table.new_priorities
        self.buffer = WindowBuffer(store.pins, rule.window_rule, self.priorities)
        self.given: NDArray[np.float64] | None = None
        self.left_out = 0
        self._arrays = store.arrays
        self._pins = store.pins
        self._lanes = lanes

    def of_steps(self, block: LaneBlock, page: int, steps: int) -> Windows:  # noqa: ARG002
        """Returns the windows that the last `steps` committed vector steps of a page complete; they are pinned."""
        return self.buffer.find_in_steps(page, steps)

    def of_ends(
        self,
        block: LaneBlock,  # noqa: ARG002
        rows: NDArray[np.int64],
        lanes: NDArray[np.int64],  # noqa: ARG002
        end: int | None = None,
    ) -> Windows:
        """Returns the windows that ends of episodes complete, after those of their rows; they are pinned.

        Args:
            block: of the lanes.
            rows: int64[m], the last rows of these episodes in their lanes.
            lanes: int64[m], counted in the block.
            end: number of the end that replaces the rule's; None keeps that.
        """
        buffer = self.buffer
        if end is not None and buffer.end != WHOLE:
            buffer = WindowBuffer(self._pins, self.rule.window_rule._replace(end=end), self.priorities)
        return buffer.find_at_ends(rows)

    def completes_with_the_next_step(self) -> bool:
        """Returns whether the next step completes a window of some lane."""
        buffer = self.buffer
        starts = self._lanes.steps - (buffer.length + buffer.lookahead - 1)
        return buffer.end != WHOLE and bool(((starts >= 0) & (starts % buffer.stride == 0)).any())

    def end_streams(self, block: LaneBlock, lanes: NDArray[np.int64]) -> None:
        """Starts new streams in these lanes of a block: no window crosses this point."""

    def select(self, selection: Selection) -> None:
        """Says which windows the next call makes; see `WriterLike.select_windows`."""

    def take_priorities(self, count: int) -> NDArray[np.float64]:
        """Returns the priorities of the next `count` items, see `NewItems.priorities`; of fewer if fewer were given."""
        if self.given is None:
            return self.priorities
        taken, self.given = self.given[:count], self.given[count:]
        return taken


class StreamWindows(RuleWindows):
    """A rule whose windows go on over the ends of episodes: each block has a buffer of its own."""

    def __init__(self, number: int, rule: Rule, table: LiveTable, store: Store, lanes: Lanes) -> None:
        super().__init__(number, rule, table, store, lanes)
        self._buffers = {
            block: WindowBuffer(store.pins, rule.window_rule, self.priorities, block.lanes)
            for block in lanes.blocks
        }

    def of_steps(self, block: LaneBlock, page: int, steps: int) -> Windows:
        """See `RuleWindows.of_steps`."""
        return self._buffers[block].find_in_steps(page, steps)

    def of_ends(
        self,
        block: LaneBlock,
        rows: NDArray[np.int64],
        lanes: NDArray[np.int64],  # noqa: ARG002
        end: int | None = None,  # noqa: ARG002
    ) -> Windows:
        """See `RuleWindows.of_ends`."""
        return self._buffers[block].find_at_ends(rows)

    def completes_with_the_next_step(self) -> bool:
        """See `RuleWindows.completes_with_the_next_step`."""
        return any(buffer.completes_a_stream() for buffer in self._buffers.values())

    def end_streams(self, block: LaneBlock, lanes: NDArray[np.int64]) -> None:
        """See `RuleWindows.end_streams`."""
        self._buffers[block].end_streams(lanes)

    @property
    def streams(self) -> NDArray[np.int64]:
        """int64[2, N]: the number of rows in the stream of each lane, and whether the lane waits."""
        return np.concatenate([self._buffers[block].streams() for block, _ in self._lanes.spans], axis=1)

    def restore_streams(self, streams: NDArray[np.int64]) -> None:
        """Continues the streams of an earlier writer; see `WindowBuffer.restore_streams`."""
        for block, lanes in self._lanes.spans:
            self._buffers[block].restore_streams(streams[:, lanes])


class SelectedWindows(RuleWindows):
    """A rule whose windows a pattern selects: for each row whether a window ends there."""

    def __init__(self, number: int, rule: Rule, table: LiveTable, store: Store, lanes: Lanes) -> None:
        super().__init__(number, rule, table, store, lanes)
        self._spans = dict(lanes.spans)
        self._shape = np.array([[1, 0, self.buffer.lookahead]], np.uint32)
        self._of_rows: NDArray[np.bool_] | None = None
        self._of_finals: NDArray[np.bool_] | None = None

    def select(self, selection: Selection) -> None:
        """See `RuleWindows.select`."""
        self._of_rows = selection.rows.get(self.number)
        self._of_finals = selection.finals.get(self.number)

    def of_steps(self, block: LaneBlock, page: int, steps: int) -> Windows:
        """See `RuleWindows.of_steps`."""
        if self._of_rows is None and self._of_finals is None:
            return _NO_WINDOWS
        rows = steps * block.lanes
        stop = page * self._arrays.page_rows + int(self._arrays.pages[page, USED]) * block.lanes
        words = self._arrays.steps[stop - rows : stop]
        of_rows = self._mask(self._of_rows, block, rows)
        if not np.count_nonzero(words & (FINAL | LINKED)):
            return self._ending_at(stop - rows + np.flatnonzero(of_rows))
        of_finals = self._mask(self._of_finals, block, rows)
        # In each step first the rows in the lanes, then the final rows beside them.
        ends = np.full((steps, 2, block.lanes), -1, np.int64)
        in_lanes = np.flatnonzero(np.where(words & FINAL, of_finals, of_rows))
        beside = np.flatnonzero(of_finals & (words & LINKED != 0))
        ends[in_lanes // block.lanes, 0, in_lanes % block.lanes] = stop - rows + in_lanes
        links = self._arrays.links[stop - rows + beside].astype(np.int64) - 1
        ends[beside // block.lanes, 1, beside % block.lanes] = links
        return self._ending_at(ends[ends >= 0])

    def of_ends(
        self,
        block: LaneBlock,
        rows: NDArray[np.int64],
        lanes: NDArray[np.int64],
        end: int | None = None,  # noqa: ARG002
    ) -> Windows:
        """See `RuleWindows.of_ends`."""
        wanted = self._mask(self._of_finals, block, block.lanes)[lanes]
        wanted &= self._arrays.steps[rows] & LINKED != 0
        return self._ending_at(self._arrays.links[rows[wanted]].astype(np.int64) - 1)

    def _mask(self, mask: NDArray[np.bool_] | None, block: LaneBlock, rows: int) -> NDArray[np.bool_]:
        """Returns the part of a mask that is of a block, as bool[rows]."""
        if mask is None:
            return np.zeros(rows, np.bool_)
        return mask.reshape(-1, self._lanes.count)[:, self._spans[block]].reshape(rows)

    def _ending_at(self, ends: NDArray[np.int64]) -> Windows:
        """Returns the windows whose newest rows are `ends`."""
        starts = np.empty(len(ends), np.int64)
        count = pin_before(self._pins, ends, self.rule.reach - 1, self.rule.length, starts)
        self.left_out += len(ends) - count
        return Windows(starts[:count], self._shape)

    def completes_with_the_next_step(self) -> bool:
        """See `RuleWindows.completes_with_the_next_step`."""
        return self._of_rows is not None and bool(self._of_rows.any())


def rule_windows(number: int, rule: Rule, table: LiveTable, store: Store, lanes: Lanes) -> RuleWindows:
    """Returns the windows of a rule; see `RuleWindows`."""
    kinds = {CONTINUE: StreamWindows, SELECTED: SelectedWindows}
    # A window of one row is in one episode, whatever its rule says of ends.
    is_each_row = rule.window_rule.length == rule.window_rule.stride == 1 and rule.window_rule.end == CONTINUE
    kind = RuleWindows if is_each_row else kinds.get(rule.window_rule.end, RuleWindows)
    return kind(number, rule, table, store, lanes)
