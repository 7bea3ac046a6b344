"""Signatures: a tree of arrays as named columns."""

import dataclasses
import json
import pickle
import time
import timeit
from collections import OrderedDict, defaultdict, deque, namedtuple
from types import MappingProxyType
from typing import Any, NamedTuple

import gymnasium
import numpy as np
import pytest
from gymnasium import spaces
from hypothesis import given
from hypothesis import strategies as st

from headrace import trees
from headrace.arrays import ArraySpec
from headrace.errors import SpecError
from headrace.spec import Signature, register_container, register_container_name


class Frame(NamedTuple):
    step_type: Any
    observation: Any
    action: Any


@dataclasses.dataclass(frozen=True)
class Motion:
    velocity: Any
    angle: Any


SPECS = st.builds(
    ArraySpec,
    st.lists(st.integers(0, 3), max_size=2),
    st.sampled_from(["bool", "uint8", "int32", "int64", "float32", "float64", "complex64"]),
)
KEYS = st.text(st.characters(exclude_characters="/", exclude_categories=["Cs"]), min_size=1, max_size=4)


def containers(children):
    return st.one_of(
        st.dictionaries(KEYS, children, max_size=3),
        st.lists(children, max_size=12),
        st.lists(children, max_size=3).map(tuple),
        st.builds(Frame, children, children, children),
        st.builds(Motion, children, children),
        st.dictionaries(KEYS, children, max_size=2).map(OrderedDict),
        st.dictionaries(KEYS, children, max_size=2).map(lambda tree: defaultdict(list, tree)),
        st.builds(deque, st.lists(children, max_size=2), st.sampled_from([None, 2])),
    )


TREES = st.recursive(SPECS | st.none(), containers, max_leaves=12)


def model_columns(tree, path=""):
    """A plain reading of the rules for paths and their order: (path, leaf) pairs."""
    if tree is None:
        return []
    if isinstance(tree, dict):
        pairs = [(key, tree[key]) for key in sorted(tree)]
    elif hasattr(tree, "_fields"):
        pairs = [(name, getattr(tree, name)) for name in tree._fields]
    elif isinstance(tree, Motion):
        pairs = [("velocity", tree.velocity), ("angle", tree.angle)]
    elif isinstance(tree, list | tuple | deque):
        pairs = [(str(index), child) for index, child in enumerate(tree)]
    else:
        return [(path or "value", tree)]
    found = []
    for name, child in pairs:
        found += model_columns(child, f"{path}/{name}" if path else name)
    return found


def same(left, right):
    """Whether two trees have the same containers (type, keys and their order) and equal leaves."""
    if type(left) is not type(right):
        return False
    if isinstance(left, defaultdict) and left.default_factory is not right.default_factory:
        return False
    if isinstance(left, deque) and left.maxlen != right.maxlen:
        return False
    if isinstance(left, dict):
        return list(left) == list(right) and all(same(left[key], right[key]) for key in left)
    if isinstance(left, list | tuple | deque):
        return len(left) == len(right) and all(map(same, left, right))
    if isinstance(left, Motion):
        return same(left.velocity, right.velocity) and same(left.angle, right.angle)
    if isinstance(left, np.ndarray):
        return left.dtype == right.dtype and left.shape == right.shape and bool((left == right).all())
    return left == right


def test_deques_of_other_lengths_make_other_signatures():
    leaf = ArraySpec(2, "float32")
    longest = [Signature({"last": deque([leaf], maxlen=maxlen)}) for maxlen in (None, 1, 3)]
    assert [[one == other for other in longest] for one in longest] == np.eye(3, dtype=bool).tolist()


@given(TREES)
def test_columns_are_named_by_path_in_order(tree):
    signature = Signature(tree)
    assert list(signature.columns.items()) == model_columns(tree)
    assert signature.nbytes == sum(spec.nbytes for _, spec in model_columns(tree))
    assert same(signature.tree, tree)


