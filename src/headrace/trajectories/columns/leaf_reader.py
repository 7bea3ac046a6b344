"""Reads one tree into leaves that are ready to be stored, quickly, because one comes at every step.

Arrays of the exact dtype and shape and plain numbers pass at once. All other values take the general way, by the
one table of casts in `headrace.arrays`.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Sequence
from operator import itemgetter
from typing import Any, TypeGuard

import numpy as np

from headrace.spec import ArraySpec, as_array, check_array
from headrace.trees import Branch, Leaf, Node, collect

Array = np.ndarray[Any, Any]
Reader = Callable[[Any], Sequence[Any]]
# Types of number, and the range in which they can be stored without a closer look.
Numbers = tuple[frozenset[type], Any, Any]

_NO_NUMBERS: Numbers = (frozenset(), 0, 0)


class LeafCheck:
    """Checks the values of one leaf before they are stored.

    Args:
        path: the leaf's path, for messages.
        spec: shape and dtype to store.
        also: one more shape with as many elements that is accepted.
    """

    __slots__ = ("_also", "dtype", "high", "low", "path", "scalars", "shape", "spec")

    def __init__(self, path: str, spec: ArraySpec, also: tuple[int, ...] | None = None) -> None:
        self.path = path
        # The one object that arrays of this dtype share, so that `is` finds it.
        self.dtype = np.dtype(spec.dtype.type)
        self.shape = spec.shape
        self.spec = spec
        self._also = spec.shape if also is None else also
        self.scalars, self.low, self.high = _plain_numbers(spec.dtype) if spec.shape == () else _NO_NUMBERS

    def check(self, value: Any) -> Array:
        """Returns the value as an array of the leaf's dtype and shape.

        Raises:
            SpecError: with the path, what was expected and what came.
        """
        array = as_array(value, self.path)
        if array.shape == self._also:
            array = array.reshape(self.shape)
        return check_array(array, self.spec, self.path)


def checked(leaves: Sequence[LeafCheck], values: Sequence[Any]) -> Sequence[Any]:
    """Returns the values, one a leaf, each ready to be assigned to an entry of its leaf's dtype and shape.

    Raises:
        SpecError: with the path of the first that does not fit.
    """
    # Nearly all values of an actor's steps are arrays of the exact dtype and shape, or plain numbers.
    # The lengths are equal by construction, and asking zip for it costs as much as one leaf.
    for leaf, value in zip(leaves, values):  # noqa: B905
        if type(value) is np.ndarray:
            if value.dtype is leaf.dtype and value.shape == leaf.shape:
                continue
        elif type(value) in leaf.scalars and leaf.low <= value <= leaf.high:
            continue
        return [each.check(value) for each, value in zip(leaves, values, strict=True)]
    return values


def checked_reader(node: Node, leaves: Sequence[LeafCheck]) -> Reader:
    """Returns a function that takes a tree apart and checks its leaves: `checked(leaves, reader(node)(tree))`.

    A tree that is one bare array passes without any loop, which costs as much as the rest.
    """
    read = reader(node)

    def many(data: Any) -> Sequence[Any]:
        return checked(leaves, read(data))

    if not isinstance(node, Leaf):
        return many
    leaf = leaves[0]
    dtype, shape = leaf.dtype, leaf.shape

    def bare(data: Any) -> Sequence[Any]:
        if type(data) is np.ndarray and data.dtype is dtype and data.shape == shape:
            return (data,)
        return checked(leaves, (data,))

    return bare


def _plain_numbers(dtype: np.dtype[Any]) -> Numbers:
    match dtype.kind:
        case "b":
            return frozenset({bool, np.bool_}), False, True
        case "i" | "u":
            return frozenset({int, dtype.type}), int(np.iinfo(dtype).min), int(np.iinfo(dtype).max)
        case "f" if dtype.itemsize <= 8:
            largest = float(np.finfo(dtype).max)
            return frozenset({float, np.float64, dtype.type}), -largest, largest
    return _NO_NUMBERS


def reader(node: Node) -> Reader:
    """Returns a function that takes a tree apart into its leaves, in the order of the columns."""

    def general(data: Any) -> Sequence[Any]:
        found: dict[str, Any] = {}
        collect(node, data, found)
        return list(found.values())

    if isinstance(node, Leaf):
        return lambda data: (data,)
    if not is_flat_dict(node):
        return _container_reader(node, general)
    size, get = len(node.names), _values_of(node.names)

    def flat(data: Any) -> Sequence[Any]:
        if type(data) is dict and len(data) == size:
            try:
                return get(data)
            except KeyError:
                pass  # The general way says what is missing.
        return general(data)

    return flat


def _values_of(names: Sequence[str]) -> Callable[[Any], Sequence[Any]]:
    """Returns a function for the values of these keys of a dict; `itemgetter` gives a tuple for two or more."""
    return itemgetter(*names) if len(names) > 1 else lambda data: tuple(data[name] for name in names)


def is_flat_dict(node: Node) -> TypeGuard[Branch]:
    """Whether it is one dict of leaves."""
    return (
        isinstance(node, Branch)
        and node.kind == "dict"
        and all(isinstance(child, Leaf) for child in node.children)
    )


def _container_reader(node: Branch, general: Reader) -> Reader:
    """Returns a reader of containers that follows the known kinds; `general` reads all others."""
    follow = _follower(node)
    if follow is None:
        return general

    def nested(data: Any) -> Sequence[Any]:
        found: list[Any] = []
        try:
            if follow(data, found):
                return found
        except KeyError:
            pass  # The general way says what is missing.
        return general(data)

    return nested


def _follower(node: Branch) -> Callable[[Any, list[Any]], bool] | None:
    """Returns a function that adds a tree's leaves to a list or returns False; None for unknown containers."""
    # Asking a `defaultdict` for a key that it lacks would add the key.
    if node.kind not in ("dict", "tuple", "list", "namedtuple") or node.cls is defaultdict:
        return None
    cls: type[Any] = node.cls
    size = len(node.names)
    follows = []
    for child in node.children:
        follow = None if isinstance(child, Leaf) else _follower(child)
        if follow is None and not isinstance(child, Leaf):
            return None
        follows.append(follow)
    values_of: Callable[[Any], Any] = iter
    if node.kind == "dict":
        values_of = _values_of(node.names)

    def add(data: Any, found: list[Any]) -> bool:
        if type(data) is not cls or len(data) != size:
            return False
        # The lengths are equal by construction.
        for value, follow in zip(values_of(data), follows):  # noqa: B905
            if follow is None:
                found.append(value)
            elif not follow(value, found):
                return False
        return True

    return add
