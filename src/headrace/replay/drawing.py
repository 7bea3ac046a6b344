"""Items are drawn, a whole batch a call."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from headrace.replay.items import (
    DEAD,
    FIFO,
    FIRST,
    HEAP,
    LIFO,
    LIVE,
    PRIORITIZED,
    PRIORITY_OF_ALL,
    SPAN,
    UNIFORM,
    UNIQUE,
    WINDOW_WORDS,
    Index,
    Items,
    ask_for,
    index_refresh,
    remove_slot,
    slot_at,
)
from headrace.replay.journal import remember
from headrace.replay.sum_tree import find, total
from headrace.replay.table_handles import count_sampled, open_items_of, open_scratch_of, open_store_of
from headrace.store.intrinsics import AHEAD, prefetch
from headrace.store.jit import Float, Int, kernel, kernel_apart, unsigned

# The rows of a draw's integers and floats.
SLOT, TIMES, SIZE, ROW = range(4)
PROBABILITY, PRIORITY = range(2)


@kernel
def choose(
    items: Items,
    index: Index,
    uniforms: NDArray[np.float64],
    slots: NDArray[np.int64],
    chances: NDArray[np.float64],
) -> Int:
    """Pick slots without taking them; each pick sees the same items.

    Args:
        uniforms: in [0, 1), overwritten.

    Returns:
        How many were picked: fewer than `slots` has room for, if the uniform numbers ran out on slots whose item left.
    """
    count = slots.shape[0]
    ring = items.ring
    if index.kind == PRIORITIZED and total(index.nodes) > 0.0:
        if uniforms.shape[0] < count:
            return 0
        find(index.nodes, index.levels, uniforms, slots)
        whole = total(index.nodes)
        for place in range(count):
            chances[place] = index.nodes[slots[place]] / whole
        return count
    if index.kind == FIFO or index.kind == LIFO or index.kind == HEAP:
        if index.kind == HEAP:
            slot = index.heap.slots[0]
        else:
            slot = slot_at(items, 0 if index.kind == FIFO else ring[SPAN] - 1)
        for place in range(count):
            slots[place] = slot
            chances[place] = 1.0
        return count
    return _choose_evenly(items.rows, ring[FIRST], ring[SPAN], 1.0 / ring[LIVE], uniforms, slots, chances)


@kernel_apart
def _choose_evenly(
    rows: NDArray[np.uint32],
    first: Int,
    span: Int,
    chance: Float,
    uniforms: NDArray[np.float64],
    slots: NDArray[np.int64],
    chances: NDArray[np.float64],
) -> Int:
    """Pick the slots that the numbers in [0, 1) fall on, which they overwrite, but those whose item left."""
    capacity = rows.shape[0]
    found = uniforms.view(np.int64)
    for place in range(found.shape[0]):
        slot = first + min(np.int64(uniforms[place] * span), span - 1)
        slot = slot - capacity if slot >= capacity else slot
        found[place] = slot
        prefetch(rows, slot)
    picked = 0
    for place in range(found.shape[0]):
        slot = unsigned(found[place])
        if rows[slot] != DEAD:
            slots[unsigned(picked)] = slot
            chances[unsigned(picked)] = chance
            picked += 1
            if picked == slots.shape[0]:
                break
    return picked


@kernel
def take(
    items: Items,
    start: Int,
    stop: Int,
    keys: NDArray[np.uint64],
    integers: NDArray[np.int64],
    floats: NDArray[np.float64],
) -> None:
    """Count the slots of the draws `start:stop` as sampled and tell what is known of them.

    Args:
        keys: uint64[B], written.
        integers: int64[4, B]: the slots are there; times sampled, size of the table and first row are written.
        floats: float64[2, B]: the probability is there; the priority is written.
    """
    if items.journal.shape[0]:
        for place in range(start, stop):
            remember(items, integers[SLOT, place])
    ring, drawn, priority = items.ring, integers[:, start:stop], floats[PRIORITY, start:stop]
    drawn[SIZE] = ring[LIVE]
    ring[UNIQUE] += _count(items, drawn[SLOT], keys[start:stop], drawn[TIMES], drawn[ROW])
    if items.priorities.shape[0] == 0:
        priority[:] = items.common[PRIORITY_OF_ALL]
        return
    for place in range(stop - start):
        priority[place] = items.priorities[unsigned(drawn[SLOT, place])]


@kernel_apart
def _count(
    items: Items,
    slots: NDArray[np.int64],
    keys: NDArray[np.uint64],
    times: NDArray[np.int64],
    rows: NDArray[np.int64],
) -> Int:
    """Count slots as sampled; writes their keys, times sampled and first rows. Returns how many never were before."""
    fresh = 0
    last = slots.shape[0] - 1
    for place in range(slots.shape[0]):
        ask_for(items, slots[unsigned(min(place + AHEAD, last))])
        slot = unsigned(slots[place])
        count = np.int64(items.times[slot]) + 1
        items.times[slot] = count
        fresh += count == 1
        keys[place] = items.keys[slot]
        times[place] = count
        rows[place] = items.rows[slot]
    return fresh


@kernel
def draw(
    items: Items,
    start: Int,
    uniforms: NDArray[np.float64],
    keys: NDArray[np.uint64],
    integers: NDArray[np.int64],
    floats: NDArray[np.float64],
) -> Int:
    """Choose and take the draws from `start` on, none of which removes an item. Returns how many are drawn now.

    It is fewer than the batch has room for if the random numbers ran out (see `choose`).
    """
    picked = choose(items, items.sampler, uniforms, integers[SLOT, start:], floats[PROBABILITY, start:])
    take(items, start, start + picked, keys, integers, floats)
    return start + picked


@kernel
def draw_from(
    table: NDArray[np.int64],
    start: Int,
    uniforms: NDArray[np.float64],
    keys: NDArray[np.uint64],
    integers: NDArray[np.int64],
    floats: NDArray[np.float64],
) -> Int:
    """`draw`, quick to call, counted by the table.

    Args:
        table: handles of the table (`table_handles`).
    """
    drawn = draw(open_items_of(table), start, uniforms, keys, integers, floats)
    count_sampled(table, drawn - start)
    return drawn


@kernel
def take_from(
    table: NDArray[np.int64],
    start: Int,
    stop: Int,
    keys: NDArray[np.uint64],
    integers: NDArray[np.int64],
    floats: NDArray[np.float64],
) -> None:
    """`take`, quick to call, counted by the table.

    Args:
        table: handles of the table (`table_handles`).
    """
    take(open_items_of(table), start, stop, keys, integers, floats)
    count_sampled(table, stop - start)


@kernel
def draw_and_remove(
    table: NDArray[np.int64],
    max_times: Int,
    start: Int,
    uniforms: NDArray[np.float64],
    keys: NDArray[np.uint64],
    integers: NDArray[np.int64],
    floats: NDArray[np.float64],
    windows: NDArray[np.uint32],
) -> tuple[Int, Int]:
    """As `draw_from`, one after the other: an item that was sampled `max_times` times is gone for the next draw.

    Args:
        table: handles of the table (`table_handles`).
        windows: uint32[B, 3], written where the table has windows: an item that leaves takes its own along.

    Returns:
        How many are drawn now, and how many items left.
    """
    # Rules: replay L5
    store, items, scratch = open_store_of(table), open_items_of(table), open_scratch_of(table)
    first = start
    removed = used = 0
    draws = items.sampler.kind == PRIORITIZED or items.sampler.kind == UNIFORM
    while start < keys.shape[0] and items.ring[LIVE] > 0 and not (draws and used >= uniforms.shape[0]):
        slot = integers[SLOT, start : start + 1]
        chance = floats[PROBABILITY, start : start + 1]
        picked = choose(items, items.sampler, uniforms[used : used + 1], slot, chance)
        used += 1
        if picked == 0:
            continue
        take(items, start, start + 1, keys, integers, floats)
        if items.windows.shape[0]:
            for word in range(WINDOW_WORDS):
                windows[start, word] = items.windows[slot[0], word]
        if integers[TIMES, start] >= max_times:
            remove_slot(store, items, slot[0])
            index_refresh(items.sampler, slot, 1, scratch)
            index_refresh(items.remover, slot, 1, scratch)
            removed += 1
        start += 1
    count_sampled(table, start - first)
    return start, removed


@kernel
def supply(items: Items, max_times: Int) -> Int:
    """How many more samples the items of a table with `max_times_sampled` allow."""
    # Rules: replay L6
    left = 0
    for place in range(items.ring[SPAN]):
        slot = slot_at(items, place)
        if items.rows[slot] != DEAD:
            left += max_times - np.int64(items.times[slot])
    return left