@given(TREES, st.lists(st.integers(0, 3), max_size=2))
def test_flatten_and_unflatten_are_inverse(tree, leading):
    signature = Signature(tree)
    zeros = signature.zeros(*leading)
    columns = signature.flatten(zeros)
    assert {k: (v.shape, v.dtype) for k, v in columns.items()} == {
        k: (tuple(leading) + s.shape, s.dtype) for k, s in signature.columns.items()
    }
    assert list(columns) == list(signature.columns)
    again = signature.unflatten(columns)
    assert same(again, zeros)
    assert all(a is b for a, b in zip(columns.values(), signature.flatten(again).values(), strict=True))
    assert list(signature.validate(zeros, tuple(leading))) == list(columns)


@given(TREES)
def test_like_reads_back_what_zeros_made(tree):
    signature = Signature(tree)
    assert Signature.like(signature.zeros()) == signature


@given(TREES)
def test_json_and_pickle_round_trips(tree):
    signature = Signature(tree)
    through_json = Signature.from_json(json.loads(json.dumps(signature.to_json())))
    assert through_json == signature
    assert hash(through_json) == hash(signature)
    assert through_json.columns == signature.columns
    for each in (signature, through_json):
        assert pickle.loads(pickle.dumps(each)) == each


@given(TREES, TREES)
def test_signatures_are_equal_when_their_descriptions_are(left, right):
    a, b = Signature(left), Signature(right)
    assert (a == b) == (json.dumps(a.to_json(), sort_keys=True) == json.dumps(b.to_json(), sort_keys=True))


def test_a_signature_is_a_value():
    signature = Signature({"b": ArraySpec(2, "float32"), "a": (ArraySpec((), int), None)})
    assert repr(signature) == "Signature({'b': float32[2], 'a': (int64[], None)})"
    assert signature == Signature({"a": (ArraySpec((), int), None), "b": ArraySpec(2, "float32")})
    assert hash(signature) == hash(Signature({"a": (ArraySpec((), int), None), "b": ArraySpec(2, "float32")}))
    assert signature != Signature({"a": [ArraySpec((), int), None], "b": ArraySpec(2, "float32")})
    assert signature != "Signature"
    signature.columns.clear()
    assert list(signature.columns) == ["a/0", "b"]


def test_named_tuples_are_taken_by_field_and_come_back():  # trajectories F1
    example = Frame(np.int32(1), {"camera": np.zeros((2, 2), np.uint8), "arm": np.zeros(3)}, ())
    signature = Signature.like(example)
    assert list(signature.columns) == ["step_type", "observation/arm", "observation/camera"]
    batch = signature.zeros(5)
    assert type(batch) is Frame
    assert batch.observation["camera"].shape == (5, 2, 2)
    assert batch.action == ()


def test_a_bare_array_is_the_column_value():
    signature = Signature.like(np.zeros(3, np.float32))
    assert list(signature.columns) == ["value"]
    assert signature.flatten([1.0, 2.0, 3.0])["value"].shape == (3,)
    assert signature.zeros(2).shape == (2, 3)


@pytest.mark.parametrize("empty", [{}, (), [], None, {"a": {}, "b": (None, [])}])
def test_an_empty_tree_has_no_columns(empty):
    signature = Signature.like(empty)
    assert signature.columns == {}
    assert signature.nbytes == 0
    assert signature.flatten(empty) == {}
    assert same(signature.unflatten({}), empty)


@pytest.mark.parametrize(
    "tree", [{"a": {1: ArraySpec(1, int)}}, {"a": {"": 0}}, {"a": {"b/c": 0}}, {"a": {None: 0}}]
)
def test_keys_that_make_no_path_are_refused(tree):
    for make in (Signature, Signature.like):
        with pytest.raises(SpecError, match="^a: expected keys that are non-empty strings without '/', got"):
            make(tree)


def test_a_tree_that_contains_itself_is_refused():
    endless = []
    endless.append(endless)
    with pytest.raises(SpecError, match="does the tree contain itself"):
        Signature.like(endless)


