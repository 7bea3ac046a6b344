"""An observation that is copied into its row as bytes, or by NumPy: the same, or nothing is written."""

import os

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.kernels.row_copy import STREAMED_ROW, STREAMED_STEP, write_columns, write_row

IS_PLAIN = os.environ.get("HEADRACE_PLAIN", "0") != "0"
DTYPES = ["u1", "i4", "f4", ">f4", "f8", "?", "f2", "M8[s]", "O"]


@given(
    shape=st.sampled_from([(), (3,), (2, 3), (3, 2), (6,)]),
    dtype=st.sampled_from(DTYPES),
    given_shape=st.none() | st.sampled_from([(), (1,), (3,), (2, 3), (1, 3), (6,)]),
    given_dtype=st.none() | st.sampled_from(DTYPES),
    row=st.integers(0, 3),
    order=st.sampled_from(["C", "F"]),
    step=st.sampled_from([1, 2]),
    is_aligned=st.booleans(),
    layout=st.sampled_from(["dense", "record", "apart"]),
)
def test_a_row_is_what_numpy_writes_or_is_left(
    shape, dtype, given_shape, given_dtype, row, order, step, is_aligned, layout
):
    # collectors CE5: arrays of another shape, dtype or layout are left to NumPy, which is called after a check.
    given_shape = shape if given_shape is None else given_shape
    given_dtype = dtype if given_dtype is None else given_dtype
    value = np.arange(2 * int(np.prod(given_shape)), dtype="i8").reshape(*given_shape, 2).astype(given_dtype)
    value = np.asarray(value[..., 0], order=order) if step == 1 else value[..., 0]
    if not is_aligned and value.dtype != object:
        memory = np.zeros(value.nbytes + 1, "u1")[1:]
        value = np.ndarray(value.shape, value.dtype, memory, strides=None)
    column = np.full((4, *shape), 9, "i8").astype(dtype)
    if layout == "record":
        column = np.zeros(4, [("a", "u1"), ("value", dtype, shape)])["value"]
    elif layout == "apart":
        column = np.zeros((4, *shape, 2), dtype)[..., 0]
    before = column.copy()
    is_written = write_row(column, row, value, len(column))
    before[row] = value if is_written else before[row]
    np.testing.assert_array_equal(column, before)
    is_same = shape == given_shape and np.dtype(dtype) == np.dtype(given_dtype) and is_aligned
    is_same = is_same and (layout != "apart" or len(shape) < 2)
    if is_same and dtype in ("u1", "i4", "f4", "f8", "?", "f2") and value.flags.c_contiguous and not IS_PLAIN:
        assert is_written
    if shape != given_shape or np.dtype(dtype) != np.dtype(given_dtype) or dtype in (">f4", "M8[s]", "O"):
        assert not is_written


@pytest.mark.parametrize("wrong", [-1, 2, 1.0, [1.0, 2.0], None, np.ma.ones(2)])
def test_other_values_and_rows_are_left(wrong):
    column = np.zeros((2, 2))
    row, value = (wrong, np.ones(2)) if isinstance(wrong, int) else (0, wrong)
    assert not write_row(column, row, value, len(column))
    assert not column.any()


@pytest.mark.parametrize("first", [0, 1])
def test_large_rows_that_go_past_the_caches_are_the_same(first):
    # Rows that begin at a multiple of 16 bytes, and rows that do not.
    width, count = STREAMED_ROW, STREAMED_STEP // STREAMED_ROW
    memory = np.zeros(count * width + 128, np.uint8)
    begin = first - memory.ctypes.data % 64 + 64
    column = memory[begin : begin + count * width].reshape(count, width)
    rows = np.random.default_rng(0).integers(0, 256, (count, width), np.uint8)
    for row, value in enumerate(rows):
        assert write_row(column, row, value, len(column)) != IS_PLAIN
    assert IS_PLAIN or np.array_equal(column, rows)


@given(
    dtypes=st.tuples(st.sampled_from(["u1", "f4", "?"]), st.sampled_from(["u1", "f4", "?", "i8"])),
    shape=st.sampled_from([(2,), (2, 3)]),
    given_shape=st.sampled_from([(), (1,), (2,), (2, 3)]),
    row=st.integers(0, 3),
    is_record=st.booleans(),
)
def test_columns_of_a_step_are_what_numpy_writes_and_zeros_where_nothing_is_given(
    dtypes, shape, given_shape, row, is_record
):
    columns = [(name, np.full((4, *shape), 1, dtypes[0])) for name in ("given", "missing")]
    if is_record:
        records = np.zeros((4, shape[0]), [(name, dtypes[0], shape[1:]) for name, _ in columns])
        columns = [(name, records[name]) for name, _ in columns]
        for _, column in columns:
            column[...] = 1
    value = np.arange(int(np.prod(given_shape))).reshape(given_shape).astype(dtypes[1])
    expected = columns[0][1].copy()
    try:
        expected[row] = value
    except ValueError:
        with pytest.raises(ValueError, match="broadcast"):
            write_columns(columns, row, {"given": value})
        return
    write_columns(columns, row, {"given": value, "other": value})
    np.testing.assert_array_equal(columns[0][1], expected)
    assert not columns[1][1][row].any()
    assert np.delete(columns[1][1], row, 0).all()
