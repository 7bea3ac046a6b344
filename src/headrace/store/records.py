"""Small columns side by side: one row of all of them is one record, so it costs one read of memory.

A batch of a few hundred rows out of millions is mostly waiting for memory: each column on its own is a wait for each
row. So columns of at most `WIDEST` bytes a row share records, those with the widest numbers first, and every column
stays an ordinary array: a view with the record's size as its stride. Wider columns are arrays of their own.
bench/changes.md has the figures.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from headrace.spec import ArraySpec, Signature

WIDEST = 64
"""Bytes of a row, the size of a line of the processor's cache: a wider row gains nothing by company."""

# The columns of a table of fields.
OFFSET, WIDTH, UNIT, ROWS, COUNT, TO = range(6)
FIELD_WORDS = 6


class RecordLayout(NamedTuple):
    """Where each small column stands in a record.

    Attributes:
        nbytes: of one record, padded so that every number of the next one is aligned too; 0 without small columns.
        offsets: by name of the column.
    """

    nbytes: int
    offsets: dict[str, int]


def record_layout(signature: Signature) -> RecordLayout:
    """Returns the layout of a signature's records.

    >>> record_layout(Signature.like({"action": np.int64(0), "reward": np.float32(0), "done": np.bool_(0)}))
    RecordLayout(nbytes=16, offsets={'action': 0, 'reward': 8, 'done': 12})
    """
    small = [(name, spec) for name, spec in signature.columns.items() if 0 < spec.nbytes <= WIDEST]
    small.sort(key=lambda each: -_alignment(each[1]))
    offsets: dict[str, int] = {}
    end = 0
    for name, spec in small:
        alignment = _alignment(spec)
        offsets[name] = -(-end // alignment) * alignment
        end = offsets[name] + spec.nbytes
    widest = max((_alignment(spec) for _, spec in small), default=1)
    return RecordLayout(-(-end // widest) * widest, offsets)


def stored_nbytes(signature: Signature) -> int:
    """Returns the bytes of one row as it is stored, the padding of its record included."""
    layout = record_layout(signature)
    wide = sum(spec.nbytes for name, spec in signature.columns.items() if name not in layout.offsets)
    return layout.nbytes + wide


def _alignment(spec: ArraySpec) -> int:
    return spec.dtype.alignment


def columns_of(
    records: NDArray[np.uint8], layout: RecordLayout, signature: Signature
) -> dict[str, NDArray[Any]]:
    """Returns the small columns as arrays over the records, `dtype[rows, ...]`.

    Args:
        records: uint8[rows, layout.nbytes].
    """
    rows = records.shape[0]
    columns: dict[str, NDArray[Any]] = {}
    for name, offset in layout.offsets.items():
        spec = signature.columns[name]
        within = np.empty(spec.shape, spec.dtype).strides
        columns[name] = np.ndarray((rows, *spec.shape), spec.dtype, records, offset, (layout.nbytes, *within))
    return columns


def fields(layout: RecordLayout, widths: list[tuple[str, int]]) -> NDArray[np.int64]:
    """Returns the table for `copy_fields`: int64[F, 6], in which the caller fills in ROWS, COUNT and TO.

    Args:
        widths: name and bytes of each column.
    """
    table = np.zeros((len(widths), FIELD_WORDS), np.int64)
    for place, (name, width) in enumerate(widths):
        offset = layout.offsets[name]
        # The widest word that fits the place, the width and the way from record to record.
        unit = next(unit for unit in (8, 4, 2, 1) if not (offset | width | layout.nbytes) % unit)
        table[place, :ROWS] = offset, width, unit
    return table


def by_rows(table: NDArray[np.int64]) -> NDArray[np.int64]:
    """Returns a table for `copy_fields` with fields of the same rows side by side."""
    return table[np.lexsort((table[:, COUNT], table[:, ROWS]))]
