"""Copying rows of several columns at once."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from headrace.store.copying import copy
from headrace.store.fields import Fields
from headrace.store.gather import Pool, gather
from headrace.store.records import COUNT, ROWS, TO, by_rows, fields, record_layout
from headrace.store.store import Store

# Each copy begins at a line of the processor's cache.
_LINE = 64
_KEPT_SHAPES = 16

Shapes = tuple[tuple[int, ...], ...]


class _Places(NamedTuple):
    """Destinations of the copies of fields, for sets of rows of certain shapes.

    Attributes:
        table: for `copying.copy`.
        nbytes: of all copies.
        copies: these side by side.
        numbers: of the columns, in the order of the copies.
    """

    table: NDArray[np.int64]
    nbytes: int
    copies: Fields
    numbers: list[int]


class Copier:
    """Copies rows of some columns: those that share records in one call, wider ones by `gather`.

    Args:
        store: where the columns are.
        pool: of the buffers.
        columns: the number of a set of rows, and the name of a column that is copied from there; the same may come
            twice, and then is copied twice.

    >>> from headrace.spec import Signature
    >>> store = Store(Signature.like({"observation": np.zeros(4, np.float32), "reward": np.float32(0)}), capacity=100)
    >>> copier = Copier(store, Pool(), [(0, "reward"), (0, "observation"), (1, "observation")])
    >>> [copy.shape for copy in copier.copy([np.zeros(8, np.int64), np.zeros((8, 2), np.int64)])]
    [(8,), (8, 4), (8, 2, 4)]
    """

    def __init__(self, store: Store, pool: Pool, columns: Sequence[tuple[int, str]]) -> None:
        layout = record_layout(store.signature)
        specs = store.signature.columns
        self._pool = pool
        self._records, self._record_nbytes = store.records, layout.nbytes
        small = [number for number, (_, name) in enumerate(columns) if name in layout.offsets]
        self._small = [(number, columns[number][0], specs[columns[number][1]]) for number in small]
        self._fields = fields(
            layout, [(columns[number][1], specs[columns[number][1]].nbytes) for number in small]
        )
        large: dict[str, list[tuple[int, int]]] = {}
        for number, (rows, name) in enumerate(columns):
            if name not in layout.offsets:
                large.setdefault(name, []).append((number, rows))
        self._large = [(store.columns[name], shown) for name, shown in large.items()]
        self._count = len(columns)
        self._places: dict[Shapes, _Places] = {}

    def copy(self, sets: Sequence[NDArray[np.int64]]) -> list[NDArray[Any]]:
        """Copies from these sets of rows, `dtype[*rows.shape, ...]` each; a negative row gives any row's values."""
        out: list[Any] = [None] * self._count
        if self._small:
            shapes = tuple([rows.shape for rows in sets])
            places = self._places.get(shapes) or self._place(shapes)
            buffer = self._pool.buffer(places.nbytes)
            rows = sets[0].reshape(-1) if len(sets) == 1 else np.concatenate(sets, None)
            copy(self._records, self._record_nbytes, rows, places.table, buffer)
            for number, values in zip(places.numbers, places.copies.arrays(buffer), strict=True):
                out[number] = values
        for column, shown in self._large:
            copies = gather(column, [sets[place] for _, place in shown], self._pool)
            for (number, _), copied in zip(shown, copies, strict=True):
                out[number] = copied
        return out

    def _place(self, shapes: Shapes) -> _Places:
        sizes = [prod(shape) for shape in shapes]
        table = self._fields.copy()
        formats, offsets, end = [], [], 0
        for line, (_, rows, spec) in enumerate(self._small):
            table[line, ROWS], table[line, COUNT], table[line, TO] = sum(sizes[:rows]), sizes[rows], end
            formats.append((spec.dtype, shapes[rows] + spec.shape))
            offsets.append(end)
            end += -(-sizes[rows] * spec.nbytes // _LINE) * _LINE
        numbers = [number for number, _, _ in self._small]
        names = [str(number) for number in numbers]
        block = np.dtype({"names": names, "formats": formats, "offsets": offsets, "itemsize": max(1, end)})
        if len(self._places) >= _KEPT_SHAPES:
            self._places.clear()
        found = self._places[shapes] = _Places(
            by_rows(table), block.itemsize, Fields(block, {name: name for name in names}), numbers
        )
        return found
