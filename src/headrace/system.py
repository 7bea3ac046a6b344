"""Operating systems: calls that only some systems have are made here, or behind `need_linux`.

No module needs such a call at import. Features of a single process work on every system. Features shared by processes
(memory by its descriptor, mapped files, locks of a store) need Linux, and raise when they are used elsewhere.
"""

from __future__ import annotations

import ctypes
import errno
import importlib
import mmap
import os
import sys
import tempfile
import threading
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from headrace.errors import Unsupported

# Python names this constant only from 3.14 on; without it Linux may refuse to reserve more than there is memory.
NO_RESERVE: int = getattr(mmap, "MAP_NORESERVE", 0x4000 if sys.platform == "linux" else 0)
BINARY: int = getattr(os, "O_BINARY", 0)
"""A flag of `os.open`: without it Windows changes the ends of lines."""

_NAMES = {"darwin": "macOS", "win32": "Windows", "linux": "Linux"}
# Assumed if the system does not report its memory.
_UNKNOWN_MEMORY = 4 << 30
# For systems on which all users of an open file share one position.
_seeking = threading.Lock()


def is_linux() -> bool:
    """Whether all of Headrace works here."""
    return sys.platform == "linux"


def need_linux(what: str, needs: str, instead: str) -> None:
    """Refuses a feature that this system lacks.

    Args:
        what: the feature, as the user wrote it.
        needs: the requirement.
        instead: the alternative, as a sentence.

    Raises:
        Unsupported: the system is not Linux.
    """
    if not is_linux():
        here = _NAMES.get(sys.platform, sys.platform)
        raise Unsupported(f"{what}: expected Linux, for {needs}, got {here}. {instead}")


# ---- processes -----------------------------------------------------------------------------------------------------


def register_at_fork(**callbacks: Callable[[], object]) -> None:
    """Does what `os.register_at_fork` does; nothing on a system that does not fork."""
    register = getattr(os, "register_at_fork", None)
    if register is not None:
        register(**callbacks)


def processors() -> int:
    """Returns the number of processors that this process may use."""
    affinity = getattr(os, "sched_getaffinity", None)
    return len(affinity(0)) if affinity is not None else os.cpu_count() or 1


def has_gil() -> bool:
    """Whether only one thread of this process runs Python at a time."""
    # From Python 3.13 on.
    is_enabled: Callable[[], bool] = getattr(sys, "_is_gil_enabled", lambda: True)
    return is_enabled()


def c_function(name: str) -> Any:
    """Returns a function of the C library that Python does not expose; None if the library lacks it."""
    with suppress(OSError, TypeError):  # Windows has no library without a name.
        return getattr(ctypes.CDLL(None, use_errno=True), name, None)
    return None


# ---- memory --------------------------------------------------------------------------------------------------------


def private_mapping(nbytes: int) -> mmap.mmap:
    """Returns zeroed memory private to this process.

    On systems with overcommit only written pages take memory. Windows counts all of it against the memory and the page
    file of the machine (`reservable_nbytes`), and takes pages as they are written.

    Raises:
        OSError: the system refuses.
    """
    if sys.platform == "win32":
        return mmap.mmap(-1, nbytes)
    return mmap.mmap(-1, nbytes, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | NO_RESERVE)


def machine_nbytes() -> int:
    """Returns the bytes of memory of the machine; on Windows those that Windows would still grant."""
    if sys.platform == "win32":
        return _grantable_on_windows()
    with suppress(AttributeError, OSError, ValueError):
        pages = os.sysconf("SC_PHYS_PAGES")
        if pages > 0:
            return os.sysconf("SC_PAGE_SIZE") * pages
    return _UNKNOWN_MEMORY


def reservable_nbytes() -> int:
    """Returns the bytes that a store without capacity reserves.

    This is twice the memory of the machine if a reservation is free: a replay runs out of memory long before. Windows
    counts reservations, so it is a quarter of the bytes that Windows would still grant.
    """
    nbytes = machine_nbytes()
    return nbytes // 4 if sys.platform == "win32" else 2 * nbytes


def _grantable_on_windows() -> int:
    # MEMORYSTATUSEX: its own size and the load in one word; then total and free physical memory, and total and free
    # memory that the system grants to processes.
    status = (ctypes.c_uint64 * 8)(64)
    with suppress(AttributeError, OSError):
        if getattr(ctypes, "windll").kernel32.GlobalMemoryStatusEx(ctypes.byref(status)):  # noqa: B009 - of Windows alone
            return int(min(status[1], status[4]))
    return _UNKNOWN_MEMORY


