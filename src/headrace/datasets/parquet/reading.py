"""Episodes from the rows of a Parquet file."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from headrace.datasets.arrow import to_numpy
from headrace.datasets.dataset import EpisodeDataset
from headrace.datasets.errors import dataset_errors
from headrace.datasets.exporting.header import EpisodeFacts, Header
from headrace.datasets.exporting.structure import Array, Column
from headrace.datasets.foreign.parquet import ForeignParquetDataset
from headrace.datasets.header_dataset import HeaderDataset
from headrace.datasets.parquet.columns import EPISODE, FINAL, KEY, STEP, is_marked, schema_of
from headrace.datasets.parquet.rows import ParquetRows
from headrace.errors import DatasetError, SpecError


def open_parquet(path: Path) -> EpisodeDataset:
    """Opens a file for `load_parquet`."""
    rows = ParquetRows(path)
    try:
        if is_marked(rows.schema) or KEY.encode() in {**rows.metadata, **(rows.schema.metadata or {})}:
            return ParquetDataset(rows)
        return ForeignParquetDataset(rows)
    except BaseException:
        rows.close()
        raise


class ParquetDataset(HeaderDataset):
    """Episodes of a file of `save_parquet`.

    Args:
        rows: the open file, which `close` closes.

    Raises:
        DatasetError: the header is damaged or does not fit the columns.
    """

    format_name = "parquet"

    def __init__(self, rows: ParquetRows) -> None:
        self._rows = rows
        with dataset_errors(rows.path):
            header = Header.from_json(_header_text(rows))
            expected = schema_of(header.structure)
        for field in expected:
            place = rows.schema.get_field_index(field.name)
            got = rows.schema.field(place).type if place >= 0 else "no such column"
            if got != field.type:
                raise DatasetError(f"{rows.path}: {field.name}: expected {field.type}, got {got}")
        super().__init__(rows.path, header)
        self._starts = np.concatenate(([0], np.cumsum(np.array(header.lengths, np.int64) + 1)))
        if rows.num_rows != self._starts[-1]:
            raise DatasetError(
                f"{rows.path}: expected {self._starts[-1]} rows for {len(self)} episodes, got {rows.num_rows}"
            )

    def header_text(self) -> str:
        """Returns the header as it would be written, to verify a file."""
        return self._header.to_json()

    def _arrays(self, index: int, facts: EpisodeFacts) -> dict[str, Array]:
        table = self._rows.read(*self._starts[index : index + 2].tolist())
        steps = np.arange(len(table))
        for name, expected in ((EPISODE, steps * 0 + index), (STEP, steps), (FINAL, steps == steps[-1])):
            if not np.array_equal(to_numpy(table.column(name), name), expected):
                raise SpecError(f"{name}: expected the rows of one episode in their order")
        columns = self._header.structure.columns.items()
        return {path: _array(table.column(path), column, facts) for path, column in columns}

    def _close(self) -> None:
        self._rows.close()


def _header_text(rows: ParquetRows) -> str:
    """Returns the header, which is in the schema and in the footer, so that one damaged key does not hide it."""
    found = [(place or {}).get(KEY.encode(), b"").decode() for place in (rows.schema.metadata, rows.metadata)]
    if found[0] != found[1]:
        raise SpecError(f"expected the same description under the key {KEY!r} in the schema and the footer")
    return found[0]


def _array(values: Any, column: Column, facts: EpisodeFacts) -> Array:
    rows = facts.rows[column.path]
    if values.slice(rows).null_count != len(values) - rows:
        raise SpecError(f"{column.path}: expected {rows} values, got one in the final row too")
    array = to_numpy(values.slice(0, rows), column.path)
    if 0 in column.shape:
        array = np.empty((rows, *column.shape), column.dtype)
    return array.astype(facts.dtypes.get(column.path, column.dtype)).reshape(rows, *column.shape)
