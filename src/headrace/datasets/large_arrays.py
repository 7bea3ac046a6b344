"""Arrays that are held in memory up to a size, and beyond that in a temporary file.

The system keeps as much of such a file in memory as there is room for.
"""

from __future__ import annotations

import os
import tempfile
from typing import IO, Any

import numpy as np
from numpy.typing import NDArray

from headrace.datasets.exporting.structure import Array

_IN_MEMORY = 64 << 20
_CHUNK = 1 << 20


def empty_array(shape: tuple[int, ...], dtype: np.dtype[Any]) -> Array:
    """Returns an array to be filled. A large one lies in a temporary file without a name, which goes with the array.

    Args:
        shape: of the array.
        dtype: of numbers, bools or strings.

    Raises:
        OSError: the folder of temporary files is full.

    >>> empty_array((3, 2), np.dtype(np.float32)).shape
    (3, 2)
    """
    nbytes = int(np.prod(shape, dtype=np.int64)) * dtype.itemsize
    if nbytes <= _IN_MEMORY:
        return np.empty(shape, dtype)
    with tempfile.TemporaryFile() as file:
        try:
            _reserve(file, nbytes)
        except OSError as error:
            raise OSError(
                f"{error}: {nbytes} bytes in {tempfile.gettempdir()}, where an array of more than "
                f"{_IN_MEMORY} bytes is kept. The environment variable TMPDIR names another folder"
            ) from error
        return np.asarray(np.memmap(file, dtype, "r+", 0, shape))


def take_rows(array: Array, rows: NDArray[np.int64]) -> Array:
    """Returns copies of these rows, as `array[rows]`, in an array of `empty_array`.

    >>> take_rows(np.array([5, 6, 7]), np.array([2, 0, 0])).tolist()
    [7, 5, 5]
    """
    taken = empty_array((len(rows), *array.shape[1:]), array.dtype)
    # NumPy would first gather all rows in memory if it had to raise an error for a wrong one.
    np.take(array, rows, 0, taken, "clip")
    return taken


def _reserve(file: IO[bytes], nbytes: int) -> None:
    """Takes disk space: a process that writes to a mapped file on a full disk is killed."""
    if hasattr(os, "posix_fallocate"):
        os.posix_fallocate(file.fileno(), 0, nbytes)
        return
    zeros = bytes(_CHUNK)
    for begin in range(0, nbytes, _CHUNK):
        file.write(zeros[: nbytes - begin])
    file.flush()
