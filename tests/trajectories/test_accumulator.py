"""accumulator A1-A32."""

import copy
import itertools
import pickle
from collections import OrderedDict, defaultdict, deque
from typing import Any, NamedTuple

import cloudpickle
import numpy as np
import optree
import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

import headrace as hr
from headrace.errors import SpecError
from headrace.spec import Signature
from headrace.trajectories import TrajectoryAccumulator
from headrace.trajectories.columns.leaf_reader import LeafCheck


class Pair(NamedTuple):
    left: object
    right: object


class Arm:
    """A node of optree with one child that is named and one that is not an array."""

    def __init__(self, joints, grip, name):
        self.joints, self.grip, self.name = joints, grip, name


GLOBAL = optree.registry.__GLOBAL_NAMESPACE
optree.register_pytree_node(
    Arm,
    lambda arm: ((arm.joints, arm.grip), arm.name, ("joints", "grip")),
    lambda name, children: Arm(*children, name),
    namespace=GLOBAL,
)


def example():
    return {
        "step": {"obs": np.zeros((5, 8), np.float32), "reward": np.zeros(5, np.float32)},
        "episode": {"return": np.zeros((), np.float32), "length": np.zeros((), np.int32)},
        "last": {"obs": np.zeros((1, 8), np.float32)},
    }


def one_leaf(leaf):
    return TrajectoryAccumulator({"t": {"x": leaf}})


def stored(leaf, value):
    """What one value becomes in the first slot of a leaf."""
    acc = one_leaf(leaf)
    acc.add("t", {"x": value})
    return acc.build()["t"]["x"]


def test_the_example_of_the_page():
    acc = TrajectoryAccumulator(example())
    for row in range(5):
        acc.add("step", {"obs": np.full(8, row), "reward": row / 2})
    acc.add("episode", {"return": 12.5, "length": 31})
    acc.add("last", {"obs": np.arange(8)})
    built = acc.build(strict=True)
    assert built["step"]["obs"][:, 0].tolist() == [0, 1, 2, 3, 4]
    assert built["step"]["reward"].tolist() == [0, 0.5, 1, 1.5, 2]
    assert (built["episode"]["return"], built["episode"]["length"]) == (12.5, 31)
    assert built["last"]["obs"].tolist() == [list(range(8))]


@pytest.mark.parametrize("wrong", [[], (), None, np.zeros(3), 1.0, [("step", 1)]])
def test_a1_the_example_is_a_dict(wrong):
    with pytest.raises(TypeError, match=r"^example: expected a dict of timescales, got"):
        TrajectoryAccumulator(wrong)


def test_a1_an_empty_example():
    acc = TrajectoryAccumulator({})
    assert acc.build() == {}
    assert acc.build(strict=True) == {}
    assert acc.is_full()
    with pytest.raises(KeyError, match="'step'"):
        acc.add("step", 1)


def test_a2_containers_come_back_as_they_were():
    tree = {"z": {"b": Pair(np.zeros(3), None), "a": [np.zeros(3), (np.zeros(3),)]}}
    tree |= {"bare": np.zeros((2, 2)), "e": 0}
    tree["z"]["none"] = ()
    acc = TrajectoryAccumulator(tree)
    acc.add("z", {"a": [1, (2,)], "none": (), "b": Pair(3, None)})
    acc.add("bare", [4, 5])
    built = acc.build()
    assert list(built) == ["z", "bare", "e"]
    assert list(built["z"]) == ["b", "a", "none"]
    assert type(built["z"]["b"]) is Pair
    assert built["z"]["b"].right is None
    assert type(built["z"]["a"]) is list
    assert type(built["z"]["a"][1]) is tuple
    assert [leaf.tolist() for leaf in (built["z"]["b"].left, built["z"]["a"][0], built["z"]["a"][1][0])] == [
        [3, 0, 0],
        [1, 0, 0],
        [2, 0, 0],
    ]
    assert built["bare"].tolist() == [[4, 5], [0, 0]]


