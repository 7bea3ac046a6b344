"""Checks that episodes fit the spaces given for them."""

# Rules: datasets K7

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
from gymnasium import Space, spaces

from headrace import trees
from headrace.datasets.exporting.structure import Array, Column, describe
from headrace.datasets.minari.space_inference import as_text
from headrace.errors import SpecError


class SpaceCheck:
    """Refuses arrays that are not in a given space.

    The dtype may differ from the space's if it can be cast to that without loss (`np.can_cast`). NaN passes the bounds
    check, because comparisons with NaN are false.

    Args:
        name: of the space, for errors.
        space: of a kind that Minari has a form for.
        root: the tree of the arrays, with a `Column` at each leaf.

    Raises:
        SpecError: another structure, another shape, or a dtype that would lose values.

    >>> leaf = trees.Leaf("actions", Column("actions", np.dtype("int64"), ()))
    >>> check = SpaceCheck("action_space", spaces.Discrete(2), leaf)
    >>> check.see(0, {"actions": np.array([0, 2, 1])})
    Traceback (most recent call last):
    ...
    headrace.errors.SpecError: episode 0: actions: expected values of action_space Discrete(2), got 2 at step 1
    """

    def __init__(self, name: str, space: Space[Any], root: trees.Node) -> None:
        self._name = name
        self._space = space
        pairs = list(_pairs(name, space, root))
        for column, leaf in pairs:
            _check_kind(name, leaf, column)
        self._pairs = [(column.path, leaf) for column, leaf in pairs if not _holds_all(leaf, column.dtype)]

    def see(self, index: int, arrays: Mapping[str, Array]) -> None:
        """Checks the values of one episode.

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
        """Returns the given space."""
        return self._space


def _pairs(name: str, space: Space[Any], node: trees.Node) -> Iterator[tuple[Column, Space[Any]]]:
    """Yields each column with its space."""
    if isinstance(node, trees.Leaf):
        if isinstance(space, spaces.Dict | spaces.Tuple):
            raise SpecError(f"{node.path}: expected the containers of {name} {space}, got one array")
        yield node.value, space
        return
    wanted: dict[str, Space[Any]]
    names = node.names
    if node.kind in ("tuple", "namedtuple") and isinstance(space, spaces.Tuple):
        wanted = {str(index): each for index, each in enumerate(space.spaces)}
        names = tuple(map(str, range(len(names))))
    elif node.kind not in ("tuple", "namedtuple") and isinstance(space, spaces.Dict):
        wanted = {str(key): each for key, each in space.spaces.items()}
    else:
        raise SpecError(f"{node.path}: expected the parts of {name} {space}, got a {node.kind}")
    children = dict(zip(names, node.children, strict=True))
    if wanted.keys() != children.keys():
        raise SpecError(f"{trees.differences(tuple(wanted), children, node.path)}; {name} is {space}")
    for key, child in children.items():
        yield from _pairs(name, wanted[key], child)


def _check_kind(name: str, space: Space[Any], column: Column) -> None:
    if isinstance(space, spaces.Text):
        expected, fits = "str[]", column.is_text and not column.shape
    else:
        dtype, shape = np.dtype(space.dtype), space.shape or ()
        fits = column.shape == shape and np.can_cast(column.dtype, dtype, "safe")
        expected = describe(dtype, shape)
    if not fits:
        raise SpecError(
            f"{column.path}: expected {expected} (of {name}) or a dtype that fits into it, got {column}"
        )


def _holds_all(space: Space[Any], dtype: np.dtype[Any]) -> bool:
    """Whether a space holds every number of a dtype, as most spaces of images and measurements do."""
    if not isinstance(space, spaces.Box) or dtype.kind not in "fiu":
        return False
    bounds = (-np.inf, np.inf) if dtype.kind == "f" else (np.iinfo(dtype).min, np.iinfo(dtype).max)
    return bool((space.low <= bounds[0]).all() and (space.high >= bounds[1]).all())


def _outside(space: Space[Any], array: Array) -> Array:
    """Returns a mask of the values outside the space: bool, of the array's shape."""
    if isinstance(space, spaces.Text):
        return np.array([not _is_in_text(space, as_text(text)) for text in array.tolist()])
    low, high = _bounds(space)
    return np.asarray((array < low) | (array > high))


def _bounds(space: Space[Any]) -> tuple[Any, Any]:
    match space:
        case spaces.Box():
            return space.low, space.high
        case spaces.Discrete():
            return int(space.start), int(space.start) + int(space.n) - 1
        case spaces.MultiDiscrete():
            return space.start, space.start + (space.nvec - 1)
    return 0, 1  # MultiBinary


def _is_in_text(space: spaces.Text, text: str) -> bool:
    return space.min_length <= len(text) <= space.max_length and set(text) <= space.character_set
