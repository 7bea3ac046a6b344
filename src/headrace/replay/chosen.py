"""Windows that somebody else chooses: for each step the lanes whose newest rows end one."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from headrace.replay.cutting import WHOLE
from headrace.store.jit import Int, kernel
from headrace.store.layout import StoreArrays
from headrace.store.pinning import pin_window
from headrace.store.window import follow

# In place of the number of an end: nothing is cut, each window is chosen (`Chosen`).
CHOSEN = WHOLE + 1


class Chosen(NamedTuple):
    """The lanes that a call makes items of, by the rule's number.

    Attributes:
        rows: bool[lanes], of the rows of the step.
        finals: bool[lanes], of the final rows.
    """

    rows: Mapping[int, NDArray[np.bool_]]
    finals: Mapping[int, NDArray[np.bool_]]


@kernel
def pin_before(
    store: StoreArrays, newest: NDArray[np.int64], back: Int, count: Int, starts: NDArray[np.int64]
) -> None:
    """Pin the pages under `count` rows that begin `back` rows before each of `newest`, in its episode.

    Args:
        newest: int64[m].
        starts: int64[m], written: their first rows.
    """
    for index in range(newest.shape[0]):
        starts[index] = follow(store, newest[index], -back)
        pin_window(store, starts[index], count, 1)