def test_a2_a_defaultdict_comes_back_with_its_factory():
    tree = defaultdict(list, {"b": np.zeros(2), "a": OrderedDict(c=np.zeros(2))})
    acc = TrajectoryAccumulator({"t": tree})
    acc.add("t", {"a": {"c": 1}, "b": 2})
    acc.add("t", defaultdict(list, {"a": OrderedDict(c=3), "b": 4}))
    built = acc.build()["t"]
    assert (type(built), built.default_factory, list(built)) == (defaultdict, list, ["b", "a"])
    assert type(built["a"]) is OrderedDict
    assert (built["b"].tolist(), built["a"]["c"].tolist()) == ([2, 4], [1, 3])


@pytest.mark.parametrize("leaf", [0.0, [0.0]])
def test_a13_a_defaultdict_that_lacks_a_key_is_not_given_one(leaf):
    acc = TrajectoryAccumulator({"t": defaultdict(list, {"a": leaf, "b": 0.0})})
    data = defaultdict(list, {"a": leaf, "c": 0.0})
    with pytest.raises(SpecError, match="missing t/b; extra t/c"):
        acc.add("t", data)
    assert list(data) == ["a", "c"]


def test_a2_a_deque_is_a_container():
    acc = TrajectoryAccumulator({"t": deque([np.zeros((2, 3)), np.zeros(2)], maxlen=4)})
    acc.add("t", deque([[1, 2, 3], 4]))
    built = acc.build()["t"]
    assert (type(built), built.maxlen) == (deque, 4)
    assert [leaf.tolist() for leaf in built] == [[[1, 2, 3], [0, 0, 0]], [4, 0]]
    with pytest.raises(SpecError, match="t: expected a container deque, got list"):
        acc.add("t", [[1, 2, 3], 4])


def test_a2_a_class_registered_with_optree_comes_back_as_itself():
    acc = TrajectoryAccumulator({"t": {"arm": Arm(np.zeros((2, 3)), (np.zeros(2), None), "left")}})
    acc.add("t", {"arm": Arm([1, 2, 3], (4, None), "right")})
    arm = acc.build()["t"]["arm"]
    assert (type(arm), arm.name, arm.grip[1]) == (Arm, "left", None)
    assert (arm.joints.tolist(), arm.grip[0].tolist()) == ([[1, 2, 3], [0, 0, 0]], [4, 0])
    with pytest.raises(SpecError, match=r"^t/arm/grip/0: expected float64\[\]"):
        acc.add("t", {"arm": Arm([1, 2, 3], ([4, 5], None), "left")})
    with pytest.raises(SpecError, match="t/arm: expected a container Arm, got dict"):
        acc.add("t", {"arm": {"joints": [1, 2, 3], "grip": (4, None)}})


def test_a31_signatures_read_the_same_containers():
    tree = {"q": deque([0.0, 1.0]), "d": defaultdict(list, a=np.zeros(3)), "arm": Arm(0, 1.0, "left")}
    signature = Signature.like(tree)
    assert list(signature.columns) == ["arm/joints", "arm/grip", "d/a", "q/0", "q/1"]
    acc = TrajectoryAccumulator(signature.zeros(2))
    built = acc.build()
    assert Signature.like(built) == Signature.like(signature.zeros(2))
    signature.validate(built, leading=(2,))
    assert pickle.loads(pickle.dumps(signature)) == signature


def test_a_class_registered_with_optree_has_no_description():
    signature = Signature.like({"arm": Arm(0, 1.0, "left")})
    with pytest.raises(SpecError, match="^arm: expected containers that can be written to a file, got Arm"):
        signature.to_json()


def test_a_signature_without_a_description_leaves_no_folder(tmp_path):
    signature, tables = Signature.like({"arm": Arm(0, 1.0, "left")}), [hr.Table.queue("q", 9)]
    with hr.Replay(signature, tables) as replay, pytest.raises(SpecError, match="^arm: .* got Arm"):
        replay.save(tmp_path / "checkpoints")
    with pytest.raises(SpecError, match="^arm: .* got Arm"):
        hr.Replay(signature, tables, path=tmp_path / "store")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("empty", [{}, (), None, [], {"a": ((), None)}])
