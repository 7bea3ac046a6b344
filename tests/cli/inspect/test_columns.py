"""Statistics of the arrays of a step, and the suspicious things that `headrace inspect` says."""

import json
import re
import weakref

import numpy as np
import pytest
from click.testing import CliRunner

import headrace as hr
from headrace.cli import main
from headrace.cli.inspect import columns as columns_module
from headrace.cli.inspect.columns import ColumnGatherer
from headrace.datasets import save_minari, save_npz


def inspect(*arguments):
    done = CliRunner().invoke(main, ["inspect", *map(str, arguments)])
    assert done.exit_code == 0, done.output
    return done.output


def found_in(path):
    return json.loads(inspect(path, "--json"), parse_constant=pytest.fail)


def episode(steps, *, seed=0, rewards=None, observations=None, ends=True, **parts):
    random = np.random.default_rng(seed)
    return hr.Episode(
        random.normal(size=(steps + 1, 3)) if observations is None else observations,
        random.integers(0, 4, steps),
        np.linspace(-1, 1, steps) if rewards is None else rewards,
        (np.arange(steps) == steps - 1) & ends,
        np.zeros(steps, bool),
        **parts,
    )


@pytest.mark.parametrize("rows_at_once", [1, 3, 1 << 17])
def test_parts_are_counted_as_one(monkeypatch, rows_at_once):
    monkeypatch.setattr(columns_module, "_VALUES_AT_ONCE", rows_at_once)
    rows = np.random.default_rng(0).normal(size=(50, 1))
    gatherer = ColumnGatherer(rows.dtype, (1,))
    for part in np.split(rows, [0, 7, 8, 31]):
        gatherer.add(part)
    found = gatherer.summary()
    assert found.statistics.rows == found.histogram.counts.sum() == 50
    assert (found.number("low"), found.number("high")) == (rows.min(), rows.max())
    np.testing.assert_allclose((found.number("mean"), found.number("std")), (rows.mean(), rows.std()))


@pytest.mark.parametrize("dtype", ["uint8", "int8", "uint64", "bool", "float16"])
def test_all_dtypes_have_the_same_histogram(dtype):
    rows = np.random.default_rng(0).integers(0, 2 if dtype == "bool" else 100, (30, 8, 8)).astype(dtype)
    gatherer = ColumnGatherer(rows.dtype, (8, 8))
    gatherer.add(rows)
    found = gatherer.summary().histogram
    bins = np.floor((rows.astype(float) - found.low) / found.width).astype(int)
    assert found.counts.tolist() == np.bincount(bins.reshape(-1)).tolist()


def test_memory_does_not_grow_with_the_rows(monkeypatch):
    monkeypatch.setattr(columns_module, "_VALUES_AT_ONCE", 100)
    gatherer = ColumnGatherer(np.dtype(float), ())
    sizes = []
    count = ColumnGatherer._count

    def watched(self):
        sizes.append(sum(map(len, self._waiting)))
        count(self)

    monkeypatch.setattr(ColumnGatherer, "_count", watched)
    for rows in (1000, 3, 99, 250):
        gatherer.add(np.arange(rows, dtype=float))
    assert gatherer.summary().statistics.rows == 1352
    assert max(sizes) < 200


def test_rows_that_wait_do_not_hold_the_episode():
    episode_memory = np.zeros(1000)
    held = weakref.ref(episode_memory)
    gatherer = ColumnGatherer(np.dtype(float), ())
    gatherer.add(episode_memory[:3])
    del episode_memory
    assert held() is None
    assert gatherer.summary().statistics.rows == 3


def test_components_that_never_change_are_named():
    rows = np.random.default_rng(0).normal(size=(20, 2, 6))
    rows[:, 1, 3], rows[:, 0, 0] = 7.0, np.nan
    gatherer = ColumnGatherer(rows.dtype, (2, 6))
    gatherer.add(rows)
    assert gatherer.summary().constant_components == (9,)
    gatherer.add(rows + 1)
    assert gatherer.summary().constant_components == ()


def test_a_constant_column_is_not_said_twice():
    gatherer = ColumnGatherer(np.dtype(int), (3,))
    gatherer.add(np.ones((5, 3), int))
    found = gatherer.summary()
    assert found.constant_components == ()
    assert columns_module.column_suspicions({"x": found}) == ["x: 1 in all 5 rows"]


def test_ranges_for_machines(tmp_path):
    path = save_npz([episode(5, seed=n) for n in range(4)], tmp_path / "x.npz")
    found = found_in(path)["statistics"]
    every = np.concatenate([episode(5, seed=n).observations for n in range(4)])
    observed = found["observations"]
    assert (observed["rows"], observed["shape"], observed["dtype"]) == (24, [3], "float64")
    assert (observed["low"], observed["high"]) == (every.min(), every.max())
    assert sum(observed["histogram"]["counts"]) == every.size
    assert (found["actions"]["low"], type(found["actions"]["low"])) == (0, int)
    assert found["actions"]["histogram"]["width"] == 1


def test_ranges_for_a_person(tmp_path):
    path = save_npz([episode(5, seed=n) for n in range(4)], tmp_path / "x.npz")
    output = inspect(path)
    assert "histogram" in output
    assert "█" in output
    assert "worth a look" not in output


