"""trajectories N1-N5: against the sum as A13 writes it, one transition at a time."""

import math
from typing import NamedTuple

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from headrace.trajectories import n_step


def summed(rewards, discounts, n, gamma):
    """A13 literally, for one run of scalars."""
    length = len(rewards)
    returns, products, index = [], [], []
    for t in range(length):
        j = min(t + n, length)
        returns.append(sum(gamma ** (q - t) * math.prod(discounts[t:q]) * rewards[q] for q in range(t, j)))
        products.append(gamma ** (j - t) * math.prod(discounts[t:j]))
        index.append(j)
    return returns, products, index


numbers = st.floats(-100, 100)
runs = st.integers(0, 17).flatmap(
    lambda steps: st.tuples(
        hnp.arrays(np.float64, steps, elements=numbers),
        hnp.arrays(np.float64, steps, elements=st.sampled_from([0.0, 0.5, 1.0])),
    )
)


@given(runs, st.integers(1, 20), st.sampled_from([0.0, 0.5, 0.9, 1.0]))
def test_n1_equals_the_sum(run, n, gamma):
    returns, discounts, index = n_step(*run, n, gamma)
    expected = summed(*(part.tolist() for part in run), n, gamma)
    np.testing.assert_allclose(returns, expected[0], rtol=1e-12, atol=1e-10)
    np.testing.assert_allclose(discounts, expected[1], rtol=1e-12)
    assert index.tolist() == expected[2]
    assert index.dtype == np.int64


@given(runs, st.integers(1, 20), st.data())
def test_n4_a_masked_tail_is_as_if_it_were_not_there(run, n, data):
    rewards, discounts = run
    length = len(rewards)
    real = data.draw(st.integers(0, length))
    mask = np.arange(length) < real
    rewards[real:], discounts[real:] = np.nan, np.inf
    returns, products, index = n_step(rewards, discounts, n, 0.9, mask=mask)
    expected = n_step(rewards[:real], discounts[:real], n, 0.9)
    for found, wanted, rest in zip((returns, products, index), expected, (0, 0, real), strict=True):
        np.testing.assert_array_equal(found[:real], wanted)
        np.testing.assert_array_equal(found[real:], rest)


def test_the_example_of_the_page():
    returns, discounts, index = n_step([1, 1, 1], [0.5, 0.5, 0], n=2, gamma=1)
    assert (returns.tolist(), discounts.tolist(), index.tolist()) == ([1.5, 1.5, 1], [0.25, 0, 0], [2, 3, 3])


def test_n4_padding_turns_no_truncation_into_a_termination():
    # Window [3 4 B5 P] of a truncated episode of 5: transitions 3 and 4 are real.
    mask = np.array([True, True, True, False])[1:]
    returns, discounts, index = n_step([4.0, 5.0, 0.0], [1.0, 1.0, 0.0], 3, 0.9, mask=mask)
    np.testing.assert_allclose(returns, [8.5, 5, 0])
    np.testing.assert_allclose(discounts, [0.81, 0.9, 0])
    assert index.tolist() == [2, 2, 2]
    returns, discounts, index = n_step([5.0, 0.0, 0.0], [1.0, 0.0, 0.0], 3, 0.9, mask=[True, False, False])
    assert (returns[0], discounts[0], index[0]) == (5, 0.9, 1)


def test_n2_trailing_axes_are_broadcast():
    rewards = np.arange(6.0).reshape(3, 1, 2)
    discounts = np.array([1, 0.5, 1, 1, 0, 1]).reshape(3, 2, 1)
    returns, products, _ = n_step(rewards, discounts, 2, 0.5)
    assert returns.shape == (3, 2, 2)
    assert products.shape == (3, 2, 1)
    for i in range(2):
        for k in range(2):
            expected = summed(rewards[:, 0, k], discounts[:, i, 0], 2, 0.5)
            np.testing.assert_allclose(returns[:, i, k], expected[0])
            np.testing.assert_allclose(products[:, i, 0], expected[1])


@pytest.mark.parametrize(("reward_shape", "discount_shape"), [((3, 2), (3,)), ((3,), (3, 2)), ((3, 3), (3,))])
def test_n2_an_axis_that_is_not_there_is_no_time_axis(reward_shape, discount_shape):
    rewards, discounts = np.ones(reward_shape), np.ones(discount_shape)
    returns, products, _ = n_step(rewards, discounts, 2, 1.0)
    assert returns.shape == max(reward_shape, discount_shape, key=len)
    assert products.shape == discount_shape
    np.testing.assert_array_equal(returns.reshape(3, -1)[:, 0], [2, 2, 1])


class Rewards(NamedTuple):
    task: object
    bonus: object


def test_n2_a_tree_of_rewards_with_one_array_of_discounts():
    rewards = Rewards({"a": np.ones(3, np.float32)}, np.ones((3, 2)))
    returns, products, _ = n_step(rewards, [1, 1, 0], 2, 0.5)
    assert isinstance(returns, Rewards)
    assert returns.task["a"].tolist() == [1.5, 1.5, 1]
    assert returns.bonus.shape == (3, 2)
    assert products.tolist() == [0.25, 0, 0]


def test_n2_one_array_of_rewards_with_a_tree_of_discounts():
    returns, products, _ = n_step([1, 1, 1], ([1, 1, 0], np.ones(3)), 2, 0.5)
    assert [leaf.tolist() for leaf in returns] == [[1.5, 1.5, 1]] * 2
    assert [leaf.tolist() for leaf in products] == [[0.25, 0, 0], [0.25, 0.25, 0.5]]


