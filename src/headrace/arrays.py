"""One array: its spec, and the casts with which values may be stored in it.

The table of casts is only in this file. It depends on kinds, not on values: 2.0 is refused for an integer leaf, because
2.9 would be.
"""

# Rules: accumulator A20

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, SupportsIndex

import numpy as np
from numpy.typing import DTypeLike, NDArray

from headrace.errors import SpecError

# Kinds in the order of accumulator A20: a value is cast to its own kind or to a later one.
_RANK = {"b": 0, "i": 1, "u": 1, "f": 2, "c": 3}
# Types that np.asarray reads without looking at devices.
_PLAIN = (bool, int, float, complex, str, bytes, list, tuple, np.generic, np.ndarray)


@dataclass(frozen=True, slots=True, init=False, repr=False)
class ArraySpec:
    """Shape and dtype of one array, without any leading axes of a batch.

    Args:
        shape: an int (one axis), or the sizes of the axes.
        dtype: boolean, integer, float or complex; anything that `numpy.dtype` takes. Stored in the machine's byte
            order.

    Raises:
        SpecError: a size is negative or not an integer; the dtype is a string, object, date or record.

    >>> ArraySpec((84, 84), "uint8")
    uint8[84, 84]
    >>> ArraySpec(3, float).nbytes
    24
    """

    shape: tuple[int, ...]
    dtype: np.dtype[Any]

    def __init__(self, shape: SupportsIndex | Iterable[SupportsIndex], dtype: DTypeLike) -> None:
        object.__setattr__(self, "shape", _as_shape(shape))
        object.__setattr__(self, "dtype", _as_dtype(dtype))

    @property
    def nbytes(self) -> int:
        """Bytes of one array."""
        return math.prod(self.shape) * self.dtype.itemsize

    def __repr__(self) -> str:
        return _describe(self.shape, self.dtype)

    def __reduce__(self) -> tuple[Any, ...]:
        return ArraySpec, (self.shape, self.dtype)


def check_array(value: Any, spec: ArraySpec, path: str, leading: tuple[int, ...] = ()) -> NDArray[Any]:
    """Returns `value` as an array of `spec.dtype` and shape `leading + spec.shape`, or refuses it.

    Casts go from bool to integer, float and complex, from integer to float and complex, and from float to complex.
    Integers are cast to another integer dtype if every value fits. A narrower float or complex dtype accepts values
    that do not become infinite. Nothing is broadcast.

    Args:
        value: an array, a scalar, nested lists of numbers, or a torch or JAX array on the CPU.
        spec: shape and dtype of one array.
        path: path of the value in its tree; an error message begins with it.
        leading: axes before those of `spec`, such as `(lanes,)`.

    Returns:
        The input itself if it fits already, else a new array.

    Raises:
        SpecError: the value does not fit; the message has the path, the expected and the given form.

    >>> check_array(7, ArraySpec((), "uint8"), "action")
    array(7, dtype=uint8)
    >>> check_array(2.0, ArraySpec((), "uint8"), "action")
    Traceback (most recent call last):
        ...
    headrace.errors.SpecError: action: expected uint8[], got float64[]: float is never stored as integer
    """
    # Rules: accumulator A20
    wanted = leading + spec.shape
    if type(value) is np.ndarray and value.dtype == spec.dtype and value.shape == wanted:
        return value
    array = as_array(value, path)
    if array.shape != wanted:
        raise _refusal(path, wanted, spec, array, "nothing is broadcast")
    if array.dtype == spec.dtype:
        return array
    reason = _kind_refusal(array.dtype, spec.dtype)
    if reason is not None:
        raise _refusal(path, wanted, spec, array, reason)
    return _cast(array, spec, path, wanted)


def as_array(value: Any, path: str) -> NDArray[Any]:
    """Returns `value` as a boolean or numeric array.

    Raises:
        SpecError: strings, objects, dates, ragged lists, and arrays that are not on the CPU.
    """
    # Rules: accumulator A4, A17, A32
    if not isinstance(value, _PLAIN):
        _refuse_other_device(value, path)
    try:
        array = np.asarray(value)
    except Exception as error:
        # A ragged list, a tensor that needs a gradient, a tracer: each library has its own error.
        raise SpecError(
            f"{path}: expected an array of numbers, got {type(value).__name__}: {error}"
        ) from error
    if array.dtype.kind not in _RANK:
        if (large := _larger_than_64_bits(array)) is not None:
            raise SpecError(
                f"{path}: expected integers of at most 64 bits, got {large}; a column of floats takes float(value)"
            )
        got = type(value).__name__ if array.shape == () else f"{type(value).__name__} of dtype {array.dtype}"
        raise SpecError(f"{path}: expected an array of numbers or booleans, got {got}")
    return array


