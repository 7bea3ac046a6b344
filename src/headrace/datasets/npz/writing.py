"""Columns that grow with each episode and become one npz file."""

from __future__ import annotations

import shutil
import tempfile
import zipfile
from contextlib import closing
from pathlib import Path
from typing import IO

import numpy as np

from headrace.datasets.exporting.header import Header
from headrace.datasets.exporting.structure import Array, Column
from headrace.datasets.npz.archive import HEADER, LENGTHS, MARK, NpzArchive
from headrace.errors import DatasetError
from headrace.trajectories.episode import Episode

# A column is held in memory up to this number of bytes, and beyond that in a file.
_IN_MEMORY = 1 << 20
_CHUNK = 1 << 20
# A higher level gains little on recorded numbers: the default, 6, takes three times as long.
_LEVEL = 3


class NpzWriter:
    """Writes episodes to an npz file.

    A zip archive is written from beginning to end, one array after the other. So each column is kept in a temporary
    file without a name until its number of rows is known.

    Args:
        path: of the file.
        header: without episodes.
        compressed: whether the arrays are deflated.
    """

    def __init__(self, path: Path, header: Header, compressed: bool) -> None:
        self._path = path
        self._header = header
        self._compression = zipfile.ZIP_DEFLATED if compressed else zipfile.ZIP_STORED
        columns = header.structure.columns.values()
        self._columns = {column.path: _GrowingColumn(column, path.parent) for column in columns}

    def append(self, index: int, episode: Episode, arrays: dict[str, Array]) -> None:  # noqa: ARG002 - of all writers
        """Keeps the rows of the next episode."""
        self._header.add(episode, arrays)
        for name, array in arrays.items():
            self._columns[name].append(array)

    def finish(self) -> None:
        """Writes the file, and verifies it.

        Raises:
            DatasetError: the file holds something else.
        """
        more = {LENGTHS: np.array(self._header.lengths, np.int64), HEADER: np.array(self._header.to_json())}
        with zipfile.ZipFile(self._path, "w", self._compression, compresslevel=_LEVEL) as archive:
            archive.comment = MARK
            for name, rows in self._columns.items():
                with archive.open(f"{name}.npy", "w", force_zip64=True) as entry:
                    rows.write_to(entry, self._header)
            for name, array in more.items():
                with archive.open(f"{name}.npy", "w", force_zip64=True) as entry:
                    np.lib.format.write_array(entry, array, allow_pickle=False)
        self._verify()

    def close(self) -> None:
        """Closes the temporary files."""
        for rows in self._columns.values():
            rows.close()

    def _verify(self) -> None:
        # Rules: datasets G6
        header = self._header
        with closing(NpzArchive(self._path)) as archive:
            found = {HEADER: archive.read(HEADER).item(), LENGTHS: archive.read(LENGTHS).tolist()}
            expected = {HEADER: header.to_json(), LENGTHS: header.lengths}
            for name, column in header.structure.columns.items():
                found[name] = archive.verify(name)
                expected[name] = (int(header.offsets(column)[-1]), *column.shape), header.widest(column)
        for name, value in expected.items():
            if found[name] != value:
                raise DatasetError(f"{self._path}: {name}: expected {value!s:.80}, read {found[name]!s:.80}")


class _GrowingColumn:
    """The rows of one column, in memory or in a temporary file."""

    def __init__(self, column: Column, folder: Path) -> None:
        self._column = column
        self._file: IO[bytes] = tempfile.SpooledTemporaryFile(_IN_MEMORY, dir=str(folder))  # noqa: SIM115 - see `close`
        self.close = self._file.close

    def append(self, array: Array) -> None:
        self._file.write(np.ascontiguousarray(array).tobytes())

    def write_to(self, entry: IO[bytes], header: Header) -> None:
        """Writes all rows as one array of the npy format."""
        column, dtype = self._column, header.widest(self._column)
        description = {
            "descr": np.lib.format.dtype_to_descr(dtype),
            "fortran_order": False,
            "shape": (int(header.offsets(column)[-1]), *column.shape),
        }
        np.lib.format.write_array_header_1_0(entry, description)
        self._file.seek(0)
        if not column.is_text:
            shutil.copyfileobj(self._file, entry, _CHUNK)
            return
        # The strings of each episode have a width of their own, and are widened here.
        for index in range(len(header.lengths)):
            facts = header.episode(index)
            own = facts.dtypes[column.path]
            count = int(np.prod((facts.rows[column.path], *column.shape)))
            strings = np.frombuffer(self._file.read(count * own.itemsize), own, count)
            entry.write(strings.astype(dtype).tobytes())
