"""trajectories D1-D4, and the bounds of views V12."""

import copy
import math
import re
from collections import deque
from typing import NamedTuple

import numpy as np
import pytest
from hypothesis import example, given, settings, strategies

from headrace.errors import SpecError
from headrace.trajectories import Episode, Fragment


class Pair(NamedTuple):
    left: object
    right: object


def made(steps=3, **changes):
    parts = {
        "observations": np.arange(steps + 1, dtype=np.float32),
        "actions": np.arange(steps),
        "rewards": np.ones(steps),
        "terminations": np.zeros(steps, bool),
        "truncations": np.zeros(steps, bool),
    }
    return Episode(**(parts | changes))


def test_d1_arguments_are_positional_and_kept_by_name():
    episode = Episode(
        [1, 2], [3], [4.0], [True], [False], {"i": [5]}, {"e": [6, 7]}, seed=8, options={"o": 9}, id=10
    )
    assert episode.observations.tolist() == [1, 2]
    assert (episode.actions.tolist(), episode.rewards.tolist()) == ([3], [4.0])
    assert (episode.terminations.tolist(), episode.truncations.tolist()) == ([True], [False])
    assert (episode.infos["i"].tolist(), episode.extras["e"].tolist()) == ([5], [6, 7])
    assert (episode.seed, episode.options, episode.id) == (8, {"o": 9}, 10)


def test_d1_trees_keep_their_containers():
    observations = {"camera": np.zeros((4, 2)), "pose": Pair([0.0] * 4, ([1] * 4, np.ones(4)))}
    episode = made(observations=observations, infos={"a": {"b": ["x"] * 4, "c": np.zeros((3, 2))}})
    assert list(episode.observations) == ["camera", "pose"]
    assert isinstance(episode.observations["pose"], Pair)
    assert episode.observations["pose"].right[0].tolist() == [1] * 4
    assert episode.infos["a"]["b"].tolist() == ["x"] * 4


def test_d1_lists_and_deques_of_numbers_are_arrays():
    episode = made(observations=deque([1, 2, 3, 4]), actions=[[0, 1], [2, 3], [4, 5]])
    assert episode.observations.tolist() == [1, 2, 3, 4]
    assert episode.actions.shape == (3, 2)


def test_d1_no_infos_is_none_or_empty():
    assert made().infos == {}
    assert made().extras == {}
    assert made() == made(infos={})


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"observations": np.zeros(3)}, r"^observations: expected 4 rows, got 3: .*T=3 transitions has T\+1"),
        ({"observations": {"a": {"b": np.zeros(3)}}}, r"^observations/a/b: expected 4 rows, got 3: .*T\+1"),
        ({"observations": (np.zeros(4), np.zeros(6))}, "^observations/1: expected 4 rows, got 6$"),
        ({"actions": Pair(np.zeros(3), np.zeros(4))}, "^actions/right: expected 3 rows, got 4$"),
        ({"terminations": [False] * 2}, "^terminations: expected 3 rows, got 2$"),
        ({"truncations": [False] * 4}, "^truncations: expected 3 rows, got 4$"),
        ({"infos": {"a": {"b": np.zeros(5)}}}, "^infos/a/b: expected 4 or 3 rows, got 5$"),
        ({"extras": {"logits": np.zeros((2, 3))}}, "^extras/logits: expected 4 or 3 rows, got 2$"),
        ({"rewards": np.ones(2)}, "^rewards: expected 3 rows, got 2$"),
        ({"rewards": np.ones(4)}, "^rewards: expected 3 rows, got 4$"),
        (
            {"rewards": np.ones(2), "observations": (np.zeros(4), np.zeros(3))},
            "^observations/1: expected 4 rows",
        ),
        ({"rewards": []}, "^rewards: expected at least 1 row, got 0"),
        ({"rewards": np.ones((3, 1))}, r"^rewards: .*shape \[T\], got float64\[3, 1\]"),
        ({"terminations": np.zeros((3, 1), bool)}, r"^terminations: .*shape \[3\], got bool\[3, 1\]"),
        ({"terminations": [0, 0, 2]}, "^terminations: expected booleans"),
        ({"actions": 3}, "^actions: expected an array with a row for each step, got one value: 3"),
        ({"actions": [[1], [2, 3], [4]]}, "^actions: expected an array, got list"),
        ({"actions": [object()] * 3}, "^actions: expected numbers, booleans or strings"),
        ({"observations": None}, "^observations: expected at least one array, got None"),
        ({"actions": {}}, "^actions: expected at least one array"),
        ({"infos": [1, 2, 3]}, "^infos: expected a mapping of arrays, got list"),
    ],
)
def test_d1_what_does_not_fit_is_named(changes, message):
    with pytest.raises(SpecError, match=message):
        made(**changes)