def test_a_leaf_that_is_no_spec_is_refused():
    with pytest.raises(SpecError, match="^obs/0: expected an ArraySpec, got ndarray; Signature.like"):
        Signature({"obs": [np.zeros(3)]})


@pytest.mark.parametrize(
    "leaf", ["word", b"x", object(), np.array(["a"]), np.datetime64("2024-01-01"), {1, 2}]
)
def test_like_refuses_what_is_no_array(leaf):
    with pytest.raises(SpecError, match="^a/b: expected an array of numbers"):
        Signature.like({"a": {"b": leaf}})


def test_like_refuses_a_signature_and_says_what_to_do():
    signature = Signature.like({"reward": 0.0})
    with pytest.raises(SpecError, match=r"an example of one step, got its Signature; its zeros\(\)"):
        Signature.like(signature)
    assert Signature.like(signature.zeros()) == signature


@pytest.mark.parametrize(
    "make",
    [
        Signature,
        lambda tree: Signature({"a": {"b": tree}}),
        Signature.like,
        lambda tree: Signature.like([tree]),
    ],
)
def test_a_space_in_place_of_an_example_names_of_space(make):
    with pytest.raises(SpecError, match=r"Signature\.of_space\(space\) makes one"):
        make(spaces.Box(-1, 1, (3,)))
    with pytest.raises(SpecError, match=r"Signature\.of_space\(space\) makes one"):
        make(spaces.Dict(arm=spaces.Box(-1, 1, (3,))))


def test_like_reads_scalars_and_torch():
    torch = pytest.importorskip("torch")
    example = {
        "f": 0.0,
        "i": 0,
        "b": False,
        "n": np.float32(1),
        "c": 1j,
        "t": torch.zeros(2, dtype=torch.int16),
    }
    dtypes = {name: spec.dtype.name for name, spec in Signature.like(example).columns.items()}
    assert dtypes == {
        "f": "float64",
        "i": "int64",
        "b": "bool",
        "n": "float32",
        "c": "complex128",
        "t": "int16",
    }


FLAT = Signature.like({"obs": np.zeros(3, np.float32), "reward": 0.0})
NESTED = Signature.like({"obs": {"arm": 0.0, "eye": (0, 0)}, "reward": 0.0})


@pytest.mark.parametrize(
    ("signature", "tree", "message"),
    [
        (FLAT, {"obs": np.zeros(3)}, "the tree: expected obs, reward; missing reward"),
        (FLAT, {"obs": np.zeros(3), "reward": 0.0, "x": 0}, "the tree: expected obs, reward; extra x"),
        (FLAT, {"obs": np.zeros(3), "x": 0}, "the tree: expected obs, reward; missing reward; extra x"),
        (FLAT, {}, "the tree: expected obs, reward; missing obs, reward"),
        (FLAT, [0, 1], "the tree: expected a container dict, got list"),
        (FLAT, {"obs": {"a": 1}, "reward": 0.0}, "obs: expected an array of numbers or booleans, got dict"),
        (NESTED, {"obs": {"arm": 0.0, "leg": 0}, "reward": 0.0},
         "obs: expected arm, eye; missing obs/eye; extra obs/leg"),
        (NESTED, {"obs": {"arm": 0.0, "eye": (0,)}, "reward": 0.0}, "obs/eye: expected 0, 1; missing obs/eye/1"),
        (NESTED, {"obs": {"arm": 0.0, "eye": (0, 0, 0)}, "reward": 0.0}, "obs/eye: expected 0, 1; extra obs/eye/2"),
        (NESTED, {"obs": {"arm": 0.0, "eye": [0, 0]}, "reward": 0.0},
         "obs/eye: expected a container tuple, got list"),
        (NESTED, {"obs": 1.0, "reward": 0.0}, "obs: expected a container dict, got float"),
        (Signature.like({"a": None}), {"a": 1}, "a: expected a container None, got int"),
        (Signature.like({"a": ()}), {"a": (1,)}, "a: expected nothing; extra a/0"),
    ],
)  # fmt: skip
def test_flatten_names_what_is_missing_and_what_is_extra(signature, tree, message):
    for method in (signature.flatten, signature.validate):
        with pytest.raises(SpecError) as caught:
            method(tree)
        assert str(caught.value) == message


