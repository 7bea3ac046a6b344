"""Files of arrays, written and read with their checksum in one go.

A piece of a file is hashed while it is in the processor's cache, so the checksum costs no further read of memory. The
hash is XXH3 of 128 bits: it finds damage at the speed of memory; it is no defence against a forger.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import numpy as np
import xxhash
from numpy.typing import NDArray

from headrace.errors import CheckpointError
from headrace.persist.manifest import ArrayRecord, FileRecord
from headrace.store.arena import Arena

_PIECE = 1 << 20


def record_of_array(name: str, array: NDArray[Any], length: int | None = None) -> ArrayRecord:
    """What the manifest says of an array, or of its first `length` rows."""
    shape = array.shape if length is None else (length, *array.shape[1:])
    return ArrayRecord(name, array.dtype.str, shape)


class HashedWriter:
    """A new file that is hashed as it is written.

    Args:
        path: of the file, which must not exist.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._file = open(path, "xb", buffering=0)  # noqa: SIM115 - closed by `finish` or on leaving
        self._hash = xxhash.xxh3_128()
        self._size = 0

    def write(self, array: NDArray[Any]) -> None:
        """Append the bytes of a contiguous array."""
        view = _as_bytes(array)
        for begin in range(0, len(view), _PIECE):
            piece = view[begin : begin + _PIECE]
            self._hash.update(piece)
            while piece:
                piece = piece[self._file.write(piece) :]
        self._size += len(view)

    def finish(self, arrays: Iterable[ArrayRecord]) -> FileRecord:
        """Put the file on the disk; returns what the manifest says of it."""
        os.fsync(self._file.fileno())
        self._file.close()
        return FileRecord(self._path.name, self._size, self._hash.hexdigest(), tuple(arrays))

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._file.close()


class HashedReader:
    """A file of a checkpoint, of which nothing is to be trusted before `finish` has returned.

    Args:
        folder: of the checkpoint.
        record: what the manifest says of the file.

    Raises:
        CheckpointError: the file is missing or of another size.
    """

    def __init__(self, folder: Path, record: FileRecord) -> None:
        self._path = folder / record.name
        self._record = record
        self._hash = xxhash.xxh3_128()
        self._buffer = np.empty(_PIECE, np.uint8)
        try:
            self._file = open(self._path, "rb", buffering=0)  # noqa: SIM115 - closed on leaving
            size = os.fstat(self._file.fileno()).st_size
        except OSError as error:
            raise self._damage(f"a file of {record.size} bytes", error.strerror or str(error)) from error
        if size != record.size:
            self._file.close()
            raise self._damage(f"{record.size} bytes", f"{size}")

    def read_into(self, array: NDArray[Any]) -> None:
        """Fill a contiguous array with the next bytes."""
        view = _as_bytes(array)
        for begin in range(0, len(view), _PIECE):
            piece = view[begin : begin + _PIECE]
            done = 0
            while done < len(piece):
                count = self._read(piece[done:])
                if not count:
                    raise self._damage(f"{self._record.size} bytes", "an end before that")
                done += count
            self._hash.update(piece)

    def copy_to(self, arena: Arena, offset: int, nbytes: int) -> None:
        """Copy the next bytes to a place in an arena.

        Memory that other processes may map is quicker to write to through its descriptor than through a mapping, which
        the system would have to fill in page by page.
        """
        done = 0
        while done < nbytes:
            piece = self._buffer[: min(_PIECE, nbytes - done)]
            self.read_into(piece)
            arena.write(offset + done, piece.data)
            done += len(piece)

    def _read(self, piece: memoryview) -> int:
        try:
            return self._file.readinto(piece) or 0
        except OSError as error:
            raise self._damage("to read it", error.strerror or str(error)) from error

    def finish(self) -> None:
        """Compare the checksum.

        Raises:
            CheckpointError: it is another.
        """
        found = self._hash.hexdigest()
        if found != self._record.xxh3_128:
            raise self._damage(f"the checksum {self._record.xxh3_128}", found)

    def close(self) -> None:
        """Close the file."""
        self._file.close()

    def _damage(self, expected: str, got: str) -> CheckpointError:
        return CheckpointError(f"{self._path}: expected {expected}, got {got}; the checkpoint is damaged")

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._file.close()


def _as_bytes(array: NDArray[Any]) -> memoryview:
    return array.reshape(-1).view(np.uint8).data
