"""Mapped memory that holds the arrays of a store.

An arena is reserved at its full size, and memory is taken as it is first written. So an array never moves, and a store
can grow. An arena lives in one of three places. Systems other than Linux have only the first:

* private memory: `Arena.private` and `Arena.private_sparse`; `share` makes a memory file of it when one is needed;
* a memory file that other processes of this machine map by its descriptor: `Arena.shared` and `Arena.attach`.
  It has no name, so nothing is left behind when processes are killed;
* a file on disk: `Arena.file`. It can be larger than memory and outlives the process.
"""

from __future__ import annotations

import mmap
import os
import threading
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import DTypeLike, NDArray

from headrace.store.memory.mapping import (
    ALIGNMENT,
    closed_on_failure,
    map_over,
    need_file_mappings,
    opened_again,
)
from headrace.system import NO_RESERVE, is_linux, memory_file, private_mapping

_WORTH_HUGE_PAGES = 4 << 20
# Memory becomes shared this many bytes at a time: other threads wait some milliseconds for each piece.
_SHARED_AT_ONCE = 16 << 20


class Arena:
    """A reserved mapping in which arrays lie.

    Attributes:
        nbytes: its size.
        moved: bytes, from the beginning, that were private memory and are a memory file now.

    >>> arena = Arena.private(1 << 20)
    >>> column = arena.array(4096, (10, 2), np.float32)
    >>> column.shape, arena.nbytes
    ((10, 2), 1048576)
    """

    is_on_disk = False
    """Whether the arena outlives the process."""
    # Defaults for an arena whose construction Ctrl-C interrupted.
    _descriptor: int | None = None
    _next_descriptor: int | None = None

    def __init__(self, mapping: mmap.mmap, nbytes: int, descriptor: int | None = None) -> None:
        self._mapping = mapping
        self._descriptor = descriptor
        # While private memory becomes a memory file.
        self._next_descriptor: int | None = None
        # Bytes of that file that may have been written, perhaps by a piece that failed.
        self._copied = 0
        self.moved = 0
        self.nbytes = nbytes

    @classmethod
    def private(cls, nbytes: int) -> Arena:
        """Returns memory of this process alone, to be written densely: it has large pages."""
        arena = cls.private_sparse(nbytes)
        arena.advise_large_pages(0, nbytes)
        return arena

    @classmethod
    def private_sparse(cls, nbytes: int) -> Arena:
        """Returns memory of this process alone, to be written sparsely.

        A system that counts private memory when it is reserved (`vm.overcommit_memory=2`) may refuse a large
        reservation. There a memory file takes its place, because the system counts only its written pages.
        """
        try:
            mapping = private_mapping(nbytes)
        except OSError:
            if not is_linux():
                raise
            return cls.shared(nbytes)
        return cls(mapping, nbytes)

    @classmethod
    def shared(cls, nbytes: int) -> Arena:
        """Returns a memory file without a name; send `descriptor` to the processes that map it.

        Raises:
            Unsupported: on another system than Linux, as for every mapped file.
        """
        need_file_mappings("Arena.shared")
        return cls.attach(memory_file("headrace", nbytes), nbytes)

    @classmethod
    def attach(cls, descriptor: int, nbytes: int) -> Arena:
        """Maps a memory file that another process made; the arena owns `descriptor` from here on."""
        with closed_on_failure(descriptor):
            need_file_mappings("Arena.attach")
            mapping = mmap.mmap(descriptor, nbytes, flags=mmap.MAP_SHARED | NO_RESERVE)
        return cls(mapping, nbytes, descriptor)

    @classmethod
    def file(cls, path: Path, nbytes: int) -> Arena:
        """Maps a sparse file on disk, made if it is missing, grown to `nbytes` if it is shorter."""
        need_file_mappings("Arena.file")
        return cls.on_disk(os.open(path, os.O_RDWR | os.O_CREAT, 0o600), nbytes)

    @classmethod
    def on_disk(cls, descriptor: int, nbytes: int) -> Arena:
        """Does the same as `file` with an open file; the arena owns `descriptor` from here on."""
        with closed_on_failure(descriptor):
            need_file_mappings("Arena.on_disk")
            if os.fstat(descriptor).st_size < nbytes:
                os.ftruncate(descriptor, nbytes)
            # A mapping keeps the open file that it was made of, and with it a lock. A second one is mapped, so that
            # the lock is on `descriptor` alone and a forked child can release it.
            with opened_again(descriptor) as other:
                mapping = mmap.mmap(other, nbytes, flags=mmap.MAP_SHARED | NO_RESERVE)
        arena = cls(mapping, nbytes, descriptor)
        arena.is_on_disk = True
        return arena

    @classmethod
    def copy_on_write(cls, path: Path, nbytes: int) -> Arena:
        """Maps a file as it is now; writes go to memory of this process, never to the file.

        Beyond the end of a shorter file there are zeros.
        """
        need_file_mappings("Arena.copy_on_write")
        with path.open("rb") as file:
            arena = cls.private_sparse(nbytes)
            arena._map_over(file.fileno(), 0, min(nbytes, os.fstat(file.fileno()).st_size), mmap.MAP_PRIVATE)
        return arena

    def reserve(self, offset: int, nbytes: int) -> None:
        """Takes disk space for these bytes: a process that writes to a sparse file on a full disk is killed.

        Does nothing for memory.

        Raises:
            OSError: no space is left.
        """
        if self.is_on_disk and nbytes:
            os.posix_fallocate(self.descriptor, offset, nbytes)

    def truncate(self, nbytes: int) -> None:
        """Cuts a file on disk to `nbytes`; bytes beyond them must not be read or written afterwards.

        Raises:
            OSError: the file system refuses.
        """
        if self.is_on_disk:
            os.ftruncate(self.descriptor, nbytes)

    @property
    def descriptor(self) -> int:
        """The file descriptor behind the mapping.

        Raises:
            ValueError: for private memory, which has none.
        """
        if self._descriptor is None:
            raise ValueError(
                "private memory has no descriptor to share; call share first, or use Arena.shared"
            )
        return self._descriptor

    @property
    def is_shareable(self) -> bool:
        """Whether other processes can map it."""
        return self._descriptor is not None

    def array(self, offset: int, shape: tuple[int, ...], dtype: DTypeLike) -> NDArray[np.generic]:
        """Returns an array over the bytes from `offset` on, which keeps the mapping alive."""
        return np.ndarray(shape, dtype, buffer=self._mapping, offset=offset)

    def advise_large_pages(self, offset: int, nbytes: int) -> None:
        """Advises the system that these bytes will be written densely; no effect without large pages.

        Random reads of large pages need fewer look-ups, and filling them is several times quicker.
        """
        begin = -(-offset // mmap.PAGESIZE) * mmap.PAGESIZE
        nbytes -= begin - offset
        if nbytes >= _WORTH_HUGE_PAGES and hasattr(mmap, "MADV_HUGEPAGE"):
            with suppress(OSError):  # A system without large pages.
                self._mapping.madvise(mmap.MADV_HUGEPAGE, begin, nbytes)

    # ---- other processes -------------------------------------------------------------------------------------------

    def share(self, lock: threading.RLock, written: Callable[[], NDArray[np.int64]]) -> None:
        """Makes a memory file of private memory; every array stays where it is. Does nothing for shared memory.

        Memory is copied in pieces, each under the lock, so other threads wait for one piece only. Readers need no lock:
        both memories have the same bytes.

        Args:
            lock: held by writers; or they take it afterwards and compare `moved` with its value before the write.
            written: called under the lock; returns the ranges of bytes that may hold data, int64[ranges, 2], rising.

        Raises:
            OSError: no memory is left; the arena stays usable, and the call may be repeated.
            Unsupported: on another system than Linux.
        """
        need_file_mappings("Arena.share")
        while True:
            with lock:
                if self._descriptor is not None:
                    return
                self._share_piece(written())

    def _share_piece(self, written: NDArray[np.int64]) -> None:
        if self._next_descriptor is None:
            self._next_descriptor = memory_file("headrace", self.nbytes)
        begin, stop, left = self.moved, self.nbytes, _SHARED_AT_ONCE
        for first, after in np.maximum(written[written[:, 1] > begin], begin).tolist():
            end = min(after, (first + left) // mmap.PAGESIZE * mmap.PAGESIZE)
            self._copy_to_next(first, end)
            left -= end - first
            if end < after:
                stop = end
                break
        self._map_over(self._next_descriptor, begin, stop, mmap.MAP_SHARED)
        self.moved = stop
        if stop == self.nbytes:
            self._descriptor, self._next_descriptor = self._next_descriptor, None

    def _copy_to_next(self, begin: int, end: int) -> None:
        """Copies the pages that are not zero: a file takes memory for every page that is written."""
        assert self._next_descriptor is not None
        pages = self.array(begin, (-(-(end - begin) // ALIGNMENT), ALIGNMENT), np.uint8)
        wanted: NDArray[np.bool_] = np.asarray(pages.any(axis=1))
        # Zeros too where an earlier attempt may have written other bytes.
        wanted[: max(0, self._copied - begin) // ALIGNMENT] = True
        self._copied = max(self._copied, begin + len(pages) * ALIGNMENT)
        filled = np.flatnonzero(np.diff(wanted, prepend=False, append=False))
        for first, after in filled.reshape(-1, 2).tolist():
            content = memoryview(pages[first:after].reshape(-1).data)
            done = 0
            while done < len(content):
                place = begin + first * ALIGNMENT + done
                done += os.pwrite(self._next_descriptor, content[done:], place)

    def make_private(self) -> None:
        """Maps private memory over shared memory, at the same address: later writes stay in this process.

        A forked child calls this, because its writes would otherwise reach its parent's memory. The fork copies private
        memory. The child's memory has no file any more, and holds no lock on one.
        """
        if self._descriptor is not None:
            with opened_again(self._descriptor) as other:
                self._map_over(other, 0, self.nbytes, mmap.MAP_PRIVATE)
        elif self._next_descriptor is not None:
            # The bytes that the parent had shared.
            self._map_over(self._next_descriptor, 0, self.moved, mmap.MAP_PRIVATE)
        # The descriptor belongs to the parent. The child may share another file later.
        self.close()
        self.moved = self._copied = 0
        self.is_on_disk = False

    def detach(self, array: NDArray[Any]) -> None:
        """Copies the bytes of an array, which lies in shared memory, into memory of this process at the same address.

        Later writes of other processes are not seen here, and writes of this process are not seen there.
        """
        begin = (
            array.__array_interface__["data"][0]
            - self.array(0, (1,), np.uint8).__array_interface__["data"][0]
        )
        stop = min(self.nbytes, -(-(begin + array.nbytes) // ALIGNMENT) * ALIGNMENT)
        begin = begin // ALIGNMENT * ALIGNMENT
        memory = self.array(begin, (stop - begin,), np.uint8)
        content = memory.copy()
        self._map_over(-1, begin, stop, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
        memory[...] = content

    def _map_over(self, descriptor: int, begin: int, stop: int, kind: int) -> None:
        map_over(self._mapping, descriptor, begin, stop, kind)

    def sync(self) -> None:
        """Writes the pages of a file to the disk; does nothing for memory."""
        if self.is_on_disk:
            self._mapping.flush()
            if self._descriptor is not None:
                os.fsync(self._descriptor)

    def close(self) -> None:
        """Closes the descriptor. The mapping goes with the last array over it."""
        # Ctrl-C may come after a call. A closed descriptor must not be closed again: it may belong to another file.
        descriptor, self._descriptor = self._descriptor, None
        if descriptor is not None:
            os.close(descriptor)
        descriptor, self._next_descriptor = self._next_descriptor, None
        if descriptor is not None:
            os.close(descriptor)

    def __del__(self) -> None:
        self.close()
