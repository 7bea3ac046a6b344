"""Rules by which a writer makes items of the rows that it appends."""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from headrace.checks import shown
from headrace.ends import EndOfEpisode
from headrace.tables.description.window_rule import END_NUMBERS, SELECTED, WHOLE, WindowRule

# The words of a window have 32 bits, and some of their values have a meaning of their own (DEAD, STREAM).
_MOST_ROWS = 2**30 - 1

PriorityFunction = Callable[[Mapping[str, Any]], float]
"""Gets an item's rows as a tree of arrays `[rows, ...]`, without padded rows, and returns its priority."""


@dataclass(frozen=True, init=False)
class ItemRule:
    """Windows of `length` rows, one every `stride` rows, become items of a table.

    Args:
        table: the table's name.
        length: rows of a window. Rules of length 1 make an item of every transition and none of a final row.
        stride: rows from the start of one window to the next.
        end: what becomes of the rows at the end of an episode that fill no window. With CONTINUE the windows go on over
            the ends of episodes, final rows included.
        priority: of every item; or, for a `StepWriter`, a function of the item's rows. None: `Table.new_priority`.
        lookahead: the item waits until this number of further rows of its episode, or its end, are stored, and keeps
            them as long as it lives. An n-step transition needs n.

    Raises:
        ValueError: length or stride < 1, a negative lookahead, any of them 2**30 or more, a priority that is negative
            or not finite, PAD or TRUNCATE with a stride longer than the window, CONTINUE with a lookahead.
        TypeError: a number that is not an integer, an `end` that is not an `EndOfEpisode`.

    >>> ItemRule("replay", 16, stride=8, end=EndOfEpisode.PAD).length
    16
    """

    # Rules: views V17

    table: str
    length: int
    stride: int
    end: EndOfEpisode
    priority: float | PriorityFunction | None
    lookahead: int

    def __init__(
        self,
        table: str,
        length: int,
        stride: int = 1,
        end: EndOfEpisode = EndOfEpisode.DROP,
        priority: float | PriorityFunction | None = None,
        lookahead: int = 0,
    ) -> None:
        for name, number in (("length", length), ("stride", stride), ("lookahead", lookahead)):
            if isinstance(number, bool) or not hasattr(number, "__index__"):
                raise TypeError(f"ItemRule: {name}: expected an integer, got {shown(number)}")
        if length < 1 or stride < 1:
            raise ValueError(f"ItemRule: expected length >= 1 and stride >= 1, got {length} and {stride}")
        if lookahead < 0:
            raise ValueError(f"ItemRule: lookahead: expected >= 0, got {lookahead}")
        if max(length, stride, lookahead) > _MOST_ROWS:
            raise ValueError(
                f"ItemRule: expected length, stride and lookahead of at most {_MOST_ROWS} rows, got {length}, {stride} "
                f"and {lookahead}"
            )
        if not isinstance(end, EndOfEpisode):
            raise TypeError(f"ItemRule: end: expected a member of EndOfEpisode, got {end!r}")
        if end is EndOfEpisode.CONTINUE and lookahead:
            raise ValueError(f"ItemRule: lookahead: expected 0 with CONTINUE, got {lookahead}")
        if stride > length and end in (EndOfEpisode.PAD, EndOfEpisode.TRUNCATE):
            raise ValueError(
                f"ItemRule: stride: expected at most length={length} with {end.name}, got {stride}: the last window "
                "would hold no real row. Use a smaller stride, or DROP, LAST or TILE"
            )
        priority = checked_priority(priority)
        length, stride, lookahead = map(operator.index, (length, stride, lookahead))
        for name, value in zip(
            self.__dataclass_fields__, (table, length, stride, end, priority, lookahead), strict=True
        ):
            object.__setattr__(self, name, value)

    @property
    def window_rule(self) -> WindowRule:
        """The rule as numbers."""
        return WindowRule(self.length, self.stride, END_NUMBERS[self.end], self.lookahead)

    @property
    def priorities(self) -> NDArray[np.float64]:
        """The priority of its items, float64[1]; empty: that of the table."""
        assert not callable(self.priority), "checked_rules lets numbers pass only"
        return _as_array(self.priority)

    @property
    def is_every_row(self) -> bool:
        """Whether each transition is an item by itself, at once."""
        return self.length == 1 and self.stride == 1 and self.lookahead == 0

    @property
    def reach(self) -> int:
        """Rows that a writer must keep for the rule."""
        if self.end is EndOfEpisode.CONTINUE:
            # Each episode has two rows or more, and its lane may wait for one step. A window that begins with a final
            # row beside the lane needs the row before it.
            return 2 * self.length + 2
        return self.length + self.lookahead


