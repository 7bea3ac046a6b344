"""Items that a call will make where the rules alone do not tell: patterns, and priorities by functions."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from headrace.replay.intake.selection import Selection
from headrace.tables.description.rules import Rule
from headrace.trajectories.columns.step_columns import StepColumns
from headrace.trajectories.rules.pattern_rule import PatternRule
from headrace.trajectories.rules.step_rules import StepRule
from headrace.trajectories.writers.item_priorities import ItemPriorities
from headrace.trajectories.writers.lane_step import LaneStep
from headrace.trajectories.writers.patterns import Patterns

if TYPE_CHECKING:
    from headrace.replay.interface import WriterLike
    from headrace.spec import Signature

_NOTHING = Selection({}, {})


class ItemDecisions:
    """Asks patterns and priority functions about a step, and tells the writer, before the step is stored.

    Args:
        signature: of the replay.
        rules: of the step writer.
        written: the same rules as the writer of rows knows them.
        columns: of a step.
        lanes: as the step writer's.

    Attributes:
        are_made: whether there is a pattern or a priority function.
    """

    def __init__(
        self,
        signature: Signature,
        rules: Sequence[StepRule],
        written: Sequence[Rule],
        columns: StepColumns,
        lanes: int | None,
    ) -> None:
        self._columns = columns
        functions = {number: rule.priority for number, rule in enumerate(rules) if callable(rule.priority)}
        patterns = {number: rule for number, rule in enumerate(rules) if isinstance(rule, PatternRule)}
        self.are_made = bool(functions or patterns)
        self._priorities = ItemPriorities(signature, written, functions, lanes or 1)
        self._patterns = Patterns(signature, patterns, lanes)
        self.check_ends((*columns.observation.names, *columns.extras))
        self._selected = _NOTHING

    def check_ends(self, final_columns: Collection[str]) -> None:
        """Refuses patterns that read columns which final rows do not have; see `Patterns.check_ends`."""
        self._patterns.check_ends(final_columns)

    def announce(self, writer: WriterLike, step: LaneStep) -> None:
        """Decides the items of the next call of a writer.

        Args:
            writer: makes them.
            step: all columns of rows, and those columns that final rows have.

        Raises:
            ValueError: a function returned no bool, or no priority; names the table.
        """
        self._selected = self._patterns.choose(step)
        writer.select_windows(self._selected)
        if self._priorities.are_asked:
            columns, finals = self._columns, step.finals
            # The caller's arrays, and those of the current row, change after the call.
            kept = {name: np.array(value) for name, value in step.columns.items()}
            zeros = {
                name: columns.zeros(name, len(step.ended)) for name in columns.specs if name not in finals
            }
            whole = step._replace(columns=kept, finals={**finals, **zeros})
            writer.give_priorities(*self._priorities.of_step(whole, self._selected))

    def stored(self) -> Selection:
        """Notes that the step is stored; returns the lanes for which patterns made items."""
        self._priorities.took_step()
        selected, self._selected = self._selected, _NOTHING
        return selected

    def forget(self, lanes: NDArray[np.int64]) -> None:
        """Forgets the rows of these lanes: no later item holds them."""
        self._priorities.forget(lanes)
