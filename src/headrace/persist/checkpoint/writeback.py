"""Early writing of files to the disk.

Otherwise all written bytes wait in memory for the `fsync` at the end, and the disk is idle until then.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable

from headrace.system import c_function

# Of linux/fs.h: begins to write changed bytes without a wait.
_WRITE = 2


def _of_the_system() -> Callable[[int, int, int, int], int] | None:
    """Returns the function of Linux, which Python does not expose; None on other systems."""
    function = c_function("sync_file_range")
    if function is None:
        return None
    function.restype = ctypes.c_int
    function.argtypes = (ctypes.c_int, ctypes.c_int64, ctypes.c_int64, ctypes.c_uint)
    begin: Callable[[int, int, int, int], int] = function
    return begin


_SYNC_FILE_RANGE = _of_the_system()


def begin_writeback(descriptor: int, offset: int, nbytes: int) -> None:
    """Asks the system to begin writing these bytes of a file to the disk. Only `fsync` guarantees it."""
    if _SYNC_FILE_RANGE is not None:
        _SYNC_FILE_RANGE(descriptor, offset, nbytes, _WRITE)