def memory_file(name: str, nbytes: int) -> int:
    """Returns a descriptor of zeroed memory without a name on the disk; the last process that closes it frees it."""
    if hasattr(os, "memfd_create"):
        descriptor = os.memfd_create(name, os.MFD_CLOEXEC)
    else:
        # A Python built for an old Linux: a temporary file that is unlinked at once behaves the same.
        with tempfile.TemporaryFile() as file:
            descriptor = os.dup(file.fileno())
    try:
        os.ftruncate(descriptor, nbytes)
    except BaseException:
        os.close(descriptor)
        raise
    return descriptor


def sealed_memory_file(name: str, nbytes: int) -> int:
    """Returns a memory file whose size no process can change, so that no process that maps it is killed for it.

    Raises:
        Unsupported: this system has no such files (`has_sealed_memory`).
    """
    need_linux("sealed memory", "memory files with seals", "Send the data instead")
    locks = _fcntl()
    descriptor = os.memfd_create(name, os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
    try:
        os.ftruncate(descriptor, nbytes)
        locks.fcntl(
            descriptor, locks.F_ADD_SEALS, locks.F_SEAL_SHRINK | locks.F_SEAL_GROW | locks.F_SEAL_SEAL
        )
    except BaseException:
        os.close(descriptor)
        raise
    return descriptor


def has_sealed_memory() -> bool:
    """Whether `sealed_memory_file` works on this system."""
    return hasattr(os, "memfd_create") and hasattr(_fcntl(), "F_ADD_SEALS")


def is_sealed(descriptor: int) -> bool:
    """Whether the size of a file is sealed."""
    locks = _fcntl()
    try:
        return bool(locks.fcntl(descriptor, locks.F_GET_SEALS) & locks.F_SEAL_SHRINK)
    except OSError:
        return False


# ---- files ---------------------------------------------------------------------------------------------------------


def open_folder(folder: Path) -> int | None:
    """Returns a descriptor of a folder, to lock it or to sync its names; None on Windows, which cannot open folders.

    Raises:
        OSError: it does not exist or is not a folder.
    """
    if sys.platform == "win32":
        return None
    return os.open(folder, os.O_RDONLY | getattr(os, "O_DIRECTORY", 0))


def sync_folder(folder: Path) -> None:
    """Syncs the names in a folder to the disk. Windows does so by itself."""
    descriptor = open_folder(folder)
    if descriptor is not None:
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)


def sync_file(path: Path) -> None:
    """Syncs the content of a file to the disk."""
    # Windows syncs only files that are open for writing.
    descriptor = os.open(path, os.O_RDWR if sys.platform == "win32" else os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def has_locks() -> bool:
    """Whether `lock` works on this system."""
    return _fcntl() is not None


def lock(descriptor: int, *, shared: bool = False) -> bool:
    """Locks an open file or folder; the lock ends with the last process that has this opening.

    Args:
        descriptor: of a file or a folder.
        shared: takes a shared lock, which others may hold too.

    Returns:
        Whether the lock is held; False: another opening has it.

    Raises:
        OSError: the file system has no locks, or the system has none (`has_locks`).
    """
    locks = _fcntl()
    if locks is None:
        raise OSError(errno.ENOSYS, "this system has no locks of folders")
    try:
        locks.flock(descriptor, (locks.LOCK_SH if shared else locks.LOCK_EX) | locks.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def unlock(descriptor: int) -> None:
    """Releases a lock, for all processes that inherited it.

    Raises:
        OSError: see `lock`.
    """
    locks = _fcntl()
    if locks is None:
        raise OSError(errno.ENOSYS, "this system has no locks of folders")
    locks.flock(descriptor, locks.LOCK_UN)


def _fcntl() -> Any:
    try:
        return importlib.import_module("fcntl")
    except ImportError:
        return None


def write_at(descriptor: int, parts: Sequence[memoryview], offset: int) -> int:
    """Writes the parts one after another at an offset of a file; returns the number of bytes written, at least 1."""
    if hasattr(os, "pwritev"):
        return os.pwritev(descriptor, parts, offset)
    with _seeking:
        os.lseek(descriptor, offset, os.SEEK_SET)
        return os.write(descriptor, parts[0])


def read_at(descriptor: int, parts: Sequence[memoryview], offset: int) -> int:
    """Fills the parts one after another from an offset of a file; returns the number of bytes read, 0 at its end."""
    if hasattr(os, "preadv"):
        return os.preadv(descriptor, parts, offset)
    with _seeking:
        os.lseek(descriptor, offset, os.SEEK_SET)
        content = os.read(descriptor, len(parts[0]))
    parts[0][: len(content)] = content
    return len(content)
