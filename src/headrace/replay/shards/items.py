"""Items of several shards by their keys, without a sample."""

# Rules: collectors CY4

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from functools import partial
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from headrace.errors import ItemNotFound
from headrace.replay.interface import ReplayLike
from headrace.replay.sampling.replay_sample import ReplaySample
from headrace.replay.shards.keys import split_keys
from headrace.replay.shards.merging import Merging, Part, Request
from headrace.replay.shards.shard import Shard, ShardDown

UsesShards = Callable[[Mapping[int, Callable[[ReplayLike], Any]]], dict[int, Any]]
"""Makes calls with some shards, by number; returns the results of those that can be reached."""


class _Begun(NamedTuple):
    """The items of one shard.

    Attributes:
        replay: of the shard, when the iteration began.
        items: its batches.
    """

    replay: ReplayLike
    items: Iterator[ReplaySample]

    def next_batch(self, replay: ReplayLike) -> ReplaySample | None:
        """Returns the next batch; None at the end, or if the shard was lost and opened again since."""
        return next(self.items, None) if replay is self.replay else None


class ShardedItems:
    """Looks at items of the shards. Thread-safe.

    Args:
        shards: that have them.
        use: makes calls.
    """

    def __init__(self, shards: list[Shard], use: UsesShards) -> None:
        self._shards = shards
        self._use = use

    def get(self, request: Request, keys: NDArray[np.uint64]) -> ReplaySample:
        """Returns items by their keys; see `Replay.get`.

        Raises:
            ItemNotFound: some keys have no item.
            ShardDown: the shard of some keys is down.
        """
        owners, own_keys = split_keys(keys, len(self._shards))
        places = {number: np.flatnonzero(owners == number) for number in np.unique(owners).tolist()}
        calls = {
            number: partial(self._found, number, request, own_keys[own]) for number, own in places.items()
        }
        found = self._use(calls)
        parts = []
        for number, own in places.items():
            sample = found.get(number)
            if sample is None:
                raise ShardDown(f"get: shard {number}, which has {len(own)} of the keys, is down")
            parts.append(_part(number, own, sample))
        return self._merged(parts, request)

    def _found(
        self, number: int, request: Request, keys: NDArray[np.uint64], replay: ReplayLike
    ) -> ReplaySample:
        try:
            return replay.get(request.table, keys, views=request.views)
        except ItemNotFound as error:
            raise ItemNotFound(
                f"shard {number}, whose key k is key k * {len(self._shards)} + {number} of the whole: {error}"
            ) from error

    def batches(self, request: Request) -> Iterator[ReplaySample]:
        """Iterates over the items of one shard after another; see `Replay.items`. Shards that are down are left out."""

        def begin(replay: ReplayLike) -> _Begun:
            return _Begun(replay, replay.items(request.table, request.batch_size, views=request.views))

        return self._continued(self._use(dict.fromkeys(range(len(self._shards)), begin)), request)

    def _continued(self, begun: Mapping[int, _Begun], request: Request) -> Iterator[ReplaySample]:
        for number, each in begun.items():
            while sample := self._use({number: each.next_batch}).get(number):
                yield self._merged([_part(number, np.arange(len(sample.info.keys)), sample)], request)

    def _merged(self, parts: list[Part], request: Request) -> ReplaySample:
        sizes = np.zeros(len(self._shards), np.int64)
        every = range(len(self._shards))
        for number, size in self._use(
            dict.fromkeys(every, lambda replay: replay.table(request.table).statistics().size)
        ).items():
            sizes[number] = size
        return Merging(len(self._shards)).merge(parts, sizes, request)


def _part(shard: int, places: NDArray[np.int64], sample: ReplaySample) -> Part:
    return Part(shard, places, sample, np.ones(len(places)), max_times=0)
