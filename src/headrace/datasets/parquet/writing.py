"""Episodes to row groups of a Parquet file."""

from __future__ import annotations

import base64
import math
from contextlib import suppress
from pathlib import Path

import numpy as np

from headrace.datasets.arrow import pa, parquet
from headrace.datasets.exporting.header import Header
from headrace.datasets.exporting.structure import Array
from headrace.datasets.parquet.columns import KEY, schema_of, to_arrow
from headrace.datasets.parquet.reading import ParquetDataset
from headrace.datasets.parquet.rows import ParquetRows
from headrace.errors import DatasetError, SpecError
from headrace.trajectories.episode import Episode

# A row group ends before an episode that would take it beyond one of these limits: to read an episode, its whole row
# group is read.
_ROWS = 65_536
_BYTES = 16 << 20
# An episode beyond this size is cut into several row groups, which limits the memory of the writer.
_EPISODE_BYTES = 32 << 20


def check_compression(compression: str) -> None:
    """Refuses a compression that pyarrow does not have.

    Raises:
        ValueError: with its name.
    """
    with suppress(ValueError, TypeError, AttributeError):  # Not the name of a compression.
        if compression.lower() == "none" or pa.Codec.is_available(compression.lower()):
            return
    raise ValueError(f"compression: expected one that pyarrow has, such as 'zstd', got {compression!r}")


class ParquetWriter:
    """Writes episodes to a Parquet file.

    Args:
        path: of the file.
        header: without episodes.
        compression: a name that pyarrow knows.

    Raises:
        SpecError: Arrow does not have a dtype.
    """

    def __init__(self, path: Path, header: Header, compression: str) -> None:
        self._path = path
        self._header = header
        self._schema = schema_of(header.structure)
        self._pending: list[pa.RecordBatch] = []
        self._pending_rows = self._pending_bytes = 0
        columns = header.structure.columns.values()
        self._row_bytes = sum(max(1, each.dtype.itemsize) * math.prod(each.shape) for each in columns)
        # `finish` writes the schema to the footer, with the complete header.
        self._file = parquet.ParquetWriter(
            path,
            self._schema,
            compression=compression,
            use_dictionary=_columns_with_dictionary(self._schema),
            write_page_checksum=True,
            store_schema=False,
        )

    def append(self, index: int, episode: Episode, arrays: dict[str, Array]) -> None:
        """Takes the next episode, whose rows are written with those of the episodes around it."""
        self._header.add(episode, arrays)
        batch = self._batch(index, arrays, len(episode) + 1)
        if self._pending_rows + len(batch) > _ROWS or self._pending_bytes + batch.nbytes > _BYTES:
            self._flush()
        self._pending.append(batch)
        self._pending_rows += len(batch)
        self._pending_bytes += batch.nbytes

    def finish(self) -> None:
        """Writes the last row group and the footer, and verifies the file.

        Raises:
            DatasetError: the file holds something else.
        """
        self._flush()
        text = self._header.to_json()
        schema = self._schema.with_metadata({KEY: text})
        # The form in which Arrow itself stores a schema with its metadata.
        encoded = base64.b64encode(schema.serialize().to_pybytes()).decode()
        self._file.add_key_value_metadata({KEY: text, "ARROW:schema": encoded})
        self._file.close()
        # Rules: datasets G6
        with ParquetDataset(ParquetRows(self._path)) as written:
            if written.header_text() != self._header.to_json():
                raise DatasetError(f"{self._path}: the header that was read differs from the one written")

    def close(self) -> None:
        """Closes the file."""
        self._pending = []
        self._file.close()

    def _batch(self, index: int, arrays: dict[str, Array], rows: int) -> pa.RecordBatch:
        steps = np.arange(rows)
        columns = [pa.array(np.full(rows, index)), pa.array(steps), pa.array(steps == rows - 1)]
        for path, column in self._header.structure.columns.items():
            try:
                columns.append(to_arrow(column, arrays[path], rows))
            except SpecError as error:
                raise SpecError(f"episode {index}: {error}") from error
        return pa.record_batch(columns, schema=self._schema)

    def _flush(self) -> None:
        """Writes the pending episodes as one row group, or a single long one as several."""
        if self._pending:
            table = pa.Table.from_batches(self._pending, self._schema)
            rows = _ROWS
            if len(self._pending) == 1:
                rows = min(_ROWS, max(1, _EPISODE_BYTES // max(1, self._row_bytes)))
            self._file.write_table(table, row_group_size=rows)
        self._pending = []
        self._pending_rows = self._pending_bytes = 0


def _columns_with_dictionary(schema: pa.Schema) -> list[str]:
    """Returns the columns for which a dictionary is tried: not floats, whose NaNs it would make all the same."""
    paths = []
    for field in schema:
        is_list = pa.types.is_fixed_size_list(field.type)
        element = field.type.value_type if is_list else field.type
        if not pa.types.is_floating(element):
            paths.append(f"{field.name}.list.element" if is_list else field.name)
    return paths
