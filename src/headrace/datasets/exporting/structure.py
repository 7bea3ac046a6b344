"""What all episodes of a dataset share: the tree, the dtypes and the shapes of their arrays."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from headrace import trees
from headrace.datasets.exporting.tree_json import node_from_json, node_to_json
from headrace.errors import SpecError
from headrace.trajectories.episode import Episode

Array = np.ndarray[Any, Any]

# The attributes of an episode that hold arrays, in the order of its arguments.
PARTS = ("observations", "actions", "rewards", "terminations", "truncations", "infos", "extras")
# Those whose arrays may have a row for the reset too, or not.
FREE_PARTS = ("infos", "extras")


@dataclass(frozen=True, slots=True)
class Column:
    """One array of an episode.

    Attributes:
        path: its name, such as `observations/camera`.
        dtype: strings of any width have width 0 here: that may differ from episode to episode.
        shape: without the axis of the steps.
    """

    path: str
    dtype: np.dtype[Any]
    shape: tuple[int, ...]

    @property
    def part(self) -> str:
        """The attribute of the episode that the column belongs to."""
        return self.path.partition("/")[0]

    @property
    def is_text(self) -> bool:
        """Whether it holds strings (or strings of bytes), whose width is each episode's own."""
        return self.dtype.kind in "US"

    def rows(self, steps: int) -> tuple[int, ...]:
        """The numbers of rows that the column may have in an episode of `steps` steps."""
        if self.part == "observations":
            return (steps + 1,)
        return (steps, steps + 1) if self.part in FREE_PARTS else (steps,)

    def __str__(self) -> str:
        return describe(self.dtype, self.shape)