def test_a3_a_timescale_has_a_leaf(empty):
    with pytest.raises(ValueError, match=r"^step: expected at least one array"):
        TrajectoryAccumulator({"step": empty})


@pytest.mark.parametrize(
    ("leaf", "dtype"),
    [(0.0, np.float64), (0, np.int64), (False, np.bool_), (np.float32(1), np.float32), (1j, complex)],
)
def test_a4_scalars_are_leaves(leaf, dtype):
    built = TrajectoryAccumulator({"t": leaf}).build()["t"]
    assert (built.dtype, built.shape) == (dtype, ())


@pytest.mark.parametrize(
    "leaf", ["text", object(), np.array(["a"]), np.array([None]), np.zeros(2, "datetime64[s]")]
)
def test_a4_strings_and_objects_are_refused(leaf):
    with pytest.raises(SpecError, match=r"^t/a/0: expected an array of numbers"):
        TrajectoryAccumulator({"t": {"a": (leaf,)}})


@pytest.mark.parametrize("dtype", [np.int64, np.float32])
@pytest.mark.parametrize("value", [2**70, -(2**64), [[1, 2**70]]])
def test_a17_an_integer_of_more_than_64_bits_is_told(dtype, value):
    acc = TrajectoryAccumulator({"t": {"a": np.zeros((3, *np.shape(value)[1:]), dtype)}})
    with pytest.raises(
        SpecError, match=r"^t/a: expected integers of at most 64 bits, got -?\d{20,}; .*float"
    ):
        acc.add("t", {"a": value})
    assert acc.count("t") == 0


def test_a5_the_example_is_not_touched_and_not_kept():
    leaf = np.full((2, 3), 7.0)
    acc = TrajectoryAccumulator({"t": leaf})
    leaf[:] = 9
    acc.add("t", [1, 2, 3])
    assert acc.build()["t"].tolist() == [[1, 2, 3], [0, 0, 0]]
    assert (leaf == 9).all()


@pytest.mark.parametrize(
    ("timescale", "capacity"),
    [
        ({"a": np.zeros((4, 3)), "z": np.zeros(())}, 1),
        ({"a": np.zeros((1, 8)), "b": np.zeros(1)}, 1),
        ({"a": np.zeros((5, 8)), "b": np.zeros(5)}, 5),
        (np.zeros((0, 3)), 0),
        (0.0, 1),
    ],
)
def test_a6_a7_a8_a10_kinds_and_capacities(timescale, capacity):
    assert TrajectoryAccumulator({"t": timescale}).capacity("t") == capacity


def test_a6_a_leaf_of_a_single_timescale_is_one_value():
    acc = TrajectoryAccumulator({"t": {"a": np.zeros((4, 3)), "z": 0.0}})
    acc.add("t", {"a": np.ones((4, 3)), "z": 2})
    assert acc.build()["t"]["a"].tolist() == [[1] * 3] * 4


@pytest.mark.parametrize("shapes", [((1, 8), (5,)), ((5, 2), (4, 2)), ((0,), (1,))])
def test_a9_mixed_first_axes(shapes):
    with pytest.raises(ValueError, match=r"^t: expected one size of the first axis.*\[\d, \d\].*single item"):
        TrajectoryAccumulator({"t": tuple(np.zeros(shape) for shape in shapes)})


def test_a10_no_slots():
    acc = one_leaf(np.zeros((0, 3)))
    assert acc.is_full("t")
    with pytest.raises(IndexError):
        acc.add("t", {"x": np.zeros(3)})
    assert acc.build(strict=True)["t"]["x"].shape == (0, 3)


def test_a11_an_unknown_timescale():
    acc = TrajectoryAccumulator(example())
    for call in (acc.is_full, acc.capacity, acc.count, lambda name: acc.add(name, {})):
        with pytest.raises(KeyError, match=r"'stp'; there are 'step', 'episode', 'last'"):
            call("stp")


