"""Arrays that grow episode by episode, and become one npz file."""

from __future__ import annotations

import shutil
import tempfile
import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import IO, Any

import numpy as np

from headrace.datasets.exporting.header import Header
from headrace.datasets.exporting.structure import Column

Array = np.ndarray[Any, Any]

LENGTHS = "episode_lengths"
HEADER = "headrace"
# The archive's comment. A damaged name of the header must not make a foreign file of one of ours.
MARK = b"headrace episodes"

# A column is held in memory up to so many bytes, and then goes on in a file.
_IN_MEMORY = 1 << 20
_CHUNK = 1 << 20
# Deflate gains little on recorded numbers beyond this, and takes three times as long at its default.
_LEVEL = 3


class NpzWriter:
    """Writes episodes to an npz file.

    An array in a zip archive is written from end to end, so the rows of each column are kept in a temporary file
    without a name until the number of rows is known.

    Args:
        path: of the file.
        header: complete at `finish`.
        compressed: whether the arrays are deflated.
    """

    def __init__(self, path: Path, header: Header, compressed: bool) -> None:
        self._path = path
        self._header = header
        self._compression = zipfile.ZIP_DEFLATED if compressed else zipfile.ZIP_STORED
        columns = header.structure.columns.values()
        self._columns = {column.path: _Rows(column, path.parent) for column in columns}

    def append(self, index: int, arrays: Mapping[str, Array]) -> None:  # noqa: ARG002 - as other writers take it
        """Keep the next episode's rows."""
        for name, array in arrays.items():
            self._columns[name].append(array)

    def finish(self) -> None:
        """Write the file."""
        lengths = np.array(self._header.lengths, np.int64)
        with zipfile.ZipFile(self._path, "w", self._compression, compresslevel=_LEVEL) as archive:
            archive.comment = MARK
            for name, rows in self._columns.items():
                with archive.open(f"{name}.npy", "w", force_zip64=True) as entry:
                    rows.write_to(entry, self._header)
            for name, array in {LENGTHS: lengths, HEADER: np.array(self._header.to_json())}.items():
                with archive.open(f"{name}.npy", "w", force_zip64=True) as entry:
                    np.lib.format.write_array(entry, array, allow_pickle=False)

    def close(self) -> None:
        """Let go of the temporary files."""
        for rows in self._columns.values():
            rows.close()


class _Rows:
    """The rows of one column so far."""

    def __init__(self, column: Column, folder: Path) -> None:
        self._column = column
        self._file: IO[bytes] = tempfile.SpooledTemporaryFile(_IN_MEMORY, dir=str(folder))  # noqa: SIM115 - see `close`

    def append(self, array: Array) -> None:
        self._file.write(np.ascontiguousarray(array).tobytes())

    def write_to(self, entry: IO[bytes], header: Header) -> None:
        dtype = header.widest(self._column)
        shape = (int(header.offsets(self._column)[-1]), *self._column.shape)
        description = {
            "descr": np.lib.format.dtype_to_descr(dtype),
            "fortran_order": False,
            "shape": shape,
        }
        np.lib.format.write_array_header_1_0(entry, description)
        self._file.seek(0)
        if not self._column.is_text:
            shutil.copyfileobj(self._file, entry, _CHUNK)
            return
        # Strings have the width of their episode so far.
        for index in range(len(header.lengths)):
            facts = header.episode(index)
            own = facts.dtypes[self._column.path]
            shape = (facts.rows[self._column.path], *self._column.shape)
            count = int(np.prod(shape))
            strings = np.frombuffer(self._file.read(count * own.itemsize), own, count)
            entry.write(strings.astype(dtype).tobytes())

    def close(self) -> None:
        self._file.close()
