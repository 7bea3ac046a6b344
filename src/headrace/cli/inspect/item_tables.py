"""Priorities, ages and samples of the items of a table."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any, Protocol

import numpy as np

from headrace.cli.inspect.columns import ColumnGatherer, ColumnSummary
from headrace.statistics import TableDistribution
from headrace.store.store import Store
from headrace.tables.distribution import SkippedKeys, distribution_of, priorities_of
from headrace.tables.items.layout import PRIORITIZED, UNIFORM, ItemArrays

# Fewer items than this share of a table have all the weight: then batches hold little else.
_SMALL_SHARE, _LARGE_TABLE = 0.01, 100

HEADER = (
    "table", "items", "priority: low", "mean", "high", "histogram", "samples: mean", "most", "age: mean", "oldest",
    "effective items",
)  # fmt: skip


@dataclass(frozen=True)
class TableSummary:
    """The items of one table.

    Attributes:
        distribution: ages, samples and weights, of all items.
        has_weights: whether the sampler draws some items more often than others, or may do so.
        priorities: of the items that were read.
    """

    distribution: TableDistribution
    has_weights: bool
    priorities: ColumnSummary

    def as_json(self) -> dict[str, Any]:
        """Returns all numbers; None for those that are not known."""
        return {**asdict(self.distribution), "priorities": self.priorities.as_json()}

    def row(self, histogram: str) -> tuple[Any, ...]:
        """Returns the cells below `HEADER`.

        Args:
            histogram: of the priorities.
        """
        found = self.distribution
        return (
            found.name,
            found.size,
            *map(self.priorities.number, ("low", "mean", "high")),
            histogram,
            found.mean_times_sampled,
            found.max_times_sampled_so_far,
            found.mean_age,
            found.oldest_age,
            found.effective_sample_size if self.has_weights else None,
        )

    def suspicions(self) -> list[str]:
        """Returns sentences about weights that may be wrong."""
        found, effective = self.distribution, self.distribution.effective_sample_size
        if not self.has_weights or effective is None or found.size < _LARGE_TABLE:
            return []
        if effective >= _SMALL_SHARE * found.size:
            return []
        return [
            f"table {found.name}: a few items have nearly all the weight, as if there were {effective:.3g} of "
            f"{found.size}; use a smaller exponent, or clip the priorities"
        ]


class StoredTables(Protocol):
    """Tables of a replay that is stored in files.

    Attributes:
        store: the rows of their items.
        items: the name of each table to its items.
        next_key, skipped_keys: the key that the next item would get, and those that no item was given.
    """

    store: Store
    items: dict[str, ItemArrays]
    next_key: int
    skipped_keys: SkippedKeys


def read_tables(stored: StoredTables) -> Mapping[str, TableSummary]:
    """Returns a summary of each table."""
    found = {}
    for name, items in stored.items.items():
        priorities = ColumnGatherer(np.dtype(np.float64), ())
        priorities.add(priorities_of(items))
        distribution = distribution_of(name, items, stored.store, stored.next_key, stored.skipped_keys)
        has_weights = items.sampler.kind in (PRIORITIZED, UNIFORM)
        found[name] = TableSummary(distribution, has_weights, priorities.summary())
    return found
