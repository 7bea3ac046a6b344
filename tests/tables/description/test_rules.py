"""Item rules: what they refuse and what they tell."""

import dataclasses

import pytest

import headrace as hr
from headrace.ends import EndOfEpisode
from headrace.tables.description.rules import ItemRule, WholeEpisodes, check_priority, checked_rules
from headrace.tables.description.window_rule import (
    CONTINUE,
    DROP,
    END_NUMBERS,
    LAST,
    PAD,
    TILE,
    TRUNCATE,
    WHOLE,
)


def test_a_rule_is_an_immutable_value():
    rule = ItemRule("t", 4, stride=2, end=EndOfEpisode.PAD, priority=2, lookahead=3)
    assert (rule.table, rule.length, rule.stride, rule.end) == ("t", 4, 2, EndOfEpisode.PAD)
    assert (rule.priority, rule.lookahead) == (2.0, 3)
    assert isinstance(rule.priority, float)
    assert rule == ItemRule("t", 4, stride=2, end=EndOfEpisode.PAD, priority=2.0, lookahead=3)
    assert hash(rule) == hash(ItemRule("t", 4, stride=2, end=EndOfEpisode.PAD, priority=2.0, lookahead=3))
    assert rule != ItemRule("t", 4)
    with pytest.raises(dataclasses.FrozenInstanceError):
        rule.length = 3  # type: ignore[misc]


@pytest.mark.parametrize(
    ("arguments", "match"),
    [
        ({"length": 0}, "length"),
        ({"length": -1}, "length"),
        ({"length": 1, "stride": 0}, "stride"),
        ({"length": 1, "lookahead": -1}, "lookahead"),
        ({"length": 2**30}, "at most 1073741823 rows"),
        ({"length": 2**63 - 1, "end": EndOfEpisode.TILE}, "at most 1073741823 rows"),
        ({"length": 1, "stride": 2**30}, "at most 1073741823 rows"),
        ({"length": 1, "lookahead": 2**32 - 1}, "at most 1073741823 rows"),
        ({"length": 1, "priority": -0.5}, "priority"),
        ({"length": 1, "priority": float("nan")}, "priority"),
        ({"length": 1, "priority": float("inf")}, "priority"),
        ({"length": 2, "end": EndOfEpisode.CONTINUE, "lookahead": 1}, "CONTINUE"),
        ({"length": 2, "stride": 3, "end": EndOfEpisode.PAD}, "stride"),
        ({"length": 2, "stride": 3, "end": EndOfEpisode.TRUNCATE}, "stride"),
    ],
)
def test_values_that_are_refused(arguments: dict, match: str):
    """Trajectories W2, W3; replay P1."""
    with pytest.raises(ValueError, match=match):
        ItemRule("t", **arguments)


@pytest.mark.parametrize("end", [EndOfEpisode.DROP, EndOfEpisode.LAST, EndOfEpisode.TILE])
def test_a_stride_longer_than_the_window_is_allowed_where_it_makes_sense(end: EndOfEpisode):
    """Trajectories W2."""
    assert ItemRule("t", 2, stride=5, end=end).stride == 5


@pytest.mark.parametrize("name", ["length", "stride", "lookahead"])
@pytest.mark.parametrize("value", [True, 1.0, "1", None])
def test_numbers_that_are_no_integers(name: str, value: object):
    """Trajectories W3: a TypeError where the type is wrong."""
    with pytest.raises(TypeError, match=name):
        ItemRule(**{"table": "t", "length": 1, name: value})


@pytest.mark.parametrize("end", ["drop", 0, None])
def test_end_is_accepted_as_a_member_only(end: object):
    """Trajectories W3."""
    with pytest.raises(TypeError, match="end"):
        ItemRule("t", 1, end=end)  # type: ignore[arg-type]


def test_ends_have_numbers_of_their_own():
    assert [END_NUMBERS[end] for end in EndOfEpisode] == [DROP, TRUNCATE, PAD, TILE, LAST, CONTINUE]
    assert len({DROP, TRUNCATE, PAD, TILE, LAST, CONTINUE, WHOLE}) == 7


@pytest.mark.parametrize(
    ("rule", "every", "reach"),
    [
        (ItemRule("t", 1), True, 1),
        (ItemRule("t", 1, stride=2), False, 1),
        (ItemRule("t", 1, lookahead=3), False, 4),
        (ItemRule("t", 5), False, 5),
    ],
)
def test_what_a_rule_needs(rule: ItemRule, every: bool, reach: int):
    """Replay I2: a lane keeps what its rules reach."""
    assert rule.is_every_row == every
    assert rule.reach == reach
    assert len(rule.priorities) == 0
    assert rule.window_rule == (rule.length, rule.stride, DROP, rule.lookahead)


@pytest.mark.parametrize("priority", [0, 0.0, 1, 1e300])
def test_priorities_that_are_fine(priority: float):
    check_priority(priority)


def test_a_rule_for_a_table_that_is_not_there():
    """Replay T3: KeyError with the names of those there are."""
    table = hr.Table("t", sampler=hr.selectors.Fifo(), remover=hr.selectors.Fifo(), max_size=9)
    with hr.Replay(hr.Signature.like({"x": 0}), [table]) as replay:
        with pytest.raises(KeyError, match="'t'"):
            replay.writer(items=[ItemRule("other", 1)])


def test_a_function_is_a_priority_for_step_writers_only():
    """Trajectories A7: a writer of rows does not show them to anybody."""
    rule = ItemRule("t", 2, priority=lambda rows: 1.0)
    with pytest.raises(TypeError, match=r"'t'.*StepWriter"):
        checked_rules([rule])


def test_what_is_no_rule_is_refused():
    with pytest.raises(TypeError, match="list"):
        checked_rules(WholeEpisodes("t", 3))  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="ItemRule"):
        checked_rules(["t"])  # type: ignore[list-item]
    assert len(checked_rules([WholeEpisodes("t", 3), ItemRule("t", 1)])) == 2
