"""Structure that all episodes of a dataset share: the tree, the dtypes and the shapes of their arrays."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from headrace import trees
from headrace.errors import SpecError
from headrace.trajectories.episode import Episode
from headrace.tree_json import node_from_json, node_to_json

Array = np.ndarray[Any, Any]

# The attributes of an episode that hold arrays, in the order of its arguments.
PARTS = ("observations", "actions", "rewards", "terminations", "truncations", "infos", "extras")
# Their arrays have T rows, or T+1 with a row for the reset.
FREE_PARTS = ("infos", "extras")


def part_of(path: str) -> str:
    """Returns the attribute of an episode that a path begins with.

    >>> part_of("observations/camera")
    'observations'
    """
    return path.partition("/")[0]


@dataclass(frozen=True, slots=True)
class Column:
    """One array of an episode.

    Attributes:
        path: its name, such as `observations/camera`.
        dtype: of strings, the kind only (width 0): each episode has its own width.
        shape: without the axis of the steps.
    """

    path: str
    dtype: np.dtype[Any]
    shape: tuple[int, ...]

    @classmethod
    def of(cls, path: str, array: Array) -> Column:
        """Returns the column of an array with a row for each step."""
        dtype: np.dtype[Any] = array.dtype
        return cls(path, np.dtype(dtype.kind) if dtype.kind in "US" else dtype, array.shape[1:])

    @property
    def part(self) -> str:
        """The attribute of the episode that the column belongs to."""
        return part_of(self.path)

    @property
    def is_text(self) -> bool:
        """Whether the column holds str or bytes, whose width is each episode's own."""
        return self.dtype.kind in "US"

    def __str__(self) -> str:
        return describe(self.dtype, self.shape)


class Structure:
    """The named arrays of an episode and their tree; every episode of a dataset has the same.

    Names are paths: `observations/camera`, `actions/0`, `rewards`, `infos/lives`. Free in each episode are the width
    of strings and whether an info or an extra has T or T+1 rows.

    Args:
        roots: the tree of each part of an episode, with a `Column` at each leaf (see `of` and `from_json`).

    >>> episode = Episode({"pose": np.zeros((3, 2))}, [0, 1], [0.5, 1], [False, True], [False, False])
    >>> structure = Structure.of(episode)
    >>> for column in structure.columns.values():
    ...     print(column.path, column)
    observations/pose float64[2]
    actions int64[]
    rewards float64[]
    terminations bool[]
    truncations bool[]
    >>> structure.unflatten(structure.flatten(episode)) == episode
    True
    """

    def __init__(self, roots: Mapping[str, trees.Node]) -> None:
        self.roots = dict(roots)
        self.columns: dict[str, Column] = {leaf.path: leaf.value for leaf in _leaves(roots)}

    @classmethod
    def of(cls, episode: Episode) -> Structure:
        """Returns the structure of the first episode of a dataset.

        Raises:
            SpecError: the episode was changed into an invalid one, or has a key that files cannot hold.
        """
        whole = _checked(episode, "episode 0: ")
        roots = {
            part: trees.compile_tree(getattr(whole, part), lambda value: isinstance(value, np.ndarray), part)
            for part in PARTS
        }
        for leaf in _leaves(roots):
            # Names are UTF-8 in files, and a NUL ends them in some formats.
            if "\0" in leaf.path or not is_encodable(leaf.path):
                raise SpecError(
                    f"episode 0: {leaf.path!r}: expected keys that can be written as UTF-8, without NUL"
                )
        return cls({part: _map_leaves(root, Column.of) for part, root in roots.items()})

    def check(self, index: int, episode: Episode) -> dict[str, Array]:
        """Returns the episode's arrays by path, after checking that it has this structure.

        Args:
            index: place of the episode in the dataset, for messages.
            episode: any.

        Raises:
            SpecError: `episode 2: observations/camera: expected uint8[8,8,3], got uint8[4,4,3]`.
        """
        # Rules: datasets G5
        where = f"episode {index}: "
        whole = _checked(episode, where)
        found: dict[str, Array] = {}
        for part, root in self.roots.items():
            _collect(root, getattr(whole, part), where, found)
        return found

    def flatten(self, episode: Episode) -> dict[str, Array]:
        """Returns the arrays by path of an episode that is known to have this structure."""
        found: dict[str, Array] = {}
        for part, root in self.roots.items():
            trees.collect(root, getattr(episode, part), found)
        return found

    def unflatten(self, arrays: Mapping[str, Any], **reset: Any) -> Episode:
        """Returns the episode of these arrays, checked.

        Args:
            arrays: by path.
            reset: `seed`, `options` and `id` of the episode.

        Raises:
            SpecError: lengths that disagree, or flags before the end.
        """
        return Episode(**self.parts(arrays), **reset)

    def parts(self, arrays: Mapping[str, Any]) -> dict[str, Any]:
        """Returns the tree of each part of an episode with these arrays, unchecked."""
        return {part: trees.build(root, arrays) for part, root in self.roots.items()}

    def to_json(self) -> Any:
        """Returns the structure as dicts, lists, strings and integers."""
        return {
            part: node_to_json(root, lambda column: {"leaf": [column.dtype.str, list(column.shape)]})
            for part, root in self.roots.items()
        }

    @classmethod
    def from_json(cls, data: Any) -> Structure:
        """Returns the structure that `to_json` described.

        Raises:
            SpecError: anything that `to_json` does not write.
        """
        if not isinstance(data, dict) or set(data) != set(PARTS):
            raise SpecError(f"the tree: expected the parts {', '.join(PARTS)}, got {data!r:.80}")
        return cls({part: node_from_json(data[part], _column_from_json, part) for part in PARTS})


