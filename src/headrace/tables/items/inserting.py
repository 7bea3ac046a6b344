"""Insertion of items, a batch in each call; the remover takes items out where there are too many."""

from __future__ import annotations

import cython

if not cython.compiled:
    from headrace.kernels.kinds import Bool, Doubles, Float, Int, Longs, UInts, ULongs
    from headrace.tables.items.drawing import choose_one
    from headrace.tables.items.items import Items
    from headrace.tables.items.layout import (
        CHANGES,
        DEAD,
        DONE,
        FIFO,
        FIRST,
        FLAGS,
        HAS_SEQUENCES,
        INSERTED,
        LARGEST_PRIORITY,
        LIFO,
        LIVE,
        LOOKAHEAD,
        MAX_SIZE,
        NO_PRIORITIES,
        NO_SLOT,
        NO_WINDOWS,
        PADDED,
        PRIORITIZED,
        PRIORITY_OF_ALL,
        REAL,
        RECORD_ROW,
        RECORD_TIMES,
        RECORD_WORDS,
        SPAN,
        UNIFORM,
        WINDOW_WORDS,
    )


def insert(
    items: Items, first_key: Int, keys: ULongs, rows: Longs, shapes: UInts, priorities: Doubles
) -> tuple[int, int]:
    """Inserts items; whenever there are too many, the remover takes one out.

    Args:
        items: of the table.
        first_key: key of the first item; the others follow. It is above all keys that were inserted before.
        keys: uint64[M], in place of `first_key`; no item has one of them. Unless `items` has a key index, they rise,
            and are above all keys in the ring. Empty: `first_key` counts.
        rows: int64[M], first rows of the windows.
        shapes: uint32[3 * M], or uint32[3] for all: the windows.
        priorities: float64[M], or float64[1] for all; empty: the largest priority so far.

    Returns:
        The number of items that were inserted, and the reason to stop: DONE, or the obstacle to remove before another
        call goes on.
    """
    # Rules: replay T5
    count, num_priorities = rows.shape[0], priorities.shape[0]
    num_shapes = shapes.shape[0] // WINDOW_WORDS
    if num_shapes not in (1, count) or num_priorities not in (0, 1, count):
        raise ValueError(
            f"expected 1 or {count} windows and priorities, got {num_shapes} and {num_priorities}"
        )
    if keys.shape[0] not in (0, count):
        raise ValueError(f"expected {count} keys, got {keys.shape[0]}")
    with cython.nogil:
        stopped = insert_rows(items, first_key, keys, rows, shapes, priorities)
    return stopped


def insert_rows(
    items: Items, first_key: Int, keys: ULongs, rows: Longs, shapes: UInts, priorities: Doubles
) -> tuple[Int, Int]:
    """Does the same as `insert`, without its checks."""
    count: Int = rows.shape[0]
    if priorities.shape[0] == 0:
        priorities = items.ring_floats[LARGEST_PRIORITY : LARGEST_PRIORITY + 1]
    leaving = max(0, items.ring[LIVE] + count - items.counters[MAX_SIZE])
    if keys.shape[0] == 0 and _is_run(items, count, shapes, priorities, leaving):
        _let_run_leave(items, leaving)
        _append_run(items, first_key, rows)
        items.counters[INSERTED] += count
        return count, DONE
    return _insert_each(items, first_key, keys, rows, shapes, priorities)


# ---- one after the other ---------------------------------------------------------------------------------------------


def _insert_each(
    items: Items, first_key: Int, keys: ULongs, rows: Longs, shapes: UInts, priorities: Doubles
) -> tuple[Int, Int]:
    num_shapes: Int = shapes.shape[0] // WINDOW_WORDS
    differ: Bool = num_shapes > 1 or priorities.shape[0] > 1
    changes: Int = 0
    done: Int = 0
    stopped: Int = DONE
    while True:
        if changes == items.changed.shape[0]:
            items.sampler.refresh(items.changed, 0, changes)
            changes = 0
        if items.ring[LIVE] > items.counters[MAX_SIZE]:
            _let_leave(items, changes)
            changes += 1
            continue
        if done == rows.shape[0]:
            break
        shape = done if num_shapes > 1 else 0
        priority: Float = priorities[done if priorities.shape[0] > 1 else 0]
        if items.ring[SPAN] >= items.capacity:
            stopped = NO_SLOT
        elif differ or done == 0:
            # Of items that are alike, the first speaks for the others.
            stopped = _obstacle(items, shapes, shape, priority)
        if stopped != DONE:
            break
        key = cython.cast(Int, keys[done]) if keys.shape[0] else first_key + done
        items.changed[changes] = _append(items, key, rows[done], shapes, shape, priority)
        if items.remover.kind == PRIORITIZED:
            items.remover.refresh(items.changed, changes, 1)
        changes += 1
        done += 1
    items.sampler.refresh(items.changed, 0, changes)
    items.counters[INSERTED] += done
    return done, stopped


def _let_leave(items: Items, place: Int) -> None:
    """Lets the remover take an item, whose slot is written to `items.changed[place]`."""
    choose_one(items, items.remover, place)
    items.remove_slot(items.changed[place])
    if items.remover.kind == PRIORITIZED:
        items.remover.refresh(items.changed, place, 1)


