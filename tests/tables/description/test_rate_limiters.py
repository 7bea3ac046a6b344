"""The gate's arithmetic (replay L1 to L4, L7, L8, L10)."""

import math
import sys
import warnings

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from headrace.tables.description.rate_limiters import MinSize, Queue, RateLimiter, SampleToInsertRatio, Stack


def numbers(limiter):
    return limiter.samples_per_insert, limiter.min_size, limiter.min_diff, limiter.max_diff


def may_insert(limiter, i, s, d, n):
    """The formula of replay, part 5, word for word."""
    return i + n - d <= limiter.min_size or (i + n) * limiter.samples_per_insert - s <= limiter.max_diff


def may_sample(limiter, i, s, d, n):
    return i - d >= max(1, limiter.min_size) and i * limiter.samples_per_insert - s - n >= limiter.min_diff


@st.composite
def limiters(draw):
    kind = draw(st.sampled_from(["min_size", "queue", "ratio", "bounds"]))
    if kind == "min_size":
        return MinSize(draw(st.integers(1, 20)))
    if kind == "queue":
        return draw(st.sampled_from([Queue, Stack]))(draw(st.integers(1, 20)))
    spi = draw(st.sampled_from([0.1, 1 / 3, 0.5, 0.7, 1.0, 2.0, 3.7, 8.0]))
    size = draw(st.integers(1, 12))
    if kind == "ratio":
        return SampleToInsertRatio(spi, size, max(1, spi) * draw(st.floats(1, 10)))
    low = spi * size - draw(st.floats(0, 10))
    high = low + 2.001 * max(1, spi) + draw(st.floats(0, 10))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return SampleToInsertRatio(spi, size, (low, high))


COUNTS = {"inserts": st.integers(0, 60), "samples": st.integers(0, 200), "removed": st.integers(0, 60)}


@pytest.mark.parametrize("spi", [0.1, 1.0, 1.1, 3.7, 7.3])
@pytest.mark.parametrize("size", [1, 3, 7])
def test_the_smallest_buffer_is_taken_however_the_bounds_are_rounded(spi, size):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        limiter = SampleToInsertRatio(spi, size, max(1.0, spi))
    assert limiter.max_diff - limiter.min_diff == pytest.approx(2 * max(1.0, spi))


@given(limiters(), st.integers(1, 70), *COUNTS.values())
def test_the_gate_is_the_formula(limiter, n, inserts, samples, removed):
    deletes = min(inserts, removed)
    assert limiter.can_insert(inserts, samples, deletes, n) == may_insert(
        limiter, inserts, samples, deletes, n
    )
    assert limiter.can_sample(inserts, samples, deletes, n) == may_sample(
        limiter, inserts, samples, deletes, n
    )


@given(limiters(), *COUNTS.values())
def test_insertable_is_the_largest_number_that_the_formula_admits(limiter, inserts, samples, removed):
    deletes = min(inserts, removed)
    room = limiter.insertable(inserts, samples, deletes)
    if limiter.max_diff == math.inf:
        assert room == math.inf
        assert limiter.never_blocks_inserts
        return
    admitted = [n for n in range(1, 5000) if may_insert(limiter, inserts, samples, deletes, n)]
    assert room == max(admitted, default=0)


@given(limiters(), st.lists(st.integers(1, 12), min_size=1, max_size=60))
def test_largest_batch_bounds_what_any_insert_can_admit(limiter, batches):
    # replay L10: drive the gate as far as inserts take it, then ask
    largest = limiter.largest_batch()
    if largest == math.inf:
        assert isinstance(limiter, MinSize)
        return
    inserts = samples = 0
    for batch in batches:
        assume(batch <= largest)
        for _ in range(200):
            if limiter.can_sample(inserts, samples, 0, batch):
                break
            if not limiter.can_insert(inserts, samples, 0, 1):
                break
            inserts += 1
        assert not limiter.can_sample(inserts, samples, 0, math.floor(largest) + 1)
        if limiter.can_sample(inserts, samples, 0, batch):
            samples += batch


