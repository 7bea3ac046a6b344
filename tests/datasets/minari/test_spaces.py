"""Gymnasium spaces: Minari's JSON, inferred from data, given for data; environments (datasets K7, K8)."""

import json

import gymnasium
import numpy as np
import pytest
from gymnasium import spaces

from headrace import Episode, SpecError
from headrace.datasets.exporting.structure import Structure
from headrace.datasets.minari.env_spec import env_spec_from_json, env_spec_of, env_spec_to_json, spaces_of
from headrace.datasets.minari.space_checks import SpaceCheck
from headrace.datasets.minari.space_inference import SpaceInference
from headrace.datasets.minari.spaces import space_from_json, space_to_json

WRITTEN = [
    spaces.Box(-np.inf, np.inf, (3,)),
    spaces.Box(np.array([-1.0, -np.inf]), np.array([np.inf, 0.1]), dtype=np.float64),
    spaces.Box(-np.inf, np.inf, (), np.float16),
    spaces.Box(-np.inf, np.inf, (2, 0), np.float32),
    spaces.Box(0, 255, (4, 4, 3), np.uint8),
    spaces.Box(np.iinfo(np.int64).min, np.iinfo(np.int64).max, (2,), np.int64),
    spaces.Box(0, np.iinfo(np.uint64).max, (2,), np.uint64),
    spaces.Discrete(3),
    spaces.Discrete(5, start=-2),
    spaces.MultiDiscrete([[2, 3], [4, 5]], start=[[0, 1], [2, 3]]),
    spaces.MultiBinary(4),
    spaces.MultiBinary((2, 3)),
    spaces.Text(7, min_length=0, charset="ab\n\u00e9\u4e2d"),
    spaces.Dict({"b": spaces.Discrete(2), "a": spaces.Tuple([spaces.Box(0, 1), spaces.Dict({})])}),
    spaces.Tuple([]),
]
named = {"ids": [str(space)[:30] for space in WRITTEN]}


@pytest.mark.parametrize("space", WRITTEN, **named)
def test_a_space_comes_back_equal(space):
    """K7."""
    assert space_from_json(space_to_json(space, "observation_space")) == space


@pytest.mark.parametrize("space", WRITTEN, **named)
def test_the_json_is_that_of_minari(space):
    """K7: what Minari writes of the same space, and what it reads of ours."""
    serialization = pytest.importorskip("minari.serialization")
    ours = space_to_json(space, "observation_space")
    assert json.loads(ours) == json.loads(serialization.serialize_space(space))
    assert serialization.deserialize_space(ours) == space
    assert space_from_json(serialization.serialize_space(space)) == space


def test_infinite_bounds_are_tokens():
    """K7: "float infinities included"."""
    text = space_to_json(spaces.Box(-np.inf, np.inf, ()), "observation_space")
    assert '"low": -Infinity, "high": Infinity' in text


def test_the_dtype_of_a_discrete_space_is_kept():
    space = spaces.Discrete(3, dtype=np.int32)
    assert space_from_json(space_to_json(space, "action_space")).dtype == np.int32


@pytest.mark.parametrize(
    "space",
    [
        spaces.Sequence(spaces.Discrete(2)),
        spaces.Graph(spaces.Box(0, 1), None),
        spaces.OneOf([spaces.Discrete(2)]),
    ],
    ids=lambda space: type(space).__name__,
)
def test_another_space_is_a_value_error_that_names_it(space):
    """K7."""
    nested = spaces.Dict({"a": spaces.Tuple([spaces.Discrete(2), space])})
    with pytest.raises(ValueError, match=f"observation_space/a/1: .*{type(space).__name__}"):
        space_to_json(nested, "observation_space")


@pytest.mark.parametrize(
    "text",
    [
        "",
        "{",
        "3",
        "{}",
        '{"type": "Graph"}',
        '{"type": "Box", "dtype": "x"}',
        '{"type": "Discrete", "n": -1}',
        '{"type": "Dict", "subspaces": 3}',
        None,
    ],
)
def test_what_is_no_space_is_a_value_error(text):
    """G11: it is turned into a DatasetError with the file by the reader."""
    with pytest.raises(ValueError):
        space_from_json(text)


