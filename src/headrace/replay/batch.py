"""What a sample gives: data, what is known of its items, and which rows are real."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray


@dataclass(slots=True)
class SampleInfo:
    """What is known of each item of a batch, at the instant of its draw (replay B3).

    Attributes:
        keys: uint64[B]; for `update_priorities` and `delete`.
        probabilities: float64[B], with which it was drawn.
        table_size: int64[B], before the draw's own removal.
        priorities: float64[B].
        times_sampled: int64[B], this draw included.
    """

    keys: NDArray[np.uint64]
    probabilities: NDArray[np.float64]
    table_size: NDArray[np.int64]
    priorities: NDArray[np.float64]
    times_sampled: NDArray[np.int64]


@dataclass(slots=True)
class SampledBatch:
    """A batch of items, copied out: it never changes, and writing to it changes nothing else (replay B4).

    Attributes:
        data: the signature's tree, or a dict of views; leaves `[B, ...]` for items of one step, `[B, L, ...]` for
            longer ones, L being the longest item of the batch.
        info: what is known of the items.
        mask: bool[B, L], True where there is a real row; None where every row is.
    """

    data: Any
    info: SampleInfo
    mask: NDArray[np.bool_] | None = None