def test_min_size_has_the_numbers_of_l1():
    assert numbers(MinSize(7)) == (1, 7, -math.inf, math.inf)
    with pytest.raises(ValueError, match="MinSize.*got 0"):
        MinSize(0)


@pytest.mark.parametrize("kind", [Queue, Stack])
def test_queue_and_stack_have_the_numbers_of_l2(kind):
    assert numbers(kind(5)) == (1, 1, 0, 5)
    with pytest.raises(ValueError, match=f"{kind.__name__}.*got 0"):
        kind(0)


def test_ratio_has_the_numbers_of_l3_and_l4():
    assert numbers(SampleToInsertRatio(2, 3, 4)) == (2, 3, 2, 10)
    assert numbers(SampleToInsertRatio(2, 3, (-1, 9))) == (2, 3, -1, 9)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((0, 1, 10), "samples_per_insert"),
        ((-1, 1, 10), "samples_per_insert"),
        ((math.nan, 1, 10), "samples_per_insert"),
        ((math.inf, 1, 10), "samples_per_insert"),
        ((1, 0, 10), "min_size_to_sample"),
        ((1, 1, 0.99), "no room"),
        ((4, 1, 3.9), "no room"),
        ((1, 1, (0, 1.9)), "no room"),
        ((1, 1, math.nan), "no room"),
        ((1, 5, (5.1, 20)), "would not open"),
        ((2, 3, (6.5, 20)), "would not open"),
    ],
)
def test_ratio_refuses_what_l3_says(arguments, message):
    with pytest.raises(ValueError, match=message):
        SampleToInsertRatio(*arguments)


def test_bounds_that_l3_just_allows():
    assert numbers(SampleToInsertRatio(1, 1, 1)) == (1, 1, 0, 2)
    assert numbers(SampleToInsertRatio(4, 1, 4)) == (4, 1, 0, 8)
    assert numbers(SampleToInsertRatio(1, 5, (5, 7))) == (1, 5, 5, 7)


def test_an_upper_bound_below_the_opening_warns():
    # replay L4: max_diff < spi * m
    with pytest.warns(UserWarning, match="upper bound"):
        SampleToInsertRatio(1, 10, (0, 9))


def test_worked_example_of_part_5():
    limiter = SampleToInsertRatio(2, 3, 4)
    inserts = 0
    opened = closed = None
    while limiter.can_insert(inserts, 0, 0, 1):
        inserts += 1
        if opened is None and limiter.can_sample(inserts, 0, 0, 1):
            opened = inserts
    closed = inserts
    assert (opened, closed) == (3, 5)
    assert not limiter.can_insert(5, 1, 0, 1)
    assert limiter.can_insert(5, 2, 0, 1)


def test_removals_close_sampling_and_open_inserting():
    # replay L8
    limiter = SampleToInsertRatio(1, 3, (0, 3))
    assert limiter.can_sample(3, 0, 0, 1)
    assert not limiter.can_insert(3, 0, 0, 1)
    assert not limiter.can_sample(3, 0, 1, 1)
    assert limiter.can_insert(3, 0, 1, 1)


@pytest.mark.parametrize("error_buffer", [1e18, 1e30, sys.float_info.max])
def test_a_bound_beyond_all_counting_answers_at_once(error_buffer):
    limiter = SampleToInsertRatio(0.5, 1, error_buffer)
    assert limiter.insertable(100, 3, 0) > 2**50
    assert limiter.can_insert(100, 3, 0, 10**9)
    assert limiter.can_sample(100, 3, 0, 10**9)


def test_an_infinite_bound_never_blocks():
    limiter = SampleToInsertRatio(1, 10, math.inf)
    assert limiter.never_blocks_inserts
    assert limiter.insertable(5, 0, 0) == math.inf


def test_limiters_are_descriptions():
    # replay T1: immutable, equal by value
    assert MinSize(3) == MinSize(3)
    assert Queue(3) != Stack(3)
    assert isinstance(Stack(3), RateLimiter)
    with pytest.raises(AttributeError):
        MinSize(3).min_size = 4


def test_the_text_has_the_four_numbers():
    assert str(SampleToInsertRatio(2, 3, 4)) == "samples_per_insert=2, min_size=3, min_diff=2, max_diff=10"
