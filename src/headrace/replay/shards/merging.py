"""Parts of a batch, drawn by different shards, as one batch."""

# Rules: replay B1, B2, B3, L5; collectors CY4

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from headrace.replay.sampling.packing import BatchLayout
from headrace.replay.sampling.replay_sample import ReplaySample, SampleInfo
from headrace.replay.shards.keys import whole_keys
from headrace.store.gather import Pool
from headrace.trees import map_leaves
from headrace.views.view import View

_MOST_PADDINGS = 1000


class Request(NamedTuple):
    """The arguments of a call of `sample`.

    Attributes:
        table: its name.
        batch_size: number of draws.
        views: what to present.
    """

    table: str
    batch_size: int
    views: Mapping[str, View] | None


@dataclass(frozen=True)
class Part:
    """Draws of one shard.

    Attributes:
        shard: its number.
        places: int64[n], rising: places of the draws in the whole batch.
        sample: the draws.
        shares: float64[n], by which their probabilities are multiplied.
        max_times: samples after which an item of the table leaves; 0 for no limit.
    """

    shard: int
    places: NDArray[np.int64]
    sample: ReplaySample
    shares: NDArray[np.float64]
    max_times: int


class Merging:
    """Puts parts together.

    A part with shorter items than another is filled up with padded rows. They repeat the padded rows that shards have
    presented before for the same request; until then they are zeros.

    Args:
        num_shards: for keys.
    """

    def __init__(self, num_shards: int) -> None:
        self._num_shards = num_shards
        self._pool = Pool()
        # Values of a padded row, by the request and the number of the leaf.
        self._padding: dict[tuple[Any, str, int], NDArray[Any]] = {}

    def merge(self, parts: Sequence[Part], sizes: NDArray[np.int64], request: Request) -> ReplaySample:
        """Returns the batch.

        Args:
            parts: with every place of the batch once.
            sizes: int64[shards]: items of each shard before the draws.
            request: that the parts serve.
        """
        info = self._info(parts, sizes)
        if len(parts) == 1:
            only = parts[0].sample
            return ReplaySample(only.data, info, only.mask, only.layout)
        lengths = [part.sample.layout.length for part in parts]
        longest = None if lengths == [None] * len(parts) else max(length or 1 for length in lengths)
        layout = BatchLayout(longest, parts[0].sample.layout.every)
        mask = None if longest is None else self._mask(parts, longest)
        return ReplaySample(self._data(parts, layout, request), info, mask, layout)

    # ---- data ------------------------------------------------------------------------------------------------------

    def _data(self, parts: Sequence[Part], layout: BatchLayout, request: Request) -> Any:
        trees = [part.sample.data for part in parts]
        key = request.table, None if request.views is None else tuple(request.views.items())
        if len(self._padding) >= _MOST_PADDINGS:
            self._padding.clear()
        if not layout.every:
            return self._merged(parts, trees, layout.length, 1, (key, ""))
        every = dict(layout.every)
        return {
            name: self._merged(
                parts, [tree[name] for tree in trees], layout.length, every.get(name, 1), (key, name)
            )
            for name in trees[0]
        }

    def _merged(
        self,
        parts: Sequence[Part],
        trees: Sequence[Any],
        length: int | None,
        every: int,
        key: tuple[Any, str],
    ) -> Any:
        """Returns trees of the same containers as one.

        Args:
            parts: of the trees.
            trees: one of each part.
            length: rows of the longest item; None if the leaves have no axis of rows.
            every: the leaves have every k-th row.
            key: of `_padding`.
        """
        columns = enumerate(zip(*map(_leaves, trees), strict=True))

        def merged(_: NDArray[Any]) -> NDArray[Any]:
            number, arrays = next(columns)
            if length is None:
                return self._placed(parts, arrays)
            timed = [
                array[:, None] if part.sample.layout.length is None else array
                for part, array in zip(parts, arrays, strict=True)
            ]
            padding = self._padding_of(parts, timed, every, (*key, number))
            return self._placed(parts, timed, -(-length // every), padding)

        return map_leaves(merged, trees[0])

    def _padding_of(
        self, parts: Sequence[Part], arrays: Sequence[NDArray[Any]], every: int, key: tuple[Any, str, int]
    ) -> Any:
        """Returns what a padded row shows."""
        for part, array in zip(parts, arrays, strict=True):
            if part.sample.mask is not None:
                is_padded = ~part.sample.mask[:, ::every]
                if is_padded.any():
                    self._padding[key] = array[np.unravel_index(is_padded.argmax(), is_padded.shape)].copy()
                    break
        return self._padding.get(key, 0)

    def _placed(
        self,
        parts: Sequence[Part],
        arrays: Sequence[NDArray[Any]],
        length: int | None = None,
        padding: Any = 0,
    ) -> NDArray[Any]:
        """Returns the arrays of all parts at the places of their draws, filled up to the length."""
        first = arrays[0]
        shape = first.shape[1:] if length is None else (length, *first.shape[2:])
        out = self._pool.empty((sum(map(len, arrays)), *shape), first.dtype)
        for part, array in zip(parts, arrays, strict=True):
            if length is None or array.shape[1] == length:
                out[part.places] = array
            else:
                out[part.places, : array.shape[1]] = array
                out[part.places, array.shape[1] :] = padding
        return out

    def _mask(self, parts: Sequence[Part], length: int) -> NDArray[np.bool_] | None:
        mask = np.zeros((sum(len(part.places) for part in parts), length), np.bool_)
        for part in parts:
            real = part.sample.mask
            mask[part.places, : part.sample.layout.length or 1] = True if real is None else real
        return None if mask.all() else mask

    # ---- info ------------------------------------------------------------------------------------------------------

    def _info(self, parts: Sequence[Part], sizes: NDArray[np.int64]) -> SampleInfo:
        def placed(values_of: Callable[[Part], NDArray[Any]]) -> NDArray[Any]:
            found = [values_of(part) for part in parts]
            out = np.empty(sum(map(len, found)), found[0].dtype)
            for part, values in zip(parts, found, strict=True):
                out[part.places] = values
            return out

        return SampleInfo(
            keys=placed(lambda part: whole_keys(part.sample.info.keys, part.shard, self._num_shards)),
            probabilities=placed(lambda part: part.sample.info.probabilities * part.shares),
            table_size=_table_sizes(parts, sizes),
            priorities=placed(lambda part: part.sample.info.priorities),
            times_sampled=placed(lambda part: part.sample.info.times_sampled),
        )


def _leaves(tree: Any) -> list[NDArray[Any]]:
    found: list[NDArray[Any]] = []

    def take(leaf: NDArray[Any]) -> NDArray[Any]:
        found.append(leaf)
        return leaf

    map_leaves(take, tree)
    return found


def _table_sizes(parts: Sequence[Part], sizes: NDArray[np.int64]) -> NDArray[np.int64]:
    """Returns int64[B]: the items of all shards before each draw of the batch, in the order of the batch."""
    count = sum(len(part.places) for part in parts)
    found = np.zeros(count, np.int64)
    for shard in range(len(sizes)):
        own = [part for part in parts if part.shard == shard]
        if not own:
            found += sizes[shard]
            continue
        places = np.concatenate([part.places for part in own])
        order = np.argsort(places)
        # Before each of its draws a shard has the size that it tells; after the last, one item less if it left.
        last = own[-1].sample.info
        left = int(own[-1].max_times > 0 and last.times_sampled[-1] >= own[-1].max_times)
        told = np.concatenate([part.sample.info.table_size for part in own])[order]
        told = np.append(told, last.table_size[-1] - left)
        found += told[np.searchsorted(places[order], np.arange(count))]
    return found
