"""Items that come from a file: they are checked, then everything derived from them is rebuilt.

Used when a store on disk is opened again and when a checkpoint is loaded. The checks are of structure: an error
here is damage, so the message names the file and the byte.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from headrace.errors import CheckpointError
from headrace.store.pages.recovery import PageRecovery
from headrace.store.store import Store
from headrace.tables.items.compaction import reindex
from headrace.tables.items.found_rows import pin_found
from headrace.tables.items.items import Items
from headrace.tables.items.layout import (
    BAD_PRIORITY,
    BAD_WINDOW,
    CHANGES,
    FIRST,
    KEY_FALLS,
    KEY_UNUSED,
    LATE_UPDATE,
    LIVE,
    NO_PROBLEM,
    PADDED,
    REAL,
    SPAN,
    SPENT,
    UNIQUE,
    ItemArrays,
)
from headrace.tables.items.recovery import first_wrong, is_window

Where = Callable[[str, int], str]
"""Returns the file and the byte of an entry of an array of items."""


@dataclass(frozen=True)
class FoundItems:
    """The items of a table as they were found.

    Attributes:
        items: the arrays; derived values in them may be anything.
        counts: inserts, samples, deletes.
        max_times: of the table when they were written; 0 for no limit.
        next_key: above every key that was ever used.
        where: returns the file and the byte of an entry.
    """

    items: ItemArrays
    counts: tuple[int, int, int]
    max_times: int
    next_key: int
    where: Where


def recover(store: Store, in_use: int, tables: list[FoundItems]) -> None:
    """Rebuilds everything that is derived from items and rows.

    Args:
        store: has no other user yet.
        in_use: pages that may hold something.
        tables: all of them.

    Raises:
        CheckpointError: an item is wrong, or its rows are missing; only derived data have changed.
    """
    pages = pin_tables(store, in_use, tables)
    for found in tables:
        _forget_indexes(found.items)
        reindex(Items(found.items, store.pins))
    store.adopt(pages.finish())


def pin_tables(store: Store, in_use: int, tables: list[FoundItems]) -> PageRecovery:
    """Looks for all rows of all items, and counts in a copy of the pages' words which items hold them.

    Raises:
        CheckpointError: an item is wrong, or its rows are missing.
    """
    for found in tables:
        _expect_none(found, _wrong_words(found))
    pages = PageRecovery(store.arrays, in_use)
    for found in tables:
        items = Items(found.items, pages.pins)
        slot, live = pin_found(items, pages.has_empty, found.next_key, found.max_times)
        if slot >= 0:
            check_items(found)  # Raises the error of the item itself, if it has one.
            raise _damage(found, "rows", slot, "expected a window of stored rows", found.items.rows[slot])
        _expect_none(found, _wrong_counts(found, live))
    return pages


def _damage(found: FoundItems, array: str, place: int, expected: str, got: Any) -> CheckpointError:
    return CheckpointError(
        f"{found.where(array, place)}: {expected}, got {got}; the file is damaged. Load a checkpoint that is whole"
    )


def check_items(found: FoundItems) -> None:
    """Checks the items of a table, without their rows.

    Raises:
        CheckpointError: something does not fit.
    """
    _expect_none(found, itertools.chain(_wrong_words(found), _wrong_items(found)))


_Wrong = Iterator[tuple[str, int, str, Any]]
"""The array, the index in it, the expected value, and the value found."""


def _expect_none(found: FoundItems, wrong: _Wrong) -> None:
    for array, place, expected, got in wrong:
        raise _damage(found, array, place, expected, got)


def _wrong_words(found: FoundItems) -> _Wrong:
    ring, capacity = found.items.ring, len(found.items.rows)
    for word, name, most in (
        (FIRST, "a slot", capacity - 1),
        (SPAN, "a number of slots", capacity),
        (LIVE, "a number of items", capacity),
    ):
        if not 0 <= ring[word] <= most:
            yield "ring", word, f"expected {name} from 0 to {most}", ring[word]
            return
    for word in (CHANGES, UNIQUE):
        if ring[word] < 0:
            yield "ring", word, "expected a count", ring[word]
    common = found.items.common_window
    if not len(found.items.windows) and ring[SPAN] and not is_window(common[REAL], common[PADDED]):
        # Without items their window means nothing.
        yield "common_window", 0, "expected one row or more", common


def _wrong_items(found: FoundItems) -> _Wrong:
    items = Items(found.items, None)
    problem, slot, live = first_wrong(items, found.next_key, found.max_times)
    if problem != NO_PROBLEM:
        array, expected = {
            KEY_FALLS: ("keys", "expected keys that rise, or each once where they were given out ahead"),
            KEY_UNUSED: ("keys", f"expected a key below {found.next_key}"),
            SPENT: ("times", f"expected fewer than {found.max_times} samples"),
            BAD_PRIORITY: ("priorities", "expected a finite number >= 0"),
            LATE_UPDATE: ("last_updates", "expected an earlier update"),
            BAD_WINDOW: ("windows", "expected one row or more"),
        }[problem]
        yield array, slot, expected, getattr(found.items, array)[slot]
        return
    yield from _wrong_counts(found, live)


def _wrong_counts(found: FoundItems, live: int) -> _Wrong:
    items = found.items
    if live != items.ring[LIVE]:
        yield "ring", LIVE, f"expected {live} items, as there are", items.ring[LIVE]
    inserts, samples, deletes = found.counts
    if min(found.counts) < 0 or inserts - deletes != live:
        yield "ring", LIVE, f"expected {inserts} inserts - {deletes} deletes items ({samples} samples)", live


def _forget_indexes(items: ItemArrays) -> None:
    for index in (items.sampler, items.remover):
        index.nodes[:] = 0.0
        index.heap_slots[-1] = 0
