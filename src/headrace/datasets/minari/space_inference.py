"""Spaces of observations and actions, inferred from their arrays."""

# Rules: datasets K7

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from gymnasium import Space, spaces

from headrace import trees
from headrace.datasets.exporting.structure import Array, Column
from headrace.datasets.minari.spaces import widest_box
from headrace.errors import SpecError

_INT64 = np.iinfo(np.int64)


class SpaceInference:
    """Infers the smallest space that holds the arrays of every episode.

    Containers become Dict and Tuple. Arrays of booleans become MultiBinary. Floats become an unbounded Box. Arrays of
    integers become a Box of the dtype's range, which is 0..255 for uint8. Single integers become a Discrete from the
    least value (at most 0) to the greatest, single booleans a Discrete(2), and strings a Text.

    Args:
        root: the tree, with a `Column` at each leaf.

    Raises:
        SpecError: no space holds a column.

    >>> leaf = trees.Leaf("actions", Column("actions", np.dtype("int64"), ()))
    >>> inference = SpaceInference(leaf)
    >>> inference.see(0, {"actions": np.array([0, 2, 1])})
    >>> inference.space()
    Discrete(3)
    """

    def __init__(self, root: trees.Node) -> None:
        self._root = root
        self._leaves = {leaf.path: _leaf_for(leaf.value) for leaf in trees.leaves(root)}

    def see(self, _: int, arrays: Mapping[str, Array]) -> None:
        """Takes the arrays of one episode into account."""
        for path, leaf in self._leaves.items():
            leaf.see(arrays[path])

    def space(self) -> Space[Any]:
        """Returns the space of all episodes so far."""
        return self._space(self._root)

    def _space(self, node: trees.Node) -> Space[Any]:
        if isinstance(node, trees.Leaf):
            return self._leaves[node.path].space()
        children = [self._space(child) for child in node.children]
        if node.kind in ("tuple", "namedtuple"):
            return spaces.Tuple(children)
        return spaces.Dict(dict(zip(node.names, children, strict=True)))


class _Fixed:
    """Space of an array, which its dtype and shape determine."""

    def __init__(self, column: Column) -> None:
        self._dtype, self._shape = column.dtype.newbyteorder("="), column.shape

    def see(self, array: Array) -> None:
        """Does nothing: the values do not change the space."""

    def space(self) -> Space[Any]:
        shape = self._shape
        # A MultiBinary with an axis of length 0 does not exist.
        if self._dtype.kind == "b" and all(shape):
            return spaces.MultiBinary(shape[0] if len(shape) == 1 else shape)
        return widest_box(self._dtype, shape)


class _Integers(_Fixed):
    """Space of single integers or booleans."""

    def __init__(self, column: Column) -> None:
        super().__init__(column)
        self._least, self._greatest = 0, int(column.dtype.kind == "b")

    def see(self, array: Array) -> None:
        self._least = min(self._least, int(array.min()))
        self._greatest = max(self._greatest, int(array.max()))

    def space(self) -> Space[Any]:
        size = self._greatest - self._least + 1
        # Discrete holds at most 2**63 - 1 values.
        is_discrete = self._greatest <= _INT64.max and size <= _INT64.max
        return spaces.Discrete(size, start=self._least) if is_discrete else super().space()


class _Text:
    """Space of single strings."""

    def __init__(self) -> None:
        self._longest = 1
        self._characters: set[str] = set()

    def see(self, array: Array) -> None:
        texts = [as_text(text) for text in np.unique(array).tolist()]
        self._longest = max(self._longest, *map(len, texts))
        self._characters.update(*texts)

    def space(self) -> Space[Any]:
        return spaces.Text(self._longest, min_length=0, charset="".join(sorted(self._characters)))


def as_text(text: str | bytes) -> str:
    """Returns a string, or bytes decoded as UTF-8."""
    return text.decode("utf-8", "replace") if isinstance(text, bytes) else text


def _leaf_for(column: Column) -> _Fixed | _Text:
    kind, is_single = column.dtype.kind, not column.shape
    if kind in "US" and is_single:
        return _Text()
    if kind in "biuf":
        return _Integers(column) if is_single and kind != "f" else _Fixed(column)
    raise SpecError(
        f"{column.path}: expected real numbers, booleans or one string a step, got {column}: no space holds it"
    )
