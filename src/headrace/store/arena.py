"""One stretch of mapped memory that holds every array of a store.

The arena is reserved at its full size and memory is taken as it is first written, so an array never moves and a store
can grow. It lives in one of three places, and the code above does not know which:

* private memory: `Arena.private`. It has large pages, which make random reads of large tables quicker;
* a memory file that other processes of this machine map by its descriptor: `Arena.shared` and `Arena.attach`.
  It has no name, so nothing is left behind when processes are killed. `Arena.share` turns private memory into one;
* a file on disk: `Arena.file`. It can be larger than memory and outlives the process.
"""

from __future__ import annotations

import ctypes
import mmap
import os
import tempfile
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
from numpy.typing import DTypeLike, NDArray

# Python names this constant only from 3.14 on; without it Linux may refuse to reserve more than there is memory.
_NORESERVE = getattr(mmap, "MAP_NORESERVE", 0x4000 if os.uname().sysname == "Linux" else 0)
# Nor this one; Linux and macOS agree on it.
_FIXED = 0x10
_ALIGNMENT = 4096
_WORTH_HUGE_PAGES = 4 << 20
_MOVED_AT_ONCE = 64 << 20

# Python's own mmap takes no address.
_c_mmap = ctypes.CDLL(None, use_errno=True).mmap
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

    >>> arena = Arena.private(1 << 20)
    >>> column = arena.array(4096, (10, 2), np.float32)
    >>> column.shape, arena.nbytes
    ((10, 2), 1048576)
    """

    is_on_disk = False
    """Whether it outlives the process."""

    def __init__(self, mapping: mmap.mmap, nbytes: int, descriptor: int | None = None) -> None:
        self._mapping = mapping
        self._descriptor = descriptor
        self.nbytes = nbytes

    @classmethod
    def private(cls, nbytes: int) -> Arena:
        """Memory of this process alone."""
        mapping = mmap.mmap(-1, nbytes, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | _NORESERVE)
        if nbytes >= _WORTH_HUGE_PAGES and hasattr(mmap, "MADV_HUGEPAGE"):
            # Random reads of a large table spend much of their time in looking up small pages.
            mapping.madvise(mmap.MADV_HUGEPAGE)
        return cls(mapping, nbytes)

    @classmethod
    def shared(cls, nbytes: int) -> Arena:
        """A memory file without a name; send `descriptor` to the processes that are to map it."""
        descriptor = _memory_file()
        os.ftruncate(descriptor, nbytes)
        return cls.attach(descriptor, nbytes)

    @classmethod
    def attach(cls, descriptor: int, nbytes: int) -> Arena:
        """Map a memory file that another process made; the arena owns `descriptor` from here on."""
        mapping = mmap.mmap(descriptor, nbytes, flags=mmap.MAP_SHARED | _NORESERVE)
        return cls(mapping, nbytes, descriptor)

    @classmethod
    def file(cls, path: Path, nbytes: int) -> Arena:
        """A sparse file on disk, made if it is not there, grown to `nbytes` if it is shorter."""
        return cls.on_disk(os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600), nbytes)

    @classmethod
    def on_disk(cls, descriptor: int, nbytes: int) -> Arena:
        """As `file`, of a file that is open; the arena owns `descriptor` from here on."""
        if os.fstat(descriptor).st_size < nbytes:
            os.ftruncate(descriptor, nbytes)
        arena = cls.attach(descriptor, nbytes)
        arena.is_on_disk = True
        return arena

    def reserve(self, offset: int, nbytes: int) -> None:
        """Take the room on the disk for these bytes: writing to a sparse file that finds none ends the process.

        Nothing is to be done for memory.

        Raises:
            OSError: no space is left.
        """
        if self.is_on_disk and nbytes:
            os.posix_fallocate(self.descriptor, offset, nbytes)

    @property
    def descriptor(self) -> int:
        """The file descriptor behind the mapping.

        Raises:
            ValueError: for private memory, which has none.
        """
        if self._descriptor is None:
            raise ValueError("private memory has no descriptor to share; make the arena with Arena.shared")
        return self._descriptor

    @property
    def is_shareable(self) -> bool:
        """Whether other processes can map it."""
        return self._descriptor is not None

    def array(self, offset: int, shape: tuple[int, ...], dtype: DTypeLike) -> NDArray[np.generic]:
        """An array over the bytes from `offset` on; it keeps the mapping alive as long as it lives."""
        return np.ndarray(shape, dtype, buffer=self._mapping, offset=offset)

    def share(self, used: Iterable[tuple[int, int]]) -> None:
        """Turn private memory into a memory file, at the same addresses: arrays over it stay what they are.

        Others may read meanwhile. What another thread writes meanwhile may be lost.

        Args:
            used: where the bytes begin and end that may be other than 0.

        Raises:
            OSError: there is not enough memory; the content is whole, and the arena as private as before.
        """
        if self._descriptor is not None:
            return
        descriptor = _memory_file()
        try:
            os.ftruncate(descriptor, self.nbytes)
            content = memoryview(self._mapping)
            for begin, end in used:
                for start in range(begin - begin % _ALIGNMENT, end, _MOVED_AT_ONCE):
                    # Piece by piece, so that there never are two copies of it all.
                    stop = min(start + _MOVED_AT_ONCE, -(-end // _ALIGNMENT) * _ALIGNMENT, self.nbytes)
                    _write(descriptor, content[start:stop], start)
                    self._lay_over(descriptor, mmap.MAP_SHARED, start, stop - start)
            self._lay_over(descriptor, mmap.MAP_SHARED, 0, self.nbytes)
        except BaseException:
            os.close(descriptor)
            raise
        self._descriptor = descriptor

    def make_private(self) -> None:
        """Lay a private mapping over a shared one, at the same address: what is written from here on stays here.

        For a forked child, which would otherwise write into its parent's memory. Private memory is copied by the fork.
        """
        if self._descriptor is not None:
            self._lay_over(self._descriptor, mmap.MAP_PRIVATE, 0, self.nbytes)

    def _lay_over(self, descriptor: int, kind: int, offset: int, nbytes: int) -> None:
        """Map a stretch of a file where the same stretch of this arena is."""
        address = ctypes.addressof(ctypes.c_char.from_buffer(self._mapping)) + offset
        flags = kind | _FIXED | _NORESERVE
        found = _c_mmap(address, nbytes, mmap.PROT_READ | mmap.PROT_WRITE, flags, descriptor, offset)
        if found != address:
            number = ctypes.get_errno()
            raise OSError(
                number, f"mmap: expected a mapping over the one that is there: {os.strerror(number)}"
            )

    def write(self, offset: int, content: memoryview) -> None:
        """Write bytes; where there is a descriptor, without touching the mapping."""
        if self._descriptor is None:
            self._mapping[offset : offset + len(content)] = content
        else:
            _write(self._descriptor, content, offset)

    def sync(self) -> None:
        """Write everything to the disk (a file's pages; memory has nothing to do)."""
        self._mapping.flush()
        if self.is_on_disk and self._descriptor is not None:
            os.fsync(self._descriptor)

    def close(self) -> None:
        """Give the descriptor back. The mapping itself goes with the last array over it."""
        if self._descriptor is not None:
            os.close(self._descriptor)
            self._descriptor = None

    def __del__(self) -> None:
        self.close()


def _write(descriptor: int, content: memoryview, offset: int) -> None:
    done = 0
    while done < len(content):
        done += os.pwrite(descriptor, content[done:], offset + done)


def _memory_file() -> int:
    if hasattr(os, "memfd_create"):
        return os.memfd_create("headrace", os.MFD_CLOEXEC)
    # Systems without memory files: a temporary file that loses its name at once behaves alike.
    with tempfile.TemporaryFile() as file:
        return os.dup(file.fileno())


@dataclass
class ArenaLayout:
    """Where each named array lies in an arena; the same calls give the same places in every process."""

    nbytes: int = 0
    alignment: int = _ALIGNMENT
    places: dict[str, tuple[int, tuple[int, ...], np.dtype[np.generic]]] = field(default_factory=dict)

    def add(self, name: str, shape: tuple[int, ...], dtype: DTypeLike) -> None:
        """Reserve room for one array, on a border of its own."""
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
