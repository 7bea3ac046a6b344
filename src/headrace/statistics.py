"""Frozen records of what fills, what waits and what was done; one source for tests, pages and metrics."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True)
class TableStatistics:
    """One table at one instant (replay, part 9).

    Attributes:
        name, size, max_size, max_times_sampled: of the table now.
        inserts, samples, deletes: completed, since the beginning or the last reset.
        unique_samples: items sampled at least once.
        updates, ignored_updates, ignored_deletes: entries applied, and entries for keys that were gone.
        pending_inserts, waiting_samples: in the queues now.
        seconds_waiting_inserts, seconds_waiting_samples: summed over all that waited and are done.
        samples_per_insert, min_size, min_diff, max_diff: the limiter's numbers.
        bytes: of the items; their steps are in the store.
    """

    name: str
    size: int
    max_size: int
    max_times_sampled: int
    inserts: int
    samples: int
    deletes: int
    unique_samples: int
    updates: int
    ignored_updates: int
    ignored_deletes: int
    pending_inserts: int
    waiting_samples: int
    seconds_waiting_inserts: float
    seconds_waiting_samples: float
    samples_per_insert: float
    min_size: int
    min_diff: float
    max_diff: float
    bytes: int


@dataclass(frozen=True)
class StoreStatistics:
    """What a store holds at one instant.

    Attributes:
        rows: rows held by items, open writers or views.
        capacity: rows that fit, or None.
        pages: pages in use.
        free_pages: pages that were in use and can be used again.
        bytes: of the rows held, their metadata included.
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
    """A replay at one instant: its tables by name, and its store."""

    tables: Mapping[str, TableStatistics]
    store: StoreStatistics
