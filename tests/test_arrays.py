"""Specs of one array, and the table of casts (accumulator A20) against a plain reading of it."""

import math
import pickle
import time
import timeit
import warnings

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from headrace.arrays import ArraySpec, as_array, check_array
from headrace.errors import SpecError

DTYPES = [
    "bool", "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64",
    "float16", "float32", "float64", "complex64", "complex128",
]  # fmt: skip
VALUES = {
    "b": [False, True],
    "i": [
        0,
        1,
        -1,
        127,
        128,
        -128,
        -129,
        255,
        256,
        32767,
        65535,
        70000,
        2**31 - 1,
        2**31,
        -(2**31),
        2**32 - 1,
        2**62,
    ],
    "u": [0, 1, 127, 128, 255, 256, 65535, 65536, 2**31, 2**32 - 1, 2**63 - 1, 2**64 - 1],
    "f": [
        0.0,
        -0.0,
        1.0,
        2.0,
        2.9,
        -7.25,
        1e-30,
        65504.0,
        70000.0,
        1e39,
        -1e300,
        math.inf,
        -math.inf,
        math.nan,
    ],
    "c": [
        0j,
        1 + 0j,
        2.5 - 3j,
        1e39 + 0j,
        1e300j,
        complex(1e39, math.inf),
        complex(math.inf, 1),
        complex(math.nan, 0),
    ],
}


def fits(value, dtype):
    """Accumulator A20, read aloud for one value and one dtype."""
    kind = np.dtype(dtype).kind
    if isinstance(value, bool):
        return True
    if isinstance(value, int):
        if kind in "iu":
            return np.iinfo(dtype).min <= value <= np.iinfo(dtype).max
        return kind in "fc" and not becomes_infinite(float(value), dtype)
    if isinstance(value, float):
        return kind in "fc" and not becomes_infinite(value, dtype)
    return kind == "c" and not becomes_infinite(value.real, dtype) and not becomes_infinite(value.imag, dtype)


def becomes_infinite(part, dtype):
    """Whether rounding to nearest leaves the range: half a step past the greatest value, and beyond."""
    info = np.finfo(dtype)
    half_a_step = math.ldexp(1.0, info.maxexp - info.nmant - 2)
    return math.isfinite(part) and info.bits < 64 and abs(part) >= float(info.max) + half_a_step


def cases():
    for source in DTYPES:
        for value in VALUES[np.dtype(source).kind]:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                try:
                    array = np.array(value, source)
                except OverflowError:
                    continue
            yield array


@pytest.mark.parametrize("target", DTYPES)
def test_the_table_of_casts_is_a20(target):
    spec = ArraySpec((), target)
    for array in cases():
        if fits(array.item(), target):
            stored = check_array(array, spec, "x")
            assert stored.dtype == target
            with np.errstate(all="ignore"):
                np.testing.assert_array_equal(stored, array.astype(target))
        else:
            with pytest.raises(SpecError, match=rf"^x: expected {target}\[\], got {array.dtype}\[\]: "):
                check_array(array, spec, "x")


@given(st.data(), st.sampled_from(DTYPES), st.sampled_from(DTYPES))
def test_an_array_fits_when_each_of_its_values_does(data, source, target):
    array = data.draw(hnp.arrays(source, hnp.array_shapes(min_dims=0, max_dims=2, min_side=0, max_side=3)))
    ranks = ["b", "iu", "f", "c"]
    kinds_allow = [np.dtype(d).kind in r for d in (source, target) for r in ranks]
    kinds_allow = kinds_allow[:4].index(True) <= kinds_allow[4:].index(True)
    spec = ArraySpec(array.shape, target)
    if kinds_allow and all(fits(value, target) for value in array.ravel().tolist()):
        stored = check_array(array, spec, "x")
        assert (stored.dtype, stored.shape) == (np.dtype(target), array.shape)
        with np.errstate(all="ignore"):
            np.testing.assert_array_equal(stored, array.astype(target))
    else:
        with pytest.raises(SpecError):
            check_array(array, spec, "x")


@pytest.mark.parametrize("value", [7, np.int64(7), True, [[7]][0][0]])
def test_integers_are_judged_by_value(value):
    assert check_array(value, ArraySpec((), "uint8"), "x").dtype == np.uint8


@pytest.mark.parametrize("value", [256, -1, 2.9, 2.0, math.nan, 2**70, np.float32(3)])
def test_what_does_not_go_into_uint8(value):
    with pytest.raises(SpecError, match="^grip/force: expected "):
        check_array(value, ArraySpec((), "uint8"), "grip/force")


@pytest.mark.parametrize(
    "value",
    ["a", b"a", np.array(["a"]), None, object(), {"a": 1}, {1, 2}, np.datetime64("2024-01-01"), np.timedelta64(3, "s"),
     np.array([None, 1], dtype=object), [[1, 2], [3]], [1, "a"], np.zeros(2, [("a", "i4")])],
)  # fmt: skip
def test_strings_objects_dates_and_ragged_lists_never_go_in(value):
    for dtype in DTYPES:
        with pytest.raises(SpecError, match="^a/b: expected an array of numbers"):
            check_array(value, ArraySpec((), dtype), "a/b")


