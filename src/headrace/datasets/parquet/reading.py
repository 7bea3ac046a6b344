"""Episodes out of the rows of a Parquet file."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from headrace.datasets.dataset import EpisodeDataset
from headrace.datasets.exporting.header import EpisodeFacts, Header
from headrace.datasets.exporting.structure import Column
from headrace.datasets.foreign.parquet import ForeignParquetDataset
from headrace.datasets.parquet.columns import EPISODE, FINAL, KEY, STEP, is_marked, schema_of, to_numpy
from headrace.datasets.parquet.rows import ParquetRows
from headrace.errors import DatasetError, SpecError
from headrace.trajectories.episode import Episode

Array = np.ndarray[Any, Any]


def open_parquet(path: Path) -> EpisodeDataset:
    """See `load_parquet`."""
    rows = ParquetRows(path)
    try:
        if is_marked(rows.schema) or KEY.encode() in {**rows.metadata, **(rows.schema.metadata or {})}:
            return ParquetDataset(rows)
        return ForeignParquetDataset(rows)
    except BaseException:
        rows.close()
        raise


class ParquetDataset(EpisodeDataset):
    """The episodes of a file of `save_parquet`; each is read when it is asked for.

    Args:
        rows: the open file, which this closes.

    Raises:
        DatasetError: its description is damaged or does not fit its columns.
    """

    format_name = "parquet"

    def __init__(self, rows: ParquetRows) -> None:
        self._rows = rows
        try:
            self._header = header = Header.from_json(_description(rows))
            expected = schema_of(header.structure)
        except (SpecError, UnicodeDecodeError) as error:
            raise DatasetError(f"{rows.path}: {error}") from error
        for field in expected:
            place = rows.schema.get_field_index(field.name)
            if place < 0 or rows.schema.field(place).type != field.type:
                got = rows.schema.field(place).type if place >= 0 else "no such column"
                raise DatasetError(f"{rows.path}: {field.name}: expected {field.type}, got {got}")
        self._starts = np.concatenate(([0], np.cumsum(np.array(header.lengths, np.int64) + 1)))
        if rows.num_rows != self._starts[-1]:
            raise DatasetError(
                f"{rows.path}: expected {self._starts[-1]} rows for {len(header.lengths)} episodes, got {rows.num_rows}"
            )
        super().__init__(
            num_episodes=len(header.lengths), total_steps=sum(header.lengths), metadata=header.metadata
        )

    def _read(self, index: int) -> Episode:
        start, stop = self._starts[index : index + 2].tolist()
        table = self._rows.read(start, stop)
        facts = self._header.episode(index)
        try:
            _check_place(table, index)
            arrays = {
                name: _array(table.column(name), column, facts)
                for name, column in self._header.structure.columns.items()
            }
            return self._header.structure.unflatten(
                arrays, seed=facts.seed, options=facts.options, id=facts.id
            )
        except SpecError as error:
            raise DatasetError(f"{self._rows.path}: episode {index}: {error}") from error

    def _close(self) -> None:
        self._rows.close()


def check_written(path: Path, header: Header) -> None:
    """Open a file that was just written, and compare it with what was to be in it.

    Raises:
        DatasetError: it is not that.
    """
    # Rules: datasets G6
    with ParquetDataset(ParquetRows(path)) as written:
        if written._header.to_json() != header.to_json():
            raise DatasetError(f"{path}: the header was not written as it is")


def _description(rows: ParquetRows) -> str:
    """The header's text, which stands in the schema and beside it: a damaged key must not make a file a foreign one."""
    found = [(place or {}).get(KEY.encode(), b"").decode() for place in (rows.schema.metadata, rows.metadata)]
    if found[0] != found[1]:
        raise SpecError(f"expected the same description under the key {KEY!r} in the schema and the footer")
    return found[0]


def _check_place(table: Any, index: int) -> None:
    """The rows are those of this episode, all of them and in their order."""
    steps = np.arange(len(table))
    for name, expected in ((EPISODE, steps * 0 + index), (STEP, steps), (FINAL, steps == len(table) - 1)):
        if not np.array_equal(to_numpy(table.column(name), name), expected):
            raise SpecError(f"{name}: expected the rows of one episode in their order")


def _array(values: Any, column: Column, facts: EpisodeFacts) -> Array:
    rows = facts.rows[column.path]
    if values.slice(rows).null_count != len(values) - rows:
        raise SpecError(f"{column.path}: expected {rows} values, got one in the final row too")
    array = to_numpy(values.slice(0, rows), column.path)
    if 0 in column.shape:
        array = np.empty((rows, *column.shape), column.dtype)
    dtype = facts.dtypes.get(column.path, column.dtype)
    return array.astype(dtype).reshape(rows, *column.shape)
