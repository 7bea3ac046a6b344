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
from numpy.typing import NDArray

from headrace.errors import CheckpointError
from headrace.replay.item_memory import RECORD_WORDS
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
from headrace.store.intrinsics import array_at
from headrace.store.jit import Bool, Int, kernel, kernel_apart, unsigned
from headrace.store.layout import LANES, PADDING, REFERENCES, USED, StoreArrays
from headrace.store.mending import PageMender
from headrace.store.seams import row_after
from headrace.store.store import Store
from headrace.store.window import follow, page_of

Where = Callable[[str, int], str]
"""Tells in which file, and where in it, an entry of an array of items stands."""


# So many items are looked at at a time: they stay in the nearest cache.
_BLOCK = 1024

# What may be wrong with an item.
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
        tables: all of them.

    Raises:
        CheckpointError: an item that is not right, or whose rows are not there; nothing was changed that matters.
    """
    pages = pin_tables(store, in_use, tables)
    for found in tables:
        _forget_indexes(found.items)
        reindex(found.items)
    store.adopt(pages.finish())


def pin_tables(store: Store, in_use: int, tables: list[FoundItems]) -> PageMender:
    """Looks for all rows of all items, and counts in a copy of the pages' words which items hold them.

    Raises:
        CheckpointError: an item that is not right, or whose rows are not there.
    """
    for found in tables:
        _expect_none(found, _wrong_words(found))
    pages = PageMender(store.arrays, in_use)
    for found in tables:
        slot, live = pin_found(
            pages.arrays, pages.padded, found.items, np.uint64(found.next_key), found.max_times
        )
        if slot >= 0:
            check_items(found)  # Tells what is wrong with the item itself, if it is that.
            raise _damage(
                found, "rows", int(slot), "expected a window of stored rows", found.items.rows[slot]
            )
        _expect_none(found, _wrong_counts(found, live))
    return pages


def _damage(found: FoundItems, array: str, place: int, expected: str, got: Any) -> CheckpointError:
    return CheckpointError(
        f"{found.where(array, place)}: {expected}, got {got}; the file is damaged. Load a checkpoint that is whole"
    )


def check_items(found: FoundItems) -> None:
    """Look at everything that items say of themselves.

    Raises:
        CheckpointError: something does not fit.
    """
    _expect_none(found, itertools.chain(_wrong_words(found), _wrong_items(found)))


_Wrong = Iterator[tuple[str, int, str, Any]]
"""The array, the place in it, what was expected there and what there is."""


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
    for word in (TOUCHES, UNIQUE):
        if ring[word] < 0:
            yield "ring", word, "expected a count", ring[word]
    common = found.items.common_window
    if not len(found.items.windows) and ring[SPAN] and not is_window(common[REAL], common[INVENTED]):
        # Without items their window means nothing.
        yield "common_window", 0, "expected one row or more", common


def _wrong_items(found: FoundItems) -> _Wrong:
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
    yield from _wrong_counts(found, live)


def _wrong_counts(found: FoundItems, live: int) -> _Wrong:
    items = found.items
    if live != items.ring[LIVE]:
        yield "ring", LIVE, f"expected {live} items, as there are", items.ring[LIVE]
    inserts, samples, deletes = found.counts
    if min(found.counts) < 0 or inserts - deletes != live:
        yield "ring", LIVE, f"expected {inserts} inserts - {deletes} deletes items ({samples} samples)", live


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
    live, before, capacity = 0, np.uint64(0), items.rows.shape[0]
    slot = items.ring[FIRST] - 1
    for place in range(items.ring[SPAN]):
        slot = slot + 1 if slot + 1 < capacity else 0
        key = items.keys[slot]
        if place > 0 and key <= before:
            return _KEY_FALLS, slot, live
        if key >= next_key:
            return _KEY_UNUSED, slot, live
        before = key
        if items.rows[slot] == DEAD:
            continue
        live += 1
        problem = _problem(items, slot, max_times)
        if problem != _NO_PROBLEM:
            return problem, slot, live
    return _NO_PROBLEM, slot, live


@kernel
def _problem(items: Items, slot: Int, max_times: Int) -> Int:
    """What is wrong with what stands beside an item's key and row."""
    if max_times > 0 and items.times[slot] >= max_times:
        return _SPENT
    if items.priorities.shape[0] and not 0.0 <= items.priorities[slot] < np.inf:
        return _BAD_PRIORITY
    if items.touches.shape[0] and not 0 <= items.touches[slot] < items.ring[TOUCHES]:
        return _LATE_TOUCH
    if items.windows.shape[0] and not is_window(items.windows[slot, REAL], items.windows[slot, INVENTED]):
        return _BAD_WINDOW
    return _NO_PROBLEM


@kernel
def is_window(real: Int, invented: Int) -> Bool:
    """Whether a window can have this number of rows."""
    return 1 <= real < DEAD // 4 and invented < DEAD // 4