def test_a12_no_free_slot():
    acc = one_leaf(np.zeros(2))
    for value in (1, 2):
        acc.add("t", {"x": value})
    with pytest.raises(IndexError, match=r"^t: no free slot at index 2, capacity is 2"):
        acc.add("t", {"x": 3})
    single = TrajectoryAccumulator({"t": 0.0})
    single.add("t", 1)
    with pytest.raises(IndexError, match="index 1, capacity is 1"):
        single.add("t", 2)
    assert acc.build()["t"]["x"].tolist() == [1, 2]
    assert single.build()["t"] == 1


def test_a11_a12_a13_come_in_this_order():
    acc = one_leaf(np.zeros(1))
    with pytest.raises(KeyError):
        acc.add("u", "nonsense")
    acc.add("t", {"x": 1})
    with pytest.raises(IndexError):
        acc.add("t", "nonsense")


@pytest.mark.parametrize(
    ("data", "message"),
    [
        ({"obs": np.zeros(8)}, "step: .*missing step/reward"),
        ({"obs": np.zeros(8), "reward": 0, "more": 1}, "step: .*extra step/more"),
        ({"obs": np.zeros(8), "rewards": 0}, "missing step/reward; extra step/rewards"),
        ((np.zeros(8), 0), "step: expected a container dict, got tuple"),
        (np.zeros(8), "step: expected a container dict, got ndarray"),
        (None, "step: expected a container dict, got NoneType"),
    ],
)
def test_a13_structure(data, message):
    acc = TrajectoryAccumulator(example())
    with pytest.raises(SpecError, match=message):
        acc.add("step", data)
    assert acc.count("step") == 0


@pytest.mark.parametrize(
    ("timescale", "data"),
    [
        ((np.zeros(2), np.zeros(2)), [1, 2]),
        ([np.zeros(2), np.zeros(2)], (1, 2)),
        ((np.zeros(2), np.zeros(2)), (1, 2, 3)),
        (Pair(np.zeros(2), np.zeros(2)), (1, 2)),
        ({"a": {"b": np.zeros(2)}}, {"a": (1,)}),
        ({"a": None, "b": np.zeros(2)}, {"a": 1, "b": 2}),
    ],
)
def test_a13_the_containers_are_the_same(timescale, data):
    acc = TrajectoryAccumulator({"t": timescale})
    with pytest.raises(SpecError, match=r"^t"):
        acc.add("t", data)
    assert acc.count("t") == 0


def test_a13_the_order_of_keys_is_free():
    acc = TrajectoryAccumulator(example())
    acc.add("step", {"reward": 3, "obs": np.ones(8)})
    built = acc.build()
    assert built["step"]["reward"][0] == 3
    assert built["step"]["obs"][0, 0] == 1


@pytest.mark.parametrize("value", [np.zeros(7), np.zeros((2, 8)), np.zeros((1, 1, 8)), 0.0, np.zeros((8, 1))])
def test_a14_shape(value):
    acc = TrajectoryAccumulator(example())
    with pytest.raises(SpecError, match=r"^step/obs: expected float32\[8\], got float64\["):
        acc.add("step", {"obs": value, "reward": 0})


@pytest.mark.parametrize(
    ("leaf_shape", "shape"),
    [
        ((5, 8), (8,)),
        ((5, 8), (1, 8)),
        ((1, 8), (1, 8)),
        ((1, 8), (8,)),
        ((1,), ()),
        ((1,), (1,)),
        ((5,), ()),
        ((5,), (1,)),
        ((), ()),
        ((5, 1, 2), (1, 2)),
        ((5, 1, 2), (1, 1, 2)),
        ((1, 1, 2), (1, 2)),
    ],
)
def test_a16_shapes_that_fit(leaf_shape, shape):
    value = np.arange(np.prod(shape)).reshape(shape) + 1.0
    built = stored(np.zeros(leaf_shape), value)
    first = built[0] if leaf_shape[:1] == (5,) else built
    np.testing.assert_array_equal(np.ravel(first), np.ravel(value))


