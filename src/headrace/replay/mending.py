"""Items that come from a file: checked before anything relies on them, then everything derived is made anew.

Used when a store on disk is opened again and when a checkpoint is loaded. The checks are of structure: what is wrong
here is damage, so the message names the file and the place in it.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from headrace.errors import CheckpointError
from headrace.replay.items import (
    DEAD,
    FIRST,
    INVENTED,
    LIVE,
    LOOKAHEAD,
    REAL,
    SPAN,
    STREAM,
    TOUCHES,
    UNIQUE,
    Items,
    pin_rows,
    slot_at,
    window_of,
)
from headrace.replay.moving import reindex
from headrace.store.jit import Bool, Int, kernel, unsigned
from headrace.store.layout import LANES, PADDING, REFERENCES, USED, StoreArrays
from headrace.store.mending import PageMender
from headrace.store.seams import row_after
from headrace.store.store import Store
from headrace.store.window import follow, page_of

Where = Callable[[str, int], str]
"""Tells in which file, and where in it, an entry of an array of items stands."""


# What `first_wrong` finds.
_NO_PROBLEM, _KEY_FALLS, _KEY_UNUSED, _SPENT, _BAD_PRIORITY, _LATE_TOUCH, _BAD_WINDOW = range(7)


@dataclass(frozen=True)
class FoundItems:
    """The items of a table as they were found.

    Attributes:
        items: the arrays; what is derived in them may be anything.
        counts: inserts, samples, deletes.
        max_times: of the table when they were written; 0 for no limit.
        next_key: above every key that was ever used.
        where: tells where an entry of an array stands.
    """

    items: Items
    counts: tuple[int, int, int]
    max_times: int
    next_key: int
    where: Where


def mend(store: Store, in_use: int, tables: list[FoundItems]) -> None:
    """Make everything that is derived from items and rows.

    Args:
        store: nobody else uses it yet.
        in_use: pages that may hold something.
        tables: all of them; `check_items` has found them right.

    Raises:
        CheckpointError: an item whose rows are not there; nothing was changed that matters.
    """
    pages = PageMender(store.arrays, in_use)
    for found in tables:
        slot = int(pin_found(pages.arrays, found.items))
        if slot >= 0:
            raise _damage(found, "rows", slot, "expected a window of stored rows", found.items.rows[slot])
    for found in tables:
        _forget_indexes(found.items)
        reindex(found.items)
    store.adopt(pages.finish())


def _damage(found: FoundItems, array: str, place: int, expected: str, got: Any) -> CheckpointError:
    return CheckpointError(
        f"{found.where(array, place)}: {expected}, got {got}; the file is damaged. Load a checkpoint that is whole"
    )


def check_items(found: FoundItems) -> None:
    """Look at everything that items say of themselves.

    Raises:
        CheckpointError: something does not fit.
    """
    for array, place, expected, got in itertools.chain(_wrong_words(found), _wrong_items(found)):
        raise _damage(found, array, place, expected, got)


def _wrong_words(found: FoundItems) -> Iterator[tuple[str, int, str, Any]]:
    ring, capacity = found.items.ring, len(found.items.rows)
    for word, name, most in (
        (FIRST, "a slot", capacity - 1),
        (SPAN, "a number of slots", capacity),
        (LIVE, "a number of items", capacity),
    ):
        if not 0 <= ring[word] <= most:
            yield "ring", word, f"expected {name} from 0 to {most}", ring[word]
            return
    for word in (TOUCHES, UNIQUE):
        if ring[word] < 0:
            yield "ring", word, "expected a count", ring[word]


def _wrong_items(found: FoundItems) -> Iterator[tuple[str, int, str, Any]]:
    items = found.items
    problem, slot, live = first_wrong(items, np.uint64(found.next_key), found.max_times)
    if problem != _NO_PROBLEM:
        array, expected = {
            _KEY_FALLS: ("keys", "expected keys that rise"),
            _KEY_UNUSED: ("keys", f"expected a key below {found.next_key}"),
            _SPENT: ("times", f"expected fewer than {found.max_times} samples"),
            _BAD_PRIORITY: ("priorities", "expected a finite number >= 0"),
            _LATE_TOUCH: ("touches", "expected an earlier touch"),
            _BAD_WINDOW: ("windows", "expected one row or more"),
        }[problem]
        yield array, int(slot), expected, getattr(items, array)[slot]
        return
    if live != items.ring[LIVE]:
        yield "ring", LIVE, f"expected {live} items, as there are", items.ring[LIVE]
    inserts, samples, deletes = found.counts
    if min(found.counts) < 0 or inserts - deletes != live:
        yield "ring", LIVE, f"expected {inserts} inserts - {deletes} deletes items ({samples} samples)", live
    common = items.common_window
    if not len(items.windows) and items.ring[SPAN] and not is_window(common[REAL], common[INVENTED]):
        # Without items their window means nothing.
        yield "common_window", 0, "expected one row or more", common


def _forget_indexes(items: Items) -> None:
    for index in (items.sampler, items.remover):
        index.nodes[:] = 0.0
        index.heap.slots[-1] = 0


@kernel
def first_wrong(items: Items, next_key: Int, max_times: Int) -> tuple[Int, Int, Int]:
    """Look at what items say of themselves.

    Returns:
        What is wrong first, its slot, and how many items there were up to it.
    """
    keys, rows, times, priorities = items.keys, items.rows, items.times, items.priorities
    touches, windows, ring = items.touches, items.windows, items.ring
    live, before, capacity = 0, np.uint64(0), rows.shape[0]
    slot = ring[FIRST] - 1
    for place in range(ring[SPAN]):
        slot = slot + 1 if slot + 1 < capacity else 0
        key = keys[slot]
        if place > 0 and key <= before:
            return _KEY_FALLS, slot, live
        if key >= next_key:
            return _KEY_UNUSED, slot, live
        before = key
        if rows[slot] == DEAD:
            continue
        live += 1
        if max_times > 0 and times[slot] >= max_times:
            return _SPENT, slot, live
        if priorities.shape[0] and not 0.0 <= priorities[slot] < np.inf:
            return _BAD_PRIORITY, slot, live
        if touches.shape[0] and not 0 <= touches[slot] < ring[TOUCHES]:
            return _LATE_TOUCH, slot, live
        if windows.shape[0] and not is_window(windows[slot, REAL], windows[slot, INVENTED]):
            return _BAD_WINDOW, slot, live
    return _NO_PROBLEM, slot, live


@kernel
def is_window(real: Int, invented: Int) -> Bool:
    """Whether a window can have so many rows."""
    return 1 <= real < DEAD // 4 and invented < DEAD // 4


@kernel
def pin_found(store: StoreArrays, items: Items) -> Int:
    """Give every page that an item holds a reference for it; the slot of an item whose rows are not all there, or -1.

    Items stand nearly in the order of their rows, so most lie in the page of the one before: that is looked at first.
    """
    pages, steps, rows, ring = store.pages, store.steps, items.rows, items.ring
    capacity, has_windows = rows.shape[0], items.windows.shape[0] > 0
    real, lookahead = window_of(items, 0, REAL), window_of(items, 0, LOOKAHEAD)
    # Counted here while items lie in one page: it is a long way to memory and back.
    page = begin = end = np.int64(0)
    count: Int = 0
    slot = ring[FIRST] - 1
    for _ in range(ring[SPAN]):
        slot = slot + 1 if slot + 1 < capacity else 0
        row = np.int64(rows[unsigned(slot)])
        if not begin <= row < end:
            if row == DEAD:
                continue
            if count:
                pages[page, REFERENCES] += count
            count = 0
            page = page_of(store, row)
            if page >= pages.shape[0]:
                return slot
            begin = page * store.page_rows
            end = begin + pages[page, USED] * pages[page, LANES]
            if row >= end:
                return slot
        if steps[unsigned(row)] & np.uint32(PADDING):
            return slot
        if has_windows:
            real, lookahead = np.int64(items.windows[slot, REAL]), np.int64(items.windows[slot, LOOKAHEAD])
        if real == 1 and lookahead == 0:
            count += 1
        elif _is_there(store, row, real, lookahead):
            pin_rows(store, row, real, lookahead, 1)
        else:
            return slot
    if count:
        pages[page, REFERENCES] += count
    return -1


@kernel
def _is_there(store: StoreArrays, row: Int, real: Int, lookahead: Int) -> Bool:
    """Whether all rows of a window are there."""
    if lookahead == STREAM:
        for _ in range(real - 1):
            row = row_after(store, row)
            if row < 0:
                return False
        return True
    return follow(store, row, real - 1) >= 0


@kernel
def pin_items(store: StoreArrays, items: Items, change: Int) -> None:
    """Add `change` to the references of every page that an item holds, for each item."""
    for place in range(items.ring[SPAN]):
        slot = slot_at(items, place)
        if items.rows[slot] != DEAD:
            real, lookahead = window_of(items, slot, REAL), window_of(items, slot, LOOKAHEAD)
            pin_rows(store, np.int64(items.rows[slot]), real, lookahead, change)
