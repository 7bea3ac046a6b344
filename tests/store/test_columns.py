"""Writing single values and one value a lane: the table of casts (accumulator A20), and nothing broadcast."""

import copy
import itertools

import cloudpickle
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from plain_kernels import fewer

from headrace.errors import SpecError
from headrace.spec import ArraySpec, Signature, check_array
from headrace.store.columns import LaneColumns, RowColumns
from headrace.store.copying import place_fields
from headrace.store.records import columns_of, record_layout
from headrace.store.staging import Stage

DTYPES = [
    np.bool_, np.int8, np.int32, np.int64, np.uint8, np.uint64,
    np.float16, np.float32, np.float64, np.complex64, np.complex128,
]  # fmt: skip
VALUES = [
    True, False, 0, 1, -1, 7, 127, 128, 255, 256, -128, -129, 2**31, 2**63, 2**64, -(2**70),
    0.0, 2.0, 2.9, -1e-300, 1e30, 1e300, 65504.0, 65520.0, float("nan"), float("inf"), -float("inf"),
    1j, complex(1e300, 0), complex(float("inf"), 0), complex(3e38, 3e38), complex(3.5e38, 0),
    np.bool_(True), np.int8(-3), np.uint8(200), np.int64(300), np.uint64(2**63), np.float16(2),
    np.float32(1e30), np.float64(1e300), np.complex64(1j), np.complex128(1e300),
    np.array(3), np.array(3.5), [1], np.ones(2), "x", None, b"y", np.str_("z"), object(), {},
]  # fmt: skip


def put_one(column, spec, path):
    columns = RowColumns([(path, column, lambda value: check_array(value, spec, path))])
    return lambda row, value: columns.put(row, {path: value})


def lanes_of(spec, path, lanes, rows=40):
    """What puts a step of lanes, the column that it stands in, and all bytes of the column's records.

    A step is staged and taken in at once; a writer of lanes takes it in when it commits.
    """
    beside = {"first": ArraySpec(3, np.int16), "last": ArraySpec((), np.bool_)}
    signature = Signature({"first": beside["first"], path: spec, "last": beside["last"]})
    layout = record_layout(signature)
    records = np.zeros((rows, layout.nbytes), np.uint8)
    columns = {path: np.zeros((rows, *spec.shape), spec.dtype)} | columns_of(records, layout, signature)
    stage = Stage(signature, lanes)
    zeros = {name: np.zeros((lanes, *each.shape), each.dtype) for name, each in beside.items()}
    every = LaneColumns(
        [(name, columns[name], each) for name, each in signature.columns.items()], lanes, stage
    )

    def put(row, value):
        every.put(row, {path: value, **zeros})
        place_fields(stage.memory, stage.fields, lanes, records.reshape(-1), layout.nbytes, row)

    return put, columns[path], records


def outcome(write):
    try:
        return write().tobytes()
    except SpecError as error:
        return str(error)


@pytest.mark.parametrize("dtype", DTYPES)
def test_put_one_scalar_agrees_with_the_table_of_casts(dtype):
    """A20, whatever way the value comes: as the quick way takes it, so does the table, to the same bits."""
    spec = ArraySpec((), dtype)
    for value in VALUES:
        column = np.zeros(3, dtype)
        put = put_one(column, spec, "path/leaf")

        def quick(put=put, column=column, value=value):
            put(1, value)
            return column[1:2]

        def table(value=value):
            return np.asarray(check_array(value, spec, "path/leaf"), dtype).reshape(1)

        assert outcome(quick) == outcome(table), (value, dtype)
        assert not column[[0, 2]].any()


@settings(max_examples=fewer(100))
@given(
    st.sampled_from(DTYPES),
    st.one_of(
        st.integers(-(2**65), 2**65), st.floats(), st.booleans(), st.complex_numbers(),
        hnp.from_dtype(np.dtype(np.float32)), hnp.from_dtype(np.dtype(np.float64)),
        hnp.from_dtype(np.dtype(np.int16)),
    ),
)  # fmt: skip
def test_put_one_agrees_for_any_number(dtype, value):
    spec = ArraySpec((), dtype)
    column = np.zeros(1, dtype)

    def quick():
        put_one(column, spec, "x")(0, value)
        return column

    assert outcome(quick) == outcome(lambda: np.asarray(check_array(value, spec, "x")).reshape(1))


