"""Places of named arrays in an arena: the same calls give the same places in every process."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np
from numpy.typing import DTypeLike, NDArray

from headrace.store.memory.arena import Arena
from headrace.store.memory.mapping import ALIGNMENT


class ArrayPlace(NamedTuple):
    """One array in an arena.

    Attributes:
        offset: in bytes.
        shape, dtype: of the array.
    """

    offset: int
    shape: tuple[int, ...]
    dtype: np.dtype[np.generic]

    @property
    def end(self) -> int:
        """The offset of the byte after the array."""
        return self.offset + math.prod(self.shape) * self.dtype.itemsize


@dataclass
class ArenaLayout:
    """Layout of the arrays in an arena.

    Attributes:
        nbytes: bytes that the arena needs.
        alignment: in bytes, of each array.
        places: by the names of the arrays, in the order in which they were added.
    """

    nbytes: int = 0
    alignment: int = ALIGNMENT
    places: dict[str, ArrayPlace] = field(default_factory=dict)

    def add(self, name: str, shape: tuple[int, ...], dtype: DTypeLike) -> None:
        """Reserves bytes for one array, aligned."""
        place = self.places[name] = ArrayPlace(self.nbytes, shape, np.dtype(dtype))
        self.nbytes += -(-(place.end - place.offset) // self.alignment) * self.alignment

    def spans(self) -> NDArray[np.int64]:
        """Returns int64[arrays, 2]: where each array begins and ends."""
        return np.array([(place.offset, place.end) for place in self.places.values()], np.int64)

    def arrays(self, arena: Arena) -> dict[str, NDArray[np.generic]]:
        """Returns all arrays by name."""
        return {name: arena.array(*place) for name, place in self.places.items()}
