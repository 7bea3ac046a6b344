"""Rules of items as data."""

from __future__ import annotations

from headrace.ends import EndOfEpisode
from headrace.server.messages.writing import RuleDescription
from headrace.tables.description.rules import ItemRule, PatternWindow, Rule, WholeEpisodes


def described_rule(rule: Rule) -> RuleDescription:
    """Returns the description of a rule whose priority is a number.

    >>> rule_of(described_rule(ItemRule("t", 4, stride=2))) == ItemRule("t", 4, stride=2)
    True
    """
    match rule:
        case ItemRule(table=table, length=length, stride=stride, end=end, priority=priority, lookahead=ahead):
            assert not callable(priority), "checked_rules lets numbers pass only"
            return RuleDescription(
                kind="item",
                table=table,
                length=length,
                priority=priority,
                stride=stride,
                end=end.name,
                lookahead=ahead,
            )
        case WholeEpisodes(table=table, length=length, priority=priority):
            return RuleDescription(kind="episode", table=table, length=length, priority=priority)
        case PatternWindow(table=table, length=length, skip=skip, priority=priority):
            return RuleDescription(kind="pattern", table=table, length=length, priority=priority, skip=skip)


def rule_of(given: RuleDescription) -> Rule:
    """Returns the rule of a description.

    Raises:
        ValueError: no rule has these numbers.
    """
    if given.kind == "episode":
        return WholeEpisodes(given.table, given.length, given.priority)
    if given.kind == "pattern":
        return PatternWindow(given.table, given.length, given.skip, given.priority)
    if given.end not in EndOfEpisode.__members__:
        raise ValueError(f"end: expected one of {', '.join(EndOfEpisode.__members__)}, got {given.end!r}")
    end = EndOfEpisode[given.end]
    return ItemRule(given.table, given.length, given.stride, end, given.priority, given.lookahead)
