"""Rows of items that come from a file: each page gets its references, and items without all rows are found."""

from __future__ import annotations

import cython

if not cython.compiled:
    from headrace.kernels.kinds import Bool, GivenBytes, Int, UInt, ULong
    from headrace.store.layout import EMPTY, ENDED, FINAL, LANES, LINKED, REFERENCES, USED
    from headrace.store.pages.pinning import Pins
    from headrace.tables.items.items import LARGEST, Items, is_priority
    from headrace.tables.items.layout import (
        DEAD,
        DELETES,
        FIRST,
        LIVE,
        LOOKAHEAD,
        NO_PROBLEM,
        REAL,
        RECORD_ROW,
        RECORD_WORDS,
        SPAN,
        STREAM,
        WINDOW_WORDS,
    )
    from headrace.tables.items.recovery import keys_rise, may_have_problems, problem_of

# Slots whose items are looked at together.
_BLOCK = 1024


def pin_found(items: Items, has_empty: GivenBytes, next_key: ULong, max_times: Int) -> tuple[int, int]:
    """Adds a reference to each page that an item holds, and checks the items as `first_wrong` does.

    Args:
        items: from a file, over the pages of a `PageRecovery`.
        has_empty: bool[pages] as bytes, of the same.
        next_key, max_times: as in `first_wrong`.

    Returns:
        The slot of the first item that has a problem or whose rows are not all stored, or -1; and the number of items.
    """
    if not items.keys_differ:
        return items.ring[FIRST], 0
    with cython.nogil:
        found = _pin_found(items, has_empty, next_key, max_times)
    return found


def _pin_found(items: Items, has_empty: GivenBytes, next_key: ULong, max_times: Int) -> tuple[Int, Int]:
    is_plain = not items.windows.shape[0] and not may_have_problems(items, max_times) and keys_rise(items)
    span: Int = items.ring[SPAN]
    least: ULong = 0
    live: Int = 0
    place: Int = 0
    while place < span:
        slot = items.slot_at(place)
        stop: Int = min(slot + _BLOCK, slot + span - place, items.capacity)
        if is_plain and _pin_block(items, has_empty, slot, stop, least, next_key):
            live += stop - slot
        else:
            wrong, count = _pin_each(items, slot, stop, least, next_key, max_times)
            live += count
            if wrong >= 0:
                return wrong, live
        least = items.keys[2 * stop - 2] + 1
        place += stop - slot
    return -1, live


def _pin_block(
    items: Items, has_empty: GivenBytes, start: Int, stop: Int, least: ULong, next_key: ULong
) -> Bool:
    """Pins the items of the slots `start:stop` if all are live, correct and in one page; else does nothing.

    Only for items that all have one row, the same lookahead and no last updates, as most have.
    """
    # Without a jump between two items: 0.5 ms for a million items, where `_pin_each` takes 1.6. An opening of the store
    # takes four times as long.
    row = cython.cast(Int, items.records[RECORD_WORDS * start + RECORD_ROW])
    lookahead: Int = items.common_window[LOOKAHEAD]
    if items.common_window[REAL] != 1 or lookahead == STREAM or not _is_used(items.pins, row):
        return False
    if items.keys[2 * start] < least or items.keys[2 * stop - 2] >= next_key:
        return False
    page = items.window.page_of(row)
    begin = page * items.window.page_rows
    last: Int = begin + (items.window.pages[page, USED] - lookahead) * items.window.pages[page, LANES] - 1
    if not _are_between(items, start, stop, begin, last):
        return False
    if has_empty[page] and _some_empty(items, start, stop):
        return False
    if items.priorities.shape[0] and not _are_priorities(items, start, stop):
        return False
    items.window.pages[page, REFERENCES] += stop - start
    return True


def _are_between(items: Items, start: Int, stop: Int, first: Int, last: Int) -> Bool:
    """Returns whether the keys of these slots rise, and their rows stand in `first..last`."""
    falls: Int = 0
    for slot in range(start + 1, stop):
        falls |= cython.cast(Int, items.keys[2 * slot] <= items.keys[2 * slot - 2])
    lowest: UInt = items.records[RECORD_WORDS * start + RECORD_ROW]
    highest: UInt = lowest
    for slot in range(start, stop):
        lowest = min(lowest, items.records[RECORD_WORDS * slot + RECORD_ROW])
        highest = max(highest, items.records[RECORD_WORDS * slot + RECORD_ROW])
    return falls == 0 and first <= lowest and highest <= last


def _some_empty(items: Items, start: Int, stop: Int) -> Bool:
    """Returns whether the first row of one of these slots' items is EMPTY; all are in the store."""
    words: UInt = 0
    for slot in range(start, stop):
        words |= items.window.steps[items.records[RECORD_WORDS * slot + RECORD_ROW]]
    return words & EMPTY != 0