def test_unflatten_names_what_is_missing_and_what_is_extra():
    with pytest.raises(SpecError, match="expected obs, reward; missing obs; extra x"):
        FLAT.unflatten({"reward": 1, "x": 2})


def test_any_mapping_and_the_fields_of_any_record_are_accepted():
    assert list(FLAT.flatten(MappingProxyType({"reward": 0, "obs": [0.0] * 3}))) == ["obs", "reward"]
    other = namedtuple("Other", Frame._fields)
    columns = Signature.like(Frame(0, 1, 2)).flatten(other(3, 4, 5))
    assert {name: value.item() for name, value in columns.items()} == {
        "step_type": 3,
        "observation": 4,
        "action": 5,
    }


def test_a_subclass_of_a_container_is_read_as_the_container():
    class Parameters(dict):
        pass

    signature = Signature.like(Parameters(a=1))
    assert type(signature.zeros()) is dict
    assert list(signature.flatten(Parameters(a=2))) == ["a"]


def test_validate_casts_by_the_table_and_names_the_path():
    checked = NESTED.validate({"obs": {"arm": 1, "eye": (True, 3)}, "reward": np.float32(2)})
    assert {name: (value.dtype.name, value.item()) for name, value in checked.items()} == {
        "obs/arm": ("float64", 1.0),
        "obs/eye/0": ("int64", 1),
        "obs/eye/1": ("int64", 3),
        "reward": ("float64", 2.0),
    }
    with pytest.raises(SpecError, match=r"^obs/eye/1: expected int64\[\], got float64\[\]"):
        NESTED.validate({"obs": {"arm": 1, "eye": (1, 2.0)}, "reward": 0})
    with pytest.raises(SpecError, match=r"^obs: expected float32\[4, 3\], got float32\[3\]"):
        FLAT.validate({"obs": np.zeros(3, np.float32), "reward": np.zeros(4)}, leading=(4,))


def test_flatten_of_a_flat_dict_is_fast():
    signature = Signature.like({name: np.zeros(4, np.float32) for name in "abcde"})
    step = signature.zeros()
    rounds = timeit.repeat(lambda: signature.flatten(step), timer=time.thread_time, number=200, repeat=50)
    assert min(rounds) / 200 < 4e-6


def test_spaces_become_signatures():
    space = spaces.Dict(
        {
            "arm": spaces.Box(-1.0, 1.0, (3,), np.float32),
            "grip": spaces.Discrete(2),
            "keys": spaces.MultiBinary((2, 2)),
            "pair": spaces.Tuple((spaces.MultiDiscrete([2, 3]), spaces.Box(0, 255, (2, 2), np.uint8))),
        }
    )
    signature = Signature.of_space(space)
    assert repr(signature) == (
        "Signature({'arm': float32[3], 'grip': int64[], 'keys': int8[2, 2], 'pair': (int64[2], uint8[2, 2])})"
    )
    space.seed(0)
    assert list(signature.validate(space.sample())) == ["arm", "grip", "keys", "pair/0", "pair/1"]
    assert list(Signature.of_space(spaces.Discrete(3)).columns) == ["value"]


@pytest.mark.parametrize(
    "space",
    [
        spaces.Text(5),
        spaces.Graph(spaces.Box(0, 1, (2,)), None),
        spaces.Sequence(spaces.Discrete(2)),
        spaces.OneOf([spaces.Discrete(2), spaces.Box(0, 1, (2,))]),
        "a space",
    ],
)
def test_spaces_without_one_shape_are_refused_with_their_path(space):
    tree = gymnasium.spaces.Tuple([])
    tree.spaces = (space,)
    with pytest.raises(SpecError, match=f"^0: expected a Box, .*, got {type(space).__name__}"):
        Signature.of_space(tree)


