"""Priorities, ages and samples of the items of a table."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from headrace.cli.inspect.columns import ColumnGatherer, ColumnSummary
from headrace.persist.disk.stored import StoredReplay
from headrace.replay import Replay
from headrace.statistics import TableDistribution
from headrace.tables.distribution import distribution_of, priorities_of, slots_of
from headrace.tables.items.layout import PRIORITIZED, UNIFORM
from headrace.views import View

# Items whose priorities are read at once. With them comes one small column, which may be a long sequence.
_ITEMS_AT_ONCE = 256
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


def read_tables(replay: Replay) -> Mapping[str, TableSummary]:
    """Returns a summary of each table, in memory that does not grow with the number of items."""
    return {name: _summary(replay, name) for name in replay.table_names}


def read_stored_tables(stored: StoredReplay) -> Mapping[str, TableSummary]:
    """Returns a summary of each table of a store on disk.

    Ages count from the newest item in the store: its files do not tell which keys were given to no item.
    """
    newest = max(
        (int(items.keys[slots_of(items)].max(initial=0)) for items in stored.items.values()), default=0
    )
    found = {}
    for name, items in stored.items.items():
        priorities = ColumnGatherer(np.dtype(np.float64), ())
        priorities.add(priorities_of(items))
        distribution = distribution_of(name, items, stored.store, newest + 1, ())
        has_weights = items.sampler.kind in (PRIORITIZED, UNIFORM)
        found[name] = TableSummary(distribution, has_weights, priorities.summary())
    return found


def _summary(replay: Replay, name: str) -> TableSummary:
    columns = replay.signature.columns
    smallest = min(columns, key=lambda path: columns[path].dtype.itemsize * int(np.prod(columns[path].shape)))
    priorities = ColumnGatherer(np.dtype(np.float64), ())
    for items in replay.items(name, _ITEMS_AT_ONCE, views={"smallest": View(smallest)}):
        priorities.add(items.info.priorities)
    table = replay.table(name)
    has_weights = table.statistics().total_weight is not None
    return TableSummary(table.distribution(), has_weights, priorities.summary())
