"""A copy of a batch that notes which of its columns are read."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping, MutableMapping
from typing import TYPE_CHECKING, Any, Self

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
        tensors = super().torch()
        _tell_torch()
        return _TrackedColumns(tensors, self._reads, set(self._given))

    def jax(self) -> Any:
        """Returns the columns as JAX arrays, in a mapping that notes reads."""
        arrays = super().jax()
        _COLUMNS_NODE.tell_jax()
        return _TrackedColumns(arrays, self._reads, set(self._given))

    def __deepcopy__(self, memo: object) -> Self:
        return self.copy()

    def __reduce__(self) -> Any:
        # Another process may read any column.
        self._reads |= self._given
        return super().__reduce__()

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


if TYPE_CHECKING:
    _MappingAndDict = MutableMapping[str, Any]
else:

    class _MappingAndDict(MutableMapping, dict):
        """An instance of dict, for functions that accept only dicts, with the methods of `MutableMapping`."""


class _TrackedColumns(_MappingAndDict):
    """Columns that note which of them are read; the dict that they inherit is empty.

    A pytree, like the plain dict that `SampleBatch` returns.
    """

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

    def __reversed__(self) -> Iterator[str]:
        return reversed(self._columns)

    def copy(self) -> _TrackedColumns:
        return _TrackedColumns(self._columns.copy(), self._reads, self._given.copy())

    def __or__(self, other: Any) -> Any:
        if not isinstance(other, Mapping):
            return NotImplemented
        joined = self.copy()
        joined.update(other)
        return joined

    def __ror__(self, other: Any) -> Any:
        return {**other, **self}

    def __ior__(self, other: Any) -> Self:
        self.update(other)
        return self

    def __repr__(self) -> str:
        return repr(self._columns)

    def __reduce__(self) -> Any:
        return dict, (dict(self),)


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
    _COLUMNS_NODE.tell_jax()
    _tell_torch()
    return result, result._reads


def _flatten(batch: TrackedBatch) -> tuple[tuple[Any, ...], tuple[Any, ...]]:
    # The functions of pytrees see all columns.
    batch._reads |= batch._given
    children, (_, *rest) = flatten(batch)
    return children, (SampleBatch, *rest)


def _flatten_columns(columns: _TrackedColumns) -> tuple[tuple[Any, ...], tuple[str, ...]]:
    return tuple(columns.values()), tuple(columns)


def _unflatten_columns(names: tuple[str, ...], columns: Any) -> dict[str, Any]:
    return dict(zip(names, columns, strict=True))


def _tell_torch() -> None:
    """Registers the columns with torch's pytrees, once, if torch is loaded; a plain dict is known to them."""
    pytrees = sys.modules.get("torch.utils._pytree")
    if pytrees is not None and _TrackedColumns not in pytrees.SUPPORTED_NODES:
        pytrees.register_pytree_node(
            _TrackedColumns, _flatten_columns, lambda columns, names: _unflatten_columns(names, columns)
        )


_NODE = PytreeNode(TrackedBatch, _flatten, unflatten)
_COLUMNS_NODE = PytreeNode(_TrackedColumns, _flatten_columns, _unflatten_columns)
