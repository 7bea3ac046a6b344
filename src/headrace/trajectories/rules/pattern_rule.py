"""Declarative patterns: columns at offsets that become items of a table under conditions."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from headrace.checks import shown
from headrace.tables.description.rules import PatternWindow, PriorityFunction, checked_priority
from headrace.trajectories.rules.conditions import Condition
from headrace.views.view import View

Offsets = int | slice | Sequence[int]


@dataclass(frozen=True)
class PatternRule:
    """Makes an item for each new row of an episode that meets the conditions and has the rows that the pattern reads.

    Offsets count back from the newest row, as indexes of a list of the episode's rows so far: -1 is the newest, -2 the
    one before, `slice(-3, None)` (`np.s_[-3:]`) the newest three. An episode of T transitions has the rows 0 to T; the
    final row has an observation, but no action, reward or flag: where a pattern reads one of these from the newest row,
    it makes no item of the final row. No pattern reaches over the start of an episode.

    An item stores nothing and keeps the rows from the oldest to the newest that the pattern reads. Sample its table
    with `views=rule.views`.

    Args:
        table: the table's name.
        columns: name in the batch to (column, offsets). A column may be a path or the root of a tree. An int presents
            `[B, ...]`; a slice, range or list presents `[B, W, ...]` in its order.
        conditions: those that must hold; none: every row.
        priority: of every item; or a function of the rows that it keeps, oldest first. None: `Table.new_priority`.

    Raises:
        ValueError: no columns, no offsets, an offset >= 0, a slice without a start, a bad priority.
        TypeError: a column or a condition of another type.

    >>> transitions = PatternRule("replay", {
    ...     "observation": ("observation", -2), "action": ("action", -2), "next_observation": ("observation", -1),
    ... })
    >>> transitions.views["next_observation"]
    View('observation', shift=1)
    """

    table: str
    columns: Mapping[str, tuple[str, Offsets]]
    _: dataclasses.KW_ONLY
    conditions: Sequence[Condition] = ()
    priority: float | PriorityFunction | None = None

    def __post_init__(self) -> None:
        where = f"PatternRule of table {self.table!r}"
        if not isinstance(self.columns, Mapping):
            raise TypeError(
                f"{where}: columns: expected a mapping of name to (column, offsets), got {self.columns!r}"
            )
        if not self.columns:
            raise ValueError(f"{where}: columns: expected at least one, got none")
        columns = {name: _read(f"{where}: {name!r}", given) for name, given in self.columns.items()}
        if not isinstance(self.conditions, tuple | list):
            raise TypeError(f"{where}: conditions: expected a list of Condition, got {self.conditions!r}")
        conditions = tuple(self.conditions)
        for condition in conditions:
            if not isinstance(condition, Condition):
                raise TypeError(f"{where}: conditions: expected a Condition, got {condition!r}")
        object.__setattr__(self, "columns", columns)
        object.__setattr__(self, "conditions", conditions)
        object.__setattr__(self, "priority", checked_priority(self.priority))

    def __hash__(self) -> int:
        return hash((self.table, tuple(self.columns.items()), self.conditions, self.priority))

    @property
    def oldest(self) -> int:
        """The offset of the oldest row that is read."""
        return min(min(offsets) for offsets in self.offsets.values())

    @property
    def newest(self) -> int:
        """The offset of the newest row that is read."""
        return max(max(offsets) for offsets in self.offsets.values())

    @property
    def offsets(self) -> dict[str, tuple[int, ...]]:
        """The offsets of each name."""
        return {
            name: (given,) if isinstance(given, int) else tuple(given)  # type: ignore[arg-type]
            for name, (_, given) in self.columns.items()
        }

    @property
    def views(self) -> dict[str, View]:
        """The views for `Replay.sample` of the rule's items."""
        first = self.oldest
        found = {}
        for name, (column, given) in self.columns.items():
            shifts = [each - first for each in self.offsets[name]]
            found[name] = View(column, shift=shifts[0] if isinstance(given, int) else shifts)
        return found

    @property
    def windows(self) -> PatternWindow:
        """The rule of a writer of rows; the results of a priority function come with each call."""
        priority = 1.0 if callable(self.priority) else self.priority
        return PatternWindow(self.table, self.newest - self.oldest + 1, -1 - self.newest, priority)


def _read(where: str, given: Any) -> tuple[str, int | tuple[int, ...]]:
    if not (isinstance(given, tuple | list) and len(given) == 2 and isinstance(given[0], str)):
        raise TypeError(f"{where}: expected (column, offsets), got {shown(given)}")
    column, offsets = given
    if _is_integer(offsets):
        return column, _checked(where, [offsets])[0]
    if isinstance(offsets, slice):
        offsets = _of_slice(where, offsets)
    if isinstance(offsets, str) or not isinstance(offsets, Sequence | np.ndarray):
        raise TypeError(
            f"{where}: offsets: expected an int, a slice, a range or a list of ints, got {shown(offsets)}"
        )
    if len(offsets) == 0:
        raise ValueError(f"{where}: offsets: expected at least one, got {shown(given[1])}")
    return column, _checked(where, offsets)


def _of_slice(where: str, offsets: slice) -> range:
    start, stop, step = offsets.start, offsets.stop, 1 if offsets.step is None else offsets.step
    if not all(_is_integer(each) for each in (start, step)) or not (stop is None or _is_integer(stop)):
        raise ValueError(
            f"{where}: offsets: expected a slice of integers with a start, such as np.s_[-3:], got {shown(offsets)}"
        )
    if start >= 0 or step < 1 or (stop is not None and stop >= 0):
        raise ValueError(
            f"{where}: offsets: expected a slice from and to negative offsets, oldest first, got {shown(offsets)}"
        )
    return range(int(start), 0 if stop is None else int(stop), int(step))


def _checked(where: str, offsets: Iterable[Any]) -> tuple[int, ...]:
    for each in offsets:
        if not _is_integer(each):
            raise TypeError(f"{where}: offsets: expected integers, got {shown(each)}")
        if each >= 0:
            raise ValueError(f"{where}: offsets: expected at most -1, the newest row, got {shown(each)}")
    return tuple(int(each) for each in offsets)


def _is_integer(value: object) -> bool:
    return isinstance(value, int | np.integer) and not isinstance(value, bool)