def episode(observations, actions=None, steps=3):
    actions = np.zeros(steps, np.int64) if actions is None else actions
    return Episode(observations, actions, np.zeros(steps), [False] * (steps - 1) + [True], [False] * steps)


def inferred(*observations):
    """The space of the observations of some episodes."""
    episodes = [episode(tree) for tree in observations]
    structure = Structure.of(episodes[0])
    inference = SpaceInference(structure.roots["observations"])
    for index, each in enumerate(episodes):
        inference.see(index, structure.check(index, each))
    return inference.space()


INT8 = np.iinfo(np.int8)
INFERRED = {
    "bool array": (np.ones((4, 2), bool), spaces.MultiBinary(2)),
    "bool matrix": (np.ones((4, 2, 3), bool), spaces.MultiBinary((2, 3))),
    "bool": (np.zeros(4, bool), spaces.Discrete(2)),
    "bool array of no places": (np.ones((4, 0), bool), spaces.Box(0, 1, (0,), bool)),
    "uint8 array": (np.ones((4, 2, 2), np.uint8), spaces.Box(0, 255, (2, 2), np.uint8)),
    "float32 array": (np.ones((4, 2), np.float32), spaces.Box(-np.inf, np.inf, (2,), np.float32)),
    "float64": (np.ones(4), spaces.Box(-np.inf, np.inf, (), np.float64)),
    "float16 array": (np.ones((4, 1), np.float16), spaces.Box(-np.inf, np.inf, (1,), np.float16)),
    "int8 array": (np.ones((4, 2), np.int8), spaces.Box(INT8.min, INT8.max, (2,), np.int8)),
    "uint64 array": (np.ones((4, 2), np.uint64), spaces.Box(0, 2**64 - 1, (2,), np.uint64)),
    "int": (np.array([2, 5, 3, 0]), spaces.Discrete(6)),
    "int above 0": (np.array([2, 5, 3, 3]), spaces.Discrete(6)),
    "int below 0": (np.array([-2, 5, 3, 3]), spaces.Discrete(8, start=-2)),
    "uint8": (np.array([2, 5, 3, 3], np.uint8), spaces.Discrete(6)),
    "int of 64 bits": (np.array([-(2**63), 2**63 - 1, 0, 0]), spaces.Box(-(2**63), 2**63 - 1, (), np.int64)),
    "uint of 64 bits": (np.array([2**64 - 1] * 4, np.uint64), spaces.Box(0, 2**64 - 1, (), np.uint64)),
    "string": (["ab", "", "abc", "\u00e9"], spaces.Text(3, min_length=0, charset="abc\u00e9")),
    "empty strings": ([""] * 4, spaces.Text(1, min_length=0, charset="")),
    "dict and tuple": (
        {"b": (np.zeros(4), np.arange(4)), "a": {}},
        spaces.Dict(
            {
                "a": spaces.Dict({}),
                "b": spaces.Tuple([spaces.Box(-np.inf, np.inf, (), np.float64), spaces.Discrete(4)]),
            }
        ),
    ),
}


@pytest.mark.parametrize(("observations", "space"), INFERRED.values(), ids=INFERRED)
def test_a_space_is_inferred_from_the_data(observations, space):
    """K7; and what was inferred holds the data, and can be written."""
    found = inferred(observations)
    assert found == space
    assert space_from_json(space_to_json(found, "observation_space")) == space
    check(found, observations)


def test_a_space_is_inferred_from_all_episodes():
    """K7: the least and the greatest value of all."""
    assert inferred(np.zeros(4, int), np.array([0, -3, 0, 0]), np.array([0, 0, 9, 1])) == spaces.Discrete(
        13, start=-3
    )
    assert inferred(["a"] * 4, ["bcd"] * 4) == spaces.Text(3, min_length=0, charset="abcd")


@pytest.mark.parametrize("observations", [np.zeros(4, complex), np.array([["a", "b"]] * 4)])
def test_what_no_space_holds_is_refused(observations):
    """K7."""
    with pytest.raises(SpecError, match="^observations: .*no space holds it"):
        inferred(observations)


