"""Files of a checkpoint as they are read: in parallel, each compared with its record and its checksum."""

from __future__ import annotations

import math
import os
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from headrace.persist.checkpoint.files import HashedReader, io_threads, open_file
from headrace.persist.checkpoint.manifest import ArrayRecord, FileRecord
from headrace.tables.item_state import LAST_UPDATES, RECORDS

_DTYPES = {
    RECORDS: np.uint32,
    "priorities": np.float64,
    "windows": np.uint32,
    LAST_UPDATES: np.int64,
    "pages": np.int64,
    "start_rows": np.uint32,
    "start_ids": np.int64,
    "versions": np.int32,
    "links": np.int64,
    "orphans": np.int64,
}


class CheckpointFiles:
    """The files of a checkpoint that is being read.

    Args:
        folder: of the checkpoint.
        records: of its files.

    Raises:
        CheckpointError: a file is missing or has another size.
        ValueError: a file is outside the folder.
    """

    def __init__(self, folder: Path, records: Sequence[FileRecord]) -> None:
        self.folder = folder
        self._records = {record.name: record for record in records}
        for record in records:
            if Path(record.name).name != record.name:
                raise ValueError(f"expected files of this folder, got {record.name!r}")
            # Missing and truncated files are found before anything is read.
            os.close(open_file(folder, record))

    @contextmanager
    def reading(self) -> Iterator[None]:
        """Reads requested within the block run in parallel; at its end all data are read and verified."""
        self._readers: dict[str, HashedReader] = {}
        with ExitStack() as files, io_threads() as threads:
            self._open, self._threads = files, threads
            yield
            self.finish(*self._readers)

    def finish(self, *names: str) -> None:
        """Waits for these files and compares their checksums, before which their data must not be used."""
        for name in names:
            self._readers.pop(name).finish()

    def reader(self, record: FileRecord) -> HashedReader:
        """Opens a file."""
        reader = self._open.enter_context(HashedReader(self.folder, record, self._threads))
        self._readers[record.name] = reader
        return reader

    def request_arrays(self, name: str) -> dict[str, NDArray[Any]]:
        """Returns new arrays, into which those of a file are read."""
        record = self.checked_record(name)
        found = {array.name: np.empty(array.shape, array.dtype) for array in record.arrays}
        reader = self.reader(record)
        for array in found.values():
            reader.read_into(array)
        return found

    def checked_record(self, name: str) -> FileRecord:
        """Returns the record of a file, whose arrays have the expected dtypes and fill the file."""
        record = self._records[name]
        for array in record.arrays:
            if np.dtype(array.dtype) != _DTYPES[array.name] or min(array.shape, default=0) < 0:
                raise ValueError(f"{name}: {array.name}: expected {_DTYPES[array.name]}, got {array.dtype}")
        if sum(map(nbytes_of, record.arrays)) != record.size:
            raise ValueError(f"{name}: expected {record.size} bytes of arrays, got {record.arrays}")
        return record

    def arrays_in(self, name: str) -> tuple[ArrayRecord, ...]:
        """Returns the records of the arrays of a file."""
        return self._records[name].arrays

    def by_first_array(self) -> dict[str, FileRecord]:
        """Returns the record of each file by the name of its first array."""
        return {record.arrays[0].name: record for record in self._records.values() if record.arrays}


def nbytes_of(array: ArrayRecord) -> int:
    """Returns the bytes of an array."""
    return math.prod(array.shape) * np.dtype(array.dtype).itemsize
