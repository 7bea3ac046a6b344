"""Checks of items that come from a file: keys, times, priorities, last updates and windows."""

from __future__ import annotations

import cython

if not cython.compiled:
    from headrace.kernels.kinds import Bool, Int, ULong
    from headrace.tables.items.items import Items, is_priority
    from headrace.tables.items.layout import (
        BAD_PRIORITY,
        BAD_WINDOW,
        CHANGES,
        DEAD,
        FLAGS,
        HAS_KEY_INDEX,
        KEY_FALLS,
        KEY_UNUSED,
        LATE_UPDATE,
        NO_PROBLEM,
        PADDED,
        REAL,
        RECORD_TIMES,
        RECORD_WORDS,
        SPAN,
        SPENT,
    )


def first_wrong(items: Items, next_key: ULong, max_times: Int) -> tuple[int, int, int]:
    """Finds the first problem of the items.

    Args:
        items: from a file.
        next_key: above every key that was ever used.
        max_times: samples after which an item leaves; 0 for no limit.

    Returns:
        The problem (NO_PROBLEM: none), its slot, and the number of items up to it.
    """
    with cython.nogil:
        found = _first_wrong(items, next_key, max_times)
    if found[0] == NO_PROBLEM and not items.keys_differ:
        return KEY_FALLS, found[1], found[2]
    return found


def _first_wrong(items: Items, next_key: ULong, max_times: Int) -> tuple[Int, Int, Int]:
    has_priorities: Bool = items.priorities.shape[0] > 0
    has_details: Bool = may_have_problems(items, max_times)
    rise: Bool = keys_rise(items)
    live: Int = 0
    least: ULong = 0
    slot: Int = 0
    for place in range(items.ring[SPAN]):
        slot = items.slot_at(place)
        key = items.key_of(slot)
        if rise and key < least:
            return KEY_FALLS, slot, live
        if key >= next_key:
            return KEY_UNUSED, slot, live
        least = key + 1
        if items.is_dead(slot):
            continue
        live += 1
        if has_priorities and not is_priority(items.priorities[slot]):
            return BAD_PRIORITY, slot, live
        if has_details:
            problem = problem_of(items, slot, max_times)
            if problem != NO_PROBLEM:
                return problem, slot, live
    return NO_PROBLEM, slot, live


def keys_rise(items: Items) -> Bool:
    """Returns whether the keys must rise along the ring."""
    rise: Bool = items.ring[FLAGS] & HAS_KEY_INDEX == 0
    return rise


def may_have_problems(items: Items, max_times: Int) -> Bool:
    """Returns whether items have times, last updates or windows for `problem_of` to check."""
    return max_times > 0 or items.last_updates.shape[0] > 0 or items.windows.shape[0] > 0


def problem_of(items: Items, slot: Int, max_times: Int) -> Int:
    """Checks the times, the last update and the window of an item; returns the problem."""
    if max_times > 0 and cython.cast(Int, items.records[RECORD_WORDS * slot + RECORD_TIMES]) >= max_times:
        return SPENT
    if items.last_updates.shape[0] and not 0 <= items.last_updates[slot] < items.ring[CHANGES]:
        return LATE_UPDATE
    if items.windows.shape[0] and not is_window(items.window_of(slot, REAL), items.window_of(slot, PADDED)):
        return BAD_WINDOW
    return NO_PROBLEM


def is_window(real: Int, padded: Int) -> Bool:
    """Returns whether a window can have these numbers of rows."""
    return 1 <= real < DEAD // 4 and padded < DEAD // 4
