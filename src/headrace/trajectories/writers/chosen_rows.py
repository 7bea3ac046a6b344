"""Which rows of the unfinished episodes are in items of patterns."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from headrace.replay.intake.chosen import Chosen
from headrace.tables.description.rules import ChosenWindows, Rule


class ChosenRows:
    """Notes windows as they are chosen: a step up at each first row, a step down behind each last.

    Args:
        rules: of the writer; those whose windows are chosen are looked at.
        lanes: how many.
    """

    def __init__(self, rules: Sequence[Rule], lanes: int) -> None:
        self._rules = {number: rule for number, rule in enumerate(rules) if isinstance(rule, ChosenWindows)}
        self._steps = np.zeros((lanes, 64), np.int32)
        # How many entries of each lane may be other than 0.
        self._used = np.zeros(lanes, np.int64)

    def note(self, chosen: Chosen, index: NDArray[np.int64]) -> None:
        """These windows became items.

        Args:
            chosen: the lanes.
            index: int64[lanes]: of the newest row that is not a final row.
        """
        for masks, newest in ((chosen.rows, index), (chosen.finals, index + 1)):
            for number, mask in masks.items():
                lanes = np.flatnonzero(mask)
                if len(lanes):
                    self._add(lanes, newest[lanes] + 1, self._rules[number])

    def _add(self, lanes: NDArray[np.int64], rows: NDArray[np.int64], rule: ChosenWindows) -> None:
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
        """Returns which of the first `rows` rows of a lane's episode are in items, and starts the next episode."""
        # Of a long episode before this one the lane has a long row: only what this one used is looked at.
        steps = self._steps[lane, : self._used[lane]]
        covered = np.zeros(rows, np.bool_)
        known = min(rows, len(steps))
        covered[:known] = np.cumsum(steps[:known]) > 0
        steps[:] = 0
        self._used[lane] = 0
        return covered