def _are_priorities(items: Items, start: Int, stop: Int) -> Bool:
    """Returns whether all priorities of these slots are finite and >= 0."""
    right: Int = 0
    for slot in range(start, stop):
        right += cython.cast(Int, items.priorities[slot] >= 0.0) & cython.cast(
            Int, items.priorities[slot] <= LARGEST
        )
    return right == stop - start


def _pin_each(
    items: Items, start: Int, stop: Int, least: ULong, next_key: ULong, max_times: Int
) -> tuple[Int, Int]:
    """Pins the items of the slots `start:stop` one by one; returns the same as `pin_found`."""
    has_priorities: Bool = items.priorities.shape[0] > 0
    has_more = may_have_problems(items, max_times)
    rise: Bool = keys_rise(items)
    live: Int = 0
    real: Int = items.common_window[REAL]
    lookahead: Int = items.common_window[LOOKAHEAD]
    # The page of the last item, in which most items stand too: its first row, the row after its last, its lanes,
    # and the references of items that hold this page alone, which are not counted yet.
    page: Int = 0
    begin: Int = 0
    end: Int = 0
    lanes: Int = 0
    held: Int = 0
    for slot in range(start, stop):
        key: ULong = items.keys[2 * slot]
        if (rise and key < least) or key >= next_key:
            return slot, live
        least = key + 1
        row = cython.cast(Int, items.records[RECORD_WORDS * slot + RECORD_ROW])
        if row == DEAD:
            continue
        live += 1
        if not begin <= row < end:
            if not _is_used(items.pins, row):
                return slot, live
            items.window.pages[page, REFERENCES] += held
            held = 0
            page = items.window.page_of(row)
            lanes = items.window.pages[page, LANES]
            begin = page * items.window.page_rows
            end = begin + items.window.pages[page, USED] * lanes
        if cython.cast(Int, items.window.steps[row]) & EMPTY:
            return slot, live
        if has_priorities and not is_priority(items.priorities[slot]):
            return slot, live
        if has_more and problem_of(items, slot, max_times) != NO_PROBLEM:
            return slot, live
        if items.windows.shape[0]:
            real = items.windows[WINDOW_WORDS * slot + REAL]
            lookahead = items.windows[WINDOW_WORDS * slot + LOOKAHEAD]
        if real == 1 and lookahead != STREAM and row + lookahead * lanes < end:
            held += 1
        elif _is_there(items.pins, row, real, lookahead):
            items.pins.pin_rows(row, real, lookahead, 1)
        else:
            return slot, live
    if live > 0:
        items.window.pages[page, REFERENCES] += held
    return -1, live


def remove_broken(items: Items) -> int:
    """Removes items without all rows; returns their number. Indexes and references stay as they are."""
    with cython.nogil:
        removed = _remove_broken(items)
    return removed


def _remove_broken(items: Items) -> Int:
    removed: Int = 0
    for place in range(items.ring[SPAN]):
        slot: Int = items.slot_at(place)
        if items.is_dead(slot) or _is_whole(items, slot):
            continue
        if items.has_key_index:
            items.key_index.remove(slot)
        items.records[RECORD_WORDS * slot + RECORD_ROW] = DEAD
        removed += 1
    items.ring[LIVE] -= removed
    items.ring[DELETES] += removed
    items.close_ends()
    return removed


def _is_used(pins: Pins, row: Int) -> Bool:
    """Returns whether a row is committed; it may be any number."""
    page = pins.window.page_of(row)
    if page >= pins.window.pages.shape[0]:
        return False
    in_page = row - page * pins.window.page_rows
    used: Int = pins.window.pages[page, USED] * pins.window.pages[page, LANES]
    return in_page < used


def _is_there(pins: Pins, row: Int, real: Int, lookahead: Int) -> Bool:
    """Returns whether all rows of a window are stored; its first one is."""
    if lookahead != STREAM:
        return real == 1 or pins.window.follow(row, real - 1) >= 0
    if not _leads_back(pins, row):
        return False
    for _ in range(real - 1):
        row = pins.window.row_after(row)
        if row < 0 or not _leads_back(pins, row):
            return False
    return True


def _leads_back(pins: Pins, row: Int) -> Bool:
    """Returns whether a row stands in its lane, or is a final row linked with the transition before it."""
    before: Int = pins.window.place_in_lane(row)
    if before == row:
        return True
    linked: Bool = _is_used(pins, before) and pins.window.word(before) & LINKED != 0
    return linked and pins.window.link(before) == row


def _is_whole(items: Items, slot: Int) -> Bool:
    """Returns whether all rows of an item are stored, those of its lookahead in its episode included."""
    row = items.row_of(slot)
    real = items.window_of(slot, REAL)
    lookahead = items.window_of(slot, LOOKAHEAD)
    if not _is_used(items.pins, row) or not _is_there(items.pins, row, real, lookahead):
        return False
    if lookahead == STREAM:
        return True
    kept: Int = items.pins.kept_rows(row, real, lookahead)
    # An item of an episode that goes on holds its whole lookahead.
    if kept == real + lookahead:
        return True
    return items.window.word(items.window.follow(row, kept - 1)) & (FINAL | ENDED) != 0
