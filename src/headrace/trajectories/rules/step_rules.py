"""Rules of a step writer: n-step transitions and whole episodes, beside the windows of `ItemRule`."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from headrace.checks import check_count, check_share
from headrace.ends import EndOfEpisode
from headrace.tables.description.rules import (
    ItemRule,
    PriorityFunction,
    Rule,
    WholeEpisodes,
    checked_priority,
)
from headrace.trajectories.rules.pattern_rule import PatternRule
from headrace.views.transition import transition
from headrace.views.view import View

_OVERFLOWS = ("raise", "drop", "split")


@dataclass(frozen=True)
class NStepRule:
    """Makes an item of each transition, once the rows that its n-step return needs are stored.

    Args:
        table: the table's name.
        n_step: largest number of transitions in a return.
        gamma: the discount of one step.
        priority: of every item; or a function of the rows t to t + n, or to the end of the episode.
            None: `Table.new_priority`.

    Raises:
        ValueError: n_step < 1, gamma outside [0, 1], a priority that is negative or not finite.
        TypeError: n_step is not an integer, or gamma is not a number.

    >>> NStepRule("replay", n_step=3).gamma
    0.99
    """

    # Rules: trajectories A11

    table: str
    n_step: int = 1
    gamma: float = 0.99
    priority: float | PriorityFunction | None = None

    def __post_init__(self) -> None:
        object.__setattr__(self, "n_step", check_count("n_step", self.n_step, 1))
        object.__setattr__(self, "gamma", check_share("gamma", self.gamma))
        object.__setattr__(self, "priority", checked_priority(self.priority))

    @property
    def views(self) -> Mapping[str, View]:
        """The views for `Replay.sample` of such a table."""
        return transition(self.n_step, self.gamma)


@dataclass(frozen=True)
class EpisodeRule:
    """Makes one item of each episode when it ends, its final row included.

    Args:
        table: the table's name.
        max_length: the largest number of transitions; an environment's time limit is the right number.
        overflow: treatment of a longer episode: "raise" refuses the step, "drop" makes no item of it, "split" makes
            items of `max_length` transitions that share a row.
        priority: of every item; or a function of its rows. None: `Table.new_priority`.

    Raises:
        ValueError: max_length < 1, another overflow, a priority that is negative or not finite.
        TypeError: max_length is not an integer.

    >>> EpisodeRule("episodes", max_length=1000, overflow="split").max_length
    1000
    """

    # Rules: trajectories A14

    table: str
    max_length: int
    overflow: str = "raise"
    priority: float | PriorityFunction | None = None

    def __post_init__(self) -> None:
        object.__setattr__(self, "max_length", check_count("max_length", self.max_length, 1))
        object.__setattr__(self, "priority", checked_priority(self.priority))
        if self.overflow not in _OVERFLOWS:
            raise ValueError(f"overflow: expected one of {', '.join(_OVERFLOWS)}, got {self.overflow!r}")


StepRule = ItemRule | NStepRule | EpisodeRule | PatternRule


def writer_rule(rule: StepRule) -> Rule:
    """Returns the item rule of a writer of rows for this rule.

    A priority that is a function is left out: the step writer gives it with each call.
    """
    priority = 1.0 if callable(rule.priority) else rule.priority
    if isinstance(rule, PatternRule):
        return rule.windows
    if isinstance(rule, NStepRule):
        return ItemRule(rule.table, 1, priority=priority, lookahead=rule.n_step)
    if isinstance(rule, EpisodeRule):
        if rule.overflow == "split":
            # Piece k begins at row k * max_length; a piece's last row is the next one's first.
            return ItemRule(
                rule.table, rule.max_length + 1, rule.max_length, EndOfEpisode.TRUNCATE, priority=priority
            )
        return WholeEpisodes(rule.table, rule.max_length + 1, priority)
    return dataclasses.replace(rule, priority=priority)


def checked_step_rules(rules: Sequence[StepRule]) -> tuple[StepRule, ...]:
    """Returns the rules of a step writer.

    Raises:
        TypeError: not a list of rules.
        ValueError: an empty one.
    """
    if not isinstance(rules, list | tuple):
        raise TypeError(f"rules: expected a list of rules, got {rules!r}; put a single one into a list")
    for rule in rules:
        if not isinstance(rule, StepRule):
            raise TypeError(
                f"rules: expected an ItemRule, NStepRule, EpisodeRule or PatternRule, got {rule!r}"
            )
    if not rules:
        raise ValueError("rules: expected at least one rule, got none")
    return tuple(rules)


def advice(rules: Sequence[StepRule]) -> str:
    """Names the settings that would keep every step."""
    parts = []
    for rule in rules:
        if isinstance(rule, EpisodeRule):
            parts.append(f"overflow='split' for table {rule.table!r}")
        elif isinstance(rule, PatternRule):
            parts.append(f"a pattern with fewer conditions for table {rule.table!r}")
        elif isinstance(rule, ItemRule):
            shorter = f" and a period of at most {rule.length}" if rule.stride > rule.length else ""
            parts.append(f"end=EndOfEpisode.PAD or TRUNCATE{shorter} for table {rule.table!r}")
    return "; or ".join(parts)
