"""Batches with more columns, and minibatches of their rows (trajectories R4)."""

import itertools

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

import headrace as hr


def batch_of(mask):
    numbers = np.arange(mask.size).reshape(mask.shape)
    return hr.Batch({"mask": mask, "x": numbers, "o": {"a": np.stack([numbers, -numbers], -1)}}, worker_idx=3)


def test_columns_are_added_and_replaced():
    batch = batch_of(np.ones((2, 3), bool))
    advantage = np.zeros((2, 3), np.float32)
    more = batch.with_columns(
        {"advantage": advantage, "x": np.ones((2, 3, 4)), "tree": {"a": [[1, 2, 3], [4, 5, 6]]}}
    )
    assert more.advantage is advantage
    assert (more["x"].shape, more["tree/a"].tolist(), more.worker_idx) == (
        (2, 3, 4),
        [[1, 2, 3], [4, 5, 6]],
        3,
    )
    assert "advantage" not in batch
    assert batch["x"].shape == (2, 3)
    flat = batch.flatten().with_columns({"y": np.zeros(6)})
    assert flat.shape == (6,)


@pytest.mark.parametrize("wrong", [np.ones(2), np.ones((3, 2)), np.ones((2, 4, 3)), [1, 2, 3]])
def test_a_leaf_begins_with_the_shape(wrong):
    with pytest.raises(hr.SpecError, match=r"^y/a: expected an array \[2, 3, ...\], got"):
        batch_of(np.ones((2, 3), bool)).with_columns({"y": {"a": wrong, "b": np.ones((2, 3))}})


def test_columns_are_a_dict():
    batch = batch_of(np.ones((2, 3), bool))
    with pytest.raises(TypeError, match="columns: expected a dict of arrays, got list"):
        batch.with_columns([np.ones((2, 3))])  # type: ignore[arg-type]
    with pytest.raises(hr.SpecError, match="expected strings as names, got 3"):
        batch.with_columns({3: np.ones((2, 3))})  # type: ignore[dict-item]


def test_tensors_are_columns_too():
    torch = pytest.importorskip("torch")
    mask = np.array([[True, True, False], [True, False, True]])
    tensor = torch.arange(6.0).reshape(2, 3)
    more = batch_of(mask).with_columns({"y": tensor})
    assert more.y is tensor
    assert more.torch()["y"] is tensor
    assert more.flatten().y.tolist() == [0, 1, 3, 5]
    for part in more.minibatches(3, seed=1):
        assert part.y.tolist() == part.x.tolist()
    with pytest.raises(hr.SpecError, match="^y: expected an array"):
        batch_of(mask).with_columns({"y": tensor.T})


MASKS = hnp.arrays(np.bool_, hnp.array_shapes(min_dims=1, max_dims=2, min_side=0, max_side=5))


@given(MASKS, st.integers(1, 30), st.integers(1, 3), st.integers(0, 9), st.booleans())
def test_each_epoch_has_every_row_once(mask, size, epochs, seed, drop_last):
    batch = batch_of(mask)
    parts = list(batch.minibatches(size, epochs=epochs, seed=seed, drop_last=drop_last))
    valid = np.flatnonzero(mask)
    sizes = [min(size, len(valid) - begin) for begin in range(0, len(valid), size)]
    if drop_last:
        sizes = [each for each in sizes if each == size]
    assert [part.shape for part in parts] == [(each,) for each in sizes] * epochs
    assert all(part.mask.all() and part.worker_idx == 3 for part in parts)
    for part in parts:
        np.testing.assert_array_equal(part["o/a"], np.stack([part.x, -part.x], -1))
    orders = [
        [row for part in epoch for row in part.x.tolist()] for epoch in per_epoch(parts, len(sizes), epochs)
    ]
    for order in orders:
        assert len(set(order)) == len(order) == sum(sizes)
        assert set(order) <= set(valid.tolist())
    # The orders of the first epochs do not depend on how many there are.
    again = list(batch.minibatches(size, epochs=epochs + 1, seed=seed, drop_last=drop_last))
    assert [part.x.tolist() for part in again[: len(parts)]] == [part.x.tolist() for part in parts]


def per_epoch(parts, number, epochs):
    return [parts[epoch * number : (epoch + 1) * number] for epoch in range(epochs)]


def test_epochs_differ_and_a_seed_repeats():
    batch = batch_of(np.ones((5, 10), bool))
    one, other = (part.x.tolist() for part in batch.minibatches(50, epochs=2, seed=7))
    assert sorted(one) == sorted(other) == list(range(50))
    assert one != other
    assert next(batch.minibatches(50, seed=7)).x.tolist() == one
    assert next(batch.minibatches(50)).x.tolist() != next(batch.minibatches(50)).x.tolist()


@pytest.mark.parametrize("wrong", [{"size": 0}, {"size": 3, "epochs": 0}])
def test_wrong_numbers_are_refused_at_the_call(wrong):
    with pytest.raises(ValueError, match=f"^{list(wrong)[-1]}: expected an integer >= 1"):
        batch_of(np.ones((2, 3), bool)).minibatches(**wrong)


def test_minibatches_may_be_written_to():
    batch = batch_of(np.ones((2, 3), bool))
    for part in itertools.islice(batch.minibatches(4), 1):
        part.x[:] = -1
    assert batch.x.tolist() == [[0, 1, 2], [3, 4, 5]]
