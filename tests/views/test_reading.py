"""Which columns a loss reads, views without the others, and dummy batches (views D1 to D3, D5)."""

import copy
import operator
import pickle
from typing import Any

import numpy as np
import optree
import pytest
from gymnasium import spaces

import headrace as hr
from headrace import SampleBatch, View
from headrace.spec import ArraySpec
from headrace.views import columns_read, dummy_batch, prune


def batch(**more: Any) -> SampleBatch:
    return SampleBatch(
        {
            "x": np.arange(6.0),
            "y": np.arange(6),
            "tree": {"a": np.arange(6), "b": (np.zeros((6, 2)),)},
            "terminated": np.zeros(6, bool),
            "truncated": np.zeros(6, bool),
            **more,
        }
    )


def write_then_read(b: Any) -> None:
    b["x"] = b["y"] * 2
    b["x"].sum()
    b["new"] = b["x"]
    b.data["new"].sum()


def delete(b: Any) -> None:
    del b["x"]
    b["x"] = np.ones(6)
    b["x"].sum()


def write_a_part(b: Any) -> None:
    """A part was written, the other has the given values."""
    first, last = b[:3], b[3:]
    first["x"] = np.ones(3)
    first["x"].sum()
    SampleBatch.concat([first, last])["x"].sum()


def write_parts(b: Any) -> None:
    parts = b.timeslices(3)
    for part in parts:
        part["x"] = np.ones(3)
    SampleBatch.concat(parts)["x"].sum()


ALL = {"x", "y", "tree", "terminated", "truncated"}


@pytest.mark.parametrize(
    ("fn", "read"),
    [
        (lambda b: b["x"], {"x"}),
        (lambda b: b["tree"], {"tree"}),
        (lambda b: b["tree/a"], {"tree"}),
        (lambda b: b["tree/b/0"] + 0, {"tree"}),
        (lambda b: b.get("x"), {"x"}),
        (lambda b: b.get("z"), set()),
        (lambda b: b.pop("y"), {"y"}),
        (lambda b: list(b.items()), ALL),
        (lambda b: list(b.values()), ALL),
        (dict, ALL),
        (lambda b: {**b}, ALL),
        (lambda b: (lambda **columns: None)(**b), ALL),
        (lambda b: b.setdefault("x", np.ones(6)), {"x"}),
        (lambda b: b["done"], {"terminated", "truncated"}),
        (lambda b: b.data["x"], {"x"}),
        (lambda b: b.data.get("y"), {"y"}),
        (lambda b: dict(b.data), ALL),
        (lambda b: {**b.data}, ALL),
        (lambda b: b.copy()["x"], {"x"}),
        (lambda b: copy.copy(b)["x"] + copy.deepcopy(b)["y"], {"x", "y"}),
        (lambda b: b[2:4]["x"], {"x"}),
        (lambda b: [part["y"] for part in b.timeslices(4)], {"y"}),
        (lambda b: b.split_by_episode()[0]["x"], {"x"}),
        (lambda b: b.chop(2).right_zero_pad(3)["y"], {"y"}),
        (lambda b: b.chop(2).right_zero_pad(3).without_padding().data["x"], {"x"}),
        (lambda b: SampleBatch.concat([b[:2], b[2:]])["x"], {"x"}),
        (lambda b: b.shuffle(0)["x"], {"x"}),
        (lambda b: list(b.rows()), ALL),
        (lambda b: b.numpy()["x"], {"x"}),
        (lambda b: optree.tree_map(abs, b), ALL),
        (lambda b: optree.tree_map(np.sum, b.data)["x"] + 1, ALL),
        (lambda b: optree.tree_map(np.sum, b.numpy())["x"] + 1, ALL),
        (lambda b: b.data.copy()["x"], {"x"}),
        (lambda b: copy.copy(b.data)["x"], ALL),
        (lambda b: (b.data | {"y": 1})["y"], set()),
        (lambda b: (b.data | {"y": 1})["x"], {"x"}),
        (lambda b: ({"z": 1} | b.data)["x"], ALL),
        (lambda b: operator.ior(b.data, {"x": np.ones(6)})["x"], set()),
        (lambda b: (isinstance(b.data, dict), bool(b.data), repr(b.data), list(reversed(b.data))), set()),
        (pickle.dumps, ALL),
        (lambda b: pickle.dumps(b.data), ALL),
        (lambda b: ("x" in b, "x" in b.data, "z" in b), set()),
        (lambda b: (list(b), list(b.keys()), b.keys() & {"x"}, list(b.data), len(b.data)), set()),
        (lambda b: (len(b), b.count, b.mask, b.seq_lens, repr(b), b.env_steps()), set()),
        (write_then_read, {"y"}),
        (delete, set()),
        (lambda b: b.clear(), set()),
        (lambda b: b.data.update(x=np.ones(6)) or b["x"], set()),
        (lambda b: b.copy().data.__delitem__("x"), set()),
        (write_a_part, {"x"}),
        (write_parts, set()),
        ([lambda b: b["x"], lambda b: b.pop("x"), lambda b: b["y"]], {"x", "y"}),
        ([], set()),
    ],
)
def test_what_is_read(fn: Any, read: set[str]):
    """D1."""
    found = columns_read(fn, batch())
    assert found == read
    assert isinstance(found, frozenset)


def test_columns_as_tensors_are_read_by_name():
    torch = pytest.importorskip("torch")
    assert columns_read(lambda b: torch.relu(b.torch()["x"]), batch()) == {"x"}
    tree_map = torch.utils._pytree.tree_map
    assert columns_read(lambda b: tree_map(torch.clone, b.torch())["x"] + 1, batch()) == ALL