class Structure:
    """The named arrays of an episode and the tree that they make; every episode of a dataset has the same.

    Names are paths: `observations/camera`, `actions/0`, `rewards`, `infos/lives`. Whether an info or an extra has T
    or T+1 rows, and how wide its strings are, is each episode's own.

    Args:
        roots: the tree of each part of an episode with a `Column` at each leaf (see `of` and `from_json`).

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
        self._roots = dict(roots)
        self.columns: dict[str, Column] = {leaf.path: leaf.value for leaf in _leaves(roots)}

    @classmethod
    def of(cls, episode: Episode, index: int = 0) -> Structure:
        """The structure of the first episode, which the others must have too.

        Raises:
            SpecError: as `check`.
        """
        roots = _compile(episode, f"episode {index}: ")
        columns = {
            leaf.path: Column(leaf.path, _dtype(leaf.value), leaf.value.shape[1:]) for leaf in _leaves(roots)
        }
        return cls({part: _with_leaves(root, columns) for part, root in roots.items()})

    def check(self, index: int, episode: Episode) -> dict[str, Array]:
        """The episode's arrays by name, after checking that it has this structure.

        Args:
            index: its place in the dataset, for messages.
            episode: any.

        Raises:
            SpecError: `episode 2: observations/camera: expected uint8[8,8,3], got uint8[4,4,3]`.
        """
        # Rules: datasets G5
        where = f"episode {index}: "
        roots = _compile(episode, where)
        for part, root in roots.items():
            _check_containers(self._roots[part], root, where)
        found = {}
        for leaf in _leaves(roots):
            column = self.columns[leaf.path]
            array = leaf.value
            if _dtype(array) != column.dtype or array.shape[1:] != column.shape:
                got = describe(_dtype(array), array.shape[1:])
                raise SpecError(f"{where}{leaf.path}: expected {column}, got {got}")
            found[leaf.path] = array
        return found

    def flatten(self, episode: Episode) -> dict[str, Array]:
        """The arrays by name of an episode that is known to have this structure."""
        found: dict[str, Any] = {}
        for part, root in self._roots.items():
            trees.collect(root, getattr(episode, part), found)
        return found

    def unflatten(
        self,
        arrays: Mapping[str, Any],
        *,
        seed: int | None = None,
        options: Mapping[str, Any] | None = None,
        id: int | str | None = None,  # noqa: A002 - as in Episode
    ) -> Episode:
        """The episode of these arrays, which it checks.

        Raises:
            SpecError: lengths that disagree, or flags before the end.
        """
        return Episode(**self.parts(arrays), seed=seed, options=options, id=id)

    def parts(self, arrays: Mapping[str, Any]) -> dict[str, Any]:
        """The tree of each part of an episode with these arrays, unchecked."""
        return {part: trees.build(root, arrays) for part, root in self._roots.items()}

    def to_json(self) -> Any:
        """The tree as dicts, lists, strings and integers."""
        return {
            part: node_to_json(root, lambda column: [column.dtype.str, list(column.shape)])
            for part, root in self._roots.items()
        }

    @classmethod
    def from_json(cls, data: Any) -> Structure:
        """The structure that `to_json` described.

        Raises:
            SpecError: anything that `to_json` does not write.
        """
        if not isinstance(data, dict) or set(data) != set(PARTS):
            raise SpecError(f"the tree: expected the parts {', '.join(PARTS)}, got {data!r:.80}")
        return cls({part: node_from_json(data[part], _column_from_json, part) for part in PARTS})


def describe(dtype: np.dtype[Any], shape: tuple[int, ...]) -> str:
    """A dtype and a shape in words: `uint8[8,8,3]`.

    >>> describe(np.dtype("uint8"), (8, 8, 3)), describe(np.dtype("U7"), ())
    ('uint8[8,8,3]', 'str[]')
    """
    name = {"U": "str", "S": "bytes"}.get(dtype.kind, dtype.name if dtype.isnative else dtype.str)
    return f"{name}[{','.join(map(str, shape))}]"


def _leaves(roots: Mapping[str, trees.Node]) -> Iterator[trees.Leaf]:
    for root in roots.values():
        yield from trees.leaves(root)


def _compile(episode: Episode, where: str) -> dict[str, trees.Node]:
    try:
        # Made anew, it is checked anew: an episode's attributes can be set to anything.
        whole = Episode(**{part: getattr(episode, part) for part in PARTS})
    except SpecError as error:
        raise SpecError(f"{where}{error}") from error
    roots = {part: trees.compile_tree(getattr(whole, part), _is_array, part) for part in PARTS}
    for leaf in _leaves(roots):
        # Names go into files as UTF-8, and the end of a name in some formats is a NUL.
        if "\0" in leaf.path or not _is_encodable(leaf.path):
            raise SpecError(f"{where}{leaf.path!r}: expected keys that can be written as UTF-8, without NUL")
    return roots


def _is_array(value: object) -> bool:
    return isinstance(value, np.ndarray)


def _is_encodable(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def _dtype(array: Array) -> np.dtype[Any]:
    dtype: np.dtype[Any] = array.dtype
    return np.dtype(dtype.kind) if dtype.kind in "US" else dtype


def _with_leaves(node: trees.Node, columns: Mapping[str, Column]) -> trees.Node:
    if isinstance(node, trees.Leaf):
        return trees.Leaf(node.path, columns[node.path])
    children = tuple(_with_leaves(child, columns) for child in node.children)
    return replace(node, children=children)


def _check_containers(expected: trees.Node, found: trees.Node, where: str) -> None:
    """Raises where the two trees have other containers or other names."""
    if isinstance(expected, trees.Leaf) or isinstance(found, trees.Leaf):
        if type(expected) is not type(found):
            raise SpecError(f"{where}{expected.path}: expected {_kind(expected)}, got {_kind(found)}")
        return
    if expected.kind != found.kind:
        raise SpecError(f"{where}{expected.path}: expected {_kind(expected)}, got {_kind(found)}")
    children = dict(zip(found.names, found.children, strict=True))
    if set(expected.names) != set(children):
        raise SpecError(f"{where}{trees.differences(expected.names, children, expected.path)}")
    for name, child in zip(expected.names, expected.children, strict=True):
        _check_containers(child, children[name], where)


def _kind(node: trees.Node) -> str:
    return "an array" if isinstance(node, trees.Leaf) else f"a {node.kind}"


def _column_from_json(data: Any, path: str) -> Column:
    match data:
        case [str(name), list(shape)] if all(type(size) is int and size >= 0 for size in shape):
            try:
                dtype = np.dtype(name)
            except TypeError as error:
                raise SpecError(f"{path}: expected a dtype, got {name!r}") from error
            if dtype.kind in "biufcUS":
                return Column(path, dtype, tuple(shape))
    raise SpecError(f"{path}: expected a dtype and a shape, got {data!r:.80}")