def check(space, observations):
    found = episode(observations)
    structure = Structure.of(found)
    checker = SpaceCheck("observation_space", space, structure.roots["observations"])
    checker.see(5, structure.check(5, found))
    assert checker.space() is space


FITS = {
    "same": (spaces.Box(-1, 1, (2,)), np.zeros((4, 2), np.float32)),
    "narrower": (spaces.Box(-1, 1, (2,), np.float64), np.zeros((4, 2), np.float32)),
    "NaN and infinities": (
        spaces.Box(-np.inf, np.inf, (1,)),
        np.array([[np.nan], [np.inf], [-np.inf], [0]], np.float32),
    ),
    "Discrete": (spaces.Discrete(3, start=-1), np.array([-1, 0, 1, 1], np.int8)),
    "Discrete of the greatest start": (spaces.Discrete(2, start=2**63 - 2), np.full(4, 2**63 - 1)),
    "MultiDiscrete": (spaces.MultiDiscrete([2, 3], start=[1, 0]), np.array([[1, 0], [2, 2], [1, 1], [1, 1]])),
    "MultiBinary": (spaces.MultiBinary(2), np.ones((4, 2), bool)),
    "Text": (spaces.Text(3, charset="ab"), ["a", "ab", "bbb", "a"]),
    "nested": (
        spaces.Dict({"a": spaces.Tuple([spaces.Discrete(2), spaces.Box(0, 1)])}),
        {"a": (np.zeros(4, int), np.zeros((4, 1), np.float32))},
    ),
}


@pytest.mark.parametrize(("space", "observations"), FITS.values(), ids=FITS)
def test_data_that_fits_a_given_space(space, observations):
    """K7."""
    check(space, observations)


REFUSED = {
    "wider dtype": (
        spaces.Box(-1, 1, (2,)),
        np.zeros((4, 2)),
        r"observations: expected float32\[2\].*float64\[2\]",
    ),
    "unsigned into signed": (spaces.Discrete(3), np.zeros(4, np.uint64), r"expected int64\[\].*uint64\[\]"),
    "float for Discrete": (spaces.Discrete(3), np.zeros(4, np.float32), r"expected int64\[\]"),
    "strings for numbers": (spaces.Box(-1, 1, ()), ["a"] * 4, r"got str\[\]"),
    "numbers for strings": (spaces.Text(3), np.zeros(4), r"expected str\[\]"),
    "shape": (spaces.Box(-1, 1, (2,)), np.zeros((4, 3), np.float32), r"float32\[2\].*float32\[3\]"),
    "one more axis": (spaces.Discrete(2), np.zeros((4, 1), int), r"int64\[\].*int64\[1\]"),
    "above": (
        spaces.Box(-1, 1, (2,)),
        np.array([[0, 0], [0, 2], [0, 0], [9, 0]], np.float32),
        r"^episode 5: .*\[0.0, 2.0\] at step 1",
    ),
    "below": (
        spaces.Box(np.float32(0), np.float32(np.inf), ()),
        np.array([0, 0, -1, 0], np.float32),
        "at step 2",
    ),
    "infinity": (spaces.Box(0, 1, ()), np.array([0, np.inf, 0, 0], np.float32), "at step 1"),
    "Discrete": (spaces.Discrete(3, start=-1), np.array([0, 0, 0, 2]), "got 2 at step 3"),
    "Discrete below": (spaces.Discrete(3, start=-1), np.array([-2, 0, 0, 1]), "got -2 at step 0"),
    "MultiDiscrete": (spaces.MultiDiscrete([2, 3]), np.array([[0, 0], [1, 3], [0, 0], [0, 0]]), "at step 1"),
    "MultiDiscrete below": (
        spaces.MultiDiscrete([2, 3], start=[1, 1]),
        np.array([[1, 1], [0, 1], [1, 1], [1, 1]]),
        "at step 1",
    ),
    "MultiBinary": (spaces.MultiBinary(2), np.array([[0, 1], [0, 2], [0, 0], [0, 0]], np.int8), "at step 1"),
    "long text": (spaces.Text(3, charset="a"), ["a", "aaaa", "a", "a"], "got aaaa at step 1"),
    "short text": (spaces.Text(3, min_length=2, charset="a"), ["aa", "a", "aa", "aa"], "at step 1"),
    "foreign letters": (spaces.Text(3, charset="a"), ["a", "a", "a", "b"], "got b at step 3"),
    "missing key": (
        spaces.Dict({"a": spaces.Discrete(2), "b": spaces.Discrete(2)}),
        {"a": np.zeros(4, int)},
        "missing observations/b",
    ),
    "extra key": (
        spaces.Dict({"a": spaces.Discrete(2)}),
        {"a": np.zeros(4, int), "b": np.zeros(4, int)},
        "extra observations/b",
    ),
    "tuple for dict": (
        spaces.Dict({"a": spaces.Discrete(2)}),
        (np.zeros(4, int),),
        "observations: expected the parts of .*Dict.* got a tuple",
    ),
    "dict for tuple": (
        spaces.Tuple([spaces.Discrete(2)]),
        {"a": np.zeros(4, int)},
        "observations: .*Tuple.* got a dict",
    ),
    "short tuple": (spaces.Tuple([spaces.Discrete(2)] * 2), (np.zeros(4, int),), "missing observations/1"),
    "array for dict": (spaces.Dict({"a": spaces.Discrete(2)}), np.zeros(4, int), "got one array"),
    "dict for array": (
        spaces.Discrete(2),
        {"a": np.zeros(4, int)},
        "observations: expected the parts of .*Discrete",
    ),
}


