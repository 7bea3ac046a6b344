"""Rows of large commits, which go through the object store of Ray beside the connection."""

# Rules: collectors CY2

from __future__ import annotations

import itertools

import numpy as np
from numpy.typing import NDArray

# Below, the calls and pages of Ray cost more than the copies that they save (figures: design/collectors.md).
LARGE_NBYTES = 1 << 23


class HeldRows:
    """Rows that an actor keeps until the collector fetches them. Thread-safe.

    >>> held = HeldRows()
    >>> number = held.put(np.arange(3, dtype=np.uint8))
    >>> held.take(number)
    array([0, 1, 2], dtype=uint8)
    """

    def __init__(self) -> None:
        self._rows: dict[int, NDArray[np.uint8]] = {}
        self._numbers = itertools.count(1)

    def put(self, rows: NDArray[np.uint8]) -> int:
        """Keeps the rows of a commit; returns the number by which `take` finds them."""
        number = next(self._numbers)
        self._rows[number] = rows
        return number

    def take(self, number: int) -> NDArray[np.uint8]:
        """Returns rows, and keeps them no longer."""
        return self._rows.pop(number)