@pytest.mark.parametrize(
    ("leaf_shape", "shape"),
    [((5, 1, 2), (2,)), ((1, 1, 2), (2,)), ((5,), (1, 1)), ((1,), (1, 1)), ((), (1,))],
)
def test_a16_no_more_than_one_leading_1(leaf_shape, shape):
    with pytest.raises(SpecError, match="^t/x: expected"):
        stored(np.zeros(leaf_shape), np.zeros(shape))


def test_a16_nothing_is_broadcast():
    acc = TrajectoryAccumulator({"t": {"a": np.zeros((4, 3)), "z": 0.0}})
    with pytest.raises(SpecError, match=r"^t/a: expected float64\[4, 3\], got float64\[3\]"):
        acc.add("t", {"a": np.zeros(3), "z": 0})
    with pytest.raises(SpecError):
        acc.add("t", {"a": 0.0, "z": 0})


def test_a17_whatever_numpy_makes_numbers_of():
    assert stored(np.zeros((3, 2)), [1.0, 2])[0].tolist() == [1, 2]
    assert stored(np.zeros((3, 2)), (1, 2))[0].tolist() == [1, 2]
    assert stored(np.zeros((3, 2)), [[1, 2]])[0].tolist() == [1, 2]


@pytest.mark.parametrize("value", [[[1], [2, 3]], {"a": 1}, "1", ["1", "2"], None, object(), [None, 1]])
def test_a17_what_is_no_array_of_numbers(value):
    acc = one_leaf(np.zeros((3, 2)))
    with pytest.raises(SpecError, match="^t/x: "):
        acc.add("t", {"x": value})
    assert acc.count("t") == 0


def test_a18_a_failed_add_writes_nothing():
    acc = TrajectoryAccumulator({"t": {"a": np.zeros(3), "b": np.zeros((3, 2)), "c": np.zeros(3)}})
    acc.add("t", {"a": 1, "b": [1, 1], "c": 1})
    for wrong in ({"a": 9, "b": [9, 9], "c": "9"}, {"a": 9, "b": [9, 9, 9], "c": 9}, {"a": 9, "b": [9, 9]}):
        with pytest.raises(SpecError):
            acc.add("t", wrong)
    assert acc.count("t") == 1
    acc.add("t", {"a": 2, "b": [2, 2], "c": 2})
    built = acc.build()["t"]
    assert built["a"].tolist() == built["b"][:, 1].tolist() == built["c"].tolist() == [1, 2, 0]


def test_a19_add_copies():
    acc = one_leaf(np.zeros((2, 3)))
    value = np.ones(3)
    acc.add("t", {"x": value})
    value[:] = 5
    assert acc.build()["t"]["x"][0].tolist() == [1, 1, 1]


# A20: dtype of the leaf, value, and what is stored; None where it is refused.
CASTS = [
    (bool, True, True),
    (bool, np.True_, True),
    (bool, 1, None),
    (bool, 1.0, None),
    (np.uint8, True, 1),
    (np.uint8, 7, 7),
    (np.uint8, np.int64(255), 255),
    (np.uint8, 256, None),
    (np.uint8, -1, None),
    (np.int8, np.uint64(128), None),
    (np.uint64, 2**64 - 1, 2**64 - 1),
    (np.int64, 2**63, None),
    (np.int32, 2.0, None),
    (np.int32, np.float32(2), None),
    (np.int32, float("nan"), None),
    (np.int64, 1j, None),
    (np.float32, True, 1),
    (np.float32, 3, 3),
    (np.float32, 0.1, np.float32(0.1)),
    (np.float32, np.float64(0.1), np.float32(0.1)),
    (np.float32, np.float16(0.5), 0.5),
    (np.float32, 1e39, None),
    (np.float32, np.float64(-1e39), None),
    (np.float32, float("inf"), float("inf")),
    (np.float32, 3.4028235e38, np.float32(3.4028235e38)),
    (np.float16, 65504.0, 65504),
    (np.float16, 1e5, None),
    (np.float64, 2**60, 2**60),
    (np.float64, 1j, None),
    (np.complex64, 1.5, 1.5),
    (np.complex64, 2, 2),
    (np.float64, "1", None),
    (np.float64, np.datetime64("2020"), None),
    (np.int32, 10**30, None),
]


