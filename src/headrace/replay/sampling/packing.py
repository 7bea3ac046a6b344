"""Packing: the rows of items of different lengths one after another, without padding."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from headrace.trees import map_leaves


class BatchLayout(NamedTuple):
    """Facts about a batch that its shapes do not show.

    Attributes:
        length: rows of the longest item, the second axis of the leaves; None for items of one step, without that axis.
        every: names and k of views, and their masks, that present rows 0, k, 2k, ... of each item.
    """

    length: int | None = None
    every: tuple[tuple[str, int], ...] = ()


ONE_STEP = BatchLayout()
"""Items of one step each."""


@dataclass(slots=True)
class PackedBatch:
    """The rows of a batch's items, one item after another; made by `ReplaySample.pack`.

    Attributes:
        data: the batch's tree with leaves `[sum(lengths), ...]`; views with `every=k` have fewer rows of each item,
            `[sum(ceil(lengths / k)), ...]`.
        lengths: int64[B], rows of each item.
        info: keys, priorities and so on of the items.
        layout: of the batch that was packed.
    """

    data: Any
    lengths: NDArray[np.int64]
    info: Any
    layout: BatchLayout = field(repr=False)

    @property
    def offsets(self) -> NDArray[np.int64]:
        """int64[B + 1]: the start of each item, and the end of the last one; `cu_seqlens` of attention kernels."""
        return np.concatenate([[0], np.cumsum(self.lengths)])

    @property
    def mask(self) -> NDArray[np.bool_]:
        """bool[B, L], True where the result of `pad` has a row."""
        return np.arange(self.layout.length or 1) < self.lengths[:, None]

    def pad(self, values: Any) -> Any:
        """Returns packed rows as `[B, L, ...]`, with zeros as padding: the inverse of packing.

        Args:
            values: a tree of arrays or tensors `[sum(lengths), ...]`, such as `data`, or losses computed from it.

        Raises:
            ValueError: a leaf has another number of rows.
        """
        if self.layout.length is None:
            return values
        return _map_named(values, self.layout.every, self._pad_leaf)

    def _pad_leaf(self, leaf: Any, every: int) -> Any:
        mask = self.mask[:, ::every]
        if len(leaf) != mask.sum():
            raise ValueError(f"pad: expected {mask.sum()} rows, those of all items, got {len(leaf)}")
        # Any row stands in for padding at first: it is taken by number, which arrays and tensors both understand.
        rows = np.maximum(np.cumsum(mask) - 1, 0).reshape(mask.shape)
        padded = leaf[rows]
        padded[~mask] = 0
        return padded


def pack(batch: Any) -> PackedBatch:
    """Removes the padding of a `ReplaySample`, or of a batch of tensors with the same attributes."""
    length, every = batch.layout
    count = len(batch.info.keys)
    if batch.mask is not None:
        lengths = batch.mask.sum(1)
        lengths = np.asarray(lengths.cpu() if hasattr(lengths, "cpu") else lengths, np.int64)
    else:
        lengths = np.full(count, length or 1, np.int64)
    if length is None:
        return PackedBatch(batch.data, lengths, batch.info, batch.layout)

    def pack_leaf(leaf: Any, every: int) -> Any:
        if batch.mask is None:
            return leaf.reshape(leaf.shape[0] * leaf.shape[1], *leaf.shape[2:])
        return leaf[batch.mask[:, ::every]]

    return PackedBatch(_map_named(batch.data, every, pack_leaf), lengths, batch.info, batch.layout)


def _map_named(tree: Any, every: tuple[tuple[str, int], ...], function: Callable[..., Any]) -> Any:
    """Maps leaves like `map_leaves`, and passes k for the leaves of views that have every k-th row only."""
    if not every or not isinstance(tree, dict):
        return map_leaves(partial(function, every=1), tree)
    every_of = dict(every)
    return {
        name: map_leaves(partial(function, every=every_of.get(name, 1)), child)
        for name, child in tree.items()
    }
