"""Conditions on the newest row of an episode, under which a pattern becomes an item."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from headrace.checks import check_count, shown

Holds = NDArray[np.bool_]


class Moment(NamedTuple):
    """The newest rows of some lanes, before they are stored.

    Attributes:
        steps: int64[m], the number of each row in its episode.
        at_end: whether they are final rows.
        columns: `[m, ...]`, those that the rows have.
        has_lanes: whether the writer's values have an axis of lanes.
    """

    steps: NDArray[np.int64]
    at_end: bool
    columns: Mapping[str, NDArray[Any]]
    has_lanes: bool


@dataclass(frozen=True)
class _AtLeast:
    steps: int

    def holds(self, moment: Moment) -> Holds:
        return moment.steps >= self.steps


@dataclass(frozen=True)
class _Every:
    steps: int
    phase: int

    def holds(self, moment: Moment) -> Holds:
        found: Holds = moment.steps % self.steps == self.phase
        return found


@dataclass(frozen=True)
class _AtEnd:
    def holds(self, moment: Moment) -> Holds:
        return np.full(len(moment.steps), moment.at_end)


@dataclass(frozen=True)
class _Column:
    name: str
    function: Callable[[Any], Any]

    def holds(self, moment: Moment) -> Holds:
        count = len(moment.steps)
        if not count or self.name not in moment.columns:
            return np.zeros(count, np.bool_)
        values = moment.columns[self.name].view()
        values.flags.writeable = False
        given = self.function(values if moment.has_lanes else values[0])
        found = np.asarray(given)
        expected = (count,) if moment.has_lanes else ()
        if found.dtype != np.bool_ or found.shape != expected:
            wanted = f"bool[{count}], one for each lane," if moment.has_lanes else "a bool"
            raise ValueError(
                f"the condition on column {self.name!r}: expected {wanted} from the function, got {shown(given)}"
            )
        return found.reshape(count)


@dataclass(frozen=True)
class Condition:
    """Condition on the newest row, under which a `PatternRule` makes an item; `&` joins conditions that must all hold.

    Made by its class methods. Rows of an episode count from 0; an episode of T transitions has the final row T.

    >>> condition = Condition.step_index_at_least(10) & Condition.every(5)
    >>> len(condition.tests)
    2
    """

    tests: tuple[_AtLeast | _Every | _AtEnd | _Column, ...]

    @classmethod
    def step_index_at_least(cls, steps: int) -> Condition:
        """Holds if the newest row is at least number `steps` of its episode.

        Raises:
            ValueError: it is negative.
            TypeError: it is not an integer.
        """
        return cls((_AtLeast(check_count("steps", steps, 0)),))

    @classmethod
    def every(cls, steps: int, phase: int = 0) -> Condition:
        """Holds if the newest row is number `phase`, `phase + steps`, `phase + 2 * steps`, ... of its episode.

        Raises:
            ValueError: `steps` < 1, or a phase outside 0 to `steps` - 1.
            TypeError: one is not an integer.
        """
        steps, phase = check_count("steps", steps, 1), check_count("phase", phase, 0)
        if phase >= steps:
            raise ValueError(f"phase: expected 0 to {steps - 1}, got {phase}")
        return cls((_Every(steps, phase),))

    @classmethod
    def at_end(cls) -> Condition:
        """Holds if the newest row is the final row of its episode, which ended by a flag, `reset` or `close`."""
        return cls((_AtEnd(),))

    @classmethod
    def column(cls, name: str, function: Callable[[Any], Any]) -> Condition:
        """Holds if a function of a column of the newest row returns True; never for a final row without the column.

        Args:
            name: of the column, such as "reward" or "observation/camera".
            function: gets the value, read-only, and returns a bool; with lanes it gets `[m, ...]`, of the lanes that
                store a row, and returns bool[m]. It is called before anything is stored, so its errors change nothing.

        Raises:
            TypeError: the name is not a string, or the function is not callable.
        """
        if not isinstance(name, str):
            raise TypeError(f"name: expected the name of a column, got {name!r}")
        if not callable(function):
            raise TypeError(f"function: expected a function of column {name!r}, got {function!r}")
        return cls((_Column(name, function),))

    def __and__(self, other: Condition) -> Condition:
        if not isinstance(other, Condition):
            return NotImplemented
        return Condition((*self.tests, *other.tests))

    @property
    def columns(self) -> frozenset[str]:
        """The columns that the condition reads."""
        return frozenset(test.name for test in self.tests if isinstance(test, _Column))

    @property
    def is_at_end(self) -> bool:
        """Whether it holds for final rows only."""
        return any(isinstance(test, _AtEnd) for test in self.tests)

    def holds(self, moment: Moment) -> Holds:
        """Returns bool[m]: the rows that meet the condition. Functions are called only where the other conditions hold.

        Raises:
            ValueError: a function returned no bool.
        """
        found = np.ones(len(moment.steps), np.bool_)
        for test in sorted(self.tests, key=lambda each: isinstance(each, _Column)):
            if found.any():
                found &= test.holds(moment)
        return found
