"""A column that is written at several rows at a time: as bytes and by NumPy, the same."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from headrace.collectors.loop.lane_column import LaneColumn


@given(
    shape=st.sampled_from([(), (3,), (2, 2)]),
    dtypes=st.tuples(*[st.sampled_from(["u1", "i4", "f4", "f8", "?"])] * 2),
    rows=st.permutations(range(6)).map(lambda rows: rows[:4]),
    left_out=st.sets(st.integers(0, 3)),
    is_contiguous=st.booleans(),
)
def test_rows_are_those_that_numpy_writes(shape, dtypes, rows, left_out, is_contiguous):
    """CB1: whatever the dtype and the memory layout of the values; -1 is left out, other rows stay."""
    column = LaneColumn(np.full((6, *shape), 9, dtypes[0]))
    expected = column.array.copy()
    values = np.arange(8 * int(np.prod(shape)), dtype="f8").reshape(8, *shape).astype(dtypes[1])[::2]
    if is_contiguous:
        values = values.copy()
    rows = np.array([-1 if place in left_out else row for place, row in enumerate(rows)], np.int64)
    column.put(np.append(rows, 5), 4, values)
    expected[rows[rows >= 0]] = values[rows >= 0]
    np.testing.assert_array_equal(column.array, expected)
    assert column.array.dtype == dtypes[0]
