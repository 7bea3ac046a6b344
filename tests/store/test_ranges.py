"""Rows with a flag, found in ranges."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from headrace.store.layout import LANES, PAGE_WORDS, USED
from headrace.store.pages.ranges import flagged_rows, flags_of_pages


@given(
    st.lists(st.integers(1, 2500), min_size=1, max_size=4),
    st.lists(st.integers(0, 6000), max_size=20),
    st.integers(0, 40),
)
def test_flagged_rows_are_those_of_the_ranges(lengths, flagged, gap):
    """Anywhere in ranges longer than what is looked at at a time, and nowhere else."""
    steps = np.zeros(sum(lengths) + gap * len(lengths) + 6001, np.uint32)
    steps[flagged] = 8 | 1
    steps[::3] |= 1
    begins = np.cumsum([0, *[length + gap for length in lengths[:-1]]])
    ranges = np.stack([begins, begins + lengths], axis=1)
    wanted = [row for begin, stop in ranges.tolist() for row in range(begin, stop) if steps[row] & 8]
    assert flagged_rows(steps, ranges, 8).tolist() == wanted


def test_more_rows_with_a_flag_than_there_is_room_for_at_first():
    steps = np.full(40_000, 8, np.uint32)
    assert flagged_rows(steps, np.array([[3, 39_000]]), 8).tolist() == list(range(3, 39_000))


@given(
    st.lists(st.tuples(st.integers(0, 7), st.integers(0, 5)), min_size=1, max_size=8),
    st.lists(st.tuples(st.integers(0, 319), st.sampled_from([4, 8, 16]))),
)
def test_flags_of_a_page_are_those_of_its_committed_rows(sizes, flagged):
    words = np.zeros((len(sizes), PAGE_WORDS), np.int64)
    words[:, [LANES, USED]] = sizes
    steps = np.zeros(320, np.uint32)
    for row, flag in flagged:
        steps[row] |= np.uint32(flag)
    wanted = [
        np.bitwise_or.reduce(steps[page * 40 : page * 40 + lanes * used])
        for page, (lanes, used) in enumerate(sizes)
    ]
    assert flags_of_pages(steps, words, 40).tolist() == wanted
