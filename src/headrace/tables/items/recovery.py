"""Items that were found in a file: whether they are right, and which pages they hold."""

from __future__ import annotations

import cython

if not cython.compiled:
    from headrace.kernels.kinds import Bool, Float, GivenBytes, Int, UInt, ULong
    from headrace.store.layout import ENDED, FINAL, LANES, LINKED, PADDING, REFERENCES, USED
    from headrace.store.pages.pinning import Pins
    from headrace.tables.items.items import Items
    from headrace.tables.items.layout import (
        BAD_PRIORITY,
        BAD_WINDOW,
        DEAD,
        DELETES,
        FIRST,
        FLAGS,
        HAS_KEY_INDEX,
        INVENTED,
        KEY_FALLS,
        KEY_UNUSED,
        LATE_TOUCH,
        LIVE,
        LOOKAHEAD,
        NO_PROBLEM,
        REAL,
        RECORD_ROW,
        RECORD_TIMES,
        RECORD_WORDS,
        SPAN,
        SPENT,
        STREAM,
        TOUCHES,
        WINDOW_WORDS,
    )

# Slots whose items are looked at together.
_BLOCK = 1024
# The largest number that is finite.
_LARGEST = 1.7976931348623157e308

# ---- items by themselves ---------------------------------------------------------------------------------------------


def first_wrong(items: Items, next_key: ULong, max_times: Int) -> tuple[int, int, int]:
    """Look at what items say of themselves.

    Args:
        items: as they were found.
        next_key: above every key that was ever used.
        max_times: samples that an item lives for; 0 for no limit.

    Returns:
        What is wrong first (NO_PROBLEM if nothing), its slot, and how many items there were up to it.
    """
    with cython.nogil:
        found = _first_wrong(items, next_key, max_times)
    if found[0] == NO_PROBLEM and not items.keys_differ:
        return KEY_FALLS, found[1], found[2]
    return found


def _first_wrong(items: Items, next_key: ULong, max_times: Int) -> tuple[Int, Int, Int]:
    has_priorities: Bool = items.priorities.shape[0] > 0
    has_more = _has_more(items, max_times)
    rise: Bool = _should_rise(items)
    live: Int = 0
    least: ULong = 0
    slot: Int = items.ring[FIRST] - 1
    for _ in range(items.ring[SPAN]):
        slot = slot + 1 if slot + 1 < items.capacity else 0
        key: ULong = items.keys[2 * slot]
        if rise and key < least:
            return KEY_FALLS, slot, live
        if key >= next_key:
            return KEY_UNUSED, slot, live
        least = key + 1
        if items.records[RECORD_WORDS * slot + RECORD_ROW] == DEAD:
            continue
        live += 1
        if has_priorities and not _is_priority(items.priorities[slot]):
            return BAD_PRIORITY, slot, live
        if has_more:
            problem = _problem(items, slot, max_times)
            if problem != NO_PROBLEM:
                return problem, slot, live
    return NO_PROBLEM, slot, live


def _should_rise(items: Items) -> Bool:
    rise: Bool = items.ring[FLAGS] & HAS_KEY_INDEX == 0
    return rise


def _has_more(items: Items, max_times: Int) -> Bool:
    """Whether an item has more than key, row and priority, that `_problem` looks at."""
    return max_times > 0 or items.touches.shape[0] > 0 or items.windows.shape[0] > 0


def _problem(items: Items, slot: Int, max_times: Int) -> Int:
    """Checks the times, the touch and the window of an item; returns the problem."""
    if max_times > 0 and cython.cast(Int, items.records[RECORD_WORDS * slot + RECORD_TIMES]) >= max_times:
        return SPENT
    if items.touches.shape[0] and not 0 <= items.touches[slot] < items.ring[TOUCHES]:
        return LATE_TOUCH
    if items.windows.shape[0] and not is_window(items.window_of(slot, REAL), items.window_of(slot, INVENTED)):
        return BAD_WINDOW
    return NO_PROBLEM


def _is_priority(priority: Float) -> Bool:
    # NaN is not between the two either.
    return 0.0 <= priority <= _LARGEST


