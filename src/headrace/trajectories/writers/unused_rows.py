"""How many rows end in no item of any rule: what a step writer reports as dropped."""

# Rules: trajectories P2

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from headrace.ends import EndOfEpisode
from headrace.replay.intake.chosen import Chosen
from headrace.tables.description.rules import ChosenWindows, ItemRule, Rule, WholeEpisodes
from headrace.trajectories.windows import regular_windows, rows_in_no_window, windows
from headrace.trajectories.writers.chosen_rows import ChosenRows

CONTINUE = EndOfEpisode.CONTINUE
_KEEPS_THE_END = (EndOfEpisode.PAD, EndOfEpisode.TRUNCATE, EndOfEpisode.TILE)


class UnusedRows:
    """Counts, when an episode ends, the rows that are in no item.

    Where one rule keeps every row, as most do, there is nothing to count.

    Args:
        rules: of the writer.
        lanes: how many.
    """

    def __init__(self, rules: Sequence[Rule], lanes: int) -> None:
        self._rules = [rule for rule in rules if not _continues(rule) and not isinstance(rule, ChosenWindows)]
        self._streams = [
            [
                _Stream(rule.length, rule.stride)
                for rule in rules
                if isinstance(rule, ItemRule) and _continues(rule)
            ]
            for _ in range(lanes)
        ]
        # Of rows that are in no item yet, but may come into one, where they stand in each stream.
        self._undecided = [np.zeros((len(streams), 0), np.int64) for streams in self._streams]
        self._keeps_all = any(_keeps_all(rule) for rule in self._rules)
        # Rules of one row have no item of a final row, and it is not missed.
        has_patterns = any(isinstance(rule, ChosenWindows) for rule in rules)
        self._chosen = ChosenRows(rules, lanes) if has_patterns and not self._keeps_all else None
        self._counts_finals = not all(_is_of_one_row(rule) for rule in rules)

    def chose(self, chosen: Chosen, index: NDArray[np.int64]) -> None:
        """Patterns made these items; see `ChosenRows.note`."""
        if self._chosen is not None:
            self._chosen.note(chosen, index)

    def end_all(self, lanes: NDArray[np.int64], transitions: NDArray[np.int64]) -> int:
        """`end` of several lanes."""
        if self._keeps_all:
            return 0
        return sum(map(self.end, lanes.tolist(), transitions.tolist()))

    def end(self, lane: int, transitions: int) -> int:
        """An episode ended with its final row; returns how many of its rows are dropped for certain."""
        if self._keeps_all:
            return 0
        rows = transitions + 1 if self._counts_finals else transitions
        if len(self._rules) == 1 and not self._streams[lane] and self._chosen is None:
            return _in_no_item(self._rules[0], transitions, rows)
        free = self._free(lane, rows)
        for rule in self._rules:
            for start, stop in _windows(rule, transitions, rows):
                free[start:stop] = False
        return self._leave_to_streams(lane, free, transitions)

    def _free(self, lane: int, rows: int) -> NDArray[np.bool_]:
        """The rows of an episode that is over which no pattern has in an item."""
        return np.ones(rows, np.bool_) if self._chosen is None else ~self._chosen.take(lane, rows)

    def _leave_to_streams(self, lane: int, free: NDArray[np.bool_], transitions: int) -> int:
        streams = self._streams[lane]
        if not streams:
            return int(free.sum())
        places = np.stack([stream.extend(len(free), transitions) for stream in streams])[:, free]
        places = np.concatenate([self._undecided[lane], places], axis=1)
        covered = np.any([stream.covers(row) for stream, row in zip(streams, places, strict=True)], axis=0)
        places = places[:, ~covered]
        is_open = np.any(
            [row >= stream.open_from for stream, row in zip(streams, places, strict=True)], axis=0
        )
        self._undecided[lane] = places[:, is_open]
        return int(np.count_nonzero(~is_open))

    def abandon(self, lane: int, transitions: int) -> int:
        """The current episode ends here and nothing more is made of it; returns how many of its rows are in no item."""
        free = self._free(lane, transitions)
        for rule in self._rules:
            if isinstance(rule, ItemRule):
                kept = rule.length + rule.lookahead
                for window in range(regular_windows(transitions, kept, rule.stride)):
                    free[window * rule.stride : window * rule.stride + kept] = False
        return self._leave_to_streams(lane, free, transitions)

    def end_stream(self, lane: int) -> int:
        """Drops the rows kept for windows across episodes; returns their number."""
        dropped = self._undecided[lane].shape[1]
        self._undecided[lane] = self._undecided[lane][:, :0]
        for stream in self._streams[lane]:
            stream.count = 0
        return dropped


class _Stream:
    """Which rows of one lane's stream are in windows of a rule."""

    def __init__(self, length: int, stride: int) -> None:
        self._length, self._stride = length, stride
        self.count = 0

    def extend(self, rows: int, transitions: int) -> NDArray[np.int64]:
        """An episode of so many rows joins the stream; returns where they stand, -1 for a final row that counts not."""
        joining = min(rows, transitions) if self._length == 1 else rows
        places = np.full(rows, -1, np.int64)
        places[:joining] = np.arange(self.count, self.count + joining)
        self.count += joining
        return places

    @property
    def open_from(self) -> int:
        """The first row that a window to come may hold."""
        return regular_windows(self.count, self._length, self._stride) * self._stride

    def covers(self, rows: NDArray[np.int64]) -> NDArray[np.bool_]:
        # The last window that begins at or before a row, among those that there are.
        last = self.open_from - self._stride
        begin = np.minimum(rows // self._stride * self._stride, last)
        covered: NDArray[np.bool_] = (rows >= 0) & (begin >= 0) & (rows < begin + self._length)
        return covered


def _continues(rule: Rule) -> bool:
    return isinstance(rule, ItemRule) and rule.end is CONTINUE


def _is_of_one_row(rule: Rule) -> bool:
    if isinstance(rule, ChosenWindows):
        return rule.length == 1
    return isinstance(rule, ItemRule) and rule.length == 1 and not rule.lookahead


def _keeps_all(rule: Rule) -> bool:
    if not isinstance(rule, ItemRule):
        return False
    if rule.length == 1:
        return rule.stride == 1 and rule.lookahead > 0
    return rule.end in _KEEPS_THE_END and rule.stride <= rule.length


def _in_no_item(rule: Rule, transitions: int, rows: int) -> int:
    if isinstance(rule, ItemRule) and not rule.lookahead:
        return rows_in_no_window(
            transitions if rule.length == 1 else rows, rule.length, rule.stride, rule.end
        )
    free = np.ones(rows, np.bool_)
    for start, stop in _windows(rule, transitions, rows):
        free[start:stop] = False
    return int(free.sum())


def _windows(rule: Rule, transitions: int, rows: int) -> list[tuple[int, int]]:
    """First row and the one after the last of each item of a whole episode, the rows that it only keeps included."""
    if isinstance(rule, WholeEpisodes):
        return [(0, rows)] if rows <= rule.length else []
    assert isinstance(rule, ItemRule), "chosen windows are noted, not cut"
    count = transitions if rule.length == 1 else rows
    return [
        (start, min(start + real + rule.lookahead, rows))
        for start, real, _ in windows(count, rule.length, rule.stride, rule.end)
    ]
