"""Files of arrays, written and read with their checksum in one go, by as many threads as there are processors.

A file is cut into pieces of 4 MiB. Each is written or read by itself, and hashed while it is in the processor's cache;
the checksum of the file is the hash of the hashes of its pieces. The hash is XXH3 of 128 bits: it finds damage at the
speed of memory; it is no defence against a forger. A thread that waits for a file processes pieces, too.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from types import TracebackType
from typing import Any, NamedTuple, Self

import xxhash
from numpy.typing import NDArray

from headrace.errors import CheckpointError
from headrace.persist.checkpoint.manifest import ArrayRecord, FileRecord
from headrace.persist.checkpoint.writeback import begin_writeback
from headrace.persist.whole_file import bytes_of
from headrace.system import BINARY, processors, read_at, write_at

# A checkpoint can be read only with the size that it was written with.
PIECE = 4 << 20
# The system takes no more than 1024 parts in one call; very small ones are cheaper to copy.
_MOST_PARTS = 64
_MOST_THREADS = 4


def record_of_array(name: str, array: NDArray[Any], length: int | None = None) -> ArrayRecord:
    """Returns the manifest's record of an array, or of its first `length` rows."""
    shape = array.shape if length is None else (length, *array.shape[1:])
    return ArrayRecord(name, array.dtype.str, shape)


@contextmanager
def io_threads() -> Iterator[ThreadPoolExecutor]:
    """Threads that read or write pieces of files, beside the one that waits for them.

    At the end all pieces are done; after an error those are left out that no thread has begun with.
    """
    count = min(_MOST_THREADS, processors()) - 1
    with ThreadPoolExecutor(max(1, count), "headrace-checkpoint") as threads:
        try:
            yield threads
        except BaseException:
            threads.shutdown(cancel_futures=True)
            raise


class _Piece(NamedTuple):
    """Bytes of a file that go through it as one.

    Attributes:
        begin: where they begin in the file.
        parts: the memory that they come from or go to.
    """

    begin: int
    parts: list[memoryview]


class _Pieces:
    """Cuts the arrays of a file into pieces, each of which is processed in a thread.

    Args:
        threads: of `io_threads`.
    """

    # Bytes that are read or written in one call, and then hashed. After the call a thread waits for the interpreter's
    # lock.
    _chunk_nbytes = PIECE

    def __init__(self, threads: ThreadPoolExecutor) -> None:
        self._threads = threads
        self._under_way: list[tuple[Future[bytes], _Piece]] = []
        self._digests: list[bytes] = []
        self._parts: list[memoryview] = []
        self.size = 0

    def add(self, view: memoryview) -> None:
        """Appends bytes."""
        while view:
            left = PIECE - self.size % PIECE
            part, view = view[:left], view[left:]
            self._parts.append(part)
            self.size += len(part)
            if self.size % PIECE == 0:
                self._submit()

    def _submit(self) -> None:
        piece = _Piece(self.size - sum(map(len, self._parts)), self._parts)
        self._under_way.append((self._threads.submit(self._process, piece), piece))
        self._parts = []

    def _process(self, piece: _Piece) -> bytes:
        digest, begin = xxhash.xxh3_128(), piece.begin
        for chunk in _chunks(self._gathered(piece.parts), self._chunk_nbytes):
            self._pass(begin, chunk)
            for part in chunk:
                digest.update(part)
                begin += len(part)
        return digest.digest()

    def _gathered(self, parts: list[memoryview]) -> list[memoryview]:
        return parts

    def _pass(self, offset: int, parts: Sequence[memoryview]) -> None:
        """Reads or writes these bytes."""
        raise NotImplementedError

    def wait(self) -> None:
        """Waits until all whole pieces are done; raises the error of a piece."""
        # Pieces that no thread has started are processed here, from the back; the threads take them from the front.
        here = [
            self._process(piece) if future.cancel() else b"" for future, piece in reversed(self._under_way)
        ]
        for digest, (future, _) in zip(reversed(here), self._under_way, strict=True):
            self._digests.append(digest or future.result())
        self._under_way.clear()

    def checksum(self) -> str:
        """Returns the checksum of all bytes, after waiting for them."""
        if self._parts:
            self._submit()
        self.wait()
        return xxhash.xxh3_128_hexdigest(b"".join(self._digests))


def _chunks(parts: list[memoryview], most: int) -> Iterator[list[memoryview]]:
    """Yields the parts in groups of at most `most` bytes; a large part is cut."""
    chunk, size = [], 0
    for part in parts:
        while part:
            taken, part = part[: most - size], part[most - size :]
            chunk.append(taken)
            size += len(taken)
            if size == most or len(chunk) == _MOST_PARTS:
                yield chunk
                chunk, size = [], 0
    if chunk:
        yield chunk


