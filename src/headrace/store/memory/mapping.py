"""Mapping files at chosen addresses, which Python's own `mmap` does not do."""

from __future__ import annotations

import ctypes
import mmap
import os
from collections.abc import Iterator
from contextlib import contextmanager

from headrace.system import NO_RESERVE, c_function, need_linux

# Pieces of memory are mapped one by one, in multiples of the system's page size.
ALIGNMENT = max(4096, mmap.PAGESIZE)
# Python has no name for it.
_FIXED = 0x10

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


def need_file_mappings(what: str) -> None:
    """Refuses mapped files on a system other than Linux.

    Raises:
        Unsupported: with `what` is not supported there.
    """
    need_linux(what, "files that are mapped at a place of memory", "Use Arena.private")


def map_over(mapping: mmap.mmap, descriptor: int, begin: int, stop: int, kind: int) -> None:
    """Maps the bytes `begin:stop` of a file over the same bytes of a mapping.

    Args:
        mapping: keeps its address.
        descriptor: of the file.
        begin, stop: multiples of the system's page size.
        kind: `mmap.MAP_SHARED` or `mmap.MAP_PRIVATE`.

    Raises:
        OSError: the system refuses.
    """
    if stop <= begin:
        return
    address = ctypes.addressof(ctypes.c_char.from_buffer(mapping)) + begin
    flags = kind | _FIXED | NO_RESERVE
    found = _c_mmap(address, stop - begin, mmap.PROT_READ | mmap.PROT_WRITE, flags, descriptor, begin)
    if found != address:
        number = ctypes.get_errno()
        raise OSError(number, f"mmap of another memory at the same place: {os.strerror(number)}")


@contextmanager
def closed_on_failure(descriptor: int) -> Iterator[None]:
    """Closes the descriptor if the block fails: a lock on the file would stay with it."""
    try:
        yield
    except BaseException:
        os.close(descriptor)
        raise


@contextmanager
def opened_again(descriptor: int) -> Iterator[int]:
    """Gives another descriptor of the same file, without the locks of the first; the first where that fails."""
    try:
        other = os.open(f"/proc/self/fd/{descriptor}", os.O_RDWR)
    except OSError:
        yield descriptor
        return
    try:
        yield other
    finally:
        os.close(other)