def _obstacle(items: Items, shapes: UInts, shape: Int, priority: Float) -> Int:
    """Returns the obstacle to the insertion of the next item; DONE if there is none."""
    begin = WINDOW_WORDS * shape
    if cython.cast(Int, shapes[begin + REAL]) + cython.cast(Int, shapes[begin + PADDED]) != 1:
        items.ring[FLAGS] |= HAS_SEQUENCES
    if items.windows.shape[0] == 0:
        if items.ring[LIVE] == 0:
            for word in range(WINDOW_WORDS):
                items.common_window[word] = shapes[begin + word]
        for word in range(WINDOW_WORDS):
            if items.common_window[word] != shapes[begin + word]:
                return NO_WINDOWS
    if items.priorities.shape[0] == 0:
        if items.ring[LIVE] == 0:
            items.common[PRIORITY_OF_ALL] = priority
        if items.common[PRIORITY_OF_ALL] != priority:
            return NO_PRIORITIES
    if priority > items.ring_floats[LARGEST_PRIORITY]:
        items.ring_floats[LARGEST_PRIORITY] = priority
    return DONE


def _append(items: Items, key: Int, row: Int, shapes: UInts, shape: Int, priority: Float) -> Int:
    slot = items.slot_at(items.ring[SPAN])
    items.remember(slot)
    items.ring[SPAN] += 1
    items.ring[LIVE] += 1
    items.keys[2 * slot] = key
    items.records[RECORD_WORDS * slot + RECORD_ROW] = row
    items.records[RECORD_WORDS * slot + RECORD_TIMES] = 0
    if items.priorities.shape[0]:
        items.priorities[slot] = priority
    if items.windows.shape[0]:
        for word in range(WINDOW_WORDS):
            items.windows[WINDOW_WORDS * slot + word] = shapes[WINDOW_WORDS * shape + word]
    if items.last_updates.shape[0]:
        items.last_updates[slot] = items.ring[CHANGES]
        items.ring[CHANGES] += 1
    if items.has_key_index:
        items.key_index.insert(slot)
    items.sampler.insert(slot, priority)
    items.remover.insert(slot, priority)
    return slot


# ---- runs ------------------------------------------------------------------------------------------------------------


def _is_run(items: Items, count: Int, shapes: UInts, priorities: Doubles, leaving: Int) -> Bool:
    """Returns whether `count` items can go in, and `leaving` leave, by changes of the ring alone.

    The items differ only in their keys and rows, the ring has no holes, no selector keeps data of an item, and nothing
    has to survive the process.
    """
    kind = items.sampler.kind
    live: Int = items.ring[LIVE]
    return (
        count > 0
        and items.remover.kind == FIFO
        and (kind == UNIFORM or kind == FIFO or kind == LIFO)
        and items.journal.shape[0] == 0
        and not items.has_key_index
        and items.ring[SPAN] == live
        and leaving <= live
        and live - leaving + count <= items.capacity
        and items.windows.shape[0] == 0
        and items.priorities.shape[0] == 0
        and shapes.shape[0] == WINDOW_WORDS
        and priorities.shape[0] == 1
        and _obstacle(items, shapes, 0, priorities[0]) == DONE
    )


def _let_run_leave(items: Items, leaving: Int) -> None:
    """Removes the oldest items."""
    real = cython.cast(Int, items.common_window[REAL])
    lookahead = cython.cast(Int, items.common_window[LOOKAHEAD])
    page_rows = items.window.page_rows
    # Neighbours mostly stand in one page, whose references are counted in one go.
    page: Int = 0
    first: Int = 0
    held: Int = 0
    slot: Int = items.ring[FIRST]
    for _ in range(leaving):
        row = cython.cast(Int, items.records[RECORD_WORDS * slot + RECORD_ROW])
        if real != 1 or lookahead != 0:
            items.pins.pin_rows(row, real, lookahead, -1)
        else:
            if held and not first <= row < first + page_rows:
                items.pins.pin_page(page, -held)
                held = 0
            if held == 0:
                page = items.window.page_of(row)
                first = page * page_rows
            held += 1
        items.records[RECORD_WORDS * slot + RECORD_ROW] = DEAD
        slot = slot + 1 if slot + 1 < items.capacity else 0
    if held:
        items.pins.pin_page(page, -held)
    items.ring[FIRST] = slot
    items.ring[SPAN] -= leaving


def _append_run(items: Items, first_key: Int, rows: Longs) -> None:
    """Puts new items behind the newest."""
    count: Int = rows.shape[0]
    slot: Int = items.slot_at(items.ring[SPAN])
    for number in range(count):
        row = rows[number]
        items.keys[2 * slot] = first_key + number
        items.records[RECORD_WORDS * slot + RECORD_ROW] = row
        items.records[RECORD_WORDS * slot + RECORD_TIMES] = 0
        slot = slot + 1 if slot + 1 < items.capacity else 0
    items.ring[SPAN] += count
    items.ring[LIVE] = items.ring[SPAN]