class _OnePriority:
    """Properties of rules whose items hold several rows and have one priority."""

    priority: float | None

    @property
    def priorities(self) -> NDArray[np.float64]:
        """The priority of its items, float64[1]; empty: that of the table."""
        return _as_array(self.priority)

    @property
    def is_every_row(self) -> bool:
        """Returns False: no transition is an item by itself."""
        return False


@dataclass(frozen=True)
class WholeEpisodes(_OnePriority):
    """Each episode of at most `length` rows, its final row included, becomes one item when it ends; longer ones none.

    Args:
        table: the table's name.
        length: the most rows.
        priority: of every item; None: `Table.new_priority`.

    Raises:
        ValueError: length < 1; a priority that is negative or not finite.
    """

    table: str
    length: int
    priority: float | None = None

    def __post_init__(self) -> None:
        if self.length < 1:
            raise ValueError(f"WholeEpisodes: expected length >= 1, got {self.length}")
        checked_priority(self.priority)

    @property
    def window_rule(self) -> WindowRule:
        """The rule as numbers."""
        return WindowRule(self.reach, 1, WHOLE, 0)

    @property
    def reach(self) -> int:
        """Rows that a writer must keep for the rule: no episode has more than a window may have."""
        return min(self.length, _MOST_ROWS)


@dataclass(frozen=True)
class PatternWindow(_OnePriority):
    """Windows of a pattern, selected by `WriterLike.select_windows`. An item is a first row and keeps the others.

    Args:
        table: the table's name.
        length: rows of a window.
        skip: rows after it, up to the newest row of the lane when the item is made.
        priority: of every item; None: `Table.new_priority`.

    Raises:
        ValueError: length < 1, a negative skip, or 2**30 rows or more together; a priority that is negative or not
            finite.
    """

    table: str
    length: int
    skip: int = 0
    priority: float | None = None

    def __post_init__(self) -> None:
        if self.length < 1 or self.skip < 0 or self.reach > _MOST_ROWS:
            raise ValueError(
                f"PatternWindow: expected length >= 1, skip >= 0 and at most {_MOST_ROWS} rows together, got "
                f"{self.length} and {self.skip}"
            )
        checked_priority(self.priority)

    @property
    def window_rule(self) -> WindowRule:
        """The rule as numbers."""
        return WindowRule(1, 1, SELECTED, self.length - 1)

    @property
    def reach(self) -> int:
        """Rows that a writer must keep for the rule."""
        return self.length + self.skip


Rule = ItemRule | WholeEpisodes | PatternWindow
"""Rules by which a writer makes items."""


def checked_rules(items: Sequence[Rule]) -> list[Rule]:
    """Returns the rules of a writer, whose priorities are numbers.

    Raises:
        TypeError: something else.
    """
    if isinstance(items, Rule):
        raise TypeError("items: expected a list of ItemRule, got one; put it into a list")
    for rule in items:
        if not isinstance(rule, Rule):
            raise TypeError(f"items: expected an ItemRule, got {rule!r}")
        if callable(rule.priority):
            raise TypeError(
                f"items: table {rule.table!r}: priority: expected a number, got a function; only a StepWriter shows "
                "it the rows of the items"
            )
    return list(items)


def _as_array(priority: float | None) -> NDArray[np.float64]:
    return np.array([] if priority is None else [priority], np.float64)


def checked_priority(priority: float | PriorityFunction | None) -> float | PriorityFunction | None:
    """Returns a priority that a rule may have: a function, None, or a finite number >= 0 as a float.

    Raises:
        TypeError: not a number.
        ValueError: another number.
    """
    if priority is None or callable(priority):
        return priority
    check_priority(priority)
    return float(priority)


def check_priority(priority: float) -> None:
    """Refuses a priority that is negative or not finite.

    Raises:
        TypeError: not a number.
        ValueError: with the value.
    """
    # Rules: replay P1
    try:
        is_good = priority >= 0 and math.isfinite(priority)
    except TypeError:
        raise TypeError(f"priority: expected a finite number >= 0, got {shown(priority)}") from None
    if not is_good:
        raise ValueError(f"priority: expected a finite number >= 0, got {shown(priority)}")