@pytest.mark.parametrize("dtype", [np.uint8, np.float32, np.float64])
def test_put_one_array_takes_its_shape_only(dtype):
    """Nothing is broadcast: one value does not fill a row."""
    spec = ArraySpec((2, 3), dtype)
    column = np.zeros((4, 2, 3), dtype)
    put = put_one(column, spec, "frame")
    put(2, np.full((2, 3), 7, dtype))
    assert (column[2] == 7).all()
    put(1, [[1, 2, 3], [4, 5, 6]])
    assert column[1].tolist() == [[1, 2, 3], [4, 5, 6]]
    before = column.copy()
    for wrong in (
        7,
        np.ones(3, dtype),
        np.ones((1, 3), dtype),
        np.ones((2, 1), dtype),
        np.ones((1, 2, 3), dtype),
    ):
        with pytest.raises(SpecError, match=r"frame: expected .*\[2, 3\], got"):
            put(0, wrong)
    assert (column == before).all()


def test_put_one_array_casts_by_the_table():
    spec = ArraySpec(2, np.uint8)
    column = np.zeros((1, 2), np.uint8)
    put = put_one(column, spec, "x")
    put(0, np.array([1, 255]))
    assert column[0].tolist() == [1, 255]
    for wrong in (np.array([1, 256]), np.array([-1, 0]), np.array([1.0, 2.0])):
        with pytest.raises(SpecError, match="^x: "):
            put(0, wrong)
    assert column[0].tolist() == [1, 255]


def test_put_one_array_takes_any_memory_order():
    spec = ArraySpec((2, 3), np.float32)
    column = np.zeros((1, 2, 3), np.float32)
    value = np.arange(6, dtype=np.float32).reshape(3, 2).T
    put_one(column, spec, "x")(0, value)
    assert (column[0] == value).all()
    put_one(column, spec, "x")(0, value.astype(">f4") + 1)
    assert (column[0] == value + 1).all()


@pytest.mark.parametrize(
    "value",
    [
        *np.array([0x7FF0000000000001, 0xFFF4000000000001, 0x7FF8000000000001], np.uint64).view(np.float64),
        *np.array([0x7F800001, 0xFFA00001, 0x7FC00001], np.uint32).view(np.float32),
    ],
)
def test_put_one_keeps_the_bits_of_a_nan(value):
    """Signalling ones too, where the column has the value's dtype."""
    column = np.zeros(1, value.dtype)
    assert np.isnan(value)
    put_one(column, ArraySpec((), value.dtype), "x")(0, value)
    assert column.tobytes() == value.tobytes()


def rows_of(dtype, width, layout):
    """A column of 5 short vectors, and all bytes that it stands in: by itself, or in records among others."""
    if layout == "alone":
        column = np.zeros((5, width), dtype)
        return column, column.reshape(-1).view(np.uint8)
    nbytes = 16 + width * np.dtype(dtype).itemsize
    record = nbytes + {"records": -nbytes % 16, "uneven records": 1}[layout]
    memory = np.zeros(5 * record, np.uint8)
    strides = (record, np.dtype(dtype).itemsize)
    return np.ndarray((5, width), dtype, memory, 16, strides), memory


