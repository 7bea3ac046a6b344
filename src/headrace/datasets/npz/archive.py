"""Arrays of an npz file, read strictly: never with pickle, and always with their checksums."""

from __future__ import annotations

import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any

import numpy as np

from headrace.datasets.errors import dataset_errors, existing_file
from headrace.datasets.exporting.structure import Array, describe
from headrace.datasets.large_arrays import empty_array
from headrace.errors import DatasetError
from headrace.persist.whole_file import bytes_of

LENGTHS = "episode_lengths"
HEADER = "headrace"
# The archive's comment, by which a file whose header has a damaged name is still known.
MARK = b"headrace episodes"

_CHUNK = 1 << 20
_HEADERS = {
    (1, 0): np.lib.format.read_array_header_1_0,
    (2, 0): np.lib.format.read_array_header_2_0,
}


class NpzArchive:
    """An npz file, open for reading.

    Args:
        path: of the file.

    Attributes:
        names: of its arrays.
        comment: of the archive.

    Raises:
        FileNotFoundError: the file does not exist.
        DatasetError: the file is not an npz file, or is cut short.
    """

    def __init__(self, path: Path) -> None:
        self.path = existing_file(path)
        with dataset_errors(self.path, "expected an npz file, whole"):
            self._zip = zipfile.ZipFile(self.path)
        entries = self._zip.namelist()
        others = [name for name in entries if not name.endswith(".npy")]
        if others:
            self.close()
            raise DatasetError(f"{self.path}: expected an npz file, got an archive with {others[0]!r:.80}")
        self.names = [name.removesuffix(".npy") for name in entries]
        self.comment = self._zip.comment

    def read(self, name: str) -> Array:
        """Reads one array, which lies in a temporary file if it is large.

        Raises:
            DatasetError: the array is missing, is damaged, or holds Python objects; or the folder of temporary files is
                full.
        """
        with self._entry(name) as entry:
            shape, by_columns, dtype = _read_header(entry)
            # Before space is taken for a shape that is damaged.
            held = self._zip.getinfo(f"{name}.npy").file_size
            if int(np.prod(shape, dtype=np.float64)) * dtype.itemsize > held:
                raise ValueError(f"expected {describe(dtype, shape)}, got {held} bytes")
            array = empty_array(shape[::-1] if by_columns else shape, dtype)
            _read_into(entry, array)
        return array.T if by_columns else array

    def verify(self, name: str) -> tuple[tuple[int, ...], np.dtype[Any]]:
        """Returns shape and dtype of one array after reading all of its bytes, a part at a time.

        Raises:
            DatasetError: as `read`.
        """
        with self._entry(name) as entry:
            shape, _, dtype = _read_header(entry)
            left = int(np.prod(shape, dtype=np.int64)) * dtype.itemsize
            while left:
                chunk = entry.read(min(left, _CHUNK))
                if not chunk:
                    raise ValueError(f"{left} bytes are missing")
                left -= len(chunk)
        return shape, dtype

    def close(self) -> None:
        """Closes the file."""
        self._zip.close()

    @contextmanager
    def _entry(self, name: str) -> Iterator[IO[bytes]]:
        """Opens one array, which the block reads to its end."""
        if name not in self.names:
            raise DatasetError(f"{self.path}: {name} is missing; there are {', '.join(self.names)}")
        with dataset_errors(self.path, name), self._zip.open(f"{name}.npy") as entry:
            yield entry
            # The checksum is compared at the end.
            if entry.read(1):
                raise ValueError("expected the end of the array, got more bytes")


def _read_header(entry: IO[bytes]) -> tuple[tuple[int, ...], bool, np.dtype[Any]]:
    """Reads shape, whether the values stand column by column, and dtype."""
    version = np.lib.format.read_magic(entry)
    if version not in _HEADERS:
        raise ValueError(f"expected version 1.0 or 2.0 of the array format, got {version}")
    shape, by_columns, dtype = _HEADERS[version](entry)
    if dtype.hasobject:
        raise ValueError("expected numbers, bools or strings, got Python objects")
    return shape, by_columns, dtype


def _read_into(entry: IO[bytes], array: Array) -> None:
    """Fills a contiguous array with the next bytes."""
    left = bytes_of(array)
    while left:
        chunk = entry.read(min(len(left), _CHUNK))
        if not chunk:
            raise ValueError(f"{len(left)} bytes are missing")
        left[: len(chunk)] = chunk
        left = left[len(chunk) :]
