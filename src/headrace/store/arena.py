"""One stretch of mapped memory that holds every array of a store.

The arena is reserved at its full size and memory is taken as it is first written, so an array never moves and a store
can grow. It lives in one of three places, and the code above does not know which. Systems other than Linux have the
first:

* private memory: `Arena.private` and `Arena.private_sparse`; `share` makes a memory file of it when one is needed;
* a memory file that other processes of this machine map by its descriptor: `Arena.shared` and `Arena.attach`.
  It has no name, so nothing is left behind when processes are killed;
* a file on disk: `Arena.file`. It can be larger than memory and outlives the process.
"""

from __future__ import annotations

import ctypes
import mmap
import os
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
from numpy.typing import DTypeLike, NDArray

from headrace.system import NO_RESERVE, c_function, is_linux, memory_file, need_linux, private_mapping

# Python has no name for it.
_FIXED = 0x10
# Pieces are mapped one by one, which the system does by its own pages.
_ALIGNMENT = max(4096, mmap.PAGESIZE)
_WORTH_HUGE_PAGES = 4 << 20
# Memory becomes shared so many bytes at a time: others wait some milliseconds for each.
_SHARED_AT_ONCE = 16 << 20

# Python's own mmap takes no address.
_c_mmap = c_function("mmap")
if _c_mmap is not None:
    _c_mmap.restype = ctypes.c_void_p
    _c_mmap.argtypes = (
        ctypes.c_void_p,
        ctypes.c_size_t,
        ctypes.c_int,
        ctypes.c_int,
        ctypes.c_int,
        ctypes.c_long,
    )