@pytest.mark.parametrize("as_value", [lambda value: value, lambda value: [value], np.asarray])
@pytest.mark.parametrize("leaf_shape", [(), (3,)])
@pytest.mark.parametrize(("dtype", "value", "expected"), CASTS)
def test_a15_a20_casts(dtype, value, expected, leaf_shape, as_value):
    leaf, value = np.zeros(leaf_shape, dtype), as_value(value)
    if leaf_shape == () and isinstance(value, list):
        leaf = leaf.reshape(1)
    if expected is None:
        with pytest.raises(SpecError, match="^t/x: expected"):
            stored(leaf, value)
        return
    built = stored(leaf, value)
    assert built.dtype == dtype
    assert np.ravel(built)[0] == expected


def test_a20_nan_is_a_float():
    assert np.isnan(stored(np.zeros(2, np.float32), float("nan"))[0])


def test_a21_build_has_everything_and_starts_again():
    acc = TrajectoryAccumulator(example())
    acc.add("step", {"obs": np.ones(8), "reward": 1})
    built = acc.build()
    assert Signature.like(built) == Signature.like(example())
    assert acc.count("step") == 0


def test_a22_slots_that_were_not_filled_are_zeros():
    acc = TrajectoryAccumulator(
        {"t": np.zeros(3), "flag": np.ones((2, 2), bool), "one": np.full((1, 2), 5.0)}
    )
    for _ in range(7):
        for _ in range(3):
            acc.add("t", 9)
        acc.add("flag", [True, True])
        acc.add("flag", [True, True])
        acc.add("one", [9, 9])
        acc.build()
    acc.add("t", 1)
    acc.add("flag", [False, True])
    built = acc.build()
    assert built["t"].tolist() == [1, 0, 0]
    assert built["flag"].tolist() == [[False, True], [False, False]]
    assert built["one"].tolist() == [[0, 0]]


def test_a23_strict_wants_every_slot():
    acc = TrajectoryAccumulator(example())
    acc.add("step", {"obs": np.ones(8), "reward": 1})
    acc.add("last", {"obs": np.ones(8)})
    with pytest.raises(ValueError, match="step has 1 of 5, episode has 0 of 1$"):
        acc.build(strict=True)
    acc.add("episode", {"return": 1, "length": 1})
    for reward in (2, 3, 4, 5):
        acc.add("step", {"obs": np.ones(8), "reward": reward})
    assert acc.build(strict=True)["step"]["reward"].tolist() == [1, 2, 3, 4, 5]


def test_a24_the_example_of_the_page():
    acc = TrajectoryAccumulator({"s": np.zeros(3)})
    for value in (1, 2, 3):
        acc.add("s", value)
    first = acc.build()
    assert first["s"].tolist() == [1, 2, 3]
    acc.add("s", 9)
    second = acc.build()
    assert (second["s"].tolist(), first["s"].tolist()) == ([9, 0, 0], [1, 2, 3])
    acc.add("s", 4)
    assert first["s"].tolist() == [1, 2, 3]
    acc.build()
    assert second["s"].tolist() == [9, 0, 0]


def test_a24_the_docstring_says_it_first():
    paragraph = TrajectoryAccumulator.__doc__.split("\n\n")[1]
    assert "stay as they are until the second `build` after it is called" in " ".join(paragraph.split())


def test_a25_successive_builds_share_nothing():
    acc = TrajectoryAccumulator({"s": {"x": np.zeros(3)}})
    built = [acc.build() for _ in range(5)]
    for one, other in itertools.pairwise(built):
        assert not np.shares_memory(one["s"]["x"], other["s"]["x"])
        assert one is not other
        assert one["s"] is not other["s"]
    built[0]["s"].clear()
    built[1].clear()
    assert acc.build()["s"]["x"].tolist() == [0, 0, 0]


