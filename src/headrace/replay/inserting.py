"""Items go in, a whole batch a call; the remover takes its victims on the way."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from headrace.replay.drawing import choose
from headrace.replay.items import (
    DEAD,
    FIFO,
    FIRST,
    HAS_SEQUENCES,
    INVENTED,
    LIFO,
    LIVE,
    LOOKAHEAD,
    PRIORITIZED,
    PRIORITY_OF_ALL,
    REAL,
    SPAN,
    TOUCHES,
    UNIFORM,
    WINDOW_WORDS,
    Items,
    Scratch,
    index_insert,
    index_refresh,
    pin_rows,
    remove_slot,
    slot_at,
)
from headrace.replay.journal import remember
from headrace.replay.table_handles import (
    count_inserted,
    max_size_of,
    open_items_of,
    open_memory_of,
    open_one_row_of,
    open_scratch_of,
    open_store_of,
)
from headrace.store.commit import commit_step, open_lanes, take_staged
from headrace.store.jit import Bool, Int, kernel
from headrace.store.layout import REFERENCES, StoreArrays
from headrace.store.pinning import pin_page

# Why `insert` stopped.
DONE, NO_SLOT, NO_NUMBERS, NO_SCRATCH, NO_WINDOWS, NO_PRIORITIES = range(6)


@kernel
def insert(
    store: StoreArrays,
    items: Items,
    first_key: Int,
    rows: NDArray[np.int64],
    windows: NDArray[np.uint32],
    priorities: NDArray[np.float64],
    pins: Int,
    max_size: Int,
    uniforms: NDArray[np.float64],
    scratch: Scratch,
) -> tuple[Int, Int, Int]:
    """Insert items; whenever there are too many the remover takes a victim.

    Args:
        first_key: of the first; the others follow.
        rows: int64[M], first rows of the windows.
        windows: uint32[M, 3], or uint32[1, 3] for all.
        priorities: float64[M], or float64[1] for all.
        pins: references that each item still has to take on its page: 0, or 1 for items of one row.
        uniforms: random numbers for a remover that draws; others need none.
        scratch: with room for every item that goes in or out.

    Returns:
        How many went in, how many left, and why it stopped: DONE, or what another call needs to go on.
    """
    # Rules: replay T5
    ring = items.ring
    leaving = max(0, ring[LIVE] + rows.shape[0] - max_size)
    if _is_run(items, rows, windows, priorities, leaving):
        _insert_run(store, items, first_key, rows, pins, leaving)
        return rows.shape[0], leaving, DONE
    changed = scratch.changed
    changes = done = left = used = 0
    draws = items.remover.kind == PRIORITIZED or items.remover.kind == UNIFORM
    while True:
        if changes == changed.shape[0]:
            stopped = NO_SCRATCH
            break
        if ring[LIVE] > max_size:
            if draws and used >= uniforms.shape[0]:
                stopped = NO_NUMBERS
                break
            picked = choose(items, items.remover, uniforms[used : used + 1], scratch.slot, scratch.chance)
            used += 1
            if picked == 0:
                continue
            slot = scratch.slot[0]
            remove_slot(store, items, slot)
            left += 1
        else:
            if done == rows.shape[0]:
                stopped = DONE
                break
            stopped = NO_SLOT if ring[SPAN] >= items.rows.shape[0] else DONE
            # Where all are alike, the first speaks for the others.
            if stopped == DONE and (done == 0 or windows.shape[0] > 1 or priorities.shape[0] > 1):
                stopped = _obstacle(items, done, windows, priorities)
            if stopped != DONE:
                break
            slot = _append(items, first_key, done, rows, windows, priorities)
            if pins:
                store.pages[rows[done] // store.page_rows, REFERENCES] += pins
            done += 1
        changed[changes] = slot
        changes += 1
        if draws:
            index_refresh(items.remover, changed[changes - 1 :], 1, scratch)
    index_refresh(items.sampler, changed, changes, scratch)
    return done, left, stopped


@kernel
def insert_of(
    table: NDArray[np.int64],
    store: StoreArrays,
    first_key: Int,
    rows: NDArray[np.int64],
    windows: NDArray[np.uint32],
    priorities: NDArray[np.float64],
    pins: Int,
    uniforms: NDArray[np.float64],
) -> tuple[Int, Int, Int]:
    """`insert` into the table of these handles (`table_handles`), counted there."""
    done, left, stopped = insert(
        store,
        open_items_of(table),
        first_key,
        rows,
        windows,
        priorities,
        pins,
        max_size_of(table),
        uniforms,
        open_scratch_of(table),
    )
    count_inserted(table, done)
    return done, left, stopped


@kernel
def insert_into(
    table: NDArray[np.int64],
    first_key: Int,
    rows: NDArray[np.int64],
    windows: NDArray[np.uint32],
    priorities: NDArray[np.float64],
    pins: Int,
    uniforms: NDArray[np.float64],
) -> tuple[Int, Int, Int]:
    """`insert_of`, quick to call."""
    return insert_of(table, open_store_of(table), first_key, rows, windows, priorities, pins, uniforms)


@kernel
def append_step(
    table: NDArray[np.int64],
    lanes: NDArray[np.int64],
    row: Int,
    first_key: Int,
    priorities: NDArray[np.float64],
    uniforms: NDArray[np.float64],
) -> tuple[Int, Int, Int]:
    """`commit.commit_step`, and `insert` of an item for each of its rows: the way of most steps, in one call.

    Args:
        table, lanes: handles of the table and of the block's `Lanes`.
    """
    store, block = open_store_of(table), open_lanes(lanes)
    memory, places = open_memory_of(table)
    take_staged(memory, places, store, row, block)
    commit_step(store, row, block)
    return insert_of(table, store, first_key, block.newest, open_one_row_of(table), priorities, 1, uniforms)


@kernel
def _obstacle(items: Items, number: Int, windows: NDArray[np.uint32], priorities: NDArray[np.float64]) -> Int:
    """What the arrays lack for the next item: DONE if nothing."""
    ring = items.ring
    shape = number if windows.shape[0] > 1 else 0
    if windows[shape, REAL] + windows[shape, INVENTED] != 1:
        ring[HAS_SEQUENCES] = 1
    if not items.windows.shape[0]:
        common = items.common_window
        if ring[LIVE] == 0:
            for word in range(WINDOW_WORDS):
                common[word] = windows[shape, word]
        for word in range(WINDOW_WORDS):
            if common[word] != windows[shape, word]:
                return NO_WINDOWS
    if not items.priorities.shape[0]:
        priority = priorities[number if priorities.shape[0] > 1 else 0]
        if ring[LIVE] == 0:
            items.common[PRIORITY_OF_ALL] = priority
        if items.common[PRIORITY_OF_ALL] != priority:
            return NO_PRIORITIES
    return DONE


@kernel
def _is_run(
    items: Items,
    rows: NDArray[np.int64],
    windows: NDArray[np.uint32],
    priorities: NDArray[np.float64],
    leaving: Int,
) -> Bool:
    """Whether these items, which let so many leave, differ in their keys and rows alone, and all there is of the table
    is its ring, without holes: no selector keeps anything of an item, and nothing has to survive the process.
    """
    ring, count, capacity = items.ring, rows.shape[0], items.rows.shape[0]
    return (
        count > 0
        and items.remover.kind == FIFO
        and items.sampler.kind in (FIFO, LIFO, UNIFORM)
        and items.journal.shape[0] == 0
        and ring[SPAN] == ring[LIVE]
        and leaving <= ring[LIVE]
        and ring[LIVE] - leaving + count <= capacity
        and items.windows.shape[0] == 0
        and items.priorities.shape[0] == 0
        and windows.shape[0] == 1
        and priorities.shape[0] == 1
        and _obstacle(items, 0, windows, priorities) == DONE
    )


@kernel
def _insert_run(
    store: StoreArrays, items: Items, first_key: Int, rows: NDArray[np.int64], pins: Int, leaving: Int
) -> None:
    """What `insert` comes to for a run (`_is_run`): the oldest leave, the new ones go in behind the newest."""
    ring, capacity, page_rows = items.ring, items.rows.shape[0], store.page_rows
    real, lookahead = np.int64(items.common_window[REAL]), np.int64(items.common_window[LOOKAHEAD])
    # Neighbours mostly stand in one page, and a division takes longer than all the rest.
    page: Int = 0
    first: Int = 0
    stop: Int = 0
    held = 0
    slot: Int = ring[FIRST]
    for _ in range(leaving):
        row = np.int64(items.rows[slot])
        if real != 1 or lookahead != 0:
            pin_rows(store, row, real, lookahead, -1)
        else:
            if not first <= row < stop:
                if held:
                    pin_page(store, page, -held)
                page, held = row // page_rows, 0
                first, stop = page * page_rows, (page + 1) * page_rows
            held += 1
        items.rows[slot] = DEAD
        slot = slot + 1 if slot + 1 < capacity else 0
    if held:
        pin_page(store, page, -held)
    ring[FIRST] = slot
    ring[SPAN] -= leaving
    slot = slot_at(items, ring[SPAN])
    for number in range(rows.shape[0]):
        row = rows[number]
        items.keys[slot] = np.uint64(first_key + number)
        items.rows[slot] = row
        items.times[slot] = 0
        if pins:
            if not first <= row < stop:
                page = row // page_rows
                first, stop = page * page_rows, (page + 1) * page_rows
            store.pages[page, REFERENCES] += pins
        slot = slot + 1 if slot + 1 < capacity else 0
    ring[SPAN] += rows.shape[0]
    ring[LIVE] = ring[SPAN]


@kernel
def _append(
    items: Items,
    first_key: Int,
    number: Int,
    rows: NDArray[np.int64],
    windows: NDArray[np.uint32],
    priorities: NDArray[np.float64],
) -> Int:
    ring = items.ring
    slot = slot_at(items, ring[SPAN])
    remember(items, slot)
    ring[SPAN] += 1
    ring[LIVE] += 1
    items.keys[slot] = np.uint64(first_key + number)
    items.rows[slot] = rows[number]
    items.times[slot] = 0
    if items.priorities.shape[0]:
        items.priorities[slot] = priorities[number if priorities.shape[0] > 1 else 0]
    if items.windows.shape[0]:
        for word in range(WINDOW_WORDS):
            items.windows[slot, word] = windows[number if windows.shape[0] > 1 else 0, word]
    if items.touches.shape[0]:
        items.touches[slot] = ring[TOUCHES]
        ring[TOUCHES] += 1
    index_insert(items, items.sampler, slot)
    index_insert(items, items.remover, slot)
    return slot
