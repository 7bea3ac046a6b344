"""The sum tree against a plain list of weights (replay S4, S8, S9)."""

import math
import os
import subprocess
import sys

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from plain_kernels import fewer

from headrace.kernels.plain import VARIABLE
from headrace.tables.indexes.sum_tree import SumTree
from headrace.tables.items.layout import CHILDREN, tree_levels

CAPACITIES = [1, 2, 15, 16, 17, 255, 256, 257, 4096, 4097, 70_000]


def new_tree(capacity):
    """A tree of zeros, its nodes, and where their levels begin."""
    levels = tree_levels(capacity)
    nodes = np.zeros(levels[-1] + 1)
    return SumTree(nodes, levels), nodes, levels


def set_weights(tree, slots, weights):
    tree, nodes, _ = tree
    slots = np.array(slots, np.int64)
    nodes[slots] = weights
    tree.refresh(slots, 0, len(slots))


def draw(tree, uniforms):
    # Before and behind what is asked for stands what must stay as it is.
    numbers, slots = np.array([2.0, *uniforms, 2.0]), np.full(len(uniforms) + 3, -1)
    tree[0].find(numbers, 1, slots, 2, len(uniforms))
    assert numbers[0] == numbers[-1] == 2.0
    assert slots[0] == slots[1] == slots[-1] == -1
    return slots[2:-1]


@pytest.mark.parametrize("capacity", CAPACITIES)
def test_every_leaf_can_be_found_and_nothing_behind_the_last(capacity):
    tree, nodes, levels = whole = new_tree(capacity)
    assert levels[1] - levels[0] >= capacity
    assert (nodes == 0).all()
    places = sorted({0, capacity // 2, capacity - 1})
    set_weights(whole, places, np.ones(len(places)))
    assert tree.total() == len(places)
    middle = (np.arange(len(places)) + 0.5) / len(places)
    assert draw(whole, middle).tolist() == places


@given(
    st.integers(1, 600).flatmap(
        lambda capacity: st.tuples(
            st.just(capacity),
            st.lists(
                st.lists(
                    st.tuples(st.integers(0, capacity - 1), st.integers(0, 1000)), min_size=1, max_size=20
                ),
                max_size=12,
            ),
        )
    )
)
def test_sums_and_shares_equal_a_list_of_whole_numbers(given_):
    # Whole numbers add up without rounding, so the borders of all shares are exact.
    capacity, rounds = given_
    model = np.zeros(capacity)
    tree = new_tree(capacity)
    for changes in rounds:
        for slot, weight in changes:
            model[slot] = weight
        set_weights(tree, [slot for slot, _ in changes], [model[slot] for slot, _ in changes])
        assert tree[0].total() == model.sum()
    if model.sum():
        borders = np.cumsum(model)
        inside = borders[model > 0] - 0.5
        uniforms = inside / model.sum()
        assert draw(tree, uniforms).tolist() == np.searchsorted(borders, inside, side="right").tolist()


@given(
    st.lists(st.floats(0, 1e100), min_size=1, max_size=300),
    st.lists(st.floats(0, 1, exclude_max=True), min_size=1, max_size=20),
)
def test_a_weight_of_zero_is_never_found(weights, uniforms):
    # replay S9
    tree = new_tree(len(weights))
    set_weights(tree, np.arange(len(weights)), weights)
    if sum(weights) > 0:
        slots = draw(tree, [*uniforms, 0.0, np.nextafter(1.0, 0.0)])
        assert (slots < len(weights)).all()
        assert all(weights[slot] > 0 for slot in slots)


def test_sums_are_exact_after_weights_went_to_1e15_and_back():
    # replay S8: parents are recomputed, so nothing of 1e15 stays behind
    random = np.random.default_rng(0)
    weights = random.uniform(0.001, 1.0, 1000)
    tree = new_tree(len(weights))
    set_weights(tree, np.arange(len(weights)), weights)
    for number in range(10_000):
        slot = np.array([number % 1000])
        set_weights(tree, slot, 1e15 * weights[slot])
        set_weights(tree, slot, weights[slot])
    assert tree[0].total() == pytest.approx(math.fsum(weights), rel=1e-12)


def test_shares_are_exact_while_weights_lie_1e15_apart():
    # replay S8
    weights = np.array([1e15, 1.0, 1e-15, 1e15])
    tree = new_tree(4)
    set_weights(tree, np.arange(4), weights)
    assert tree[1][:4] / tree[0].total() == pytest.approx(weights / math.fsum(weights), rel=1e-12)


@pytest.mark.parametrize("capacity", [16, 16 * 16, 16**3])
@pytest.mark.parametrize("place", [0, 1, 3, 4, 15])
def test_a_number_that_rounding_makes_the_total_finds_the_last_weight(capacity, place):
    """replay S9: a slot of weight 0 is never found. Every product with the least of all numbers is rounded."""
    slot = place * (capacity // 16)
    tree = new_tree(capacity)
    set_weights(tree, [slot], [5e-324])
    assert draw(tree, [0.0, 0.75, np.nextafter(1.0, 0.0)]).tolist() == [slot] * 3


def test_draws_follow_the_weights():
    # replay S4: chi-square over 200 slots; 330 has p < 1e-7
    random = np.random.default_rng(1)
    weights = random.uniform(0, 3, 200) * (random.random(200) > 0.2)
    tree = new_tree(200)
    set_weights(tree, np.arange(200), weights)
    draws = fewer(200_000)
    counts = np.bincount(draw(tree, random.random(draws)), minlength=200)
    expected = draws * weights / weights.sum()
    assert counts[weights == 0].sum() == 0
    some = weights > 0
    assert ((counts[some] - expected[some]) ** 2 / expected[some]).sum() < 330


@pytest.mark.parametrize("capacity", CAPACITIES)
def test_rebuild_makes_what_refresh_makes(capacity):
    random = np.random.default_rng(capacity)
    weights = random.uniform(0, 1e6, capacity)
    one, other = new_tree(capacity), new_tree(capacity)
    set_weights(one, np.arange(capacity), weights)
    other[1][:capacity] = weights
    other[0].rebuild()
    assert np.array_equal(one[1], other[1])


def test_refresh_takes_slots_in_any_order_and_twice():
    one, other = new_tree(1000), new_tree(1000)
    slots = np.array([999, 3, 500, 3, 17 * CHILDREN, 0, 999, 4])
    set_weights(one, slots, slots + 1.0)
    set_weights(other, np.unique(slots), np.unique(slots) + 1.0)
    assert np.array_equal(one[1], other[1])


def test_plain_python_finds_the_same_slots():
    # NumPy's own `True + True` is True, which led astray there.
    weights, uniforms = np.random.default_rng(3).random((2, 300))
    tree = new_tree(5000)
    set_weights(tree, np.arange(0, 4800, 16), weights)
    program = (
        "import numpy as np, sys; sys.path.append('tests/support')\n"
        "from tests.tables.test_sum_tree import draw, new_tree, set_weights\n"
        "weights, uniforms = np.random.default_rng(3).random((2, 300)); tree = new_tree(5000)\n"
        "set_weights(tree, np.arange(0, 4800, 16), weights); print(draw(tree, uniforms).tolist())"
    )
    environment = {**os.environ, VARIABLE: "1"}
    done = subprocess.run(
        [sys.executable, "-c", program],
        env=environment,
        capture_output=True,
        text=True,
        timeout=120,
        check=True,
    )
    assert done.stdout.strip() == str(draw(tree, uniforms).tolist())