def test_the_pass_changes_nothing():
    """D2: also when the function writes in place."""
    given, views = batch(), {"x": View(), "y": View(shift=-1)}
    before, seen = given.copy(), []

    def spoil(b: Any) -> None:
        seen.append(b)
        b["x"][...] = -1
        b["tree"]["a"][:] = -1
        b["new"] = b["y"]
        del b["y"]
        b.shuffle()

    assert columns_read([spoil, spoil], given) == {"x", "y", "tree"}
    prune(views, spoil, given)
    assert len(seen) == 3
    assert list(given) == list(before)
    for path in ("x", "y", "tree/a", "tree/b/0"):
        np.testing.assert_array_equal(given[path], before[path])
    assert views == {"x": View(), "y": View(shift=-1)}


def test_an_error_of_the_function_reaches_the_caller():
    """D2: unchanged in type, with a note."""

    class Mine(Exception):
        pass

    mine = Mine("no")

    def fail(_: Any) -> None:
        raise mine

    with pytest.raises(Mine) as caught:
        columns_read(fail, batch())
    assert caught.value is mine
    assert "to see which columns it reads" in caught.value.__notes__[0]
    with pytest.raises(TypeError, match="fn: expected a function"):
        columns_read([3], batch())
    with pytest.raises(TypeError, match="fn: expected a function"):
        columns_read(3, batch())  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="batch: expected a SampleBatch, got dict"):
        columns_read(lambda b: b["x"], {"x": [1]})  # type: ignore[arg-type]


def test_views_that_nothing_reads_are_pruned():
    """D3."""
    views = {
        "observation": View(),
        "stack": View("observation", shift="-1:0", mask=True),
        "reward": View(),
        "terminated": View(),
        "truncated": View(),
        "action": View(),
        "off": View("action", used_for_training=False),
    }
    pruned = prune(views, lambda b: b["observation"])
    assert {name for name, view in pruned.items() if view.used_for_training} == {
        "observation", "reward", "terminated", "truncated",
    }  # fmt: skip
    assert pruned["action"] == View(used_for_training=False)
    assert list(pruned) == list(views)
    assert all(view.used_for_training for name, view in views.items() if name != "off")
    kept = prune(views, [lambda b: b["stack_mask"], lambda b: b["off"]])
    assert kept["stack"].used_for_training
    assert not kept["off"].used_for_training
    rows = SampleBatch({"action": [1, 2], "observation": [1, 2]})
    assert (
        prune(views, lambda b: b["action"].tolist() == [1, 2] or b["observation"], rows)["action"] == View()
    )


SPACES = [
    (spaces.Box(0, 255, (3, 2), np.uint8), (3, 2), np.uint8),
    (spaces.Discrete(5, start=3), (), np.int64),
    (spaces.MultiBinary(4), (4,), np.int8),
    (spaces.MultiDiscrete([3, 4]), (2,), np.int64),
    (spaces.Box(-np.inf, np.inf, (2,), np.float64), (2,), np.float64),
    (ArraySpec((2,), np.float16), (2,), np.float16),
    (ArraySpec((), np.bool_), (), np.bool_),
    (ArraySpec((3,), np.uint8), (3,), np.uint8),
    (None, (), np.float32),
]


@pytest.mark.parametrize(("space", "shape", "dtype"), SPACES)
def test_dummy_columns(space: Any, shape: tuple[int, ...], dtype: Any):
    """D5: real shape, window axis included, and dtype; values drawn, not zeros."""
    views = {"x": View("o", space), "window": View("o", space, shift=[0, -1, -2], mask=True)}
    dummies = dummy_batch(views, 7)
    assert isinstance(dummies, SampleBatch)
    assert list(dummies) == ["x", "window", "window_mask"]
    assert (dummies["x"].shape, dummies["window"].shape) == ((7, *shape), (7, 3, *shape))
    assert dummies["x"].dtype == dummies["window"].dtype == dtype
    assert dummies["window"].any()
    assert dummies["window_mask"].shape == (7, 3)
    if isinstance(space, spaces.Space):
        assert all(row in space for row in dummies["x"])


def test_dummy_batches_are_drawn_with_a_seed():
    """D5: and the space's own random numbers go on as they would have."""
    space = spaces.Dict(a=spaces.Box(0, 1, (2,)), b=spaces.Tuple([spaces.Discrete(9)]))
    space.seed(3)
    expected = copy.deepcopy(space).sample()
    views = {"tree": View("observation", space, shift="0:1"), "x": View()}
    one, same, other = (dummy_batch(views, seed=seed) for seed in (0, 0, 1))
    assert one["tree/a"].shape == (4, 2, 2)
    assert one["tree/b/0"].shape == (4, 2)
    for path in ("tree/a", "tree/b/0", "x"):
        np.testing.assert_array_equal(one[path], same[path])
    assert (one["x"] != other["x"]).any()
    np.testing.assert_array_equal(space.sample()["a"], expected["a"])


def test_dummy_sequences():
    """Views with `every` have one row a sequence."""
    views = {"observation": View(), "state_in_0": View("state_out_0", ArraySpec(2, "f4"), shift=-1, every=3)}
    dummies = dummy_batch(views, 7)
    assert (dummies.seq_lens.tolist(), dummies.max_seq_len, dummies["state_in_0"].shape) == (
        [3, 3, 1],
        3,
        (3, 2),
    )
    with pytest.raises(ValueError, match="one length of sequences"):
        dummy_batch({"x": View(every=2), "y": View(every=3)})
    with pytest.raises(ValueError, match="size"):
        dummy_batch({"x": View()}, 0)
    assert list(dummy_batch(hr.views.transition())) == list(hr.views.transition())
