"""Episodes to row groups of a Parquet file."""

from __future__ import annotations

import base64
import math
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np

from headrace.datasets.exporting.header import Header
from headrace.datasets.parquet.columns import EPISODE, FINAL, KEY, STEP, schema_of, to_arrow
from headrace.datasets.parquet.pyarrow import pa, parquet
from headrace.errors import SpecError

Array = np.ndarray[Any, Any]

# A row group is cut at so many rows; or before the next episode would bring it over so many bytes, since to read one
# episode is to read its row group; or within an episode at what a writer can still hold.
ROWS = 65_536
_BYTES = 16 << 20
_BYTES_OF_ONE_EPISODE = 32 << 20


def check_compression(compression: str) -> None:
    """Refuse a compression that pyarrow does not have.

    Raises:
        ValueError: with its name.
    """
    with suppress(ValueError, TypeError, AttributeError):  # No name of a compression at all.
        if compression.lower() == "none" or pa.Codec.is_available(compression.lower()):
            return
    raise ValueError(f"compression: expected one that pyarrow has, such as 'zstd', got {compression!r}")


class ParquetWriter:
    """Writes episodes to a Parquet file.

    Args:
        path: of the file.
        header: complete at `finish`.
        compression: a name that pyarrow knows.

    Raises:
        SpecError: a dtype that Arrow does not have.
    """

    def __init__(self, path: Path, header: Header, compression: str) -> None:
        self._header = header
        self._schema = schema_of(header.structure)
        self._pending: list[pa.RecordBatch] = []
        self._pending_rows = self._pending_bytes = 0
        self._row_bytes = sum(
            max(1, column.dtype.itemsize) * math.prod(column.shape)
            for column in header.structure.columns.values()
        )
        # The footer's schema is written at the end, by `finish`: it has the header in it.
        self._file = parquet.ParquetWriter(
            path,
            self._schema,
            compression=compression,
            use_dictionary=_repetitive(self._schema),
            write_page_checksum=True,
            store_schema=False,
        )

    def append(self, index: int, arrays: Mapping[str, Array]) -> None:
        """Take the next episode: its rows are written with those of its neighbours, or alone where they are many."""
        rows = len(arrays["rewards"]) + 1
        batch = self._batch(index, arrays, rows)
        too_many = self._pending_rows + rows > ROWS or self._pending_bytes + batch.nbytes > _BYTES
        if too_many:
            self._flush()
        self._pending.append(batch)
        self._pending_rows += rows
        self._pending_bytes += batch.nbytes

    def finish(self) -> None:
        """Write what is left, and the footer."""
        self._flush()
        text = self._header.to_json()
        schema = self._schema.with_metadata({KEY: text})
        # As Arrow itself stores a schema with its metadata.
        encoded = base64.b64encode(schema.serialize().to_pybytes()).decode()
        self._file.add_key_value_metadata({KEY: text, "ARROW:schema": encoded})
        self._file.close()

    def close(self) -> None:
        """Let go of the file."""
        self._pending = []
        self._file.close()

    def _batch(self, index: int, arrays: Mapping[str, Array], rows: int) -> pa.RecordBatch:
        steps = np.arange(rows)
        columns = {
            EPISODE: pa.array(np.full(rows, index)),
            STEP: pa.array(steps),
            FINAL: pa.array(steps == rows - 1),
        }
        for name, column in self._header.structure.columns.items():
            try:
                columns[name] = to_arrow(column, arrays[name], rows)
            except SpecError as error:
                raise SpecError(f"episode {index}: {error}") from error
        return pa.record_batch([columns[name] for name in self._schema.names], schema=self._schema)

    def _flush(self) -> None:
        if not self._pending:
            return
        table = pa.Table.from_batches(self._pending, self._schema)
        most = min(ROWS, max(1, _BYTES_OF_ONE_EPISODE // max(1, self._row_bytes)))
        # Together the pending episodes are never more than ROWS, so that this cuts nothing but a single long one.
        self._file.write_table(table, row_group_size=most if len(self._pending) == 1 else ROWS)
        self._pending = []
        self._pending_rows = self._pending_bytes = 0


def _repetitive(schema: pa.Schema) -> list[str]:
    """The columns for which a dictionary of values is tried: not floats, where it takes all NaNs for one."""
    paths = []
    for field in schema:
        is_list = pa.types.is_fixed_size_list(field.type)
        element = field.type.value_type if is_list else field.type
        if not pa.types.is_floating(element):
            paths.append(f"{field.name}.list.element" if is_list else field.name)
    return paths