def is_window(real: Int, invented: Int) -> Bool:
    """Whether a window can have this number of rows."""
    return 1 <= real < DEAD // 4 and invented < DEAD // 4


# ---- with their rows -------------------------------------------------------------------------------------------------


def pin_found(items: Items, padded: GivenBytes, next_key: ULong, max_times: Int) -> tuple[int, int]:
    """Give every page that an item holds a reference for it, and look at what items say of themselves on the way.

    Args:
        items: as they were found, over the pages of a `PageRecovery`.
        padded: bool[pages] as bytes, of the same.
        next_key, max_times: as in `first_wrong`.

    Returns:
        The slot of the first item that is not right, or whose rows are not all there; or -1, and how many items there
        are.
    """
    if not items.keys_differ:
        return items.ring[FIRST], 0
    with cython.nogil:
        found = _pin_found(items, padded, next_key, max_times)
    return found


def _pin_found(items: Items, padded: GivenBytes, next_key: ULong, max_times: Int) -> tuple[Int, Int]:
    is_plain = not items.windows.shape[0] and not _has_more(items, max_times) and _should_rise(items)
    span: Int = items.ring[SPAN]
    least: ULong = 0
    live: Int = 0
    place: Int = 0
    while place < span:
        slot = items.slot_at(place)
        stop: Int = min(slot + _BLOCK, slot + span - place, items.capacity)
        if is_plain and _pin_block(items, padded, slot, stop, least, next_key):
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
    items: Items, padded: GivenBytes, start: Int, stop: Int, least: ULong, next_key: ULong
) -> Bool:
    """Pin the items of the slots `start:stop` if all are there, are right and lie in one page; else nothing is done.

    Only for items that all have one row and the same lookahead and no touches, as most have.
    """
    # No jump between two items: 0.5 ms for a million items where `_pin_each` takes 1.6, a quarter of the time in which
    # a store is opened.
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
    if padded[page] and _some_padding(items, start, stop):
        return False
    if items.priorities.shape[0] and not _are_priorities(items, start, stop):
        return False
    items.window.pages[page, REFERENCES] += stop - start
    return True


def _are_between(items: Items, start: Int, stop: Int, first: Int, last: Int) -> Bool:
    """Whether the keys of these slots rise, and their rows stand in `first..last`."""
    falls: Int = 0
    for slot in range(start + 1, stop):
        falls |= cython.cast(Int, items.keys[2 * slot] <= items.keys[2 * slot - 2])
    lowest: UInt = items.records[RECORD_WORDS * start + RECORD_ROW]
    highest: UInt = lowest
    for slot in range(start, stop):
        lowest = min(lowest, items.records[RECORD_WORDS * slot + RECORD_ROW])
        highest = max(highest, items.records[RECORD_WORDS * slot + RECORD_ROW])
    return falls == 0 and first <= lowest and highest <= last


def _some_padding(items: Items, start: Int, stop: Int) -> Bool:
    """Whether nothing was written in some first row of these slots' items, which are all in the store."""
    words: UInt = 0
    for slot in range(start, stop):
        words |= items.window.steps[items.records[RECORD_WORDS * slot + RECORD_ROW]]
    return words & PADDING != 0


def _are_priorities(items: Items, start: Int, stop: Int) -> Bool:
    """Whether all priorities of these slots are finite and >= 0."""
    right: Int = 0
    for slot in range(start, stop):
        right += cython.cast(Int, items.priorities[slot] >= 0.0) & cython.cast(
            Int, items.priorities[slot] <= _LARGEST
        )
    return right == stop - start


