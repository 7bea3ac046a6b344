"""Distribution of a table's items, from a pass over all of them: rows, ages, counts of samples and weights."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from headrace.statistics import TableDistribution
from headrace.store.store import Store
from headrace.tables.items.items import Items
from headrace.tables.items.layout import CUSTOM, LIVE, PRIORITIZED, PRIORITY_OF_ALL, UNIFORM, ItemArrays
from headrace.tables.items.passes import count_rows, live_slots

SkippedKeys = tuple[tuple[int, int], ...]
"""Keys that no item was given: in each pair, from the first on and below the second."""


def distribution_of(
    name: str, items: ItemArrays, store: Store, next_key: int, skipped: SkippedKeys
) -> TableDistribution:
    """Returns the distribution of a table's items. The replay's lock must be held.

    Args:
        name: of the table.
        items: of the table.
        store: their rows.
        next_key: that the next item of the replay gets.
        skipped: of the replay.
    """
    kernel, live = Items(items, store.pins), slots_of(items)
    rows = count_rows(kernel, np.zeros(store.rows_in_pages, np.uint8))
    times = items.times[live]
    ages = _ages(items.keys[live].astype(np.int64), next_key, skipped)
    return TableDistribution(
        name=name,
        size=len(live),
        rows=rows,
        rows_bytes=rows * store.row_nbytes,
        mean_times_sampled=float(times.mean()) if len(live) else 0.0,
        max_times_sampled_so_far=int(times.max(initial=0)),
        mean_age=float(ages.mean()) if len(live) else 0.0,
        oldest_age=int(ages.max(initial=0)),
        effective_sample_size=_effective_sample_size(items, live),
    )


def slots_of(items: ItemArrays) -> NDArray[np.int64]:
    """Returns the slots of the items, in the order of insertion."""
    live = np.empty(int(items.ring[LIVE]), np.int64)
    live_slots(Items(items, None), live)
    return live


def priorities_of(items: ItemArrays) -> NDArray[np.float64]:
    """Returns the priority of each item, in the order of insertion."""
    if not len(items.priorities):
        return np.full(int(items.ring[LIVE]), items.common[PRIORITY_OF_ALL])
    priorities: NDArray[np.float64] = items.priorities[slots_of(items)]
    return priorities


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
