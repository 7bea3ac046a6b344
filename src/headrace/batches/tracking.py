"""A copy of a batch that notes which of its columns are read."""

from __future__ import annotations

from collections.abc import Iterator, MutableMapping
from typing import Any, Self

from headrace.batches.pytree import PytreeNode
from headrace.batches.sample_batch import SampleBatch, flatten, unflatten
from headrace.batches.sequences import Sequences


class TrackedBatch(SampleBatch):
    """A deep copy of a batch that notes which of its columns are read; made by `tracked`.

    Batches made of it note their reads in the same set. A column that was replaced is not the given one any more, so
    reading it is not noted.
    """

    # Rules: views D1

    _reads: set[str]
    _given: set[str]

    @property
    def data(self) -> Any:
        """The columns as a mapping that notes reads."""
        return _TrackedColumns(self._columns, self._reads, self._given)

    def __getitem__(self, key: str | slice) -> Any:
        if (
            isinstance(key, str)
            and (name := key if key in self._columns else key.split("/")[0]) in self._given
        ):
            self._reads.add(name)
        return super().__getitem__(key)

    def __setitem__(self, name: str, column: Any) -> None:
        super().__setitem__(name, column)
        self._given.discard(name)

    def __delitem__(self, name: str) -> None:
        super().__delitem__(name)
        self._given.discard(name)

    def clear(self) -> None:
        """Removes all columns, which reads none."""
        for name in list(self):
            del self[name]

    def rows(self) -> Iterator[dict[str, Any]]:
        """Yields each real row as a dict; all columns are read."""
        self._reads |= self._given
        return super().rows()

    def numpy(self) -> Any:
        """Returns the columns as a mapping that notes reads."""
        return _TrackedColumns(super().numpy(), self._reads, set(self._given))

    def torch(self) -> Any:
        """Returns the columns as torch tensors, in a mapping that notes reads."""
        return _TrackedColumns(super().torch(), self._reads, set(self._given))

    def jax(self) -> Any:
        """Returns the columns as JAX arrays, in a mapping that notes reads."""
        return _TrackedColumns(super().jax(), self._reads, set(self._given))

    def __copy__(self) -> Self:
        return self._like_this(self._columns.copy(), self._sequences)

    def __deepcopy__(self, memo: object) -> Self:
        return self.copy()

    def _like_this(self, columns: dict[str, Any], sequences: Sequences | None) -> Self:
        result = super()._like_this(columns, sequences)
        result._reads, result._given = self._reads, self._given.copy()
        return result

    def _joined_with(
        self, others: list[SampleBatch], columns: dict[str, Any], sequences: Sequences | None
    ) -> Self:
        result = super()._joined_with(others, columns, sequences)
        result._given.update(*(batch._given for batch in others if isinstance(batch, TrackedBatch)))
        return result


class _TrackedColumns(MutableMapping[str, Any]):
    """Columns that note which of them are read."""

    def __init__(self, columns: dict[str, Any], reads: set[str], given: set[str]) -> None:
        self._columns, self._reads, self._given = columns, reads, given

    def __getitem__(self, name: str) -> Any:
        if name in self._given:
            self._reads.add(name)
        return self._columns[name]

    def __setitem__(self, name: str, column: Any) -> None:
        self._columns[name] = column
        self._given.discard(name)

    def __delitem__(self, name: str) -> None:
        del self._columns[name]
        self._given.discard(name)

    def __contains__(self, name: object) -> bool:
        return name in self._columns

    def __iter__(self) -> Iterator[str]:
        return iter(self._columns)

    def __len__(self) -> int:
        return len(self._columns)


def tracked(batch: SampleBatch) -> tuple[TrackedBatch, set[str]]:
    """Returns a deep copy of a batch, and the set to which it adds the names of columns that are read.

    >>> batch, reads = tracked(SampleBatch({"observation": [1, 2], "action": [0, 1], "reward": [1.0, 0.0]}))
    >>> batch["observation"], [part["reward"] for part in batch.timeslices(1)], "action" in batch
    (array([1, 2]), [array([1.]), array([0.])], True)
    >>> sorted(reads)
    ['observation', 'reward']
    """
    copied = batch.copy()
    result: TrackedBatch = object.__new__(TrackedBatch)
    result.__dict__.update(copied.__dict__)
    result._reads, result._given = set(), set(copied)
    _NODE.tell_jax()
    return result, result._reads


def _flatten(batch: TrackedBatch) -> tuple[tuple[Any, ...], tuple[Any, ...]]:
    # The functions of pytrees see all columns.
    batch._reads |= batch._given
    children, (_, *rest) = flatten(batch)
    return children, (SampleBatch, *rest)


_NODE = PytreeNode(TrackedBatch, _flatten, unflatten)
