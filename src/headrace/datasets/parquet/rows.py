"""Ranges of rows of a Parquet file, read with the row groups that they lie in."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from headrace.datasets.arrow import pa, parquet
from headrace.datasets.errors import dataset_errors, existing_file


class ParquetRows:
    """The rows of a Parquet file by number.

    The last row group is kept, so episodes that are read in order cost each row group once. Arrow reads at offsets, so
    a forked process does not move the position in its parent's file. The file is not mapped: it may be larger than the
    address space of the process, and pages that were read do not count as memory of the process.

    Args:
        path: of the file.

    Attributes:
        schema: of the columns.
        metadata: further keys and values in the footer.
        num_rows: number of rows.

    Raises:
        FileNotFoundError: the file does not exist.
        DatasetError: the file is not a Parquet file, or is cut short.
    """

    def __init__(self, path: Path) -> None:
        self.path = existing_file(path)
        with dataset_errors(self.path, "expected a Parquet file, whole"):
            self._file = parquet.ParquetFile(self.path, page_checksum_verification=True)
            footer = self._file.metadata
            sizes = [footer.row_group(index).num_rows for index in range(footer.num_row_groups)]
            self.schema: pa.Schema = self._file.schema_arrow
            self.metadata: dict[bytes, bytes] = footer.metadata or {}
        self._starts = np.concatenate(([0], np.cumsum(sizes, dtype=np.int64)))
        self.num_rows = int(self._starts[-1])
        self._last: tuple[int, pa.Table] | None = None

    def read(self, start: int, stop: int) -> pa.Table:
        """Reads the rows `start <= row < stop` of all columns.

        Raises:
            DatasetError: the file is damaged.
        """
        first = int(np.searchsorted(self._starts, start, side="right")) - 1
        last = int(np.searchsorted(self._starts, stop, side="left"))
        parts = []
        for group in range(first, last):
            table, begin = self._group(group), int(self._starts[group])
            skipped = max(0, start - begin)
            parts.append(table.slice(skipped, stop - begin - skipped))
        return pa.concat_tables(parts)

    def column(self, name: str) -> Any:
        """Reads one column of all rows, as a chunked array.

        Raises:
            DatasetError: the file is damaged.
        """
        with dataset_errors(self.path, name):
            groups = list(range(len(self._starts) - 1))
            return self._file.read_row_groups(groups, columns=[name]).column(0)

    def close(self) -> None:
        """Closes the file."""
        self._last = None
        self._file.close(force=True)

    def _group(self, group: int) -> pa.Table:
        if self._last is None or self._last[0] != group:
            with dataset_errors(self.path, f"row group {group}"):
                self._last = group, self._file.read_row_group(group)
        return self._last[1]
