"""Row ranges of a Parquet file, read with the row groups that they lie in."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from headrace.datasets.parquet.pyarrow import pa, parquet
from headrace.errors import DatasetError


class ParquetRows:
    """The rows of a Parquet file by number.

    The row group that was read last is kept: episodes that are read in their order cost each row group once. Arrow
    reads at offsets and not from a place in the file that processes share, so one that is forked off reads on without
    disturbing its parent. The file is not mapped: it may be larger than the addresses that a process may use, and
    pages that were read do not count as the process's memory.

    Args:
        path: of the file.

    Attributes:
        schema: of its columns.
        metadata: what the footer says beside that, key to value.
        num_rows: how many.

    Raises:
        FileNotFoundError: no such file.
        DatasetError: it is not a Parquet file, or cut short.
    """

    def __init__(self, path: Path) -> None:
        self.path = Path(path).absolute()
        if not self.path.exists():
            raise FileNotFoundError(f"no such file: {self.path}")
        try:
            self._file = parquet.ParquetFile(self.path, page_checksum_verification=True)
            footer = self._file.metadata
            sizes = [footer.row_group(index).num_rows for index in range(footer.num_row_groups)]
            self.schema: pa.Schema = self._file.schema_arrow
            self.metadata: dict[bytes, bytes] = footer.metadata or {}
        except (pa.ArrowException, OSError, ValueError, TypeError) as error:
            raise DatasetError(f"{self.path}: expected a Parquet file, whole: {error}") from error
        self._starts = np.concatenate(([0], np.cumsum(sizes, dtype=np.int64)))
        self.num_rows = int(self._starts[-1])
        self._last: tuple[int, pa.Table] | None = None

    def read(self, start: int, stop: int) -> pa.Table:
        """The rows `start <= row < stop`, all columns.

        Raises:
            DatasetError: damaged.
        """
        first = int(np.searchsorted(self._starts, start, side="right")) - 1
        last = int(np.searchsorted(self._starts, stop, side="left"))
        parts = []
        for group in range(first, last):
            begin = int(self._starts[group])
            table = self._group(group)
            parts.append(
                table.slice(max(0, start - begin), min(stop - begin, len(table)) - max(0, start - begin))
            )
        return pa.concat_tables(parts)

    def column(self, name: str) -> Any:
        """One column of all rows, as a chunked array.

        Raises:
            DatasetError: damaged.
        """
        place = self.schema.get_field_index(name)
        try:
            groups = list(range(len(self._starts) - 1))
            return self._file.read_row_groups(groups, columns=[self.schema.names[place]]).column(0)
        except (pa.ArrowException, OSError, ValueError) as error:
            raise DatasetError(f"{self.path}: {name}: {error}") from error

    def _group(self, group: int) -> pa.Table:
        last = self._last
        if last is not None and last[0] == group:
            return last[1]
        try:
            table = self._file.read_row_group(group)
        except (pa.ArrowException, OSError, ValueError) as error:
            raise DatasetError(f"{self.path}: row group {group}: {error}") from error
        self._last = (group, table)
        return table

    def close(self) -> None:
        """Let go of the file."""
        self._last = None
        self._file.close(force=True)
