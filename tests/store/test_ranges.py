"""Rows with a flag, found in ranges."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from headrace.store.ranges import flagged_rows


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
