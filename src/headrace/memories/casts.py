"""Samples given to a memory: accepted arrays, and casts between dtypes."""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np
import torch

from headrace.arrays import in_native_order

_BOOL, _INTEGER, _FLOAT, _COMPLEX = range(4)


def empty_value(dtype: torch.dtype) -> float | int | bool:
    """Value of a cell without a sample: NaN where the dtype has one, else 0 or False."""
    kind = _kind(dtype)
    if kind >= _FLOAT:
        return float("nan")
    return False if kind == _BOOL else 0


def as_tensor(name: str, value: Any) -> torch.Tensor:
    """Returns a torch tensor or NumPy array as a dense tensor without gradient, without a copy if possible.

    Raises:
        TypeError: the value is neither, or is an array of a dtype that torch lacks.
    """
    if isinstance(value, np.ndarray):
        return _from_numpy(name, value)
    if not isinstance(value, torch.Tensor):
        raise TypeError(f"{name}: expected a torch tensor or a NumPy array, got {type(value).__name__}")
    if value.is_meta:
        raise TypeError(f"{name}: expected a tensor with data, got one on the meta device")
    tensor = value.detach()
    return tensor if tensor.layout is torch.strided else tensor.to_dense()


def check_cast(name: str, tensor: torch.Tensor, dtype: torch.dtype) -> None:
    """Refuses to write `tensor` into `dtype` if values would be lost.

    Casts within a kind or to a wider kind (bool, int, float, complex) are allowed. Integers are cast to a narrower
    integer or to bool if all of them fit.

    Raises:
        ValueError: the cast is refused; the message has the name and both dtypes.
    """
    if tensor.dtype is dtype:
        return
    source, target = _kind(tensor.dtype), _kind(dtype)
    if source > target and not (source == _INTEGER and target == _BOOL):
        raise ValueError(
            f"{name}: expected {dtype}, got {tensor.dtype}, which does not fit; convert it first"
        )
    if source != _INTEGER or target > _INTEGER or tensor.numel() == 0:
        return
    low, high = _range(dtype)
    source_low, source_high = _range(tensor.dtype)
    if low <= source_low and source_high <= high:
        return
    least, most = _extremes(tensor)
    if least < low or most > high:
        raise ValueError(
            f"{name}: expected {dtype}, which holds {low} to {high}, "
            f"got {tensor.dtype} with values {least} to {most}"
        )


def _extremes(tensor: torch.Tensor) -> tuple[int, int]:
    if tensor.dtype in (torch.uint16, torch.uint32, torch.uint64):  # torch has no minimum of these
        array = tensor.cpu().numpy()
        return int(array.min()), int(array.max())
    least, most = torch.aminmax(tensor)
    return int(least), int(most)


@cache
def has_numpy_dtype(dtype: torch.dtype) -> bool:
    """Whether NumPy has this dtype too."""
    try:
        torch.empty(0, dtype=dtype).numpy()
    except TypeError:
        return False
    return True


@cache
def _kind(dtype: torch.dtype) -> int:
    if dtype is torch.bool:
        return _BOOL
    if dtype.is_complex:
        return _COMPLEX
    return _FLOAT if dtype.is_floating_point else _INTEGER


@cache
def _range(dtype: torch.dtype) -> tuple[int, int]:
    if dtype is torch.bool:
        return 0, 1
    info = torch.iinfo(dtype)
    return info.min, info.max


def _from_numpy(name: str, array: np.ndarray[Any, Any]) -> torch.Tensor:
    # torch refuses byte-swapped and reversed arrays, and warns of read-only ones.
    array = in_native_order(array)
    if not array.flags.writeable or any(stride < 0 for stride in array.strides):
        array = np.array(array, order="C")
    try:
        return torch.from_numpy(array)
    except (TypeError, ValueError):
        raise TypeError(f"{name}: expected an array of a dtype that torch has, got {array.dtype}") from None
