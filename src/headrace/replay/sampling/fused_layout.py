"""Layout of a fused batch, as its kernel reads it."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray


class FusedLayout(NamedTuple):
    """Layout of batches of one shape.

    Attributes:
        batch, length: number of items, and rows of each.
        has_axis: whether columns are presented as `[B, L, ...]`, and not as `[B, ...]`.
        has_wide: whether columns are shown that are not fields of the records.
        block: the fields of a batch: the properties of its items by name, sums as "sum:reward", views as "/" and their
            name. "found" and "known", all row numbers and their status, are written if a value is unknown or a column
            is wide. The field of a wide column holds row numbers, which several views may share.
        scratch: the fields of the kernel's scratch buffer.
        windows: int64[W, WINDOW_WORDS], see `fused_kernel`.
        offsets: int64[...], of all windows.
        fields: for `copy_fields`.
        moves: int64[M, MOVE_WORDS], from the scratch buffer to the batch.
        row_moves: moves of "found" and "known".
    """

    batch: int
    length: int
    has_axis: bool
    has_wide: bool
    block: np.dtype[Any]
    scratch: np.dtype[Any]
    windows: NDArray[np.int64]
    offsets: NDArray[np.int64]
    fields: NDArray[np.int64]
    moves: NDArray[np.int64]
    row_moves: NDArray[np.int64]