class HashedWriter(_Pieces):
    """A new file that is hashed as it is written.

    Args:
        path: of the file, which must not exist.
        threads: of `io_threads`; they end before the file is closed.
    """

    # Shorter, so that a thread that samples meanwhile soon has a processor.
    _chunk_nbytes = 1 << 19

    def __init__(self, path: Path, threads: ThreadPoolExecutor) -> None:
        super().__init__(threads)
        self._path = path
        self._file = open(path, "xb", buffering=0)  # noqa: SIM115 - closed on leaving

    def write(self, array: NDArray[Any]) -> None:
        """Appends the bytes of a contiguous array, which must not change until `drain`."""
        self.add(bytes_of(array))

    def drain(self) -> None:
        """Waits for the arrays that were written so far, which may change afterwards."""
        self._parts = [memoryview(b"".join(self._parts))] if self._parts else []
        self.wait()

    def record(self, arrays: Iterable[ArrayRecord]) -> FileRecord:
        """Returns the manifest's record of the complete file."""
        return FileRecord(self._path.name, self.size, self.checksum(), tuple(arrays))

    def sync(self) -> None:
        """Writes the file to the disk."""
        os.fsync(self._file.fileno())

    def _gathered(self, parts: list[memoryview]) -> list[memoryview]:
        return parts if len(parts) <= _MOST_PARTS else [memoryview(b"".join(parts))]

    def _pass(self, offset: int, parts: Sequence[memoryview]) -> None:
        descriptor, begin = self._file.fileno(), offset
        while parts:
            done = write_at(descriptor, parts, offset)
            offset += done
            parts = _after(parts, done)
        # The disk need not wait until everything is there.
        begin_writeback(descriptor, begin, offset - begin)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._file.close()


class HashedReader(_Pieces):
    """A file of a checkpoint. Its content is verified only when `finish` has returned.

    Args:
        folder: of the checkpoint.
        record: of the file, from the manifest.
        threads: of `io_threads`; they end before the file is closed.

    Raises:
        CheckpointError: the file is missing or of another size.
    """

    def __init__(self, folder: Path, record: FileRecord, threads: ThreadPoolExecutor) -> None:
        super().__init__(threads)
        self._path = folder / record.name
        self._record = record
        self._file = open_file(folder, record)

    def read_into(self, array: NDArray[Any]) -> None:
        """Reads the next bytes into a contiguous array; they are there when `finish` returns."""
        self.add(bytes_of(array))
        if self.size >= self._record.size and self._parts:
            # Its last piece goes before those of files that are asked for later.
            self._submit()

    def finish(self) -> None:
        """Waits for the bytes and compares the checksum.

        Raises:
            CheckpointError: it is another.
        """
        found = self.checksum()
        if self.size != self._record.size:
            raise damage(self._path, f"{self._record.size} bytes of arrays", f"{self.size}")
        if found != self._record.xxh3_128:
            raise damage(self._path, f"the checksum {self._record.xxh3_128}", found)

    def _pass(self, offset: int, parts: Sequence[memoryview]) -> None:
        while parts:
            try:
                done = read_at(self._file, parts, offset)
            except OSError as error:
                raise damage(self._path, "to read it", error.strerror or str(error)) from error
            if not done:
                raise damage(self._path, f"{self._record.size} bytes", "an end before that")
            offset += done
            parts = _after(parts, done)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        os.close(self._file)


def open_file(folder: Path, record: FileRecord) -> int:
    """Returns a descriptor of a file of a checkpoint.

    Raises:
        CheckpointError: the file is missing or of another size.
    """
    path = folder / record.name
    try:
        descriptor = os.open(path, os.O_RDONLY | BINARY)
    except OSError as error:
        raise damage(path, f"a file of {record.size} bytes", error.strerror or str(error)) from error
    size = os.fstat(descriptor).st_size
    if size != record.size:
        os.close(descriptor)
        raise damage(path, f"{record.size} bytes", f"{size}")
    return descriptor


def damage(path: Path, expected: str, got: str) -> CheckpointError:
    """Returns the error of a file that is not as it was written."""
    return CheckpointError(f"{path}: expected {expected}, got {got}; the checkpoint is damaged")


def _after(parts: Sequence[memoryview], done: int) -> list[memoryview]:
    """Returns the rest of the parts after their first `done` bytes."""
    left = []
    for part in parts:
        if done < len(part):
            left.append(part[done:])
        done = max(0, done - len(part))
    return left