@kernel
def pin_found(
    store: StoreArrays, padded: NDArray[np.bool_], items: Items, next_key: Int, max_times: Int
) -> tuple[Int, Int]:
    """Give every page that an item holds a reference for it, and look at what items say of themselves on the way.

    Args:
        store, padded: of a `PageMender`.
        items: of a table.
        next_key: above every key that was ever used.
        max_times: samples that an item lives for; 0 for no limit.

    Returns:
        The slot of the first item that is not right, or whose rows are not all there; or -1, and how many items there
        are.
    """
    ring, capacity = items.ring, items.rows.shape[0]
    lookahead = window_of(items, 0, LOOKAHEAD)
    is_plain = not (items.windows.shape[0] or items.touches.shape[0] or max_times)
    is_plain &= window_of(items, 0, REAL) == 1 and lookahead != STREAM
    live, least, place = 0, np.uint64(0), 0
    while place < ring[SPAN]:
        slot = slot_at(items, place)
        stop = min(slot + _BLOCK, slot + ring[SPAN] - place, capacity)
        if not (is_plain and _pin_block(store, padded, items, slot, stop, lookahead, least, next_key)):
            wrong, count = _pin_each(store, items, slot, stop, least, next_key, max_times)
            if wrong >= 0:
                return wrong, 0
            live += count
        else:
            live += stop - slot
        least = items.keys[stop - 1] + np.uint64(1)
        place += stop - slot
    return -1, live


@kernel_apart
def _pin_block(
    store: StoreArrays,
    padded: NDArray[np.bool_],
    items: Items,
    start: Int,
    stop: Int,
    lookahead: Int,
    least: Int,
    next_key: Int,
) -> Bool:
    """Pin the items of the slots `start:stop` if all are there, are right and lie in one page; else nothing is done.

    Items of one row and `lookahead`, as most have: many at a time, without a jump between two.
    """
    keys, rows = items.keys[start:stop], items.rows[start:stop]
    rise, lowest, highest = _survey(items, start, stop)
    page = page_of(store, lowest)
    if not rise or keys[0] < least or keys[-1] >= next_key or page >= store.pages.shape[0]:
        return False
    lanes = store.pages[page, LANES]
    if highest + lookahead * lanes >= page * store.page_rows + store.pages[page, USED] * lanes:
        return False
    if items.priorities.shape[0]:
        wrong = 0
        for place in range(start, stop):
            wrong += not 0.0 <= items.priorities[unsigned(place)] < np.inf
        if wrong:
            return False
    if padded[page]:
        padding: Int = np.uint32(0)
        for place in range(rows.shape[0]):
            padding |= store.steps[unsigned(rows[place])]
        if padding & np.uint32(PADDING):
            return False
    store.pages[page, REFERENCES] += rows.shape[0]
    return True


@kernel
def _survey(items: Items, start: Int, stop: Int) -> tuple[Bool, Int, Int]:
    """Whether the keys of these slots rise, all below 2**63, and the lowest and the highest of their rows."""
    # The records as one array without gaps, of numbers with a sign: so the loop takes many at a time
    # (bench/README.md has the figures).
    words = array_at(items.keys[start:].ctypes.data, (stop - start) * 4 * RECORD_WORDS, np.int64)
    row_mask = np.int64(0xFFFFFFFF)
    falls: Int = 0
    lowest, highest = words[1] & row_mask, words[1] & row_mask
    for place in range(1, stop - start):
        key, row = words[unsigned(2 * place)], words[unsigned(2 * place + 1)] & row_mask
        falls += key <= words[unsigned(2 * place - 2)]
        lowest, highest = min(lowest, row), max(highest, row)
    # With a sign, keys may rise over 0, but not from above it to 2**63.
    return falls == 0 and words[0] >= 0, lowest, highest


@kernel_apart
def _pin_each(
    store: StoreArrays, items: Items, start: Int, stop: Int, least: Int, next_key: Int, max_times: Int
) -> tuple[Int, Int]:
    """Pin the items of the slots `start:stop`, one after the other; returns as `pin_found`."""
    pages, live = store.pages, 0
    for slot in range(start, stop):
        key, row = items.keys[slot], np.int64(items.rows[slot])
        if key < least or key >= next_key:
            return slot, live
        least = key + np.uint64(1)
        if row == DEAD:
            continue
        live += 1
        page = page_of(store, row)
        if page >= pages.shape[0] or row - page * store.page_rows >= pages[page, USED] * pages[page, LANES]:
            return slot, live
        if store.steps[row] & np.uint32(PADDING) or _problem(items, slot, max_times) != _NO_PROBLEM:
            return slot, live
        real, lookahead = window_of(items, slot, REAL), window_of(items, slot, LOOKAHEAD)
        if real == 1 and lookahead == 0:
            pages[page, REFERENCES] += 1
        elif _is_there(store, row, real, lookahead):
            pin_rows(store, row, real, lookahead, 1)
        else:
            return slot, live
    return -1, live


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