def test_numbers_that_cannot_be_known_are_null(tmp_path):
    largest = np.finfo(np.float64).max
    rewards = np.array([-largest, 1.0, largest])
    found = found_in(save_npz([episode(3, rewards=rewards)], tmp_path / "x.npz"))["statistics"]["rewards"]
    assert (found["low"], found["high"], found["std"]) == (-largest, largest, None)


@pytest.mark.parametrize("value", [np.array(["a", "b", "c"]), np.array([1j, 2, 3]), np.zeros((3, 0))])
def test_text_complex_numbers_and_empty_rows_have_no_range(tmp_path, value):
    observations = {"x": np.concatenate([value, value[:1]])}
    path = save_npz([episode(3, extras={"note": value}, observations=observations)], tmp_path / "x.npz")
    found = found_in(path)
    assert not {"extras/note", "observations/x"} & set(found["statistics"])
    assert found["suspicious"] == []
    assert "extras/note" in inspect(path)


@pytest.mark.parametrize(
    ("parts", "said"),
    [
        ({"rewards": np.array([1.0, 2.0, 3.0])}, "reward: all positive"),
        ({"rewards": np.zeros(3)}, "reward: 0 in all 9 rows"),
        ({"rewards": np.array([1.0, np.nan, -3.0])}, "reward: NaN in 3 of 9 rows"),
        ({"ends": False}, "terminated: not set in any of 9 rows"),
        (
            {"observations": np.arange(4.0)[:, None] * [1, 0, 2]},
            "observations: 1 of 3 components have one value in all rows: 1",
        ),
    ],
)
def test_suspicious_things_are_said(tmp_path, parts, said):
    path = save_npz([episode(3, seed=n, **parts) for n in range(3)], tmp_path / "x.npz")
    assert found_in(path)["suspicious"] == [said]
    assert re.search(rf"worth a look\n  -  {re.escape(said)}", inspect(path))


def test_extras_may_be_constant_and_not_infinite(tmp_path):
    extras = {"version": np.zeros(3), "value": np.array([0.0, np.inf, 1.0])}
    path = save_npz([episode(3, extras=extras)], tmp_path / "x.npz")
    assert found_in(path)["suspicious"] == ["extras/value: infinite in 1 of 3 rows"]


def test_copies_of_episodes_are_counted(tmp_path):
    episodes = [episode(3, seed=n % 4, id=n, extras={"version": np.full(3, n)}) for n in range(6)]
    path = save_npz(episodes, tmp_path / "x.npz")
    assert found_in(path)["suspicious"] == [
        "2 of 6 episodes are copies of earlier ones; the first: episode 4 is the same as episode 0"
    ]


def test_values_outside_the_spaces(tmp_path):
    from gymnasium import spaces

    box = spaces.Box(-1.0, 1.0, (3,), np.float64)
    inside = [episode(3, seed=n, observations=np.random.default_rng(n).random((4, 3))) for n in range(3)]
    metadata = {"observation_space": as_minari(box), "action_space": as_minari(spaces.Discrete(4))}
    assert found_in(save_npz(inside, tmp_path / "in.npz", metadata=metadata))["suspicious"] == []
    outside = [*inside, episode(3, seed=9, observations=np.random.default_rng(9).random((4, 3)) * 9)]
    said = found_in(save_npz(outside, tmp_path / "out.npz", metadata=metadata))["suspicious"]
    assert len(said) == 1
    assert said[0].startswith(
        "out of bounds in 1 of 4 episodes; the first: episode 3: observations: expected"
    )
    wrong = {"action_space": as_minari(spaces.Box(0, 1, (2,)))}
    said = found_in(save_npz(inside, tmp_path / "wrong.npz", metadata=wrong))["suspicious"]
    assert said == [
        "actions: expected float32[2] (of action_space) or a dtype that fits into it, got int64[]"
    ]


def as_minari(space):
    from headrace.datasets.minari.spaces import space_to_json

    return space_to_json(space, "space")


def test_minari_datasets_are_checked_too(tmp_path):
    pytest.importorskip("h5py")
    save_minari([episode(3, rewards=np.ones(3))], "line-v0", root=tmp_path)
    assert found_in(tmp_path / "line-v0")["suspicious"] == ["reward: 1 in all 3 rows"]


def test_stores_and_checkpoints_are_checked_too(tmp_path):
    step = {"observation": 0.0, "action": 0, "reward": 1.0, "terminated": False, "truncated": False}
    with hr.Replay(hr.Signature.like(step), [hr.Table.queue("t", 99)], path=tmp_path / "store") as replay:
        with hr.TransitionWriter(replay, "t") as writer:
            writer.add_first(0.0)
            for t in range(4):
                writer.add(t, 0.5, t == 3, False, t + 1.0)
        replay.save(tmp_path / "checkpoint")
    for name in ("store", "checkpoint"):
        found = found_in(tmp_path / name)
        assert found["suspicious"] == ["reward: 0.5 in all 4 rows"]
        assert found["statistics"]["observations"]["high"] == 4
