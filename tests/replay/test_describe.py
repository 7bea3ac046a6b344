"""Descriptions of batches: statistics of columns, and suspicious things in them."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import headrace as hr
from headrace.batches.column_statistics import ColumnTally, suspicions
from headrace.replay import ReplaySample, SampleInfo


def info_of(keys):
    return SampleInfo(np.asarray(keys, np.uint64), *np.zeros((4, len(keys))))


@settings(max_examples=50)
@given(
    parts=st.lists(
        st.lists(st.floats(-1e6, 1e6) | st.sampled_from([np.nan, np.inf, -np.inf]), max_size=5), max_size=5
    )
)
def test_parts_give_the_statistics_of_the_whole(parts):
    tally = ColumnTally(np.dtype(np.float64), ())
    for part in parts:
        tally.add(np.array(part, np.float64))
    whole = np.array([value for part in parts for value in part], np.float64)
    found, finite = tally.statistics(), whole[np.isfinite(whole)]
    assert (found.rows, found.rows_with_nan) == (len(whole), np.isnan(whole).sum())
    assert found.rows_with_infinity == np.isinf(whole).sum()
    assert found.is_constant == (len(whole) > 1 and len(np.unique(whole)) == 1)
    if len(finite):
        expected = finite.min(), finite.max(), finite.mean(), finite.std()
        np.testing.assert_allclose(
            (found.low, found.high, found.mean, found.std), expected, rtol=1e-9, atol=1e-6
        )
    else:
        assert np.isnan([found.low, found.high, found.mean, found.std]).all()


def column(values):
    array = np.asarray(values)
    tally = ColumnTally(array.dtype, array.shape[1:])
    tally.add(array)
    return tally.statistics()


@pytest.mark.parametrize(
    ("name", "values", "said"),
    [
        ("x", [1.0, np.nan, 2.0], "x: NaN in 1 of 3 rows"),
        ("x", [[1.0, np.inf], [2.0, 3.0]], "x: infinite in 1 of 2 rows"),
        ("x", [[1, 2], [1, 2]], "x: the same values in all 2 rows"),
        ("reward", [0.0, 0.0], "reward: 0 in all 2 rows"),
        ("reward", [1.0, 2.0], "reward: all positive"),
        ("reward", [-1.0, -2.0], "reward: all negative"),
        ("terminated", [False, False], "terminated: not set in any of 2 rows"),
        ("truncated", [True, True], "truncated: set in all 2 rows"),
    ],
)
def test_suspicious_things_are_said(name, values, said):
    assert suspicions({name: column(values)}) == [said]


@pytest.mark.parametrize(
    ("name", "values"),
    [
        ("x", [1, 2]),
        ("x", [3]),
        ("reward", [0.0, 1.0]),
        ("terminated", [True, False]),
        ("truncated", [False, False]),
    ],
)
def test_what_is_usual_is_not(name, values):
    assert suspicions({name: column(values)}) == []


def test_findings_do_not_alarm():
    """CartPole's rewards are all 1: a finding is a hint, and not marked as an error."""
    found = str(ReplaySample({"reward": np.ones(2)}, info_of([1, 2])).describe())
    assert found.endswith("worth a look:\n  reward: 1 in all 2 rows")
    assert "!" not in found
    assert "worth" not in str(ReplaySample({"reward": np.array([0.0, 1.0])}, info_of([1, 2])).describe())


def test_padded_rows_are_left_out():
    data = {"observation": {"x": np.array([[1, 2, 3], [4, 0, 0]])}, "flag": np.array([True, False])}
    mask = np.array([[True, True, True], [True, False, False]])
    found = ReplaySample(data, info_of([7, 7]), mask).describe()
    assert (found.items, found.different_items, found.rows) == (2, 1, 4)
    observed = found.columns["observation/x"]
    assert (observed.low, observed.high, observed.rows, observed.shape) == (1, 4, 4, ())
    assert found.columns["flag"].rows == 2
    assert np.isnan(found.terminated)


def test_a_batch_of_a_replay_in_every_framework():
    step = {"observation": np.zeros(2, np.float32), "action": 0, "reward": 0.0}
    step |= {"terminated": False, "truncated": False}
    with hr.Replay(hr.Signature.like(step), [hr.Table.uniform(9)], seed=0) as replay:
        with hr.TransitionWriter(replay) as writer:
            writer.add_first(np.zeros(2, np.float32))
            for t in range(4):
                writer.add(t, float(t), t == 3, False, np.full(2, t + 1, np.float32))
        batch = replay.sample(64, views=writer.views)
        found = batch.describe()
        assert found.terminated == batch["terminated"].mean() > 0 == found.truncated
        assert found.columns["observation"].shape == (2,)
        assert found.different_items == 4
        assert "observation" in str(found)
        assert "reward" in str(found)
        torch = pytest.importorskip("torch")
        assert isinstance(replay.sample(4, to="torch")["action"], torch.Tensor)
        assert replay.sample(4, to="torch").describe().columns["action"].dtype == "int64"