@given(
    hnp.array_shapes(min_dims=0, max_dims=3, min_side=0, max_side=3),
    hnp.array_shapes(min_dims=0, max_dims=3, min_side=0, max_side=3),
    st.integers(0, 3),
)
def test_nothing_is_broadcast(shape, other, axes):
    leading, own = shape[:axes], shape[axes:]
    spec = ArraySpec(own, "float32")
    if shape == other:
        assert check_array(np.ones(other), spec, "x", leading).shape == shape
    else:
        with pytest.raises(SpecError, match="nothing is broadcast"):
            check_array(np.ones(other), spec, "x", leading)


def test_the_message_has_path_expected_and_got():
    with pytest.raises(SpecError) as caught:
        check_array(np.zeros((2, 3)), ArraySpec(4, "float32"), "obs/camera", leading=(2,))
    assert str(caught.value) == "obs/camera: expected float32[2, 4], got float64[2, 3]: nothing is broadcast"


def test_the_input_comes_back_when_nothing_is_to_be_done():
    array = np.zeros((2, 3), np.float32)
    assert check_array(array, ArraySpec(3, "float32"), "x", (2,)) is array
    assert check_array(array[:, ::-1], ArraySpec(3, "float32"), "x", (2,)).base is array


def test_a_cast_never_writes_to_its_input_and_says_nothing():
    array = np.array([1.5, math.inf, math.nan])
    stored = check_array(array, ArraySpec(3, "float32"), "x")
    assert not np.shares_memory(stored, array)
    np.testing.assert_array_equal(stored, [1.5, math.inf, math.nan])


def test_foreign_byte_order_becomes_the_machines():
    stored = check_array(np.arange(3, dtype=">i4"), ArraySpec(3, "int32"), "x")
    assert stored.dtype.isnative
    assert stored.tolist() == [0, 1, 2]
    assert ArraySpec(3, ">f4") == ArraySpec(3, "<f4")


def test_lists_of_numbers_and_arrays_of_subclasses_are_arrays():
    assert check_array([1.0, 2.0], ArraySpec(2, "float32"), "x").tolist() == [1.0, 2.0]
    assert type(check_array(np.zeros(2).view(np.recarray), ArraySpec(2, "float64"), "x")) is np.ndarray


def test_the_fast_path_is_fast():
    array, spec = np.zeros(4, np.float32), ArraySpec(4, "float32")
    rounds = timeit.repeat(
        lambda: check_array(array, spec, "x"), timer=time.thread_time, number=200, repeat=50
    )
    assert min(rounds) / 200 < 1e-6


def test_torch_arrays_on_the_cpu_go_in_and_others_say_to_move():
    torch = pytest.importorskip("torch")
    assert check_array(torch.arange(3), ArraySpec(3, "float32"), "x").tolist() == [0.0, 1.0, 2.0]
    with pytest.raises(
        SpecError, match="^act: expected an array on the CPU, got Tensor on meta; move it first"
    ):
        as_array(torch.zeros(3, device="meta"), "act")
    with pytest.raises(SpecError, match=r"^act: expected an array of numbers, got Tensor: .*detach"):
        as_array(torch.zeros(3, requires_grad=True), "act")


class DeviceArray:
    """Stands for a JAX array: `devices()` says where it is, and `np.asarray` fetches it from anywhere."""

    def __init__(self, *platforms):
        self.platforms = platforms

    def devices(self):
        return {type("Device", (), {"platform": platform})() for platform in self.platforms}

    def __array__(self, dtype=None, copy=None):
        return np.ones(2, np.float32)


def test_jax_arrays_on_the_cpu_go_in_and_others_say_to_move():
    assert as_array(DeviceArray("cpu"), "x").tolist() == [1.0, 1.0]
    with pytest.raises(
        SpecError, match="^x: expected an array on the CPU, got DeviceArray on gpu; move it first"
    ):
        as_array(DeviceArray("cpu", "gpu"), "x")


def test_real_jax_arrays_go_in():
    jax = pytest.importorskip("jax")
    assert check_array(jax.numpy.ones(2), ArraySpec(2, "float64"), "x").tolist() == [1.0, 1.0]


@pytest.mark.parametrize(
    ("shape", "expected"),
    [(3, (3,)), ((), ()), ([2, 3], (2, 3)), (np.int32(4), (4,)), (iter((1, 0)), (1, 0))],
)
def test_shapes_are_given_as_an_int_or_as_sizes(shape, expected):
    spec = ArraySpec(shape, "int16")
    assert spec.shape == expected
    assert all(type(size) is int for size in spec.shape)
    assert spec.nbytes == 2 * math.prod(expected)


@pytest.mark.parametrize("shape", [-1, (2, -3), 2.0, "3", None, (1, None), [[1]]])
def test_other_shapes_are_refused(shape):
    with pytest.raises(SpecError, match="^shape: expected "):
        ArraySpec(shape, "int16")


@pytest.mark.parametrize(
    "dtype", [str, object, "U3", "S3", "M8[s]", "m8[s]", "V4", [("a", "i4")], None, "what", 3]
)
def test_other_dtypes_are_refused(dtype):
    with pytest.raises(SpecError, match="^dtype: expected "):
        ArraySpec(3, dtype)


def test_a_spec_is_a_value():
    spec = ArraySpec((84, 84), np.float32)
    assert repr(spec) == "float32[84, 84]"
    assert repr(ArraySpec((), bool)) == "bool[]"
    assert spec == ArraySpec([84, 84], "float32") != ArraySpec((84, 84), "float64")
    assert len({spec, ArraySpec((84, 84), "f4"), ArraySpec(84, "f4")}) == 2
    assert pickle.loads(pickle.dumps(spec)) == spec
    with pytest.raises(AttributeError):
        spec.shape = (1,)
