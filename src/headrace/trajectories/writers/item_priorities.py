"""Priorities by a function of an item's rows, computed before the item exists.

A step writer knows from its rules which items a call will make. So their rows are shown to the function first, and only
when it gave a number for each is anything stored.
"""

# Rules: trajectories A7

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from headrace.checks import shown
from headrace.ends import EndOfEpisode
from headrace.replay.intake.chosen import Chosen
from headrace.spec import Signature
from headrace.tables.description.rules import ChosenWindows, ItemRule, Rule, WholeEpisodes, check_priority
from headrace.trajectories.windows import regular_windows, windows

# One lane's row: the columns of the call that wrote it, `[lanes, ...]`, and which lane.
Row = tuple[Mapping[str, NDArray[Any]], int]
Window = tuple[int, int]


@dataclass
class _Lane:
    """The rows of a lane that further items may hold.

    Attributes:
        rows: the newest ones.
        gone: how many were before those, in the episode or, for windows over seams, in the stream.
    """

    rows: list[Row]
    gone: int = 0


class ItemPriorities:
    """Asks the functions of some rules for the priorities of the items that a call makes.

    Args:
        signature: of the replay.
        rules: of the writer, with the functions that are among their priorities, by number.
        functions: rule's number to its function.
        lanes: how many.
    """

    def __init__(
        self,
        signature: Signature,
        rules: Sequence[Rule],
        functions: Mapping[int, Callable[[Any], Any]],
        lanes: int,
    ) -> None:
        self._signature = signature
        self._rules = {number: rules[number] for number in functions}
        self._functions = functions
        self._reach = max((rule.reach for rule in self._rules.values()), default=0) + 1
        self._lanes = {number: [_Lane([]) for _ in range(lanes)] for number in functions}
        self._new: list[tuple[int, Row]] = []
        self._finals: list[tuple[int, Row]] = []
        self._chosen = Chosen({}, {})

    def of_step(
        self,
        columns: Mapping[str, NDArray[Any]],
        lanes: Iterable[int],
        ended: Sequence[int],
        finals: Mapping[str, NDArray[Any]],
        chosen: Chosen,
    ) -> dict[int, NDArray[np.float64]]:
        """The priorities of the items of a step, by rule, in the order in which the writer makes them.

        Args:
            columns: `[lanes, ...]`; kept until the rows are out of reach.
            lanes: those that store a row.
            ended: those whose episode ends.
            finals: `[m, ...]`: all columns of their final rows.
            chosen: which items of the rules whose windows are chosen are made.

        Raises:
            ValueError: a function returned a priority that is negative or not finite; names the table.
        """
        self._new = [(lane, (columns, lane)) for lane in lanes]
        self._finals = [(lane, (finals, index)) for index, lane in enumerate(ended)]
        priorities = {}
        self._chosen = chosen
        for number, rule in self._rules.items():
            items = [self._of_append(number, rule, lane, row) for lane, row in self._new]
            items += [self._of_end(number, rule, lane, row) for lane, row in self._finals]
            values = [self._ask(number, rule, rows) for rows in _flat(items)]
            priorities[number] = np.array(values, np.float64)
        return priorities

    def took_step(self) -> None:
        """The step that `of_step` was asked of last is stored."""
        for number, rule in self._rules.items():
            for lane, row in self._new:
                self._push(self._lanes[number][lane], row)
            for lane, row in self._finals:
                self._close(number, rule, lane, row)
        self._new = self._finals = []

    def forget(self, lanes: Iterable[int]) -> None:
        """Nothing more is made of what these lanes hold."""
        for each in self._lanes.values():
            for lane in lanes:
                each[lane] = _Lane([])

    def _push(self, lane: _Lane, row: Row) -> None:
        lane.rows.append(row)
        spare = len(lane.rows) - self._reach
        if spare > self._reach:
            del lane.rows[:spare]
            lane.gone += spare

    def _close(self, number: int, rule: Rule, lane: int, final: Row) -> None:
        if not _continues(rule):
            self._lanes[number][lane] = _Lane([])
        elif rule.length > 1:
            self._push(self._lanes[number][lane], final)

    # ---- which rows ------------------------------------------------------------------------------------------------

    def _of_append(self, number: int, rule: Rule, lane: int, row: Row) -> list[list[Row]]:
        if isinstance(rule, WholeEpisodes):
            return []
        held = self._lanes[number][lane]
        rows = held.gone + len(held.rows) + 1
        if isinstance(rule, ChosenWindows):
            return [_cut(held, [row], _chosen(rule, rows))] if self._chosen.rows[number][lane] else []
        start = rows - rule.length - rule.lookahead
        if start < 0 or start % rule.stride:
            return []
        return [_cut(held, [row], (start, rows))]

    def _of_end(self, number: int, rule: Rule, lane: int, final: Row) -> list[list[Row]]:
        held = self._lanes[number][lane]
        new = [row for each, row in self._new if each == lane]
        transitions = held.gone + len(held.rows) + len(new)
        if isinstance(rule, WholeEpisodes):
            due = [(0, transitions + 1)] if transitions < rule.length else []
        elif isinstance(rule, ChosenWindows):
            due = [_chosen(rule, transitions + 1)] if self._chosen.finals[number][lane] else []
        elif _continues(rule):
            start = transitions + 1 - rule.length
            due = (
                [(start, transitions + 1)]
                if rule.length > 1 and start >= 0 and start % rule.stride == 0
                else []
            )
        else:
            due = _due_at_end(rule, transitions)
        return [_cut(held, [*new, final], window) for window in due]

    # ---- the functions ---------------------------------------------------------------------------------------------

    def _ask(self, number: int, rule: Rule, rows: Sequence[Row]) -> float:
        columns = {
            name: np.stack([values[name][at] for values, at in rows]) for name in self._signature.columns
        }
        given = self._functions[number](self._signature.unflatten(columns))
        try:
            priority = float(given)
            check_priority(priority)
        except (TypeError, ValueError) as error:
            raise ValueError(
                f"table {rule.table!r}: priority: expected a finite number >= 0 from the function, got {shown(given)}; "
                "nothing was stored"
            ) from error
        return priority


def _flat(groups: Iterable[Iterable[list[Row]]]) -> list[list[Row]]:
    return [rows for group in groups for rows in group]


def _continues(rule: Rule) -> bool:
    return isinstance(rule, ItemRule) and rule.end is EndOfEpisode.CONTINUE


def _chosen(rule: ChosenWindows, rows: int) -> Window:
    """The window that is chosen when an episode has so many rows."""
    return rows - rule.reach, rows - rule.skip


def _due_at_end(rule: ItemRule, transitions: int) -> list[Window]:
    """Returns the windows that remain to be made when an episode of this length ends with its final row."""
    rows = transitions + 1
    whole = windows(transitions if rule.length == 1 else rows, rule.length, rule.stride, rule.end)
    made = regular_windows(max(0, transitions), rule.length + rule.lookahead, rule.stride)
    return [(start, min(start + real + rule.lookahead, rows)) for start, real, _ in whole[made:]]


def _cut(held: _Lane, new: Sequence[Row], window: Window) -> list[Row]:
    start, stop = (each - held.gone for each in window)
    return [*held.rows, *new][start:stop]
