"""Distribution of a table's items, from a pass over all of them: rows, ages, counts of samples and weights."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from headrace.statistics import TableDistribution
from headrace.store.store import Store
from headrace.tables.item_ring import ItemRing
from headrace.tables.items.layout import CUSTOM, PRIORITIZED, UNIFORM, ItemArrays
from headrace.tables.items.passes import count_rows, live_slots

SkippedKeys = tuple[tuple[int, int], ...]
"""Keys that no item was given: in each pair, from the first on and below the second."""


def distribution_of(
    name: str, ring: ItemRing, store: Store, next_key: int, skipped: SkippedKeys
) -> TableDistribution:
    """Returns the distribution of a table's items. The replay's lock must be held.

    Args:
        name: of the table.
        ring: its items.
        store: their rows.
        next_key: that the next item of the replay gets.
        skipped: of the replay.
    """
    arrays = ring.arrays
    live = np.empty(len(ring), np.int64)
    live_slots(ring.items, live)
    rows = count_rows(ring.items, np.zeros(store.rows_in_pages, np.uint8))
    times = arrays.times[live]
    ages = _ages(arrays.keys[live].astype(np.int64), next_key, skipped)
    return TableDistribution(
        name=name,
        size=len(live),
        rows=rows,
        rows_bytes=rows * store.row_nbytes,
        mean_times_sampled=float(times.mean()) if len(live) else 0.0,
        max_times_sampled_so_far=int(times.max(initial=0)),
        mean_age=float(ages.mean()) if len(live) else 0.0,
        oldest_age=int(ages.max(initial=0)),
        effective_sample_size=_effective_sample_size(arrays, live),
    )


def _ages(keys: NDArray[np.int64], next_key: int, skipped: SkippedKeys) -> NDArray[np.int64]:
    ages: NDArray[np.int64] = next_key - 1 - keys
    for first, after in skipped:
        ages -= np.where(keys < first, after - first, 0)
    return ages


def _effective_sample_size(arrays: ItemArrays, live: NDArray[np.int64]) -> float | None:
    kind = arrays.sampler.kind
    if kind == CUSTOM:
        return None
    if kind == PRIORITIZED:
        weights = arrays.sampler.nodes[live]
        heaviest = weights.max(initial=0.0)
        if heaviest > 0.0:
            # Their squares stay within the range of a float.
            weights = weights / heaviest
            return float(weights.sum() ** 2 / (weights**2).sum())
    if kind in (UNIFORM, PRIORITIZED):
        return float(len(live))
    return float(min(len(live), 1))
