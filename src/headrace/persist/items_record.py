"""Data about a table's items in files, besides their arrays."""

from __future__ import annotations

from typing import Any

import msgspec
import numpy as np
from numpy.typing import NDArray

from headrace.tables.item_state import ItemState


class ItemsRecord(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """An `ItemState` without its arrays."""

    capacity: int
    ring: tuple[int, ...]
    priority: float
    window: tuple[int, int, int]

    def state(self, arrays: dict[str, NDArray[Any]]) -> ItemState:
        """Returns the state with these arrays."""
        ring, window = np.array(self.ring, np.int64), np.array(self.window, np.uint32)
        return ItemState(self.capacity, ring, self.priority, window, arrays)


def record_fields(state: ItemState) -> tuple[int, tuple[int, ...], float, tuple[int, int, int]]:
    """Returns the fields of the record of a state, in their order."""
    real, padded, lookahead = state.window.tolist()
    return state.capacity, tuple(state.ring.tolist()), state.priority, (real, padded, lookahead)