@pytest.mark.parametrize(("space", "observations", "message"), REFUSED.values(), ids=REFUSED)
def test_data_that_does_not_fit_a_given_space(space, observations, message):
    """K7: structure, shape, dtype and bounds."""
    with pytest.raises(SpecError, match=message):
        check(space, observations)


def test_an_env_spec_is_taken_as_itself_as_json_or_as_an_id():
    """K8."""
    spec = gymnasium.spec("CartPole-v1")
    assert env_spec_of(spec, "env_spec") is spec
    assert env_spec_of("CartPole-v1", "env_spec") == spec
    assert env_spec_of(spec.to_json(), "env_spec") == spec
    assert env_spec_of(None, "env_spec") is None
    assert env_spec_from_json(env_spec_to_json(spec, "env_spec"), "env_spec") == spec


@pytest.mark.parametrize("given", ["Missing-v0", "CartPole-v77", "no id at all", "{", "{}", '{"id": 3}'])
def test_an_env_spec_that_is_none_is_a_value_error(given):
    """K8."""
    with pytest.raises(ValueError, match="^eval_env_spec: "):
        env_spec_of(given, "eval_env_spec")


def test_an_env_spec_of_another_type_is_a_type_error():
    with pytest.raises(TypeError, match="env_spec: .*got int"):
        env_spec_of(3, "env_spec")


def test_a_spec_that_is_no_json_is_a_value_error():
    """K8."""
    spec = gymnasium.envs.registration.EnvSpec("Mine-v0", entry_point=lambda: None)
    with pytest.raises(ValueError, match="env_spec: .*Mine-v0"):
        env_spec_to_json(spec, "env_spec")
    spec = gymnasium.envs.registration.EnvSpec("Mine-v0", entry_point="x:Y", kwargs={"array": np.zeros(2)})
    with pytest.raises(ValueError, match="env_spec: .*Mine-v0"):
        env_spec_to_json(spec, "env_spec")


def test_specs_of_earlier_gymnasium_are_read():
    """K11: gymnasium 0.29 noted what 1.0 refuses."""
    text = gymnasium.spec("CartPole-v1").to_json()
    old = json.dumps({**json.loads(text), "autoreset": False, "apply_api_compatibility": False})
    assert env_spec_from_json(old, "env_spec") == gymnasium.spec("CartPole-v1")


def test_spaces_of_an_environment_or_none_where_it_cannot_be_made():
    """K7."""
    observation_space, action_space = spaces_of(gymnasium.spec("CartPole-v1"))
    assert observation_space.shape == (4,)
    assert action_space == spaces.Discrete(2)
    assert spaces_of(gymnasium.envs.registration.EnvSpec("Mine-v0", entry_point="no_such_module:Env")) is None
