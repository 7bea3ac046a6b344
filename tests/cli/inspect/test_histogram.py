"""Histograms gathered part by part."""

import math
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headrace.cli.inspect.histogram import MOST_BINS, Histogram, HistogramTally

FLOATS = st.floats(allow_nan=False, allow_infinity=False)


def gathered(parts, *, whole_numbers=False):
    tally = HistogramTally(whole_numbers=whole_numbers)
    for part in parts:
        tally.add(np.array(part, np.float64))
    return tally.histogram()


@settings(max_examples=200)
@given(parts=st.lists(st.lists(FLOATS, max_size=4), max_size=5), whole_numbers=st.booleans())
def test_parts_give_the_histogram_of_the_whole(parts, whole_numbers):
    values = [value for part in parts for value in part]
    found, whole = (gathered(each, whole_numbers=whole_numbers) for each in (parts, [values]))
    if not values:
        assert found is whole is None
        return
    assert (found.low, found.width, found.counts.tolist()) == (whole.low, whole.width, whole.counts.tolist())
    assert found.counts[0] > 0 < found.counts[-1]
    assert len(found.counts) <= MOST_BINS
    # Fractions are exact.
    width = Fraction(found.width)
    first = math.floor(Fraction(found.low) / width)
    bins = [math.floor(Fraction(value) / width) - first for value in values]
    assert np.bincount(bins).tolist() == found.counts.tolist()


@pytest.mark.parametrize("numbers", [[0, 1, 1], [-5, 3], [7], [0, 63]])
def test_small_whole_numbers_have_a_bin_each(numbers):
    found = gathered([numbers], whole_numbers=True)
    assert (found.low, found.width) == (min(numbers), 1)
    assert found.counts.tolist() == np.bincount(np.array(numbers) - min(numbers)).tolist()


def test_extreme_values_are_counted():
    largest = np.finfo(np.float64).max
    for values in ([-largest, largest], [5e-324, 1.0], [0.0, 5e-324], [1e300, 1e-300, -1e300]):
        assert gathered([[value] for value in values]).counts.sum() == len(values)


def test_values_may_count_several_times():
    tally = HistogramTally(whole_numbers=True)
    tally.add(np.array([2.0, 5.0]), np.array([3, 4]))
    assert tally.histogram().counts.tolist() == [3, 0, 0, 4]
    assert tally.histogram().counts.dtype == np.int64


def test_a_histogram_uses_most_of_its_bins():
    found = gathered([np.random.default_rng(0).normal(size=1000)])
    assert MOST_BINS / 2 < len(found.counts) <= MOST_BINS


def test_bars_show_the_smallest_count_and_nothing_else():
    assert Histogram(0.0, 1.0, np.array([1000, 0, 1])).bars() == "█ ▁"
    assert Histogram(0.0, 1.0, np.array([1000, 0, 1])).bars(ascii_only=True) == "@ ."
    assert len(Histogram(0.0, 1.0, np.ones(64, np.int64)).bars()) == 16
    assert len(Histogram(0.0, 1.0, np.ones(17, np.int64)).bars()) == 9
