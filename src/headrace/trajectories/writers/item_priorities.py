"""Computes priorities by functions of an item's rows, before the item exists.

The rules tell which items a call will make. So their rows are shown to the function first, and they are stored once it
gave a number for each.
"""

# Rules: trajectories A7

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from headrace.checks import shown
from headrace.replay.intake.selection import Selection
from headrace.spec import Signature
from headrace.tables.description.rules import PatternWindow, Rule, check_priority
from headrace.tables.items.layout import CONTINUE
from headrace.tables.windows.plan import WindowPlan
from headrace.trajectories.writers.lane_step import LaneStep

# One lane's row: the columns of the call that wrote it, `[lanes, ...]`, and which lane.
Row = tuple[Mapping[str, NDArray[Any]], int]


class ItemPriorities:
    """Asks the functions of some rules for the priorities of the items that a call makes.

    Args:
        signature: of the replay.
        rules: of the writer, with the functions that are among their priorities, by number.
        functions: rule's number to its function.
        lanes: number of lanes.

    Attributes:
        are_asked: whether there is a function.
    """

    def __init__(
        self,
        signature: Signature,
        rules: Sequence[Rule],
        functions: Mapping[int, Callable[[Any], Any]],
        lanes: int,
    ) -> None:
        self.are_asked = bool(functions)
        self._signature = signature
        self._functions = functions
        self._rules = {number: rules[number] for number in functions}
        self._plans = {
            number: WindowPlan(rule.window_rule)
            for number, rule in self._rules.items()
            if not isinstance(rule, PatternWindow)
        }
        # Rows of each lane's episode or, for windows over the ends of episodes, of its stream.
        self._counts = {number: np.zeros(lanes, np.int64) for number in self._plans}
        reach = max((rule.reach for rule in self._rules.values()), default=0)
        # The newest rows of each lane, the oldest first.
        self._newest: list[deque[Row]] = [deque(maxlen=reach) for _ in range(lanes)]
        self._lanes = self._ended = np.zeros(0, np.int64)
        self._rows: list[Row] = []

    def of_step(
        self, step: LaneStep, selected: Selection
    ) -> tuple[dict[int, NDArray[np.float64]], dict[int, NDArray[np.int64]]]:
        """Returns the priorities of the items of a step and their lanes, by rule, in the order of the items.

        Args:
            step: all columns of rows and final rows; arrays are kept until the rows are out of reach.
            selected: the lanes for which patterns make items.

        Raises:
            ValueError: a function returned a priority that is negative or not finite; names the table.
        """
        self._lanes, self._ended = step.storing, step.ended
        self._rows = [(step.columns, lane) for lane in step.storing.tolist()]
        self._rows += [(step.finals, index) for index in range(len(step.ended))]
        priorities, lanes = {}, {}
        lane_of_row = np.concatenate([step.storing, step.ended])
        for number, rule in self._rules.items():
            if isinstance(rule, PatternWindow):
                windows = self._selected(selected, number, rule)
            else:
                windows = self._planned(number)
            values = [self._ask(number, rule, self._rows_of(*window)) for window in windows]
            priorities[number] = np.array(values, np.float64)
            lanes[number] = lane_of_row[[at for at, _, _ in windows]]
        return priorities, lanes

    def took_step(self) -> None:
        """Notes that the step of the last call of `of_step` is stored."""
        places = np.concatenate([self._lanes, self._ended]).tolist()
        for lane, row in zip(places, self._rows, strict=True):
            self._newest[lane].append(row)
        for number, counts in self._counts.items():
            counts[self._lanes] += 1
            plan = self._plans[number]
            # No window of one row begins at a final row (trajectories W6).
            counts[self._ended] = counts[self._ended] + (plan.length > 1) if plan.end == CONTINUE else 0
        self._rows = []
        self._lanes = self._ended = self._lanes[:0]

    def forget(self, lanes: NDArray[np.int64]) -> None:
        """Forgets the rows of these lanes: no later item holds them."""
        for lane in lanes.tolist():
            self._newest[lane].clear()
        for counts in self._counts.values():
            counts[lanes] = 0

    # ---- windows: the place of the newest row among the new ones, first row and stop counted from it ---------------

    def _planned(self, number: int) -> list[tuple[int, int, int]]:
        counts, stored = self._counts[number], len(self._lanes)
        numbers = np.concatenate([counts[self._lanes], counts[self._ended]])
        # A final row follows the row that its lane stores in this step, if it stores one.
        numbers[stored:] += np.isin(self._ended, self._lanes)
        final = np.arange(len(numbers)) >= stored
        return [
            (at, start - int(numbers[at]), stop - int(numbers[at]))
            for at, start, stop in self._plans[number].windows_of(numbers, final).tolist()
        ]

    def _selected(self, selected: Selection, number: int, rule: PatternWindow) -> list[tuple[int, int, int]]:
        masks = [selected.rows[number][self._lanes], selected.finals[number][self._ended]]
        return [(at, 1 - rule.reach, 1 - rule.skip) for at in np.flatnonzero(np.concatenate(masks)).tolist()]

    def _rows_of(self, at: int, start: int, stop: int) -> list[Row]:
        stored = len(self._lanes)
        lane = int(self._lanes[at] if at < stored else self._ended[at - stored])
        rows = [*self._newest[lane]]
        if at >= stored:
            rows += [row for row, each in zip(self._rows, self._lanes.tolist(), strict=False) if each == lane]
        rows.append(self._rows[at])
        last = len(rows) - 1
        return rows[last + start : last + stop]

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
