"""A live table whose items lie in several shards."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

from headrace.replay.shards.sampler import ShardSampler
from headrace.replay.shards.shard import Shard
from headrace.replay.shards.statistics import sum_tables
from headrace.statistics import TableStatistics
from headrace.tables.description.rate_limiters import RateLimiter
from headrace.tables.description.table import check_rate_limiter, checked_number


class ShardedTable:
    """A live table; made by `ShardedReplay.table`.

    Args:
        name: of the table.
        shards: of the replay.
        sampler: of the replay.
        check_open: raises if the replay is closed.
    """

    def __init__(
        self, name: str, shards: Sequence[Shard], sampler: ShardSampler, check_open: Callable[[], None]
    ) -> None:
        self._name = name
        self._shards = shards
        self._sampler = sampler
        self._check_open = check_open

    @property
    def name(self) -> str:
        """The name of the table."""
        return self._name

    def __len__(self) -> int:
        return self.statistics().size

    def statistics(self) -> TableStatistics:
        """Returns one frozen record: sums over the shards that can be reached."""
        self._check_open()
        found = sum_tables([record for record in self._sampler.records(self._name) if record is not None])
        return replace(found, waiting_samples=found.waiting_samples + self._sampler.waiting(self._name))

    def configure(self, *, max_size: int | None = None, rate_limiter: RateLimiter | None = None) -> None:
        """Changes the table: each shard takes its part of the numbers.

        Raises:
            TypeError: not a rate limiter.
            ValueError: the limiter could never open at this size, or its numbers are too small to be divided; nothing
                changes.
            ShardDown: a shard cannot be reached; those before it are changed.
        """
        self._check_open()
        if rate_limiter is not None:
            check_rate_limiter(self._name, rate_limiter)
        parts = len(self._shards)
        size = None if max_size is None else -(-checked_number(self._name, "max_size", max_size, 1) // parts)
        limiter = None if rate_limiter is None else rate_limiter.share(parts)
        for shard in self._shards:
            shard.try_again()
            shard.use(lambda replay: replay.table(self._name).configure(max_size=size, rate_limiter=limiter))

    def __repr__(self) -> str:
        return f"<table {self._name!r} of {len(self._shards)} shards>"
