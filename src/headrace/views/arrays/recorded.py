"""Columns of recorded episodes, as views name them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    from typing_extensions import TypeIs

from headrace import trees
from headrace.errors import SpecError
from headrace.spec import ArraySpec, Signature
from headrace.views.promised import signature_of_space
from headrace.views.transition import TransitionView
from headrace.views.view import View


class Episode(Protocol):
    """An episode of T transitions and T+1 observations (`hr.Episode`)."""

    observations: Any
    actions: Any
    rewards: Any
    terminations: Any
    truncations: Any
    extras: dict[str, Any]

    def __len__(self) -> int: ...


class Fragment(Protocol):
    """Rows `start <= t < stop` of an episode (`hr.Episode.fragment`)."""

    @property
    def episode(self) -> Episode:
        """The whole episode."""
        ...

    @property
    def start(self) -> int:
        """The first row."""
        ...

    @property
    def stop(self) -> int:
        """The row after the last one."""
        ...


class Recorded(NamedTuple):
    """Columns of a fragment.

    Attributes:
        signature: of the columns that were asked for.
        arrays: by column, with all rows of the episode.
        start, stop: the fragment's rows.
    """

    signature: Signature
    arrays: dict[str, NDArray[Any]]
    start: int
    stop: int


class Tails(NamedTuple):
    """The newest rows of several episodes, one after another.

    Attributes:
        signature: of the columns.
        arrays: by column.
        begins: int64[B], where each episode's rows begin.
        lengths: int64[B], the transitions of each.
    """

    signature: Signature
    arrays: dict[str, NDArray[Any]]
    begins: NDArray[np.int64]
    lengths: NDArray[np.int64]


_SUMMED = ("reward", "terminated", "truncated")
_NONE: Mapping[str, Any] = {}


def read_all(sources: Sequence[Episode | Fragment], views: Mapping[str, View]) -> list[Recorded]:
    """Reads several episodes; one without transitions may lack columns that others have.

    Raises:
        SpecError: as `read`.
    """
    # Rules: views V15
    if all(_bounds(source)[2] for source in sources):
        return [read(source, views) for source in sources]
    there: dict[str, Any] = {}
    for source in sources:
        there = {**_columns(_bounds(source)[0]), **there}
    empty = {name: trees.map_leaves(lambda array: array[:0], tree) for name, tree in there.items()}
    return [read(source, views, empty) for source in sources]


def read(source: Episode | Fragment, views: Mapping[str, View], empty: Mapping[str, Any] = _NONE) -> Recorded:
    """Reads the columns that views need. Arrays are not copied.

    Args:
        source: the episode or fragment.
        views: the views.
        empty: columns without rows that an episode without transitions may lack.

    Raises:
        SpecError: a view of a column that there is not, or of strings; an extra with the name of a column.
    """
    episode, start, stop = _bounds(source)
    there = _columns(episode)
    found: dict[str, Any] = {}
    for name, view in views.items():
        path = view.data_col or name
        top = path.split("/")[0]
        if top in there:
            found[top] = there[top]
        elif stop == 0 and top in empty:
            found[top] = empty[top]
        elif stop == 0 and view.space is not None:
            _put(found, path, signature_of_space(view.space).zeros(0))
        else:
            raise SpecError(f"view {name!r}: no column {path!r}; there are {', '.join(there)}")
        if isinstance(view, TransitionView):
            found.update({column: there[column] for column in _SUMMED})
    return Recorded(*_flatten(found), start, stop)


def _bounds(source: Episode | Fragment) -> tuple[Episode, int, int]:
    """Returns the episode, the first row and the row after the last one."""
    if _is_fragment(source):
        return source.episode, source.start, source.stop
    if not hasattr(source, "observations"):
        raise TypeError(f"episode: expected an hr.Episode or a fragment of one, got {type(source).__name__}")
    return source, 0, len(source)


def _is_fragment(source: Episode | Fragment) -> TypeIs[Fragment]:
    return hasattr(source, "episode")


def _columns(episode: Episode) -> dict[str, Any]:
    """Returns the columns of an episode, each a tree of arrays."""
    # Rules: views V2
    own = {
        "observation": episode.observations,
        "action": episode.actions,
        "reward": episode.rewards,
        "terminated": episode.terminations,
        "truncated": episode.truncations,
    }
    if both := own.keys() & episode.extras.keys():
        raise SpecError(
            f"extras: expected names that no column of an episode has, got {', '.join(sorted(both))}"
        )
    return {**own, "t": np.arange(len(episode) + 1), **episode.extras}


def _put(found: dict[str, Any], path: str, tree: Any) -> None:
    *above, last = path.split("/")
    for part in above:
        found = found.setdefault(part, {})
    found[last] = tree


def _flatten(columns: Mapping[str, Any]) -> tuple[Signature, dict[str, NDArray[Any]]]:
    """Returns the signature of trees of arrays, and the arrays by column."""
    specs, arrays = {}, {}
    for name, tree in columns.items():
        node = trees.compile_tree(tree, lambda value: isinstance(value, np.ndarray), name)
        for leaf in trees.leaves(node):
            arrays[leaf.path] = leaf.value
        specs[name] = trees.build(node, {leaf.path: _spec(leaf) for leaf in trees.leaves(node)})
    return Signature(specs), arrays


def _spec(leaf: trees.Leaf) -> ArraySpec:
    try:
        return ArraySpec(leaf.value.shape[1:], leaf.value.dtype)
    except SpecError as error:
        raise SpecError(f"{leaf.path}: {error}") from error


def join_tails(recorded: Sequence[Recorded], rows: int) -> Tails:
    """Joins the newest rows of several episodes: `rows` transitions of each, and the observation after them.

    Raises:
        SpecError: the columns differ; the message has the column.
    """
    signature = _common_signature(recorded)
    lengths = np.array([min(rows, each.stop) for each in recorded])
    begins = np.concatenate([[0], np.cumsum(lengths + 1)])
    arrays = {}
    for column, spec in signature.columns.items():
        # Columns of actions have no value in the last row of each episode, and nothing reads it.
        joined = arrays[column] = np.zeros((begins[-1], *spec.shape), spec.dtype)
        for each, begin, length in zip(recorded, begins, lengths, strict=False):
            tail = each.arrays[column][each.stop - length : each.stop + 1]
            joined[begin : begin + len(tail)] = tail
    return Tails(signature, arrays, begins[:-1], lengths)


def _common_signature(recorded: Iterable[Recorded]) -> Signature:
    first, *others = dict.fromkeys(each.signature for each in recorded)
    if others:
        raise SpecError(f"episodes: expected the same columns in all, got {first} and {others[0]}")
    return first