class Arena:
    """A reserved mapping from which arrays are carved.

    Attributes:
        nbytes: its size.
        moved: so many bytes, from the beginning, were private memory and are a memory file now.

    >>> arena = Arena.private(1 << 20)
    >>> column = arena.array(4096, (10, 2), np.float32)
    >>> column.shape, arena.nbytes
    ((10, 2), 1048576)
    """

    is_on_disk = False
    """Whether it outlives the process."""
    # Of one that Ctrl-C kept from being made.
    _descriptor: int | None = None
    _next_descriptor: int | None = None

    def __init__(self, mapping: mmap.mmap, nbytes: int, descriptor: int | None = None) -> None:
        self._mapping = mapping
        self._descriptor = descriptor
        # While private memory becomes a memory file.
        self._next_descriptor: int | None = None
        # Up to here something was written to that file, perhaps by a piece that failed.
        self._copied = 0
        self.moved = 0
        self.nbytes = nbytes

    @classmethod
    def private(cls, nbytes: int) -> Arena:
        """Memory of this process alone, to be written densely: it has large pages."""
        arena = cls.private_sparse(nbytes)
        arena.advise_large_pages(0, nbytes)
        return arena

    @classmethod
    def private_sparse(cls, nbytes: int) -> Arena:
        """Memory of this process alone, of which only some will be written.

        A system that counts private memory when it is reserved (`vm.overcommit_memory=2`) may refuse what would never
        be used: there it is a memory file, of which the system counts what is written.
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
        """A memory file without a name; send `descriptor` to the processes that are to map it.

        Raises:
            Unsupported: on another system than Linux; so for all that maps a file.
        """
        _need_files("Arena.shared")
        return cls.attach(memory_file("headrace", nbytes), nbytes)

    @classmethod
    def attach(cls, descriptor: int, nbytes: int) -> Arena:
        """Map a memory file that another process made; the arena owns `descriptor` from here on."""
        with _closed_on_failure(descriptor):
            _need_files("Arena.attach")
            mapping = mmap.mmap(descriptor, nbytes, flags=mmap.MAP_SHARED | NO_RESERVE)
        return cls(mapping, nbytes, descriptor)

    @classmethod
    def file(cls, path: Path, nbytes: int) -> Arena:
        """A sparse file on disk, made if it is not there, grown to `nbytes` if it is shorter."""
        _need_files("Arena.file")
        return cls.on_disk(os.open(path, os.O_RDWR | os.O_CREAT, 0o600), nbytes)

    @classmethod
    def on_disk(cls, descriptor: int, nbytes: int) -> Arena:
        """Does the same as `file`, of a file that is open; the arena owns `descriptor` from here on."""
        with _closed_on_failure(descriptor):
            _need_files("Arena.on_disk")
            if os.fstat(descriptor).st_size < nbytes:
                os.ftruncate(descriptor, nbytes)
            # A mapping keeps the opening that it was made of, and with it a lock: the lock is on `descriptor` alone,
            # so that a forked child can let it go.
            with _opened_again(descriptor) as other:
                mapping = mmap.mmap(other, nbytes, flags=mmap.MAP_SHARED | NO_RESERVE)
        arena = cls(mapping, nbytes, descriptor)
        arena.is_on_disk = True
        return arena

    @classmethod
    def copy_on_write(cls, path: Path, nbytes: int) -> Arena:
        """A file on disk as it is now; what is written goes to memory of this process, never to the file.

        Zeros stand behind the end of a file that is shorter.
        """
        _need_files("Arena.copy_on_write")
        with path.open("rb") as file:
            arena = cls.private_sparse(nbytes)
            arena._map_over(file.fileno(), 0, min(nbytes, os.fstat(file.fileno()).st_size), mmap.MAP_PRIVATE)
        return arena

    def reserve(self, offset: int, nbytes: int) -> None:
        """Take the room on the disk for these bytes: writing to a sparse file that finds none ends the process.

        Nothing is to be done for memory.

        Raises:
            OSError: no space is left.
        """
        if self.is_on_disk and nbytes:
            os.posix_fallocate(self.descriptor, offset, nbytes)

    def truncate(self, nbytes: int) -> None:
        """Cut a file on disk off after `nbytes`: from here on nothing behind them may be read or written.

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
        """An array over the bytes from `offset` on; it keeps the mapping alive as long as it lives."""
        return np.ndarray(shape, dtype, buffer=self._mapping, offset=offset)

    def advise_large_pages(self, offset: int, nbytes: int) -> None:
        """Say that these bytes will be written densely; of no effect where large pages cannot be had.

        Random reads of large pages find their way with fewer look-ups, and filling them is several times quicker.
        """
        begin = -(-offset // mmap.PAGESIZE) * mmap.PAGESIZE
        nbytes -= begin - offset
        if nbytes >= _WORTH_HUGE_PAGES and hasattr(mmap, "MADV_HUGEPAGE"):
            with suppress(OSError):  # A system without large pages.
                self._mapping.madvise(mmap.MADV_HUGEPAGE, begin, nbytes)

    # ---- other processes -------------------------------------------------------------------------------------------

    def share(self, lock: threading.RLock, written: Callable[[], NDArray[np.int64]]) -> None:
        """Make a memory file of private memory. Every array stays where it is; shared memory is left as it is.

        It goes piece by piece, each under the lock, so nobody waits long. Who reads needs no lock: whichever memory is
        there has the same bytes.

        Args:
            lock: held by everybody who writes, or taken afterwards to see whether `moved` is what it was before.
            written: called under the lock; tells where anything was ever written, int64[ranges, 2], rising.

        Raises:
            OSError: no room; the arena is as good as before, and this may be tried again.
            Unsupported: on another system than Linux.
        """
        _need_files("Arena.share")
        while True:
            with lock:
                if self._descriptor is not None:
                    return
                self._share_piece(written())

    def _share_piece(self, written: NDArray[np.int64]) -> None:
        if self._next_descriptor is None:
            self._next_descriptor = memory_file("headrace", self.nbytes)
        begin, stop, room = self.moved, self.nbytes, _SHARED_AT_ONCE
        for first, after in np.maximum(written[written[:, 1] > begin], begin).tolist():
            end = min(after, (first + room) // mmap.PAGESIZE * mmap.PAGESIZE)
            self._copy_to_next(first, end)
            room -= end - first
            if end < after:
                stop = end
                break
        self._map_over(self._next_descriptor, begin, stop, mmap.MAP_SHARED)
        self.moved = stop
        if stop == self.nbytes:
            self._descriptor, self._next_descriptor = self._next_descriptor, None

    def _copy_to_next(self, begin: int, end: int) -> None:
        """Copy what is not zero: a file takes memory for what is written to it."""
        assert self._next_descriptor is not None
        pages = self.array(begin, (-(-(end - begin) // _ALIGNMENT), _ALIGNMENT), np.uint8)
        wanted: NDArray[np.bool_] = np.asarray(pages.any(axis=1))
        # Zeros too where an earlier try may have left something else in the file.
        wanted[: max(0, self._copied - begin) // _ALIGNMENT] = True
        self._copied = max(self._copied, begin + len(pages) * _ALIGNMENT)
        filled = np.flatnonzero(np.diff(wanted, prepend=False, append=False))
        for first, after in filled.reshape(-1, 2).tolist():
            content = memoryview(pages[first:after].reshape(-1).data)
            done = 0
            while done < len(content):
                place = begin + first * _ALIGNMENT + done
                done += os.pwrite(self._next_descriptor, content[done:], place)

    def make_private(self) -> None:
        """Lay a private mapping over a shared one, at the same address: what is written from here on stays here.

        For a forked child, which would otherwise write into its parent's memory. Private memory is copied by the fork.
        The child's memory has no file any more, and holds no lock of one.
        """
        if self._descriptor is not None:
            with _opened_again(self._descriptor) as other:
                self._map_over(other, 0, self.nbytes, mmap.MAP_PRIVATE)
        elif self._next_descriptor is not None:
            # The parent had got so far.
            self._map_over(self._next_descriptor, 0, self.moved, mmap.MAP_PRIVATE)
        # It is the parent's. What the child shares one day is another file.
        self.close()
        self.moved = self._copied = 0
        self.is_on_disk = False

    def _map_over(self, descriptor: int, begin: int, stop: int, kind: int) -> None:
        """Map a part of a file at the addresses where it belongs."""
        if stop <= begin:
            return
        address = ctypes.addressof(ctypes.c_char.from_buffer(self._mapping)) + begin
        flags = kind | _FIXED | NO_RESERVE
        found = _c_mmap(address, stop - begin, mmap.PROT_READ | mmap.PROT_WRITE, flags, descriptor, begin)
        if found != address:
            number = ctypes.get_errno()
            raise OSError(number, f"mmap of another memory at the same place: {os.strerror(number)}")

    def sync(self) -> None:
        """Write everything to the disk (a file's pages; memory has nothing to do)."""
        if self.is_on_disk:
            self._mapping.flush()
            if self._descriptor is not None:
                os.fsync(self._descriptor)

    def close(self) -> None:
        """Give the descriptor back. The mapping itself goes with the last array over it."""
        # Ctrl-C may come after a call: a descriptor that was closed must not be closed again, it may be another file's.
        descriptor, self._descriptor = self._descriptor, None
        if descriptor is not None:
            os.close(descriptor)
        descriptor, self._next_descriptor = self._next_descriptor, None
        if descriptor is not None:
            os.close(descriptor)

    def __del__(self) -> None:
        self.close()


@contextmanager
def _closed_on_failure(descriptor: int) -> Iterator[None]:
    """An arena that cannot be made owns its descriptor all the same: a file's lock would stay with it."""
    try:
        yield
    except BaseException:
        os.close(descriptor)
        raise


@contextmanager
def _opened_again(descriptor: int) -> Iterator[int]:
    """Another opening of the same file, without the locks of the first; the first where the system cannot."""
    try:
        other = os.open(f"/proc/self/fd/{descriptor}", os.O_RDWR)
    except OSError:
        yield descriptor
        return
    try:
        yield other
    finally:
        os.close(other)


def _need_files(what: str) -> None:
    need_linux(what, "files that are mapped at a place of memory", "Use Arena.private")


@dataclass
class ArenaLayout:
    """Where each named array lies in an arena; the same calls give the same places in every process."""

    nbytes: int = 0
    alignment: int = _ALIGNMENT
    places: dict[str, tuple[int, tuple[int, ...], np.dtype[np.generic]]] = field(default_factory=dict)

    def add(self, name: str, shape: tuple[int, ...], dtype: DTypeLike) -> None:
        """Reserves bytes for one array, aligned."""
        wanted = np.dtype(dtype)
        self.places[name] = (self.nbytes, shape, wanted)
        size = int(np.prod(shape, dtype=np.int64)) * wanted.itemsize
        self.nbytes += -(-size // self.alignment) * self.alignment

    def spans(self) -> NDArray[np.int64]:
        """int64[arrays, 2]: where each array begins and ends, in the order they were added."""
        return np.array(
            [
                (offset, offset + int(np.prod(shape, dtype=np.int64)) * dtype.itemsize)
                for offset, shape, dtype in self.places.values()
            ],
            np.int64,
        )

    def arrays(self, arena: Arena) -> dict[str, NDArray[np.generic]]:
        """All arrays, by name."""
        return {name: arena.array(*place) for name, place in self.places.items()}
