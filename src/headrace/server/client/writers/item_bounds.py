"""The most items that a step, or the end of an episode, makes at the server."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from headrace.ends import EndOfEpisode
from headrace.tables.description.rules import ItemRule, Rule


class ItemBounds:
    """Counts the items of each step: exactly for an `ItemRule` within episodes, and bounds those of other rules.

    Args:
        rules: of a writer.
        lanes: number N of lanes.

    >>> import headrace as hr
    >>> bounds = ItemBounds([hr.ItemRule("t", length=2, stride=2)], lanes=3)
    >>> [bounds.of_step(np.array([rows, rows, 0])) for rows in range(4)]
    [0, 2, 0, 2]
    """

    def __init__(self, rules: Sequence[Rule], lanes: int) -> None:
        # The first row that completes a window, and the rows from one to the next.
        self._windows = [
            (rule.length + rule.lookahead - 1, rule.stride)
            for rule in rules
            if isinstance(rule, ItemRule) and rule.end is not EndOfEpisode.CONTINUE
        ]
        self._others = 2 * lanes * (len(rules) - len(self._windows))
        self._of_end = sum(rule.reach + 2 for rule in rules)
        self._lanes = lanes

    def of_step(self, rows: NDArray[np.int64]) -> int:
        """Returns the most items that a step makes.

        Args:
            rows: int64[N], of the episode under way in each lane before it.
        """
        count = self._others
        for first, stride in self._windows:
            if self._lanes == 1:
                after = int(rows[0]) - first
                count += after >= 0 and after % stride == 0
            else:
                past = rows - first
                count += int(np.count_nonzero((past >= 0) & (past % stride == 0)))
        return count

    def of_ends(self, count: int) -> int:
        """Returns the most items that the ends of so many episodes make."""
        return self._of_end * count
