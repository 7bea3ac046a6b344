"""A batch of a collector: columns `[N, T, ...]`, N environments and T steps."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping
from operator import itemgetter
from types import MappingProxyType
from typing import Any, Never

import numpy as np
from numpy.typing import NDArray

from headrace.batches.conversion import over_same_memory, to_jax, to_torch
from headrace.batches.pytree import PytreeNode
from headrace.batches.row_counts import as_columns, named_leaves
from headrace.checks import check_count
from headrace.collectors.batches.description import describe
from headrace.collectors.batches.explaining import shown_columns
from headrace.errors import SpecError
from headrace.spec import Signature
from headrace.trees import at_path, map_leaves
from headrace.views import View
from headrace.views.explanation import Explanation

Arrays = dict[str, np.ndarray[Any, Any]]
_READ_ONLY = (
    "{0}: expected no assignment, since a Batch is read-only; "
    "batch.with_columns({{{0!r}: ...}}) returns another one"
)


class Batch(Mapping[str, Any]):
    """A read-only mapping of columns to trees of arrays `[N, T, ...]`.

    `observation, action, reward, terminated, truncated, next_observation, episode_id, t, policy_version, mask`, and
    columns of the policy. Columns are items and attributes; `batch["observation/camera"]` reads one leaf of a tree.

    A pytree for optree, and for JAX in a program that uses it: `jax.tree.map`, `jit` and `device_put` take it whole.

    Args:
        trees: column to its tree of arrays, all with the same leading axes.
        worker_idx: the worker that collected it; None for several.
        views: maps names of columns to the views that they show.
        in_place: columns that are shown where they were written: read-only, since `next_observation` may lie in the
            memory of `observation`.

    >>> batch = Batch({"reward": np.ones((2, 3), np.float32), "mask": np.ones((2, 3), bool)})
    >>> batch.shape, batch.frames, batch.flatten().shape
    ((2, 3), 6, (6,))
    """

    # Rules: collectors CB1 to CB4

    worker_idx: int | None

    def __init__(
        self,
        trees: Mapping[str, Any],
        worker_idx: int | None = None,
        views: Mapping[str, View] = MappingProxyType({}),
        in_place: Collection[str] = (),
    ) -> None:
        self._trees = dict(trees)
        self._in_place = frozenset(in_place)
        self._views = dict(views)
        self.worker_idx = worker_idx
        _NODE.tell_jax()

    def __getitem__(self, name: str) -> Any:
        if not isinstance(name, str):
            raise KeyError(
                f"expected the name of a column, such as 'next_observation' or 'observation/camera', got {name!r}; "
                "rows are read from a column: batch['reward'][0]"
            )
        return self._trees[name] if name in self._trees else at_path(self._trees, name)

    def __setitem__(self, name: str, value: Any) -> Never:
        raise TypeError(_READ_ONLY.format(name))

    def __getattr__(self, name: str) -> Any:
        try:
            return self.__dict__["_trees"][name]
        except KeyError:
            raise AttributeError(f"Batch has no column {name!r}") from None

    def __setattr__(self, name: str, value: Any) -> None:
        if name not in ("_trees", "_in_place", "_views", "worker_idx"):
            raise AttributeError(_READ_ONLY.format(name))
        super().__setattr__(name, value)

    def __iter__(self) -> Iterator[str]:
        return iter(self._trees)

    def __len__(self) -> int:
        return len(self._trees)

    @property
    def shape(self) -> tuple[int, ...]:
        """(N, T); (frames,) of a flat batch."""
        return tuple(self._trees["mask"].shape)

    @property
    def frames(self) -> int:
        """The number of rows that are real transitions."""
        return int(self._trees["mask"].sum())

    def flatten(self) -> Batch:
        """Returns a batch `[frames, ...]`, row by row, without masked rows."""
        mask = self._trees["mask"]
        return map_batch(lambda leaf: leaf[mask], self)

    def explain(self, i: int | tuple[int, int]) -> Explanation:
        """Tells where element `i` comes from: its environment, episode and step, and the step that each column shows.

        Row numbers count the elements, masked ones included; -1 is a row outside the batch. Views of n-step transitions
        are left out.

        Args:
            i: environment and step; or one number that counts the elements environment by environment. Of a flat batch
                the environment is unknown.

        Raises:
            IndexError: no such element.

        >>> numbers = np.arange(6).reshape(2, 3)
        >>> print(Batch({"t": numbers, "episode_id": numbers // 3, "mask": numbers >= 0}).explain((1, 0)))
        lane 1, episode 1, t 3
          t: t of t 3, row 3
          episode_id: episode_id of t 3, row 3
          mask: mask of t 3, row 3
        """
        columns = self.numpy()
        rows = np.arange(columns["mask"].size)
        row = rows.reshape(self.shape)[i] if isinstance(i, tuple) else rows[i]
        index = np.unravel_index(row, self.shape)
        t, episode = columns["t"][index], columns["episode_id"][index]
        shown = shown_columns(columns, index, self._views)
        return Explanation(int(index[0]) if len(index) > 1 else -1, episode, t, shown)

    def with_columns(self, columns: Mapping[str, Any]) -> Batch:
        """Returns a batch with more columns, or with others of the same names; arrays are not copied.

        Args:
            columns: name to array, or tree of arrays, that begin with the axes of `shape`; tensors are kept.

        Raises:
            SpecError: a leaf has other leading axes, or is not an array of numbers; the message has its path.

        >>> batch = Batch({"mask": np.ones((2, 3), bool)})
        >>> batch.with_columns({"advantage": np.zeros((2, 3), np.float32)})
        <Batch [2, 3] of mask, advantage>
        """
        added = as_columns(columns)
        for path, leaf in named_leaves(added):
            if tuple(leaf.shape[: len(self.shape)]) != self.shape:
                raise SpecError(
                    f"{path}: expected an array [{', '.join(map(str, self.shape))}, ...], got {list(leaf.shape)}"
                )
        kept = {name: view for name, view in self._views.items() if name not in added}
        return Batch(self._trees | added, self.worker_idx, kept, self._in_place.difference(added))

    def minibatches(
        self, size: int, *, epochs: int = 1, seed: int | None = None, drop_last: bool = False
    ) -> Iterator[Batch]:
        """Returns an iterator over flat batches `[m, ...]` of rows in random order; masked rows are left out.

        Every epoch has each row once, in an order of its own. No batch has rows of two epochs.

        Args:
            size: rows of a batch; the last one of an epoch has the rest.
            epochs: number of passes over the rows.
            seed: of the orders; the first k epochs are the same however many follow. None draws one.
            drop_last: leaves out the last batch of an epoch if it is smaller.

        Raises:
            ValueError: size < 1 or epochs < 1.

        >>> batch = Batch({"mask": np.ones((2, 4), bool)})
        >>> [part.frames for part in batch.minibatches(3, epochs=2, seed=0)]
        [3, 3, 2, 3, 3, 2]
        """
        return _minibatches(
            self, check_count("size", size, 1), check_count("epochs", epochs, 1), seed, drop_last
        )

    def numpy(self) -> dict[str, Any]:
        """Returns plain nested dicts of NumPy arrays; copies those of another device only."""
        return map_batch(_as_numpy, self)._trees

    def torch(self) -> dict[str, Any]:
        """Returns plain nested dicts of torch tensors over the same memory, on the device of the batch.

        A tensor can be written and overlaps no other one: next observations in the memory of the observations are
        copied.
        """
        return dict(to_torch(self._trees | self._without_overlap()))

    def _without_overlap(self) -> dict[str, Any]:
        """Returns the columns that are shown in place, writable; those in the memory of the observations as copies."""
        trees = {name: map_leaves(over_same_memory, self._trees[name]) for name in self._in_place}
        if trees.keys() >= {"observation", "next_observation"}:
            shown = [leaf for _, leaf in named_leaves({"observation": trees["observation"]})]
            trees["next_observation"] = map_leaves(
                lambda leaf: leaf.copy() if any(np.may_share_memory(leaf, each) for each in shown) else leaf,
                trees["next_observation"],
            )
        return trees

    def jax(self) -> dict[str, Any]:
        """Returns plain nested dicts of JAX arrays."""
        return dict(to_jax(self.numpy()))

    def __repr__(self) -> str:
        return f"<Batch {describe(self.shape, self._trees)}>"


def map_batch(function: Callable[[Any], Any], batch: Batch) -> Batch:
    """Returns a batch of what `function` makes of each array.

    >>> map_batch(lambda array: array[:, :2], Batch({"mask": np.ones((2, 3), bool)})).shape
    (2, 2)
    """
    return Batch(map_leaves(function, batch._trees), batch.worker_idx, batch._views)


def _as_numpy(leaf: Any) -> NDArray[Any]:
    if isinstance(leaf, np.ndarray):
        return leaf
    array: NDArray[Any] = leaf.numpy(force=True)
    return array


def _minibatches(batch: Batch, size: int, epochs: int, seed: int | None, drop_last: bool) -> Iterator[Batch]:
    rows, generator = batch.flatten(), np.random.default_rng(seed)
    end = rows.frames // size * size if drop_last else rows.frames
    for _ in range(epochs):
        order = generator.permutation(rows.frames)
        for begin in range(0, end, size):
            chosen = order[begin : begin + size]
            yield map_batch(itemgetter(chosen), rows)


_About = tuple[tuple[str, ...], int | None, tuple[tuple[str, View], ...]]


def _flatten(batch: Batch) -> tuple[tuple[Any, ...], _About]:
    names = tuple(batch)
    return tuple(batch[name] for name in names), (names, batch.worker_idx, tuple(batch._views.items()))


def _unflatten(about: _About, trees: tuple[Any, ...]) -> Batch:
    names, worker_idx, views = about
    return Batch(dict(zip(names, trees, strict=True)), worker_idx, dict(views))


_NODE = PytreeNode(Batch, _flatten, _unflatten)


def as_trees(signature: Signature, columns: Arrays) -> dict[str, Any]:
    """Returns columns by path as one tree for each top-level name."""
    tree = signature.unflatten(columns)
    return dict(tree)