def describe(dtype: np.dtype[Any], shape: tuple[int, ...]) -> str:
    """Returns a dtype and a shape in words: `uint8[8,8,3]`.

    >>> describe(np.dtype("uint8"), (8, 8, 3)), describe(np.dtype("U7"), ())
    ('uint8[8,8,3]', 'str[]')
    """
    name = {"U": "str", "S": "bytes"}.get(dtype.kind, dtype.name if dtype.isnative else dtype.str)
    return f"{name}[{','.join(map(str, shape))}]"


def is_encodable(text: str) -> bool:
    """Whether a string can be written as UTF-8, which has no half of a surrogate pair."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def _checked(episode: Episode, where: str) -> Episode:
    """Returns a new episode of the same arrays: making one checks attributes that were set later."""
    try:
        return Episode(**{part: getattr(episode, part) for part in PARTS})
    except SpecError as error:
        raise SpecError(f"{where}{error}") from error


def _leaves(roots: Mapping[str, trees.Node]) -> Iterator[trees.Leaf]:
    for root in roots.values():
        yield from trees.leaves(root)


def _map_leaves(node: trees.Node, function: Callable[[str, Any], Any]) -> trees.Node:
    if isinstance(node, trees.Leaf):
        return trees.Leaf(node.path, function(node.path, node.value))
    return replace(node, children=tuple(_map_leaves(child, function) for child in node.children))


def _collect(node: trees.Node, tree: Any, where: str, found: dict[str, Array]) -> None:
    """Puts the arrays of a tree into `found`; raises where its containers, names or columns differ."""
    kind = trees.kind_of(type(tree))
    got = f"a {kind}" if kind else "an array"
    if isinstance(node, trees.Leaf):
        column = None if kind else Column.of(node.path, tree)
        if column != node.value:
            raise SpecError(f"{where}{node.path}: expected {node.value}, got {column or got}")
        found[node.path] = tree
        return
    if kind != node.kind:
        raise SpecError(f"{where}{node.path}: expected a {node.kind}, got {got}")
    children = trees.entries(tree, kind)
    if set(node.names) != set(children):
        raise SpecError(f"{where}{trees.differences(node.names, children, node.path)}")
    for name, child in zip(node.names, node.children, strict=True):
        _collect(child, children[name], where, found)


def _column_from_json(data: Any, path: str) -> Column:
    match data.get("leaf"):
        case [str(name), list(shape)] if all(type(size) is int and size >= 0 for size in shape):
            try:
                dtype = np.dtype(name)
            except TypeError as error:
                raise SpecError(f"{path}: expected a dtype, got {name!r}") from error
            if dtype.kind in "biufcUS":
                return Column(path, dtype, tuple(shape))
    raise SpecError(f"{path}: expected a dtype and a shape, got {data!r:.80}")
