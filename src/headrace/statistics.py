"""Frozen records of sizes, waits and counts: one source for tests, pages and metrics."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, NoReturn, TypeVar

_Value = TypeVar("_Value")


class FrozenDict(dict[str, _Value]):
    """A dict that refuses changes. It can be pickled, copied and given to `dataclasses.asdict`.

    >>> sizes = FrozenDict({"a": 1})
    >>> sizes["a"] = 2
    Traceback (most recent call last):
        ...
    TypeError: this record does not change after it was made; dict(record) is a copy that can be changed
    """

    __slots__ = ()

    def _refuse(self, *_: Any, **__: Any) -> NoReturn:
        raise TypeError(
            "this record does not change after it was made; dict(record) is a copy that can be changed"
        )

    __setitem__ = __delitem__ = __ior__ = _refuse
    clear = pop = popitem = setdefault = update = _refuse

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (dict(self),)


@dataclass(frozen=True)
class TableStatistics:
    """Counters of one table at one instant, at the same cost for every size; see also `TableDistribution`.

    Attributes:
        name, size, max_size, max_times_sampled: of the table now.
        inserts, samples, deletes: completed since the table was made or last reset.
        resets: of the table, since the replay was made, loaded or opened.
        unique_samples: items sampled at least once.
        updates, ignored_updates, ignored_deletes: entries applied, and entries ignored because the key was gone.
        pending_inserts, waiting_samples: in the queues now.
        seconds_waiting_inserts, seconds_waiting_samples: total seconds of all waits that are over.
        longest_waiting_insert, longest_waiting_sample: seconds that the head of each queue has waited so far; 0 if the
            queue is empty.
        samples_per_insert, min_size, min_diff, max_diff: the limiter's parameters. The first is the target; NaN if a
            custom limiter names none.
        samples_per_insert_so_far: the ratio reached; 0 before the first insert.
        bytes: of the items; `TableDistribution.rows_bytes` has the bytes of their steps.
        total_weight: sum of the sampler's weights: the size for `Uniform`, the sum of `priority ** exponent` for
            `Prioritized`; None for a sampler without weights.
        is_distinct: whether the draws of one batch are different items.
    """

    name: str
    size: int
    max_size: int
    max_times_sampled: int
    inserts: int
    samples: int
    deletes: int
    resets: int
    unique_samples: int
    updates: int
    ignored_updates: int
    ignored_deletes: int
    pending_inserts: int
    waiting_samples: int
    seconds_waiting_inserts: float
    seconds_waiting_samples: float
    longest_waiting_insert: float
    longest_waiting_sample: float
    samples_per_insert: float
    samples_per_insert_so_far: float
    min_size: int
    min_diff: float
    max_diff: float
    bytes: int
    total_weight: float | None
    is_distinct: bool


@dataclass(frozen=True)
class TableDistribution:
    """Distribution of the items of one table at one instant; reads every item.

    Attributes:
        name, size: of the table.
        rows: steps that its items hold, lookahead included; a step shared by several items counts once.
        rows_bytes: bytes of these steps, metadata included. A step in several tables counts in each.
        mean_times_sampled, max_times_sampled_so_far: of the present items.
        mean_age, oldest_age: the age of an item is the number of items made after it, in all tables of the replay,
            pending ones included. It is up to 1024 too high for each writer of a client that calls `create_item`,
            because such a writer gets keys ahead. It is some 10**12 too high for items of a store on disk that are
            older than a failure of the machine, because the keys used since the last durable flush are unknown then.
        effective_sample_size: (sum w)**2 / sum w**2 of the sampler's weights w. It is the size if all weights are
            equal, and 1 if one item has all the weight. None for a custom sampler, whose weights are unknown.
    """

    name: str
    size: int
    rows: int
    rows_bytes: int
    mean_times_sampled: float
    max_times_sampled_so_far: int
    mean_age: float
    oldest_age: int
    effective_sample_size: float | None


@dataclass(frozen=True)
class TableRates:
    """Rates of one table between two records, per second.

    Attributes:
        inserts, samples, deletes, updates: per second. If the table was reset between the records, only the changes
            after the reset count.
    """

    inserts: float
    samples: float
    deletes: float
    updates: float


@dataclass(frozen=True)
class StoreStatistics:
    """Contents of a store at one instant.

    Attributes:
        rows: rows in the pages in use. A page stays in use until no item, open writer or view holds any of its rows, so
            this includes rows that nothing holds any more: up to `pages` pages of them. `TableDistribution.rows`
            counts exactly the rows that the items of a table hold.
        capacity: rows that fit, or None.
        pages: pages in use. A page holds about 1 MiB of rows, at most 32768 and at most 1/32 of the capacity.
        free_pages: pages that were in use before and are free now.
        bytes: of `rows`, their metadata included.
        row_bytes: of one row, its metadata included.
    """

    rows: int
    capacity: int | None
    pages: int
    free_pages: int
    bytes: int
    row_bytes: int


@dataclass(frozen=True)
class ReplayStatistics:
    """A replay at one instant.

    Attributes:
        tables: by name.
        store: the store that they share.
        seconds: time of the record on the replay's clock; only differences between records have a meaning. Records are
            compared without it.
    """

    tables: Mapping[str, TableStatistics]
    store: StoreStatistics
    seconds: float = field(compare=False)

    def rates_since(self, earlier: ReplayStatistics) -> Mapping[str, TableRates]:
        """Rates per second since an earlier record of the same replay, by table.

        Raises:
            ValueError: no time has passed since then, or the records have different tables.
        """
        passed = self.seconds - earlier.seconds
        if passed <= 0 or set(self.tables) != set(earlier.tables):
            raise ValueError(
                "rates_since: expected an earlier record of the same replay, got one of the tables "
                f"{', '.join(earlier.tables)}, {passed} s before"
            )
        return FrozenDict(
            {name: _rates(earlier.tables[name], now, passed) for name, now in self.tables.items()}
        )


def _rates(before: TableStatistics, now: TableStatistics, seconds: float) -> TableRates:
    was_reset = now.resets != before.resets
    inserts, samples, deletes = (0, 0, 0) if was_reset else (before.inserts, before.samples, before.deletes)
    return TableRates(
        inserts=(now.inserts - inserts) / seconds,
        samples=(now.samples - samples) / seconds,
        deletes=(now.deletes - deletes) / seconds,
        updates=(now.updates - before.updates) / seconds,
    )


@dataclass(frozen=True)
class StepStatistics:
    """Counters of an observer or a step writer since it was made.

    Attributes:
        steps_written: rows stored, final rows and boundary frames included.
        items_written: items made; an item in two tables counts as two.
        steps_dropped: rows that ended in no item.
        episodes: episodes that have ended.
        steps_cached: rows of the unfinished episodes.
    """

    steps_written: int
    items_written: int
    steps_dropped: int
    episodes: int
    steps_cached: int
