"""Keys of several shards as keys of one replay: key k of shard s of n is `k * n + s`."""

# Rules: replay K1, collectors CY4

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray


def whole_keys(keys: NDArray[np.uint64], shard: int, num_shards: int) -> NDArray[np.uint64]:
    """Returns the keys that the whole gives to items of one shard.

    >>> whole_keys(np.array([1, 2], np.uint64), 2, 3)
    array([5, 8], dtype=uint64)
    """
    found: NDArray[np.uint64] = keys * np.uint64(num_shards) + np.uint64(shard)
    return found


def split_keys(keys: NDArray[np.uint64], num_shards: int) -> tuple[NDArray[np.int64], NDArray[np.uint64]]:
    """Returns the shard of each key, and its key there. Every integer is a key of some shard.

    >>> shards, keys = split_keys(np.array([5, 8, 3], np.uint64), 3)
    >>> shards, keys
    (array([2, 2, 0]), array([1, 2, 1], dtype=uint64))
    """
    found, shards = np.divmod(keys, np.uint64(num_shards))
    return shards.astype(np.int64), found