def test_n2_two_trees_go_leaf_by_leaf():
    returns, products, _ = n_step({"a": [1, 2], "b": [3, 4]}, {"b": [0, 0], "a": [1, 1]}, 2, 1.0)
    assert {name: leaf.tolist() for name, leaf in returns.items()} == {"a": [3, 2], "b": [3, 4]}
    assert {name: leaf.tolist() for name, leaf in products.items()} == {"a": [1, 1], "b": [0, 0]}
    with pytest.raises(ValueError, match="missing b; extra c"):
        n_step({"a": [1], "b": [1]}, {"a": [1], "c": [1]}, 1, 1.0)


@pytest.mark.parametrize(
    ("rewards", "discounts", "expected"),
    [
        (np.float32, np.float32, np.float32),
        (np.float16, np.float16, np.float16),
        (np.float32, bool, np.float32),
        (np.float32, np.float64, np.float64),
        (np.int32, np.int32, np.float64),
        (np.int8, np.float16, np.float16),
        (np.longdouble, np.float32, np.longdouble),
    ],
)
def test_n3_dtype(rewards, discounts, expected):
    returns, products, _ = n_step(np.ones(4, rewards), np.ones(4, discounts), 3, 0.9)
    assert returns.dtype == products.dtype == expected


def test_n3_lists_are_float64():
    returns, products, _ = n_step([1, 1], np.ones(2, np.float32), 2, 0.9)
    assert returns.dtype == products.dtype == np.float64


@pytest.mark.parametrize("dtype", [np.float16, np.float32])
def test_n3_rounded_once(dtype):
    rng = np.random.default_rng(0)
    rewards, discounts = rng.normal(size=(2, 500)).astype(dtype)
    discounts = np.clip(np.abs(discounts), 0, 1)
    found = n_step(rewards, discounts, 100, 0.99)
    exact = n_step(rewards.astype(np.float64), discounts.astype(np.float64), 100, 0.99)
    for one, other in zip(found[:2], exact[:2], strict=True):
        np.testing.assert_array_equal(one, other.astype(dtype))


def test_n3_the_inputs_stay_as_they_were():
    rewards, discounts = np.arange(5.0), np.ones(5)
    rewards.flags.writeable = discounts.flags.writeable = False
    returns, products, _ = n_step(rewards, discounts, 1, 1.0)
    assert not np.shares_memory(returns, rewards)
    assert not np.shares_memory(products, discounts)
    assert rewards.tolist() == [0, 1, 2, 3, 4]


@pytest.mark.parametrize("mask", [[False, True], [True, False, True][:2][::-1]])
def test_n4_only_a_tail_may_be_masked(mask):
    with pytest.raises(ValueError, match="mask: expected False only at the end, got False at 0"):
        n_step([1, 2], [1, 1], 1, 1.0, mask=mask)


@pytest.mark.parametrize(
    ("mask", "error"), [([True], ValueError), ([[True], [True]], ValueError), ([1, 0], TypeError)]
)
def test_n4_the_mask_is_one_flag_a_transition(mask, error):
    with pytest.raises(error, match=r"^mask: expected"):
        n_step([1, 2], [1, 1], 1, 1.0, mask=mask)


def test_n5_no_transitions_no_returns():
    returns, products, index = n_step(
        np.zeros((0, 1, 2), np.float32), np.zeros((0, 3, 1), np.float32), 3, 0.9
    )
    assert (returns.shape, products.shape, index.shape) == ((0, 3, 2), (0, 3, 1), (0,))
    assert (returns.dtype, index.dtype) == (np.float32, np.int64)


@pytest.mark.parametrize(
    ("n", "error"),
    [
        (0, ValueError),
        (-1, ValueError),
        (1.0, TypeError),
        (True, TypeError),
        ("1", TypeError),
        (None, TypeError),
    ],
)
def test_n5_n_is_an_integer_from_1(n, error):
    with pytest.raises(error, match=r"^n: expected an integer >= 1"):
        n_step([1], [1], n, 1.0)


@pytest.mark.parametrize(
    ("gamma", "error"),
    [(-0.1, ValueError), (1.01, ValueError), (float("nan"), ValueError), ("1", TypeError), (None, TypeError)],
)
def test_n5_gamma_is_a_share(gamma, error):
    with pytest.raises(error, match=r"^gamma: expected a number from 0 to 1"):
        n_step([1], [1], 1, gamma)


@pytest.mark.parametrize(
    ("rewards", "discounts"), [([1, 2], [1]), (1.0, [1]), ([1], 1.0), ({"a": [1], "b": [1, 2]}, [1])]
)
def test_n5_one_leading_axis(rewards, discounts):
    with pytest.raises(ValueError, match="one leading axis T, got shapes"):
        n_step(rewards, discounts, 1, 1.0)


def test_only_real_numbers():
    with pytest.raises(
        TypeError, match="rewards/value: expected real numbers, got ndarray of dtype complex128"
    ):
        n_step(np.ones(2, complex), [1, 1], 1, 1.0)
    with pytest.raises(ValueError, match="rewards: expected at least one array"):
        n_step({}, [1, 1], 1, 1.0)


def test_n5_n_may_be_far_larger_than_the_run():
    returns, _, index = n_step([1.0, 1.0], [1, 1], 10**30, 1.0)
    assert (returns.tolist(), index.tolist()) == ([2, 1], [2, 2])
    assert n_step([1.0], [1], np.int64(2), np.float32(1))[0].tolist() == [1]


def test_a_long_run_costs_array_operations_only():
    # 2 million steps and n of 100 000: a loop over either would not end in the time of a test.
    rewards = np.ones(2_000_000)
    returns, discounts, index = n_step(rewards, rewards, 100_000, 1.0)
    assert (returns[0], discounts[0], index[-1]) == (100_000, 1, 2_000_000)
