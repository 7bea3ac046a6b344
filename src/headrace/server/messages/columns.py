"""Arrays behind a message: raw little-endian values, one array after the other."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from headrace.leases.frames import Payload


class Form(NamedTuple):
    """The form of one array.

    Attributes:
        shape: of the array.
        dtype: of the array.
    """

    shape: tuple[int, ...]
    dtype: np.dtype[Any]


def packed_arrays(arrays: Iterable[NDArray[Any]]) -> bytes:
    r"""Returns the payload that holds these arrays.

    >>> packed_arrays([np.array([1, 2], np.int16), np.array(True)])
    b'\x01\x00\x02\x00\x01'
    """
    return b"".join(
        np.ascontiguousarray(array, array.dtype.newbyteorder("<")).reshape(-1).view(np.uint8).data
        for array in arrays
    )


def unpacked_numbers(name: str, data: Payload, dtype: np.dtype[Any]) -> NDArray[Any]:
    r"""Returns the numbers in some bytes of a message, in their memory.

    Raises:
        ValueError: not a whole number of them.

    >>> unpacked_numbers("lanes", b"\x01\x00\x02\x00", np.dtype("<i2"))
    array([1, 2], dtype=int16)
    """
    if len(data) % dtype.itemsize:
        raise ValueError(f"{name}: expected numbers of {dtype.itemsize} bytes each, got {len(data)} bytes")
    return np.frombuffer(data, dtype)


def unpacked_arrays(payload: Payload, forms: Sequence[Form]) -> list[NDArray[Any]]:
    """Returns the arrays of a payload, in its memory.

    Raises:
        ValueError: the payload does not have the length of these arrays.
    """
    sizes = [math.prod(form.shape) * form.dtype.itemsize for form in forms]
    if len(payload) != sum(sizes):
        raise ValueError(f"payload: expected {sum(sizes)} bytes, got {len(payload)}")
    arrays, offset = [], 0
    for form, size in zip(forms, sizes, strict=True):
        flat = np.frombuffer(payload, form.dtype.newbyteorder("<"), math.prod(form.shape), offset)
        arrays.append(flat.reshape(form.shape))
        offset += size
    return arrays


def checked_bools(array: NDArray[Any]) -> NDArray[Any]:
    """Returns an array that a peer has written; a byte of a bool that is neither 0 nor 1 is True, in a copy.

    >>> checked_bools(np.array([0, 1, 7], np.uint8).view(np.bool_)).view(np.uint8)
    array([0, 1, 1], dtype=uint8)
    """
    return array.view(np.uint8) != 0 if array.dtype.kind == "b" else array