def test_d1_one_transition_is_the_least():
    assert len(Episode([0, 1], [0], [0.0], [False], [True])) == 1


@pytest.mark.parametrize("name", ["terminations", "truncations"])
def test_d2_a_flag_before_the_last_step_is_refused(name):
    with pytest.raises(
        SpecError, match=re.escape(f"{name}: expected a flag at the last step (2) only, got one at step 1")
    ):
        made(**{name: [False, True, True]})


@pytest.mark.parametrize(("terminated", "truncated"), [(a, b) for a in (False, True) for b in (False, True)])
def test_d2_d3_the_last_flags_are_free(terminated, truncated):
    episode = made(terminations=[False, False, terminated], truncations=[False, False, truncated])
    assert episode.terminated is terminated
    assert episode.truncated is truncated


def test_d3_length_and_return():
    episode = made(rewards=np.array([1, 2, 4], np.int8))
    assert len(episode) == 3
    assert episode.return_ == 7.0
    assert type(episode.return_) is float


def test_d3_the_return_is_summed_in_double_precision():
    rewards = np.array([2**24, 1, 1], np.float32)
    assert made(rewards=rewards).return_ == 2**24 + 2


NANS = np.array([1.0, np.nan, np.inf, -np.inf])


def test_d3_equality_compares_values():
    def one(**changes):
        base = {
            "observations": {"a": NANS.copy()},
            "infos": {"s": ["a", "b", "c"]},
            "options": {"x": np.nan},
            "seed": 2**63,
        }
        return made(**(base | changes))

    assert one() == one()
    assert one() != one(observations={"a": np.zeros(4)})
    assert one() != one(observations={"b": NANS.copy()})
    assert one() != one(infos={"s": ["a", "b", "d"]})
    assert one() != one(seed=1)
    assert one() != one(options={"x": 0.0})
    assert one() != one(id="other")
    assert one() != one(rewards=np.ones(3, np.float32))
    assert one() != one(truncations=[False, False, True])
    assert one() != "an episode"


def test_d3_equality_compares_dtype_and_shape():
    assert made(actions=np.zeros((3, 1))) != made(actions=np.zeros((3, 2)))
    assert made(actions=np.zeros(3, np.int32)) != made(actions=np.zeros(3, np.int64))
    assert made(actions=(np.zeros(3), np.zeros(3))) != made(actions=(np.zeros(3),))
    assert made(actions=(np.zeros(3),)) != made(actions=np.zeros(3))


def test_d3_equal_by_value_means_not_hashable():
    with pytest.raises(TypeError, match="unhashable"):
        hash(made())


def test_d4_arrays_are_neither_copied_nor_cast():
    camera, rewards = np.zeros((4, 2), np.uint8), np.zeros(3, np.float16)
    ends = np.zeros(3, bool)
    episode = made(observations={"camera": camera}, rewards=rewards, terminations=ends)
    assert episode.observations["camera"] is camera
    assert episode.rewards is rewards
    assert episode.terminations is ends


@pytest.mark.parametrize("ends", [[0, 0, 1], np.array([0.0, 0.0, 1.0]), [False, False, True]])
def test_d4_flags_become_bool(ends):
    episode = made(terminations=ends)
    assert episode.terminations.dtype == bool
    assert episode.terminated


