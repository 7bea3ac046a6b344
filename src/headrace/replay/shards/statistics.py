"""Statistics of several shards as those of one replay."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from headrace.statistics import FrozenDict, ReplayStatistics, StoreStatistics, TableStatistics

_SUMMED = (
    "size",
    "max_size",
    "inserts",
    "samples",
    "deletes",
    "unique_samples",
    "updates",
    "ignored_updates",
    "ignored_deletes",
    "pending_inserts",
    "waiting_samples",
    "seconds_waiting_inserts",
    "seconds_waiting_samples",
    "min_size",
    "min_diff",
    "max_diff",
    "bytes",
)


@dataclass(frozen=True)
class ShardStatistics:
    """One shard at one instant.

    Attributes:
        number: of the shard.
        is_down: whether it cannot be reached now.
        losses: how often it was lost.
        last_error: why it was lost last; "" before.
        rows_dropped: rows of its lanes that writers of this process could not store while it was down.
        replay: its own record; None while it is down.
    """

    number: int
    is_down: bool
    losses: int
    last_error: str
    rows_dropped: int
    replay: ReplayStatistics | None


@dataclass(frozen=True)
class ShardedStatistics(ReplayStatistics):
    """Several shards as one replay; each was asked at an instant of its own.

    Tables and store are sums over the shards that can be reached. The rate limiter's numbers are sums, too: each shard
    has a limiter of its own, and they stand for one of the whole.

    Attributes:
        shards: one record each.
    """

    shards: tuple[ShardStatistics, ...]


def sharded_statistics(shards: Sequence[ShardStatistics], seconds: float) -> ShardedStatistics:
    """Returns the record of the whole; at least one shard can be reached.

    Args:
        shards: of the replay.
        seconds: see `ReplayStatistics`.
    """
    found = [shard.replay for shard in shards if shard.replay is not None]
    tables = {name: sum_tables([record.tables[name] for record in found]) for name in found[0].tables}
    store = _sum_stores([record.store for record in found])
    return ShardedStatistics(FrozenDict(tables), store, seconds, tuple(shards))


def sum_tables(records: Sequence[TableStatistics]) -> TableStatistics:
    """Returns the record of one table of all shards."""
    first = records[0]
    summed = {name: sum(getattr(record, name) for record in records) for name in _SUMMED}
    weights = [record.total_weight for record in records]
    return TableStatistics(
        name=first.name,
        max_times_sampled=first.max_times_sampled,
        resets=max(record.resets for record in records),
        longest_waiting_insert=max(record.longest_waiting_insert for record in records),
        longest_waiting_sample=max(record.longest_waiting_sample for record in records),
        samples_per_insert=first.samples_per_insert,
        samples_per_insert_so_far=summed["samples"] / summed["inserts"] if summed["inserts"] else 0.0,
        total_weight=None if None in weights else sum(weight or 0.0 for weight in weights),
        is_distinct=first.is_distinct,
        **summed,
    )


def _sum_stores(records: Sequence[StoreStatistics]) -> StoreStatistics:
    capacities = [record.capacity for record in records]
    return StoreStatistics(
        rows=sum(record.rows for record in records),
        capacity=None if None in capacities else sum(capacity or 0 for capacity in capacities),
        pages=sum(record.pages for record in records),
        free_pages=sum(record.free_pages for record in records),
        bytes=sum(record.bytes for record in records),
        row_bytes=records[0].row_bytes,
    )