def test_a26_what_the_caller_writes_never_shows():
    acc = TrajectoryAccumulator({"s": np.zeros((3, 2)), "e": 0.0})
    for value in range(1, 8):
        acc.add("s", [value, value])
        built = acc.build()
        assert built["s"].tolist() == [[value, value], [0, 0], [0, 0]]
        assert built["e"] == 0
        built["s"][:] = built["e"][...] = 99
        built["s"].flags.writeable = False


def test_a27_reset_forgets_and_leaves_builds_alone():
    acc = TrajectoryAccumulator({"s": np.zeros(3)})
    acc.add("s", 1)
    first = acc.build()
    acc.add("s", 2)
    acc.add("s", 3)
    acc.reset()
    assert acc.count("s") == 0
    acc.add("s", 4)
    acc.reset()
    acc.add("s", 5)
    assert acc.build()["s"].tolist() == [5, 0, 0]
    assert first["s"].tolist() == [1, 0, 0]


def test_a28_is_full():
    acc = TrajectoryAccumulator({"s": np.zeros(2), "e": 0.0})
    acc.add("s", 1)
    acc.add("e", 1)
    assert (acc.is_full("s"), acc.is_full("e"), acc.is_full()) == (False, True, False)
    acc.add("s", 1)
    assert acc.is_full()


def test_a29_a30_what_there_is():
    acc = TrajectoryAccumulator({"step": np.zeros(5), "episode": 0.0})
    for _ in range(3):
        acc.add("step", 0)
    assert repr(acc) == "TrajectoryAccumulator(step 3/5, episode 0/1)"
    assert acc.names == ("step", "episode")
    assert [acc.capacity(name) for name in acc.names] == [5, 1]
    assert [acc.count(name) for name in acc.names] == [3, 0]
    assert repr(TrajectoryAccumulator({})) == "TrajectoryAccumulator()"


def test_a31_a_build_validates_without_a_copy():
    acc = TrajectoryAccumulator(example())
    built = acc.build()
    columns = Signature.like(example()).validate(built)
    assert columns["step/obs"] is built["step"]["obs"]


def test_a32_arrays_of_other_libraries():
    torch = pytest.importorskip("torch")
    acc = TrajectoryAccumulator({"t": {"x": torch.zeros(3, 2)}})
    acc.add("t", {"x": torch.ones(2)})
    assert acc.build()["t"]["x"].tolist() == [[1, 1], [0, 0], [0, 0]]
    with pytest.raises(SpecError, match=r"^t/x: .*on meta; move it first"):
        acc.add("t", {"x": torch.ones(2, device="meta")})
    with pytest.raises(SpecError, match=r"^t/x: .*grad"):
        acc.add("t", {"x": torch.ones(2, requires_grad=True)})


