"""Frozen records of what fills, what waits and what was done; one source for tests, pages and metrics."""

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
    """One table at one instant (replay, part 9). It costs the same whatever the table holds; see `TableDistribution`.

    Attributes:
        name, size, max_size, max_times_sampled: of the table now.
        inserts, samples, deletes: completed, since the beginning or the last reset.
        resets: of the table, since the replay was made, loaded or opened.
        unique_samples: items sampled at least once.
        updates, ignored_updates, ignored_deletes: entries applied, and entries for keys that were gone.
        pending_inserts, waiting_samples: in the queues now.
        seconds_waiting_inserts, seconds_waiting_samples: summed over all that waited and are done.
        longest_waiting_insert, longest_waiting_sample: seconds that the head of each queue has waited so far; 0 where
            none waits.
        samples_per_insert, min_size, min_diff, max_diff: the limiter's numbers. The first is the target; NaN if a
            limiter of your own names none.
        samples_per_insert_so_far: what came of it; 0 before the first insert.
        bytes: of the items; `TableDistribution.rows_bytes` has those of their steps.
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


@dataclass(frozen=True)
class TableDistribution:
    """Distribution of the items of one table at one instant. Every item is read for it.

    Attributes:
        name, size: of the table.
        rows: steps that its items hold, lookahead included; each counts once, however many items share it.
        rows_bytes: of these, metadata included. A step that several tables hold counts in each.
        mean_times_sampled, max_times_sampled_so_far: of the items that are there now.
        mean_age, oldest_age: an item's age is how many items were made after it, in all tables of the replay, pending
            ones included. Of a store on disk that was killed, up to 65536 more.
        effective_sample_size: (sum w)**2 / sum w**2 of the weights by which the sampler draws: how many items count.
            The size, if all weigh the same; 1, if it always picks the same; None, if the sampler is your own, which
            does not tell its weights.
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
        inserts, samples, deletes, updates: a second. Those before a reset in between are not known, and not counted.
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
        free_pages: pages that were in use and can be used again.
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
        store: of all of them.
        seconds: when it was taken, by the replay's clock, which tells only how long it is from one record to another;
            two that differ in it alone are equal.
    """

    tables: Mapping[str, TableStatistics]
    store: StoreStatistics
    seconds: float = field(compare=False)

    def rates_since(self, earlier: ReplayStatistics) -> Mapping[str, TableRates]:
        """Rates per second since an earlier record of the same replay, by table.

        Raises:
            ValueError: no time has passed since then, or it has other tables.
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
    """Counters of an observer or a step writer, over all times that it was open.

    Attributes:
        steps_written: rows that were stored, final rows and boundary frames included.
        items_written: items that were made; one in two tables counts as two.
        steps_dropped: rows that ended in no item.
        episodes: episodes that are over, however they ended.
        steps_cached: rows of the unfinished episodes.
    """

    steps_written: int
    items_written: int
    steps_dropped: int
    episodes: int
    steps_cached: int
