"""Whether episodes fit the spaces that were given for them."""

# Rules: datasets K7

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
from gymnasium import Space, spaces

from headrace import trees
from headrace.datasets.exporting.structure import Column, describe
from headrace.errors import SpecError

Array = np.ndarray[Any, Any]


class SpaceCheck:
    """Refuses arrays that a given space does not hold.

    The dtype may be another one if it can be cast to the space's without loss (`np.can_cast`). NaN is never outside
    the bounds: there is nothing that it is greater than.

    Args:
        name: of the space, for errors.
        space: of the kinds that Minari has a form for.
        node: the tree of the arrays, with columns' names at the leaves.
        columns: what is known of each.

    Raises:
        SpecError: another structure, another shape, or a dtype that loses.

    >>> node = trees.compile_tree("actions", lambda value: isinstance(value, str))
    >>> columns = {"actions": Column("actions", np.dtype("int64"), ())}
    >>> check = SpaceCheck("action_space", spaces.Discrete(2), node, columns)
    >>> check.see(0, {"actions": np.array([0, 2, 1])})
    Traceback (most recent call last):
    ...
    headrace.errors.SpecError: episode 0: actions: expected values of action_space Discrete(2), got 2 at step 1
    """

    def __init__(self, name: str, space: Space[Any], node: trees.Node, columns: Mapping[str, Column]) -> None:
        self._name = name
        self._space = space
        pairs = list(_pairs(name, space, node))
        for path, leaf in pairs:
            _check_kind(name, leaf, columns[path])
        self._pairs = [(path, leaf) for path, leaf in pairs if not _holds_all(leaf, columns[path].dtype)]

    def see(self, index: int, arrays: Mapping[str, Array]) -> None:
        """Check the values of one episode.

        Raises:
            SpecError: a value outside the space; with the episode, the path and the step.
        """
        for path, space in self._pairs:
            outside = _outside(space, arrays[path])
            if outside.any():
                step = int(np.argmax(outside.reshape(len(outside), -1).any(axis=1)))
                raise SpecError(
                    f"episode {index}: {path}: expected values of {self._name} {space}, got "
                    f"{arrays[path][step].tolist()!s:.80} at step {step}"
                )

    def space(self) -> Space[Any]:
        """The space that was given."""
        return self._space


def _pairs(name: str, space: Space[Any], node: trees.Node) -> Iterator[tuple[str, Space[Any]]]:
    """Each array's name with its space."""
    if isinstance(node, trees.Leaf):
        if isinstance(space, spaces.Dict | spaces.Tuple):
            raise SpecError(f"{node.path}: expected the containers of {name} {space}, got one array")
        yield node.value, space
        return
    by_index = node.kind in ("tuple", "namedtuple")
    wanted: dict[str, Space[Any]]
    if by_index and isinstance(space, spaces.Tuple):
        wanted = {str(index): each for index, each in enumerate(space.spaces)}
    elif not by_index and isinstance(space, spaces.Dict):
        wanted = {str(key): each for key, each in space.spaces.items()}
    else:
        raise SpecError(f"{node.path}: expected what {name} {space} holds, got a {node.kind}")
    children = {
        str(index) if by_index else name: child
        for index, (name, child) in enumerate(zip(node.names, node.children, strict=True))
    }
    if wanted.keys() != children.keys():
        raise SpecError(f"{trees.differences(tuple(wanted), children, node.path)}; {name} is {space}")
    for key, child in children.items():
        yield from _pairs(name, wanted[key], child)


def _check_kind(name: str, space: Space[Any], column: Column) -> None:
    got = describe(column.dtype, column.shape)
    if isinstance(space, spaces.Text):
        fits = column.dtype.kind in "US" and column.shape == ()
    else:
        fits = column.shape == space.shape and np.can_cast(column.dtype, np.dtype(space.dtype), "safe")
    if not fits:
        expected = (
            "str[]" if isinstance(space, spaces.Text) else describe(np.dtype(space.dtype), space.shape or ())
        )
        raise SpecError(
            f"{column.path}: expected {expected} (of {name}) or a dtype that fits into it, got {got}"
        )


def _holds_all(space: Space[Any], dtype: np.dtype[Any]) -> bool:
    """Whether every number of this dtype is in the space: most spaces of images and of measurements are such."""
    if not isinstance(space, spaces.Box) or dtype.kind not in "fiu":
        return False
    bounds = (-np.inf, np.inf) if dtype.kind == "f" else (np.iinfo(dtype).min, np.iinfo(dtype).max)
    return bool((space.low <= bounds[0]).all() and (space.high >= bounds[1]).all())


def _outside(space: Space[Any], array: Array) -> Array:
    """Where values are outside the space: bool, of the array's shape."""
    if isinstance(space, spaces.Text):
        return np.array([not _is_text(space, text) for text in array.tolist()])
    low, high = _bounds(space)
    return np.asarray((array < low) | (array > high))


def _bounds(space: Space[Any]) -> tuple[Any, Any]:
    if isinstance(space, spaces.Box):
        return space.low, space.high
    if isinstance(space, spaces.Discrete):
        return int(space.start), int(space.start) + int(space.n) - 1
    if isinstance(space, spaces.MultiDiscrete):
        return space.start, space.start + (space.nvec - 1)
    return 0, 1  # MultiBinary


def _is_text(space: spaces.Text, text: str | bytes) -> bool:
    decoded = text.decode("utf-8", "replace") if isinstance(text, bytes) else text
    return space.min_length <= len(decoded) <= space.max_length and set(decoded) <= space.character_set