def short_vectors(width, dtype):
    """What may come for a row of three numbers: of any dtype, order and place in memory, and much that is wrong."""
    nbytes = width * np.dtype(dtype).itemsize
    values = [np.random.default_rng(0).integers(0, 2, width).astype(other) for other in DTYPES]
    return [
        *values, *(value.astype(value.dtype.newbyteorder()) for value in values),
        np.arange(9).astype(dtype)[::3], np.arange(9).astype(dtype)[8:2:-2], np.longlong([1, 0, 1]),
        np.frombuffer(bytes(nbytes), dtype), np.frombuffer(bytes(nbytes + 1), np.uint8)[1:].view(dtype),
        [1, 0, 1], (True, False, True), memoryview(np.ones(width, dtype)), np.ones(width, dtype).view(np.recarray),
        np.array([1, 0, 1], "M8[s]"), np.array([1, 0, 1], object), np.array(["a", "b", "c"]), b"abc", bytearray(3),
        np.ones(width, [("f", dtype)]), np.ones((1, width), dtype), np.ones((width, 1), dtype),
        np.ones(width + 1, dtype), np.ones(width - 1, dtype), dtype(1), 1, None,
    ]  # fmt: skip


@pytest.mark.parametrize("layout", ["alone", "records", "uneven records"])
@pytest.mark.parametrize("dtype", DTYPES)
def test_put_one_vector_agrees_with_the_table_of_casts(dtype, layout):
    """A20, and nothing else in the memory changes."""
    spec = ArraySpec(3, dtype)
    for value in short_vectors(3, dtype):
        column, memory = rows_of(dtype, 3, layout)
        expected, whole = rows_of(dtype, 3, layout)

        def table(value=value, expected=expected, whole=whole):
            expected[3] = check_array(value, spec, "path/leaf")
            return whole

        put = put_one(column, spec, "path/leaf")
        assert outcome(lambda put=put, value=value, memory=memory: put(3, value) or memory) == outcome(
            table
        ), value


@pytest.mark.parametrize("dtype", DTYPES)
def test_put_lanes_agrees_with_the_table_of_casts(dtype):
    """A20, and nothing else in the records changes."""
    spec = ArraySpec((), dtype)
    for value in short_vectors(3, dtype):
        put, _, memory = lanes_of(spec, "leaf", 3)
        _, column, whole = lanes_of(spec, "leaf", 3)

        def table(value=value, column=column, whole=whole):
            column[1:4] = check_array(value, spec, "leaf", (3,))
            return whole

        assert outcome(lambda put=put, value=value, memory=memory: put(1, value) or memory) == outcome(
            table
        ), value


def test_put_one_takes_a_row_of_the_column_itself():
    column = np.arange(12, dtype=np.float32).reshape(4, 3)
    put = put_one(column, ArraySpec(3, np.float32), "x")
    put(2, column[1])
    put(0, column.reshape(-1)[1:4])
    assert column.tolist() == [[1, 2, 3], [3, 4, 5], [3, 4, 5], [9, 10, 11]]


@pytest.mark.parametrize("width", [0, 1, 511, 512, 513, 5000])
def test_put_one_takes_vectors_of_any_width(width):
    column = np.zeros((3, width))
    put = put_one(column, ArraySpec(width, np.float64), "x")
    put(1, np.arange(width) + 1.0)
    put(2, np.arange(width) + 2)
    assert (column == [np.zeros(width), np.arange(width) + 1, np.arange(width) + 2]).all()
    with pytest.raises(SpecError, match="^x: expected"):
        put(0, np.ones(width + 1))


