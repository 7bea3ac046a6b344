"""From batches `[N, T, ...]` to batches with one row for each piece of a trajectory."""

# Rules: collectors CR9

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from headrace.collectors.batches.batch import Batch, map_batch


def split_trajectories(batch: Batch) -> Batch:
    """Returns a batch `[K, L, ...]`: a row for each piece of a trajectory, padded to the length of the longest.

    The pieces come in the order of the rows of the batch, and in each row in time. Padding holds zeros; its `mask` is
    False and its `episode_id` is -1.

    Args:
        batch: `[N, T, ...]`.

    >>> numbers = np.array([[0, 0, 0, 1], [2, 2, -1, 3]])
    >>> split = split_trajectories(Batch({"episode_id": numbers, "mask": numbers >= 0}))
    >>> split.episode_id.tolist()
    [[0, 0, 0], [1, -1, -1], [2, 2, -1], [3, -1, -1]]
    """
    mask = batch["mask"]
    lanes, steps = np.nonzero(mask)
    ids = batch["episode_id"][lanes, steps]
    starts = np.ones(len(ids), np.bool_)
    starts[1:] = (np.diff(ids) != 0) | (np.diff(lanes) != 0)
    first = np.flatnonzero(starts)
    pieces = np.cumsum(starts) - 1
    places = np.arange(len(ids)) - first[pieces]
    shape = len(first), int(places.max(initial=-1)) + 1

    def lay_out(leaf: NDArray[Any]) -> NDArray[Any]:
        rows = np.zeros((*shape, *leaf.shape[2:]), leaf.dtype)
        rows[pieces, places] = leaf[lanes, steps]
        return rows

    split = map_batch(lay_out, batch)
    split["episode_id"][~split["mask"]] = -1
    return split