def row_bytes(rows: NDArray[Any]) -> NDArray[np.uint8]:
    """Returns the bytes of each row, `[rows, bytes]`, to compare rows bit by bit."""
    return np.ascontiguousarray(rows).reshape(len(rows), math.prod(rows.shape[1:])).view(np.uint8)


def in_native_order(array: NDArray[Any]) -> NDArray[Any]:
    """Returns the array, or a copy in the machine's byte order if it has another one.

    >>> in_native_order(np.array([1, 2], ">i4")).dtype.isnative
    True
    """
    return array if array.dtype.isnative else array.astype(array.dtype.newbyteorder("="))


def _larger_than_64_bits(array: NDArray[Any]) -> int | None:
    """Returns the first integer that no dtype holds, if all objects of the array are numbers; else None."""
    values = array.reshape(-1).tolist() if array.dtype.kind == "O" else []
    if not all(isinstance(value, int | float) for value in values):
        return None
    return next((value for value in values if isinstance(value, int) and not -(2**63) <= value < 2**64), None)


def _cast(array: NDArray[Any], spec: ArraySpec, path: str, wanted: tuple[int, ...]) -> NDArray[Any]:
    if np.can_cast(array.dtype, spec.dtype, "safe"):
        return array.astype(spec.dtype)
    if _RANK[spec.dtype.kind] == 1:
        limits = np.iinfo(spec.dtype)
        if array.size and (array.min() < limits.min or array.max() > limits.max):
            reason = f"values from {array.min()} to {array.max()} do not fit {limits.min} to {limits.max}"
            raise _refusal(path, wanted, spec, array, reason)
        return array.astype(spec.dtype)
    with np.errstate(all="ignore"):
        narrowed = array.astype(spec.dtype)
    if not np.isfinite(narrowed).all() and (
        _some_became_infinite(array.real, narrowed.real) or _some_became_infinite(array.imag, narrowed.imag)
    ):
        raise _refusal(
            path, wanted, spec, array, f"a finite value would become infinite in {spec.dtype.name}"
        )
    return narrowed


def _some_became_infinite(parts: NDArray[Any], narrowed: NDArray[Any]) -> bool:
    return bool((np.isinf(narrowed) & np.isfinite(parts)).any())


def _kind_refusal(source: np.dtype[Any], target: np.dtype[Any]) -> str | None:
    names = ("bool", "integer", "float", "complex")
    source_rank, target_rank = _RANK[source.kind], _RANK[target.kind]
    if source_rank <= target_rank:
        return None
    return f"{names[source_rank]} is never stored as {names[target_rank]}"


def _refuse_other_device(value: Any, path: str) -> None:
    device = getattr(value, "device", None)
    kind = getattr(device, "type", None)
    platforms = {kind} if isinstance(kind, str) else set()
    devices = getattr(value, "devices", None)
    if callable(devices):
        # np.asarray would silently fetch a JAX array from any device, with a wait for the device at each step.
        platforms |= {getattr(each, "platform", "cpu") for each in devices()}
    if platforms - {"cpu"}:
        where = ", ".join(sorted(platforms - {"cpu"}))
        raise SpecError(
            f"{path}: expected an array on the CPU, got {type(value).__name__} on {where}; move it first"
        )


def _refusal(
    path: str, wanted: tuple[int, ...], spec: ArraySpec, array: NDArray[Any], reason: str
) -> SpecError:
    expected, got = _describe(wanted, spec.dtype), _describe(array.shape, array.dtype)
    return SpecError(f"{path}: expected {expected}, got {got}: {reason}")


def _describe(shape: tuple[int, ...], dtype: np.dtype[Any]) -> str:
    return f"{dtype.name}[{', '.join(map(str, shape))}]"


def _as_shape(shape: SupportsIndex | Iterable[SupportsIndex]) -> tuple[int, ...]:
    given = shape if isinstance(shape, Iterable) else (shape,)
    try:
        sizes = tuple(size.__index__() for size in given)
    except (AttributeError, TypeError) as error:
        raise SpecError(f"shape: expected integers, got {shape!r}") from error
    if any(size < 0 for size in sizes):
        raise SpecError(f"shape: expected sizes of 0 or more, got {sizes}")
    return sizes


def _as_dtype(dtype: DTypeLike | None) -> np.dtype[Any]:
    try:
        found = np.dtype(dtype)
    except (TypeError, ValueError) as error:
        raise SpecError(f"dtype: expected a NumPy dtype, got {dtype!r}") from error
    # np.dtype(None) is float64: a forgotten dtype would not be noticed.
    if dtype is None or found.kind not in _RANK:
        raise SpecError(f"dtype: expected bool, integer, float or complex, got {dtype!r}")
    # The shared dtype object in the machine's byte order: `is` compares it, which is quick.
    return np.dtype(found.type)
