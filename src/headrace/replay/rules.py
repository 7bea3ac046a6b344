"""Which items a writer makes by itself from the rows it appends."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from headrace.ends import EndOfEpisode
from headrace.replay.cutting import END_NUMBERS, Cut


@dataclass(frozen=True, init=False)
class ItemRule:
    """Windows of `length` rows, one every `stride` rows, become items of a table.

    Args:
        table: the table's name.
        length: rows of a window. Rules of length 1 make an item of every transition and none of a final row.
        stride: rows from the start of one window to the next.
        end: what becomes of the rows at the end of an episode that fill no window.
        priority: of every item.
        lookahead: the item waits until so many further rows of its episode, or its end, are stored, and keeps them as
            long as it lives (views V17). An n-step transition needs n.

    Raises:
        ValueError: length or stride < 1, a negative lookahead, a priority that is negative or not finite, PAD or
            TRUNCATE with a stride longer than the window.
        TypeError: a number that is no integer, an `end` that is no `EndOfEpisode`.

    >>> ItemRule("replay", 16, stride=8, end=EndOfEpisode.PAD).length
    16
    """

    table: str
    length: int
    stride: int
    end: EndOfEpisode
    priority: float
    lookahead: int

    def __init__(
        self,
        table: str,
        length: int,
        stride: int = 1,
        end: EndOfEpisode = EndOfEpisode.DROP,
        priority: float = 1.0,
        lookahead: int = 0,
    ) -> None:
        for name, number in (("length", length), ("stride", stride), ("lookahead", lookahead)):
            if isinstance(number, bool) or not hasattr(number, "__index__"):
                raise TypeError(f"ItemRule: {name}: expected an integer, got {number!r}")
        if length < 1 or stride < 1:
            raise ValueError(f"ItemRule: expected length >= 1 and stride >= 1, got {length} and {stride}")
        if lookahead < 0:
            raise ValueError(f"ItemRule: lookahead: expected >= 0, got {lookahead}")
        if not isinstance(end, EndOfEpisode):
            raise TypeError(f"ItemRule: end: expected a member of EndOfEpisode, got {end!r}")
        if end is EndOfEpisode.CONTINUE:
            raise ValueError("ItemRule: end: CONTINUE belongs to a stream of episodes; use SequenceWriter")
        if stride > length and end in (EndOfEpisode.PAD, EndOfEpisode.TRUNCATE):
            raise ValueError(
                f"ItemRule: stride: expected at most length={length} with {end.name}, got {stride}: the last window "
                "would hold no real row. Use a smaller stride, or DROP, LAST or TILE"
            )
        check_priority(priority)
        for name, value in zip(
            self.__dataclass_fields__, (table, length, stride, end, float(priority), lookahead), strict=True
        ):
            object.__setattr__(self, name, value)

    @property
    def cut(self) -> Cut:
        """The rule as numbers."""
        return Cut(self.length, self.stride, END_NUMBERS[self.end], self.lookahead)

    @property
    def priorities(self) -> NDArray[np.float64]:
        """The priority of its items, float64[1]."""
        return np.array([self.priority])

    @property
    def is_every_row(self) -> bool:
        """Whether each transition is an item by itself, at once."""
        return self.length == 1 and self.stride == 1 and self.lookahead == 0

    @property
    def reach(self) -> int:
        """Rows that a writer must keep for the rule."""
        return self.length + self.lookahead


def check_priority(priority: float) -> None:
    """Refuse a priority that is no finite number >= 0 (replay P1).

    Raises:
        ValueError: with the value.
    """
    if not (priority >= 0 and math.isfinite(priority)):
        raise ValueError(f"priority: expected a finite number >= 0, got {priority!r}")
