"""Counts rows that are in no item of any rule: the dropped steps of a step writer."""

# Rules: trajectories P2

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from headrace.ends import EndOfEpisode
from headrace.replay.intake.selection import Selection
from headrace.tables.description.rules import ItemRule, PatternWindow, Rule
from headrace.tables.items.layout import CONTINUE
from headrace.tables.windows.plan import WindowPlan

_KEEPS_THE_END = (EndOfEpisode.PAD, EndOfEpisode.TRUNCATE, EndOfEpisode.TILE)


class UnusedRows:
    """Counts, when an episode ends, its rows that are in no item.

    Where one rule keeps every row, as most do, there is nothing to count.

    Args:
        rules: of the writer.
        lanes: number of lanes.
    """

    def __init__(self, rules: Sequence[Rule], lanes: int) -> None:
        found = [rule for rule in rules if not isinstance(rule, PatternWindow)]
        self._keeps_all = any(map(_keeps_all, found))
        self._plans = [WindowPlan(rule.window_rule) for rule in found]
        # Rows of each stream so far, 0 for rules within episodes.
        self._counts = np.zeros((len(found), lanes), np.int64)
        # Rows of earlier episodes that a window of a stream may still hold: whether they are in an item already.
        self._open = [np.zeros(0, np.bool_) for _ in range(lanes)]
        has_patterns = len(found) < len(rules) and not self._keeps_all
        self._selected = SelectedRows(rules, lanes) if has_patterns else None
        # Rules of one row have no item of a final row, and it is not missed.
        self._counts_finals = not all(_is_of_one_row(rule) for rule in rules)

    def note_selected(self, selected: Selection, newest: NDArray[np.int64]) -> None:
        """Notes the items of patterns; see `SelectedRows.note`."""
        if self._selected is not None:
            self._selected.note(selected, newest)

    def end(self, lanes: NDArray[np.int64], transitions: NDArray[np.int64]) -> int:
        """Returns how many rows are dropped for certain when the episodes of these lanes end with final rows."""
        if self._keeps_all:
            return 0
        return sum(map(self._end, lanes.tolist(), transitions.tolist()))

    def _end(self, lane: int, transitions: int) -> int:
        final = np.zeros(transitions + 1, np.bool_)
        final[-1] = True
        return self._count(lane, final)

    def abandon(self, lanes: NDArray[np.int64], transitions: NDArray[np.int64]) -> int:
        """Returns how many rows are dropped for certain when nothing more is made of the episodes of these lanes."""
        return sum(
            self._count(lane, np.zeros(rows, np.bool_))
            for lane, rows in zip(lanes.tolist(), transitions.tolist(), strict=True)
        )

    def _count(self, lane: int, final: NDArray[np.bool_]) -> int:
        """Counts the dropped rows of an episode; `final` is bool[rows]."""
        rows, before = len(final), self._open[lane]
        used = np.concatenate([before, np.zeros(rows, np.bool_)])
        if self._selected is not None:
            used[len(before) :] = self._selected.take(lane, rows)
        used[-1] |= final[-1] and not self._counts_finals
        still_open = 0
        for plan, counts in zip(self._plans, self._counts, strict=True):
            count = int(counts[lane])
            _, starts, stops = plan.windows_of(np.arange(count, count + rows), final).T
            _mark(used, starts - count + len(before), stops - count + len(before))
            if plan.end == CONTINUE:
                # No window of one row begins at a final row (trajectories W6).
                counts[lane] += rows - int(final[-1] and plan.length == 1)
                still_open = max(still_open, int(counts[lane]) - plan.stream_start(int(counts[lane])))
        decided = len(used) - still_open
        self._open[lane] = used[decided:]
        return int(np.count_nonzero(~used[:decided]))

    def end_streams(self, lanes: NDArray[np.int64]) -> int:
        """Returns how many rows are dropped because no window crosses this point in these lanes."""
        self._counts[:, lanes] = 0
        dropped = 0
        for lane in lanes.tolist():
            dropped += int(np.count_nonzero(~self._open[lane]))
            self._open[lane] = self._open[lane][:0]
        return dropped


class SelectedRows:
    """The rows of unfinished episodes that are in items of patterns.

    A step up at the first row of each window, and a step down behind its last.

    Args:
        rules: of the writer; the others are left out.
        lanes: number of lanes.
    """

    def __init__(self, rules: Sequence[Rule], lanes: int) -> None:
        self._rules = {number: rule for number, rule in enumerate(rules) if isinstance(rule, PatternWindow)}
        self._steps = np.zeros((lanes, 64), np.int32)
        # Number of entries of each lane that may be other than 0.
        self._used = np.zeros(lanes, np.int64)

    def note(self, selected: Selection, newest: NDArray[np.int64]) -> None:
        """Notes windows that became items.

        Args:
            selected: the lanes.
            newest: int64[lanes], the number in its episode of the newest row that is not a final row.
        """
        for masks, last in ((selected.rows, newest), (selected.finals, newest + 1)):
            for number, mask in masks.items():
                lanes = np.flatnonzero(mask)
                if len(lanes):
                    self._add(lanes, last[lanes] + 1, self._rules[number])

    def _add(self, lanes: NDArray[np.int64], rows: NDArray[np.int64], rule: PatternWindow) -> None:
        stops = rows - rule.skip
        width = self._steps.shape[1]
        if stops.max() >= width:
            grown = np.zeros((len(self._steps), 2 * int(stops.max())), np.int32)
            grown[:, :width] = self._steps
            self._steps = grown
        self._steps[lanes, stops - rule.length] += 1
        self._steps[lanes, stops] -= 1
        self._used[lanes] = np.maximum(self._used[lanes], stops + 1)

    def take(self, lane: int, rows: int) -> NDArray[np.bool_]:
        """Returns whether each of the first `rows` rows of a lane's episode is in an item; the next episode begins."""
        # After a long episode the lane has a long row: only the entries of this episode are looked at.
        steps = self._steps[lane, : self._used[lane]]
        found = np.zeros(rows, np.bool_)
        known = min(rows, len(steps))
        found[:known] = np.cumsum(steps[:known]) > 0
        steps[:] = 0
        self._used[lane] = 0
        return found


def _mark(used: NDArray[np.bool_], starts: NDArray[np.int64], stops: NDArray[np.int64]) -> None:
    """Marks the rows of windows."""
    steps = np.bincount(starts, minlength=len(used) + 1) - np.bincount(stops, minlength=len(used) + 1)
    used |= np.cumsum(steps[:-1]) > 0


def _is_of_one_row(rule: Rule) -> bool:
    return rule.length == 1 and not (isinstance(rule, ItemRule) and rule.lookahead)


def _keeps_all(rule: Rule) -> bool:
    if not isinstance(rule, ItemRule):
        return False
    if rule.length == 1:
        return rule.stride == 1 and rule.lookahead > 0
    return rule.end in _KEEPS_THE_END and rule.stride <= rule.length
