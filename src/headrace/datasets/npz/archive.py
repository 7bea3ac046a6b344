"""The arrays of an npz file, read strictly: never with pickle, and each to its checksum."""

from __future__ import annotations

import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import TracebackType
from typing import IO, Any, Self

import numpy as np

from headrace.errors import DatasetError

Array = np.ndarray[Any, Any]

_CHUNK = 1 << 20
_TOO_LARGE = (
    "; an npz file is read whole. Read it where there is more memory, and keep large data in Minari or Parquet, "
    "of which only the episode in hand is in memory"
)


class NpzArchive:
    """An npz file, open for reading.

    Args:
        path: of the file.

    Attributes:
        names: of its arrays.
        comment: of the archive.

    Raises:
        FileNotFoundError: no such file.
        DatasetError: it is not an npz file, or cut short.
    """

    def __init__(self, path: Path) -> None:
        self.path = Path(path).absolute()
        if not self.path.exists():
            raise FileNotFoundError(f"no such file: {self.path}")
        try:
            self._zip = zipfile.ZipFile(self.path)
        except (zipfile.BadZipFile, OSError, ValueError, NotImplementedError) as error:
            raise DatasetError(f"{self.path}: expected an npz file, whole: {error}") from error
        entries = self._zip.namelist()
        foreign = [name for name in entries if not name.endswith(".npy")]
        if foreign:
            self._zip.close()
            raise DatasetError(f"{self.path}: expected an npz file, got an archive with {foreign[0]!r:.80}")
        self.names = [name.removesuffix(".npy") for name in entries]
        self.comment = self._zip.comment

    def read(self, name: str) -> Array:
        """One array.

        Raises:
            DatasetError: it is not there, is damaged, or holds Python objects.
        """
        with self._entry(name) as entry:
            array: Array = np.lib.format.read_array(entry, allow_pickle=False)
            _expect_end(entry)
        return array

    def verify(self, name: str) -> tuple[tuple[int, ...], np.dtype[Any]]:
        """Shape and dtype of one array whose bytes are all there, without holding them.

        Raises:
            DatasetError: as `read`.
        """
        with self._entry(name) as entry:
            version = np.lib.format.read_magic(entry)
            if version != (1, 0):
                raise ValueError(f"version {version} of the array format")
            shape, _, dtype = np.lib.format.read_array_header_1_0(entry)
            left = int(np.prod(shape, dtype=np.int64)) * dtype.itemsize
            while left:
                chunk = entry.read(min(left, _CHUNK))
                if not chunk:
                    raise ValueError(f"{left} bytes are missing")
                left -= len(chunk)
            _expect_end(entry)
        return shape, dtype

    @contextmanager
    def _entry(self, name: str) -> Iterator[IO[bytes]]:
        if name not in self.names:
            raise DatasetError(f"{self.path}: {name} is missing; there are {', '.join(self.names)}")
        try:
            with self._zip.open(f"{name}.npy") as entry:
                yield entry
        except Exception as error:
            # A damaged file raises what its bytes lead to: errors of zlib, struct, of parsing, of memory.
            advice = _TOO_LARGE if isinstance(error, MemoryError) else ""
            raise DatasetError(f"{self.path}: {name}: {type(error).__name__}: {error}{advice}") from error

    def close(self) -> None:
        """Close the file."""
        self._zip.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def _expect_end(entry: IO[bytes]) -> None:
    # The checksum is compared when the end is reached.
    if entry.read(1):
        raise ValueError("there are bytes behind the array")