class AccumulatorMachine(RuleBasedStateMachine):
    """Any history against lists: each build, and that the last two builds stay as they were (A18, A21-A27)."""

    SIZES = {"a": 3, "b": 1, "c": 2}  # noqa: RUF012

    @initialize()
    def start(self):
        self.acc = TrajectoryAccumulator(
            {
                "a": {"x": np.zeros((3, 2), np.int16), "y": np.zeros(3)},
                "b": 0,
                "c": (np.zeros((2, 1), np.float32),),
            }
        )
        self.rows = {name: [] for name in self.SIZES}
        self.built = []

    @rule(name=st.sampled_from("abc"), value=st.integers(-300, 300))
    def add(self, name, value):
        data = {"a": {"x": [value, -value], "y": value}, "b": value, "c": ([value],)}[name]
        if len(self.rows[name]) == self.SIZES[name]:
            with pytest.raises(IndexError):
                self.acc.add(name, data)
            return
        self.acc.add(name, data)
        self.rows[name].append(value)

    @rule(value=st.integers(1, 300))
    def add_what_does_not_fit(self, value):
        error = IndexError if len(self.rows["a"]) == 3 else SpecError
        with pytest.raises(error):
            self.acc.add("a", {"x": [value, value], "y": "no number"})

    @rule()
    def reset(self):
        self.acc.reset()
        self.rows = {name: [] for name in self.SIZES}

    @rule(strict=st.booleans(), scribble=st.booleans())
    def build(self, strict, scribble):
        full = all(len(rows) == self.SIZES[name] for name, rows in self.rows.items())
        if strict and not full:
            with pytest.raises(ValueError, match="expected every timescale to be full"):
                self.acc.build(strict=True)
            return
        built = self.acc.build(strict=strict)
        filled = {name: rows + [0] * (self.SIZES[name] - len(rows)) for name, rows in self.rows.items()}
        assert built["a"]["x"].tolist() == [[value, -value] for value in filled["a"]]
        assert built["a"]["y"].tolist() == filled["a"]
        assert built["b"] == filled["b"][0]
        assert built["c"][0].ravel().tolist() == filled["c"]
        if scribble:
            built["a"]["x"][:] = 77
            built["b"][...] = 77
        self.built = [*self.built[-1:], (built, copy.deepcopy(built))]
        self.rows = {name: [] for name in self.SIZES}

    @invariant()
    def the_last_two_builds_stay(self):
        for built, then in getattr(self, "built", []):
            np.testing.assert_equal(built, then)

    @invariant()
    def counts(self):
        if hasattr(self, "acc"):
            assert {name: self.acc.count(name) for name in self.SIZES} == {
                k: len(v) for k, v in self.rows.items()
            }


AccumulatorMachine.TestCase.settings = settings(max_examples=40, stateful_step_count=30, deadline=None)
TestAccumulator = AccumulatorMachine.TestCase


def test_what_comes_at_every_step_takes_no_general_way(monkeypatch):
    acc = TrajectoryAccumulator(
        {
            "t": {
                "obs": np.zeros((3, 8), np.float32),
                "r": np.zeros(3, np.float32),
                "d": np.zeros(3, bool),
                "a": np.zeros(3, int),
            }
        }
    )
    monkeypatch.setattr(LeafCheck, "check", lambda *_: pytest.fail("took the general way"))
    acc.add("t", {"obs": np.ones(8, np.float32), "r": 0.5, "d": True, "a": 3})
    acc.add("t", {"obs": np.ones(8, np.float32), "r": np.float64(0.5), "d": np.True_, "a": 3})
    assert acc.count("t") == 2


@pytest.mark.parametrize("copied", [copy.deepcopy, lambda each: cloudpickle.loads(cloudpickle.dumps(each))])
def test_a_copy_goes_on_by_itself(copied):
    first = TrajectoryAccumulator({"s": {"n": np.zeros(3, np.int64), "x": np.zeros((3, 2))}, "e": True})
    first.add("s", {"n": 1, "x": [1, 2]})
    second = copied(first)
    first.add("s", {"n": 2, "x": [3, 4]})
    second.add("s", {"n": 5, "x": [6, 7]})
    second.add("e", True)
    assert first.build()["s"]["n"].tolist() == [1, 2, 0]
    built = second.build()
    assert (built["s"]["n"].tolist(), built["s"]["x"].tolist()) == ([1, 5, 0], [[1, 2], [6, 7], [0, 0]])
    assert built["e"] == np.True_


class Rows(NamedTuple):
    first: Any
    second: Any

    def __getitem__(self, index):
        return Rows(*(leaf[index] for leaf in self))


def test_a_named_tuple_that_indexes_in_its_own_way():
    """A2: its leaves are what it holds."""
    acc = TrajectoryAccumulator({"s": Rows(np.zeros((3, 2)), np.zeros((3, 2)))})
    acc.add("s", Rows(np.array([1.0, 2.0]), np.array([3.0, 4.0])))
    built = acc.build()["s"]
    assert (built.first[:1].tolist(), built.second[:1].tolist()) == ([[1, 2]], [[3, 4]])