def _pin_each(
    items: Items, start: Int, stop: Int, least: ULong, next_key: ULong, max_times: Int
) -> tuple[Int, Int]:
    """Pin the items of the slots `start:stop`, one after the other; returns as `pin_found`."""
    has_priorities: Bool = items.priorities.shape[0] > 0
    has_more = _has_more(items, max_times)
    rise: Bool = _should_rise(items)
    live: Int = 0
    real: Int = items.common_window[REAL]
    lookahead: Int = items.common_window[LOOKAHEAD]
    # Of the page of the item before, in which most stand too: where its rows begin and end, how many lanes it has, and
    # how many items hold it alone that are not counted yet.
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
        if cython.cast(Int, items.window.steps[row]) & PADDING:
            return slot, live
        if has_priorities and not _is_priority(items.priorities[slot]):
            return slot, live
        if has_more and _problem(items, slot, max_times) != NO_PROBLEM:
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


def pin_items(items: Items, change: Int) -> None:
    """Add `change` to the references of every page that an item holds, for each item."""
    with cython.nogil:
        _pin_items(items, change)


def _pin_items(items: Items, change: Int) -> None:
    real: Int = items.common_window[REAL]
    lookahead: Int = items.common_window[LOOKAHEAD]
    slot: Int = items.ring[FIRST] - 1
    for _ in range(items.ring[SPAN]):
        slot = slot + 1 if slot + 1 < items.capacity else 0
        row = cython.cast(Int, items.records[RECORD_WORDS * slot + RECORD_ROW])
        if row == DEAD:
            continue
        if items.windows.shape[0]:
            real = items.windows[WINDOW_WORDS * slot + REAL]
            lookahead = items.windows[WINDOW_WORDS * slot + LOOKAHEAD]
        items.pins.pin_rows(row, real, lookahead, change)


def remove_broken(items: Items) -> int:
    """Take out items of which not all rows are there; returns how many. Indexes and references are left as they are."""
    with cython.nogil:
        removed = _remove_broken(items)
    return removed


def _remove_broken(items: Items) -> Int:
    removed: Int = 0
    real: Int = items.common_window[REAL]
    lookahead: Int = items.common_window[LOOKAHEAD]
    slot: Int = items.ring[FIRST] - 1
    for _ in range(items.ring[SPAN]):
        slot = slot + 1 if slot + 1 < items.capacity else 0
        row = cython.cast(Int, items.records[RECORD_WORDS * slot + RECORD_ROW])
        if row == DEAD:
            continue
        if items.windows.shape[0]:
            real = items.windows[WINDOW_WORDS * slot + REAL]
            lookahead = items.windows[WINDOW_WORDS * slot + LOOKAHEAD]
        if not _is_whole(items.pins, row, real, lookahead):
            if items.has_key_index:
                items.key_index.remove(slot)
            items.records[RECORD_WORDS * slot + RECORD_ROW] = DEAD
            removed += 1
    items.ring[LIVE] -= removed
    items.ring[DELETES] += removed
    items.close_ends()
    return removed


def _is_used(pins: Pins, row: Int) -> Bool:
    """Whether something was committed at a row, which may be any number."""
    page = pins.window.page_of(row)
    if page >= pins.window.pages.shape[0]:
        return False
    in_page = row - page * pins.window.page_rows
    used: Int = pins.window.pages[page, USED] * pins.window.pages[page, LANES]
    return in_page < used


def _is_there(pins: Pins, row: Int, real: Int, lookahead: Int) -> Bool:
    """Whether all rows of a window are there; its first one is."""
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
    """Whether a final row beside its lane is linked with the transition before it; all that stands in a lane is."""
    before: Int = pins.window.place_in_lane(row)
    if before == row:
        return True
    linked: Bool = _is_used(pins, before) and pins.window.word(before) & LINKED != 0
    return linked and pins.window.link(before) == row


def _is_whole(pins: Pins, row: Int, real: Int, lookahead: Int) -> Bool:
    """Whether all rows are there that an item holds: its own, and its lookahead up to the end of the episode."""
    if not _is_used(pins, row) or not _is_there(pins, row, real, lookahead):
        return False
    if lookahead == STREAM:
        return True
    kept: Int = pins.kept_rows(row, real, lookahead)
    # Of an episode that goes on an item holds its whole lookahead.
    if kept == real + lookahead:
        return True
    return pins.window.word(pins.window.follow(row, kept - 1)) & (FINAL | ENDED) != 0