def test_what_comes_back_from_json():
    description = Signature(
        Frame(ArraySpec((), int), Motion(ArraySpec(1, int), ArraySpec(2, int)), ())
    ).to_json()
    assert description["kind"] == "namedtuple"
    back = Signature.from_json(description).tree
    assert (type(back).__name__, back._fields) == ("Frame", Frame._fields)
    assert type(back) is not Frame
    assert (type(back.observation).__name__, back.observation.angle) == ("Motion", ArraySpec(2, int))
    assert dataclasses.is_dataclass(back.observation)


def test_a_factory_that_pickle_does_not_find_is_left_out():
    signature = Signature(defaultdict(lambda: 0, a=ArraySpec((), int)))
    sent = pickle.loads(pickle.dumps(signature))
    assert sent == signature
    assert type(sent.tree) is dict


def test_a_registered_container_comes_back_as_itself(monkeypatch):
    monkeypatch.setattr(trees, "_CONTAINERS", {})
    assert register_container(Frame) is Frame
    spec = ArraySpec(1, int)
    assert type(Signature.from_json(Signature(Frame(spec, spec, spec)).to_json()).tree) is Frame
    other = namedtuple("Frame", ["only"])
    assert (
        type(Signature.from_json(Signature(other(spec)).to_json()).tree) is not Frame
    )  # Other fields: another class.


def test_a_container_registered_by_name_is_imported_when_needed(monkeypatch):
    monkeypatch.setattr(trees, "_CONTAINERS", {})
    register_container_name("TrajectoryOfTest", "headrace.testing")
    monkeypatch.setattr(
        "headrace.testing.TrajectoryOfTest", namedtuple("TrajectoryOfTest", ["a"]), raising=False
    )
    from headrace.testing import TrajectoryOfTest

    spec = ArraySpec(1, int)
    assert type(Signature.from_json(Signature(TrajectoryOfTest(spec)).to_json()).tree) is TrajectoryOfTest


def test_only_records_can_be_registered():
    for cls in (dict, tuple, int):
        with pytest.raises(TypeError, match="expected a named tuple or a dataclass"):
            register_container(cls)


LEAF = {"shape": [1], "dtype": "int8"}


@pytest.mark.parametrize(
    "data",
    [
        None,
        [],
        {},
        {"shape": 3, "dtype": "int8"},
        {"shape": [-1], "dtype": "int8"},
        {"shape": ["1"], "dtype": "int8"},
        {"shape": [1], "dtype": "object"},
        {"shape": [1], "dtype": "nonsense"},
        {"shape": [1]},
        {"kind": "set", "children": []},
        {"kind": "dict"},
        {"kind": "dict", "children": [LEAF]},
        {"kind": "dict", "children": {"a/b": LEAF}},
        {"kind": "dict", "children": {"a": 3}},
        {"kind": "tuple", "children": {"0": LEAF}},
        {"kind": "namedtuple", "children": {"a": LEAF}, "name": "not a name"},
        {"kind": "namedtuple", "children": {"_a": LEAF}, "name": "A"},
        {"kind": "namedtuple", "children": {"class": LEAF}, "name": "A"},
        {"kind": "dataclass", "children": {"a b": LEAF}, "name": "A"},
        {"kind": ["dict"], "children": {}},
        {"kind": "deque", "children": [LEAF, LEAF], "maxlen": 1},
        {"kind": "deque", "children": [LEAF], "maxlen": "1"},
        {"kind": "deque", "children": {"0": LEAF}},
    ],
)
def test_a_broken_description_is_refused(data):
    with pytest.raises(SpecError, match="expected"):
        Signature.from_json(data)


def test_an_endless_description_is_refused():
    data = LEAF
    for _ in range(100):
        data = {"kind": "tuple", "children": [data]}
    with pytest.raises(SpecError, match="expected the description"):
        Signature.from_json(data)