@pytest.mark.parametrize(("start", "stop"), [(0, 3), (1, 1), (3, 3), (0, 0), (np.int64(1), 2)])
def test_v12_a_fragment_keeps_its_bounds(start, stop):
    episode = made()
    fragment = episode.fragment(start, stop)
    assert isinstance(fragment, Fragment)
    assert fragment.episode is episode
    assert (fragment.start, fragment.stop, len(fragment)) == (start, stop, stop - start)
    with pytest.raises(AttributeError):
        fragment.start = 0


@pytest.mark.parametrize(("start", "stop"), [(-1, 2), (2, 1), (0, 4), (4, 4)])
def test_v12_bounds_are_checked(start, stop):
    with pytest.raises(ValueError, match=f"0 <= start <= stop <= 3, got start={start}, stop={stop}"):
        made().fragment(start, stop)


def test_v12_bounds_are_integers():
    with pytest.raises(TypeError):
        made().fragment(0.0, 2)


def test_repr_shows_the_end():
    assert repr(made(terminations=[0, 0, 1], id=7)) == "Episode(id=7, 3 steps, terminated, return 3)"
    assert repr(made()) == "Episode(3 steps, unfinished, return 3)"


class Other(NamedTuple):
    left: object
    right: object


VALUES = strategies.recursive(
    strategies.sampled_from(
        [
            None,
            1,
            1.0,
            True,
            "1",
            math.nan,
            np.int64(1),
            np.float32(math.nan),
            np.array([1, 1]),
            np.array([]),
            np.array(1),
            {1},
            b"1",
        ]
    ),
    lambda inner: strategies.one_of(
        strategies.lists(inner, max_size=3),
        strategies.lists(inner, max_size=3).map(tuple),
        strategies.tuples(inner, inner).map(lambda pair: Pair(*pair)),
        strategies.tuples(inner, inner).map(lambda pair: Other(*pair)),
        strategies.dictionaries(strategies.sampled_from("ab"), inner, max_size=2),
    ),
    max_leaves=6,
)


@given(VALUES, VALUES)
@settings(max_examples=200, deadline=None)
@example(np.int64(1), (1, 2))
@example((1, 2), np.float32(1))
@example((1, 2), (1, 2, 3))
@example(Pair(1, 2), (1, 2))
@example(np.int64(1), [np.array([1, 2])])
def test_equality_is_true_or_false_for_any_options(one, other):
    """Never an exception, the same from both sides, and true of a copy."""

    def episode(value):
        return Episode([0.0, 1.0], [0], [1.0], [True], [False], options={"value": value})

    same = episode(one) == episode(other)
    assert type(same) is bool
    assert same is (episode(other) == episode(one))
    assert episode(one) == episode(copy.deepcopy(one))
    assert episode(one) == episode(one)


def test_observations_in_tuples_of_other_lengths_and_types_are_not_equal():
    rows = np.zeros(2)

    def episode(observations):
        return Episode(observations, [0], [1.0], [True], [False])

    trees = [rows, (rows,), (rows, rows), (rows, (rows,)), Pair(rows, rows), Other(rows, rows), {"0": rows}]
    for here, one in enumerate(trees):
        assert [episode(one) == episode(other) for other in trees] == [
            here == there for there in range(len(trees))
        ]


def test_a_value_that_cannot_be_compared_is_no_equal():
    class Several:
        def __eq__(self, other):
            return np.array([True, True])

        __hash__ = None

    def episode(value):
        return Episode([0.0, 1.0], [0], [1.0], [True], [False], options={"value": value})

    value = Several()
    assert episode(value) == episode(value)
    assert episode(value) != episode(Several())


def test_what_most_parts_agree_on_decides_which_part_is_wrong():
    """Two short columns are blamed when observations, actions and the third column say otherwise."""
    with pytest.raises(SpecError, match="^rewards: expected 3 rows, got 2"):
        Episode(np.zeros(4), np.zeros(3), np.zeros(2), np.zeros(2, bool), np.zeros(3, bool))
