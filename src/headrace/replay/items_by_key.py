"""Items of a table by their keys, without a sample."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping

import numpy as np
from numpy.typing import ArrayLike, NDArray

from headrace.errors import ItemNotFound
from headrace.replay.item_keys import checked_keys
from headrace.replay.local import LocalReplay
from headrace.replay.sampling.replay_sample import ReplaySample
from headrace.tables.live_table import LiveTable
from headrace.views.view import View


def wanted_keys(keys: ArrayLike) -> NDArray[np.uint64]:
    """Returns the keys of a call of `get`.

    Raises:
        ValueError: none.
    """
    wanted = checked_keys(keys)
    if not len(wanted):
        raise ValueError("keys: expected at least one, got none")
    return wanted


def all_keys(replay: LocalReplay, live: LiveTable) -> NDArray[np.uint64]:
    """Returns the keys of all items of a table, in the order of insertion."""
    with replay.lock:
        replay.check_open()
        return live.ring.all_keys()


def remaining_items(
    replay: LocalReplay, live: LiveTable, keys: NDArray[np.uint64], views: Mapping[str, View] | None
) -> ReplaySample | None:
    """Returns a batch of the items of those keys that have one; None if none has."""
    while True:
        with replay.lock:
            replay.check_open()
            remaining = live.ring.keys_that_remain(keys)
        if not len(remaining):
            return None
        try:
            return replay.sampling.get(live, remaining, views)
        except ItemNotFound:
            continue  # Another thread removed one in between.


def batches_of(
    keys: NDArray[np.uint64], batch_size: int, find: Callable[[NDArray[np.uint64]], ReplaySample | None]
) -> Iterator[ReplaySample]:
    """Iterates over the items of some keys in batches; see `Replay.items`.

    Args:
        keys: of the items.
        batch_size: number of keys for each batch.
        find: returns the batch of some keys; None if none of them has an item any more.
    """
    for first in range(0, len(keys), batch_size):
        batch = find(keys[first : first + batch_size])
        if batch is not None:
            yield batch
