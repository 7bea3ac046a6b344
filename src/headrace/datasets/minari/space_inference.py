"""The spaces of observations and actions, from their arrays, where nobody gives them."""

# Rules: datasets K7

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from gymnasium import Space, spaces

from headrace import trees
from headrace.datasets.exporting.structure import Column, describe
from headrace.errors import SpecError

Array = np.ndarray[Any, Any]

_INT64 = np.iinfo(np.int64)


class SpaceInference:
    """Sees the arrays of every episode, then gives the smallest space of the rules that holds them all.

    Dict and Tuple for containers; MultiBinary for arrays of booleans; Box for floats (unbounded) and for arrays of
    integers (the dtype's range, so 0..255 for uint8); Discrete from the least value (at most 0) to the greatest for
    single integers, Discrete(2) for single booleans; Text for strings.

    Args:
        node: the tree, with columns' names at the leaves.
        columns: what is known of each.

    Raises:
        SpecError: numbers that no space holds.

    >>> node = trees.compile_tree("actions", lambda value: isinstance(value, str))
    >>> inference = SpaceInference(node, {"actions": Column("actions", np.dtype("int64"), ())})
    >>> inference.see(0, {"actions": np.array([0, 2, 1])})
    >>> inference.space()
    Discrete(3)
    """

    def __init__(self, node: trees.Node, columns: Mapping[str, Column]) -> None:
        self._node = node
        self._leaves = {leaf.value: _leaf_for(columns[leaf.value]) for leaf in trees.leaves(node)}

    def see(self, _: int, arrays: Mapping[str, Array]) -> None:
        """Take in one episode."""
        for path, leaf in self._leaves.items():
            leaf.see(arrays[path])

    def space(self) -> Space[Any]:
        """The space of all that was seen."""
        return self._space(self._node)

    def _space(self, node: trees.Node) -> Space[Any]:
        if isinstance(node, trees.Leaf):
            return self._leaves[node.value].space()
        if node.kind in ("tuple", "namedtuple"):
            return spaces.Tuple([self._space(child) for child in node.children])
        return spaces.Dict(
            {name: self._space(child) for name, child in zip(node.names, node.children, strict=True)}
        )


class _Fixed:
    """An array whose dtype and shape say it all."""

    def __init__(self, column: Column) -> None:
        self._column = column

    def see(self, _: Array) -> None:
        """Its values change nothing."""

    def space(self) -> Space[Any]:
        dtype, shape = self._column.dtype.newbyteorder("="), self._column.shape
        if dtype.kind == "f":
            return spaces.Box(-np.inf, np.inf, shape, dtype)
        if dtype.kind == "b":
            # A MultiBinary of no places does not exist.
            return (
                spaces.MultiBinary(shape[0] if len(shape) == 1 else shape)
                if all(shape)
                else spaces.Box(0, 1, shape, dtype)
            )
        return spaces.Box(int(np.iinfo(dtype).min), int(np.iinfo(dtype).max), shape, dtype)


class _Whole:
    """Single integers or booleans."""

    def __init__(self, column: Column) -> None:
        self._column = column
        self._least, self._greatest = 0, int(column.dtype.kind == "b")

    def see(self, array: Array) -> None:
        self._least = min(self._least, int(array.min()))
        self._greatest = max(self._greatest, int(array.max()))

    def space(self) -> Space[Any]:
        size = self._greatest - self._least + 1
        if self._greatest > _INT64.max or size > _INT64.max:  # More than Discrete counts.
            return _Fixed(self._column).space()
        return spaces.Discrete(size, start=self._least)


class _Text:
    """Single strings."""

    def __init__(self) -> None:
        self._longest = 1
        self._characters: set[str] = set()

    def see(self, array: Array) -> None:
        texts = np.unique(array).tolist()
        decoded = [text.decode("utf-8", "replace") if isinstance(text, bytes) else text for text in texts]
        self._longest = max(self._longest, *map(len, decoded))
        self._characters.update(*decoded)

    def space(self) -> Space[Any]:
        return spaces.Text(self._longest, min_length=0, charset="".join(sorted(self._characters)))


def _leaf_for(column: Column) -> _Fixed | _Whole | _Text:
    kind, is_single = column.dtype.kind, column.shape == ()
    if kind in "US" and is_single:
        return _Text()
    if kind in "biu" and is_single:
        return _Whole(column)
    if kind in "biuf":
        return _Fixed(column)
    got = describe(column.dtype, column.shape)
    raise SpecError(
        f"{column.path}: expected real numbers, booleans or one string a step, got {got}: no space holds it"
    )