@pytest.mark.parametrize("width", [(1 << 18) - 1, 1 << 18, (1 << 18) + 1, 5 << 17, (1 << 20) + 3])
def test_put_one_takes_wide_rows(width):
    """They are copied in pieces, of which the last may be short, or past the caches; the rows beside them stay."""
    value = np.random.default_rng(width).integers(0, 256, width, np.uint8)
    for rows, row in itertools.product((3, 2 + (1 << 22) // width), (0, 1)):
        column = np.zeros((rows, width), np.uint8)
        put_one(column, ArraySpec(width, np.uint8), "x")(row, value)
        assert (column[row] == value).all()
        assert not np.delete(column, row, 0).any()


@pytest.mark.parametrize("rows", [3, 6])
@pytest.mark.parametrize("begin", [-(1 << 19), -3, -1, 0, 1, 3, 1 << 19])
def test_put_one_takes_a_wide_row_that_overlaps_its_place(begin, rows):
    """A piece is not written over before it was read."""
    width = (1 << 20) + 16
    column = np.random.default_rng(0).integers(0, 256, (rows, width), np.uint8)
    value = column.reshape(-1)[width + begin : 2 * width + begin]
    expected = value.copy()
    put_one(column, ArraySpec(width, np.uint8), "x")(1, value)
    assert (column[1] == expected).all()


@pytest.mark.parametrize(
    ("lanes", "shape"), list(itertools.product([1, 2, 3, 33], [(), (1,), (2,), (2, 2), (9, 2)]))
)
@pytest.mark.parametrize("dtype", [np.uint8, np.int16, np.float32, np.float64, np.complex128])
def test_put_lanes_takes_one_value_a_lane(lanes, shape, dtype):
    spec = ArraySpec(shape, dtype)
    put, column, _ = lanes_of(spec, "obs", lanes)
    count = lanes * int(np.prod(shape))
    value = (np.arange(count) % 100).astype(dtype).reshape(lanes, *shape) + dtype(1)
    put(3, value)
    assert (column[3 : 3 + lanes] == value).all()
    assert not column[:3].any()
    assert not column[3 + lanes :].any()
    put(3, (value + dtype(1)).tolist())
    assert (column[3 : 3 + lanes] == value + dtype(1)).all()
    if np.can_cast(np.float64, dtype, "same_kind"):
        put(3, value.astype(np.result_type(dtype, np.float64)) + 1)
        assert (column[3 : 3 + lanes] == value + 1).all()
    else:
        with pytest.raises(SpecError, match="never stored as"):
            put(3, value.astype(np.float64))
        assert (column[3 : 3 + lanes] == value + dtype(1)).all()
    put(3, np.asfortranarray(value))
    put(4, value)
    assert (column[3 : 4 + lanes] == [value[0], *value]).all()
    for wrong in (
        dtype(1),
        np.ones(shape, dtype) if lanes > 1 or not shape else np.ones((*shape, 5), dtype),
        np.ones((1, *shape), dtype) if lanes > 1 else np.ones((1, 1, *shape), dtype),
        np.ones((lanes + 1, *shape), dtype),
    ):
        with pytest.raises(SpecError, match="^obs: expected"):
            put(4, wrong)
    with pytest.raises(SpecError, match="^obs: expected an array of numbers"):
        put(4, np.ones((lanes, *shape), "M8[s]"))
    assert (column[4 : 4 + lanes] == value).all()


@pytest.mark.parametrize("value", [np.float64(1e-300), 1e-300, np.float64(1e300)])
def test_put_one_does_not_mind_errstate(value):
    """As the table of casts: what NumPy would say of a cast is not asked."""
    spec = ArraySpec((), np.float32)
    column = np.ones(1, np.float32)
    with np.errstate(all="raise"):
        found = outcome(lambda: put_one(column, spec, "x")(0, value) or column)
    assert found == outcome(lambda: np.asarray(check_array(value, spec, "x"), np.float32).reshape(1))


@pytest.mark.parametrize("copied", [copy.deepcopy, lambda each: cloudpickle.loads(cloudpickle.dumps(each))])
def test_copies_of_row_columns_write_into_copies(copied):
    """Also where a column stands beside them: both copies are one array."""
    column = np.zeros(2, np.int64)
    columns = RowColumns([("x", column, np.asarray)])
    again, beside = copied((columns, column))
    again.put(1, {"x": 7})
    assert beside.tolist() == [0, 7]
    assert column.tolist() == [0, 0]


@pytest.mark.parametrize("value", [7, np.int64(7), np.array(7)])
def test_no_row_beyond_a_column_is_written(value):
    memory = np.zeros(4, np.int64)
    columns = RowColumns([("x", memory[1:3], np.asarray)])
    with pytest.raises(IndexError):
        columns.put(2, {"x": value})
    columns.put(-1, {"x": value})
    assert memory.tolist() == [0, 0, 7, 0]
