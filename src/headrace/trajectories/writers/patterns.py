"""Finds the lanes for which patterns make items, before any row is stored."""

from __future__ import annotations

from collections.abc import Collection, Mapping

import numpy as np
from numpy.typing import NDArray

from headrace.errors import SpecError
from headrace.replay.intake.selection import Selection
from headrace.spec import Signature
from headrace.trajectories.rules.conditions import Moment
from headrace.trajectories.rules.pattern_rule import PatternRule
from headrace.trajectories.writers.lane_step import LaneStep
from headrace.views.columns import METADATA, Columns
from headrace.views.sources import source_of


class Patterns:
    """Evaluates `PatternRule`s.

    Args:
        signature: of the replay.
        rules: by their numbers among the writer's.
        lanes: as the step writer's.

    Raises:
        SpecError: an unknown column.
    """

    def __init__(
        self,
        signature: Signature,
        rules: Mapping[int, PatternRule],
        lanes: int | None,
    ) -> None:
        self._rules = rules
        self._has_lanes = lanes is not None
        self._lanes = lanes or 1
        self._needed = {number: _needed_of_newest(signature, rule) for number, rule in rules.items()}
        self._dtypes = {name: signature.columns[name].dtype for name in _read_by_conditions(signature, rules)}

    def check_ends(self, final_columns: Collection[str]) -> None:
        """Refuses patterns of final rows only that read columns which final rows do not have.

        Raises:
            ValueError: with the columns.
        """
        for number, rule in self._rules.items():
            looked_at = {name for each in rule.conditions for name in each.columns}
            missing = sorted((self._needed[number] | looked_at).difference(final_columns))
            if missing and any(condition.is_at_end for condition in rule.conditions):
                raise ValueError(
                    f"PatternRule of table {rule.table!r}: it makes items at the end of an episode, where the newest "
                    f"row (-1) is the final row, which has no {', '.join(missing)}; those of the last step are at -2"
                )

    def choose(self, step: LaneStep) -> Selection:
        """Finds the lanes for which the next call makes items.

        Args:
            step: columns that no condition reads may be missing.

        Raises:
            ValueError: a function gave no bools; names the table.
        """
        newest, columns, storing, ended, finals = step
        rows = (
            {name: columns[name].astype(dtype, copy=False)[storing] for name, dtype in self._dtypes.items()}
            if len(storing)
            else {}
        )
        given = {
            name: finals[name].astype(dtype, copy=False)
            for name, dtype in self._dtypes.items()
            if name in finals
        }
        of_rows = Moment(newest[storing], False, rows, self._has_lanes)
        of_finals = Moment(newest[ended] + 1, True, given, self._has_lanes)
        of_step: dict[int, NDArray[np.bool_]] = {}
        of_ends: dict[int, NDArray[np.bool_]] = {}
        for number, rule in self._rules.items():
            of_step[number] = self._scatter(rule, of_rows, storing)
            readable = ended if self._needed[number].issubset(finals) else ended[:0]
            of_ends[number] = self._scatter(rule, of_finals, readable)
        return Selection(of_step, of_ends)

    def _scatter(self, rule: PatternRule, moment: Moment, lanes: NDArray[np.int64]) -> NDArray[np.bool_]:
        selected = np.zeros(self._lanes, np.bool_)
        if not len(lanes):
            return selected
        found = moment.steps + 1 >= -rule.oldest
        for condition in rule.conditions:
            if found.any():
                try:
                    found = found & condition.holds(moment)
                except ValueError as error:
                    raise ValueError(f"table {rule.table!r}: {error}; nothing was stored") from error
        selected[lanes] = found
        return selected


def _needed_of_newest(signature: Signature, rule: PatternRule) -> frozenset[str]:
    """Returns the columns that the pattern reads of the newest row."""
    needed: set[str] = set()
    offsets, columns = rule.offsets, Columns.of_store(signature, frozenset())
    for name, view in rule.views.items():
        try:
            source = source_of(columns, name, view)
        except SpecError as error:
            raise SpecError(f"PatternRule of table {rule.table!r}: {error}") from error
        if -1 in offsets[name]:
            needed.update(column for column in source.columns.values() if column not in METADATA)
    return frozenset(needed)


def _read_by_conditions(signature: Signature, rules: Mapping[int, PatternRule]) -> list[str]:
    found: dict[str, None] = {}
    for rule in rules.values():
        for name in sorted({name for condition in rule.conditions for name in condition.columns}):
            if name not in signature.columns:
                raise SpecError(
                    f"PatternRule of table {rule.table!r}: conditions: no column {name!r}; there are "
                    f"{', '.join(signature.columns)}"
                )
            found[name] = None
    return list(found)
