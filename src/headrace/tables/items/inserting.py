"""Items go in, a whole batch a call; the remover takes its victims on the way."""

from __future__ import annotations

import cython

if not cython.compiled:
    from headrace.kernels.kinds import Bool, Doubles, Float, Int, Longs, UInts, ULongs
    from headrace.tables.items.drawing import choose_one
    from headrace.tables.items.items import Items
    from headrace.tables.items.layout import (
        DEAD,
        DONE,
        FIFO,
        FIRST,
        FLAGS,
        HAS_SEQUENCES,
        INSERTED,
        INVENTED,
        LIFO,
        LIVE,
        LOOKAHEAD,
        MAX_SIZE,
        NO_PRIORITIES,
        NO_SLOT,
        NO_WINDOWS,
        PRIORITIZED,
        PRIORITY_OF_ALL,
        REAL,
        RECORD_ROW,
        RECORD_TIMES,
        RECORD_WORDS,
        SPAN,
        TOUCHES,
        UNIFORM,
        WINDOW_WORDS,
    )


def insert(
    items: Items, first_key: Int, keys: ULongs, rows: Longs, shapes: UInts, priorities: Doubles
) -> tuple[int, int]:
    """Insert items; whenever there are too many the remover takes a victim.

    Args:
        items: of the table.
        first_key: of the first; the others follow. Above all that were inserted before.
        keys: uint64[M], in place of that; none of them is there. They rise, too, unless `items` have a key index.
        rows: int64[M], first rows of the windows.
        shapes: uint32[3 * M], or uint32[3] for all: the windows.
        priorities: float64[M], or float64[1] for all.

    Returns:
        How many went in, and why it stopped: DONE, or what another call needs to go on.
    """
    # Rules: replay T5
    count, num_priorities = rows.shape[0], priorities.shape[0]
    num_shapes = shapes.shape[0] // WINDOW_WORDS
    if num_shapes not in (1, count) or num_priorities not in (1, count):
        raise ValueError(
            f"expected 1 or {count} windows and priorities, got {num_shapes} and {num_priorities}"
        )
    if keys.shape[0] not in (0, count):
        raise ValueError(f"expected {count} keys, got {keys.shape[0]}")
    priority = priorities[0] if num_priorities else 0.0
    with cython.nogil:
        if keys.shape[0]:
            stopped = _insert_each(
                items, 0, keys, rows, count, shapes, num_shapes, priorities, num_priorities, priority
            )
        else:
            stopped = insert_rows(
                items, first_key, rows, count, shapes, num_shapes, priorities, num_priorities, priority
            )
    return stopped


def insert_rows(
    items: Items,
    first_key: Int,
    rows: Longs,
    count: Int,
    shapes: UInts,
    num_shapes: Int,
    priorities: Doubles,
    num_priorities: Int,
    priority: Float,
) -> tuple[Int, Int]:
    """`insert` of the first `count` rows.

    Args:
        num_shapes: 1, if the first shape is that of all.
        num_priorities: at most 1, if all have the same.
        priority: that of all, if all have the same.
    """
    leaving = max(0, items.ring[LIVE] + count - items.told[MAX_SIZE])
    if _is_run(items, count, shapes, num_shapes, num_priorities, priority, leaving):
        _let_run_leave(items, leaving)
        _append_run(items, first_key, rows, count)
        items.told[INSERTED] += count
        return count, DONE
    return _insert_each(
        items,
        first_key,
        items.keys[:0],
        rows,
        count,
        shapes,
        num_shapes,
        priorities,
        num_priorities,
        priority,
    )


# ---- one after the other ---------------------------------------------------------------------------------------------


def _insert_each(
    items: Items,
    first_key: Int,
    keys: ULongs,
    rows: Longs,
    count: Int,
    shapes: UInts,
    num_shapes: Int,
    priorities: Doubles,
    num_priorities: Int,
    priority: Float,
) -> tuple[Int, Int]:
    changes: Int = 0
    done: Int = 0
    stopped: Int = DONE
    while True:
        if changes == items.changed.shape[0]:
            items.sampler.refresh(items.changed, 0, changes)
            changes = 0
        if items.ring[LIVE] > items.told[MAX_SIZE]:
            _let_leave(items, changes)
            changes += 1
            continue
        if done == count:
            break
        shape = done if num_shapes > 1 else 0
        if num_priorities > 1:
            priority = priorities[done]
        if items.ring[SPAN] >= items.capacity:
            stopped = NO_SLOT
        elif done == 0 or num_shapes > 1 or num_priorities > 1:
            # Where all are alike, the first speaks for the others.
            stopped = _obstacle(items, shapes, shape, priority)
        if stopped != DONE:
            break
        key = cython.cast(Int, keys[done]) if keys.shape[0] else first_key + done
        slot = _append(items, key, rows[done], shapes, shape, priority)
        items.changed[changes] = slot
        if items.remover.kind == PRIORITIZED:
            items.remover.refresh(items.changed, changes, 1)
        changes += 1
        done += 1
    items.sampler.refresh(items.changed, 0, changes)
    items.told[INSERTED] += done
    return done, stopped


def _let_leave(items: Items, place: Int) -> None:
    """Let the remover take an item, whose slot is written to `items.changed[place]`."""
    choose_one(items, items.remover, place)
    items.remove_slot(items.changed[place])
    if items.remover.kind == PRIORITIZED:
        items.remover.refresh(items.changed, place, 1)


def _obstacle(items: Items, shapes: UInts, shape: Int, priority: Float) -> Int:
    """Finds what the arrays lack for the next item: DONE if nothing."""
    begin = WINDOW_WORDS * shape
    if cython.cast(Int, shapes[begin + REAL]) + cython.cast(Int, shapes[begin + INVENTED]) != 1:
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
    if items.touches.shape[0]:
        items.touches[slot] = items.ring[TOUCHES]
        items.ring[TOUCHES] += 1
    if items.has_key_index:
        items.key_index.insert(slot)
    items.sampler.insert(slot, priority)
    items.remover.insert(slot, priority)
    return slot


# ---- runs ------------------------------------------------------------------------------------------------------------


def _is_run(
    items: Items,
    count: Int,
    shapes: UInts,
    num_shapes: Int,
    num_priorities: Int,
    priority: Float,
    leaving: Int,
) -> Bool:
    """Whether these items, which let so many leave, differ in their keys and rows alone, and all there is of the table
    is its ring, without holes: no selector keeps anything of an item, and nothing has to survive the process.
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
        and num_shapes == 1
        and num_priorities <= 1
        and _obstacle(items, shapes, 0, priority) == DONE
    )


def _let_run_leave(items: Items, leaving: Int) -> None:
    """The oldest items leave."""
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


def _append_run(items: Items, first_key: Int, rows: Longs, count: Int) -> None:
    """New items go in behind the newest."""
    slot: Int = items.slot_at(items.ring[SPAN])
    for number in range(count):
        row = rows[number]
        items.keys[2 * slot] = first_key + number
        items.records[RECORD_WORDS * slot + RECORD_ROW] = row
        items.records[RECORD_WORDS * slot + RECORD_TIMES] = 0
        slot = slot + 1 if slot + 1 < items.capacity else 0
    items.ring[SPAN] += count
    items.ring[LIVE] = items.ring[SPAN]
