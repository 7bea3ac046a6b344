"""Files that are there complete or not at all, and the bytes of arrays for them."""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from headrace.system import sync_folder


def write_whole(path: Path, parts: Iterable[bytes | memoryview]) -> None:
    """Writes a file beside the one that it replaces, then renames it; it is on the disk when this returns."""
    partial = path.with_name(f"{path.name}.partial")
    with open(partial, "wb") as file:
        file.writelines(parts)
        file.flush()
        os.fsync(file.fileno())
    os.replace(partial, path)
    sync_folder(path.parent)


def begins_with(path: Path, expected: bytes) -> bool:
    """Returns whether a file can be read and begins with these bytes."""
    try:
        with open(path, "rb") as file:
            return file.read(len(expected)) == expected
    except OSError:
        return False


def bytes_of(array: NDArray[Any]) -> memoryview:
    """Returns the bytes of an array, without a copy if the array is contiguous."""
    return memoryview(np.ascontiguousarray(array).reshape(-1).view(np.uint8).data)
