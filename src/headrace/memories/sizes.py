"""The shape of one sample, from an int, a sequence of ints, or a space of gymnasium or gym."""

from __future__ import annotations

import math
import operator
from typing import Any

from headrace.checks import shown

_SPACES = ("Box", "Discrete", "MultiDiscrete", "MultiBinary", "Dict", "Tuple")


def positive_integer(value: Any, name: str) -> int:
    """`value` as an int that is at least 1.

    Raises:
        TypeError: it is not an integer.
        ValueError: it is less than 1.
    """
    if isinstance(value, bool):
        raise TypeError(f"{name}: expected an integer, got {shown(value)}")
    try:
        number = operator.index(value)
    except TypeError:
        raise TypeError(f"{name}: expected an integer, got {shown(value)}") from None
    if number < 1:
        raise ValueError(f"{name}: expected at least 1, got {number}")
    return number


def flat_size(size: Any) -> tuple[int, ...]:
    """The shape of one sample as a vector: the number of elements of `size`.

    A discrete choice is one element (its number), not a one-hot vector.

    Raises:
        ValueError: a part of it is less than 1, or it is something else.
    """
    return (_number_of_elements(size),)


def kept_size(size: Any) -> tuple[int, ...]:
    """The shape of one sample with the dimensions that `size` gives it.

    Raises:
        ValueError: as `flat_size`, or a Dict or Tuple space, which has no one shape.
    """
    kind = _space_kind(size)
    if kind in ("Dict", "Tuple"):
        raise ValueError(f"size: a {kind} space has no one shape; leave out keep_dimensions, got {size}")
    if kind is not None:
        return _space_shape(kind, size)
    return _integers(size)


def _number_of_elements(size: Any) -> int:
    kind = _space_kind(size)
    if kind == "Dict":
        children = list(size.spaces.values())
    elif kind == "Tuple":
        children = list(size.spaces)
    else:
        return math.prod(_integers(size) if kind is None else _space_shape(kind, size))
    return _at_least_one(sum(_number_of_elements(child) for child in children), size)


def _space_kind(size: Any) -> str | None:
    # By name, so that neither gymnasium nor gym is imported; derived spaces count as what they derive from.
    for cls in type(size).__mro__:
        if cls.__module__.split(".")[0] in ("gymnasium", "gym") and cls.__name__ in _SPACES:
            return cls.__name__
    return None


def _space_shape(kind: str, space: Any) -> tuple[int, ...]:
    shape = (1,) if kind == "Discrete" else tuple(int(length) for length in space.shape)
    for length in shape:
        _at_least_one(length, space)
    return shape


def _integers(size: Any) -> tuple[int, ...]:
    lengths = size if isinstance(size, tuple | list) else (size,)
    try:
        return tuple(positive_integer(length, "size") for length in lengths)
    except TypeError:
        raise ValueError(
            "size: expected an int, a sequence of ints, or a Box, Discrete, MultiDiscrete, MultiBinary, "
            f"Dict or Tuple space, got {shown(size)}"
        ) from None


def _at_least_one(length: int, size: Any) -> int:
    if length < 1:
        raise ValueError(f"size: expected at least 1 element, got {shown(size)}")
    return length
