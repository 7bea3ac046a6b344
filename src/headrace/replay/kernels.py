"""What a table does to its items, a whole batch a call: insert, draw, update, remove."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from headrace.replay.item_memory import open_items
from headrace.replay.items import (
    DEAD,
    FIFO,
    FIRST,
    HAS_SEQUENCES,
    HEAP,
    INVENTED,
    LIFO,
    LIVE,
    PRIORITIZED,
    PRIORITY_OF_ALL,
    REAL,
    REMOVER_KIND,
    RING_WORDS,
    SAMPLER_KIND,
    SPAN,
    TOUCHES,
    UNIFORM,
    UNIQUE,
    WINDOW_WORDS,
    Index,
    Items,
    Scratch,
    ask_for,
    find_slot,
    index_insert,
    index_refresh,
    index_update,
    likely_slot,
    priority_of,
    remove_slot,
    slot_at,
    window_of,
)
from headrace.replay.journal import remember
from headrace.replay.sum_tree import find, rebuild, total
from headrace.store.commit import commit_step
from headrace.store.jit import Float, Int, kernel, prefetch
from headrace.store.layout import REFERENCES, StoreArrays
from headrace.store.memory import open_store

# Why `insert` stopped.
DONE, NO_SLOT, NO_NUMBERS, NO_SCRATCH, NO_WINDOWS, NO_PRIORITIES = range(6)

# The rows of a draw's integers and floats.
SLOT, TIMES, SIZE, ROW = range(4)
PROBABILITY, PRIORITY = range(2)


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
    """Insert items; whenever there are too many the remover takes a victim (replay T5).

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
    ring = items.ring
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
def insert_into(
    memory: NDArray[np.uint8],
    places: NDArray[np.int64],
    page_rows: Int,
    item_memory: NDArray[np.uint8],
    item_places: NDArray[np.int64],
    first_key: Int,
    rows: NDArray[np.int64],
    windows: NDArray[np.uint32],
    priorities: NDArray[np.float64],
    pins: Int,
    max_size: Int,
    uniforms: NDArray[np.float64],
    changed: NDArray[np.int64],
    parents: NDArray[np.int64],
    slot: NDArray[np.int64],
    chance: NDArray[np.float64],
) -> tuple[Int, Int, Int]:
    """`insert`, quick to call: the arrays are carved from their memory here."""
    return insert(
        open_store(memory, places, page_rows),
        open_items(item_memory, item_places),
        first_key,
        rows,
        windows,
        priorities,
        pins,
        max_size,
        uniforms,
        Scratch(changed, parents, slot, chance),
    )


@kernel
def append_step(
    memory: NDArray[np.uint8],
    places: NDArray[np.int64],
    page_rows: Int,
    item_memory: NDArray[np.uint8],
    item_places: NDArray[np.int64],
    page: Int,
    row: Int,
    lane_steps: NDArray[np.uint32],
    episodes: NDArray[np.int64],
    next_episode: NDArray[np.int64],
    newest: NDArray[np.int64],
    first_key: Int,
    windows: NDArray[np.uint32],
    priorities: NDArray[np.float64],
    max_size: Int,
    uniforms: NDArray[np.float64],
    changed: NDArray[np.int64],
    parents: NDArray[np.int64],
    slot: NDArray[np.int64],
    chance: NDArray[np.float64],
) -> tuple[Int, Int, Int]:
    """`commit.commit_step`, and `insert` of an item for each of its rows: the way of most steps, in one call."""
    store = open_store(memory, places, page_rows)
    commit_step(store, page, row, lane_steps, episodes, next_episode, newest)
    items = open_items(item_memory, item_places)
    scratch = Scratch(changed, parents, slot, chance)
    return insert(store, items, first_key, newest, windows, priorities, 1, max_size, uniforms, scratch)


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


@kernel
def remove(store: StoreArrays, items: Items, slots: NDArray[np.int64], scratch: Scratch) -> None:
    """Take items out."""
    for index in range(slots.shape[0]):
        remove_slot(store, items, slots[index])
    index_refresh(items.sampler, slots, slots.shape[0], scratch)
    index_refresh(items.remover, slots, slots.shape[0], scratch)


@kernel
def find_keys(items: Items, keys: NDArray[np.uint64], slots: NDArray[np.int64]) -> Int:
    """The slots of the keys that are there, one for each entry; returns how many."""
    found = 0
    for index in range(keys.shape[0]):
        slot = find_slot(items, keys[index])
        if slot >= 0:
            slots[found] = slot
            found += 1
    return found


@kernel
def update(items: Items, keys: NDArray[np.uint64], priorities: NDArray[np.float64], scratch: Scratch) -> Int:
    """Set priorities; of two entries for one key the last wins (replay P2).

    Returns:
        How many entries named an item; -1 if a priority is negative or not finite, and nothing has changed (replay P1).
    """
    for index in range(priorities.shape[0]):
        if not 0.0 <= priorities[index] < np.inf:
            return -1
    slots = scratch.changed
    found = 0
    for index in range(keys.shape[0]):
        slot = likely_slot(items, keys[index])
        ask_for(items, slot)
        prefetch(items.sampler.nodes, slot)
    for index in range(keys.shape[0]):
        slot = find_slot(items, keys[index])
        if slot < 0:
            continue
        slots[found] = slot
        found += 1
        remember(items, slot)
        items.priorities[slot] = priorities[index]
        if items.touches.shape[0]:
            items.touches[slot] = items.ring[TOUCHES]
            items.ring[TOUCHES] += 1
        index_update(items, items.sampler, slot)
        index_update(items, items.remover, slot)
    index_refresh(items.sampler, slots, found, scratch)
    index_refresh(items.remover, slots, found, scratch)
    return found


@kernel
def update_in(
    item_memory: NDArray[np.uint8],
    item_places: NDArray[np.int64],
    keys: NDArray[np.uint64],
    priorities: NDArray[np.float64],
    changed: NDArray[np.int64],
    parents: NDArray[np.int64],
    slot: NDArray[np.int64],
    chance: NDArray[np.float64],
) -> Int:
    """`update`, quick to call: the arrays are carved from their memory here."""
    items = open_items(item_memory, item_places)
    return update(items, keys, priorities, Scratch(changed, parents, slot, chance))


@kernel
def choose(
    items: Items,
    index: Index,
    uniforms: NDArray[np.float64],
    slots: NDArray[np.int64],
    chances: NDArray[np.float64],
) -> Int:
    """Pick slots without taking them; each pick sees the same items.

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
            ask_for(items, slots[place])
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
    for place in range(uniforms.shape[0]):
        prefetch(items.rows, _slot_of(items, uniforms[place]))
    chance = 1.0 / ring[LIVE]
    picked = 0
    for place in range(uniforms.shape[0]):
        slot = _slot_of(items, uniforms[place])
        if items.rows[slot] != DEAD:
            slots[picked] = slot
            chances[picked] = chance
            picked += 1
            if picked == count:
                break
    return picked


@kernel
def _slot_of(items: Items, uniform: Float) -> Int:
    """The slot that a number in [0, 1) falls on."""
    span = items.ring[SPAN]
    return slot_at(items, min(np.int64(uniform * span), span - 1))


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
    ring = items.ring
    if items.journal.shape[0]:
        for place in range(start, stop):
            remember(items, integers[SLOT, place])
    size = ring[LIVE]
    for place in range(start, stop):
        slot = integers[SLOT, place]
        times = np.int64(items.times[slot]) + 1
        items.times[slot] = times
        if times == 1:
            ring[UNIQUE] += 1
        keys[place] = items.keys[slot]
        integers[TIMES, place] = times
        integers[SIZE, place] = size
        integers[ROW, place] = items.rows[slot]
        floats[PRIORITY, place] = priority_of(items, slot)


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
    item_memory: NDArray[np.uint8],
    item_places: NDArray[np.int64],
    start: Int,
    uniforms: NDArray[np.float64],
    keys: NDArray[np.uint64],
    integers: NDArray[np.int64],
    floats: NDArray[np.float64],
) -> Int:
    """`draw`, quick to call: the arrays are carved from their memory here."""
    return draw(open_items(item_memory, item_places), start, uniforms, keys, integers, floats)


@kernel
def draw_and_remove(
    store: StoreArrays,
    items: Items,
    max_times: Int,
    start: Int,
    uniforms: NDArray[np.float64],
    keys: NDArray[np.uint64],
    integers: NDArray[np.int64],
    floats: NDArray[np.float64],
    windows: NDArray[np.uint32],
    scratch: Scratch,
) -> tuple[Int, Int]:
    """As `draw`, one after the other: an item that was sampled `max_times` times is gone for the next draw (replay L5).

    Args:
        windows: uint32[B, 3], written where the table has windows: an item that leaves takes its own along.

    Returns:
        How many are drawn now, and how many items left.
    """
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
    return start, removed


@kernel
def supply(items: Items, max_times: Int) -> Int:
    """How many more samples the items of a table with `max_times_sampled` allow (replay L6)."""
    left = 0
    for place in range(items.ring[SPAN]):
        slot = slot_at(items, place)
        if items.rows[slot] != DEAD:
            left += max_times - np.int64(items.times[slot])
    return left


@kernel
def move_items(old: Items, new: Items) -> None:
    """Put the items of a ring, in their order, into an empty one with room for them."""
    place = 0
    for number in range(old.ring[SPAN]):
        slot = slot_at(old, number)
        if old.rows[slot] == DEAD:
            continue
        new.keys[place] = old.keys[slot]
        new.rows[place] = old.rows[slot]
        new.times[place] = old.times[slot]
        if new.priorities.shape[0]:
            new.priorities[place] = priority_of(old, slot)
        if new.windows.shape[0]:
            for word in range(WINDOW_WORDS):
                new.windows[place, word] = window_of(old, slot, word)
        if new.touches.shape[0]:
            # Where nothing asked for touches before, their order is that of insertion.
            new.touches[place] = old.touches[slot] if old.touches.shape[0] else place
        place += 1
    new.ring[FIRST] = 0
    new.ring[SPAN] = place
    new.ring[LIVE] = place
    for word in range(RING_WORDS):
        if word not in (FIRST, SPAN, LIVE, SAMPLER_KIND, REMOVER_KIND):
            new.ring[word] = old.ring[word]
    if new.touches.shape[0] and not old.touches.shape[0]:
        new.ring[TOUCHES] = place
    new.common[PRIORITY_OF_ALL] = old.common[PRIORITY_OF_ALL]
    for word in range(WINDOW_WORDS):
        new.common_window[word] = old.common_window[word]
    reindex(new)


@kernel
def reindex(items: Items) -> None:
    """Fill the empty indexes of both selectors."""
    if items.sampler.kind not in (PRIORITIZED, HEAP) and items.remover.kind not in (PRIORITIZED, HEAP):
        return
    for place in range(items.ring[SPAN]):
        slot = slot_at(items, place)
        if items.rows[slot] != DEAD:
            index_insert(items, items.sampler, slot)
            index_insert(items, items.remover, slot)
    if items.sampler.kind == PRIORITIZED:
        rebuild(items.sampler.nodes, items.sampler.levels)
    if items.remover.kind == PRIORITIZED:
        rebuild(items.remover.nodes, items.remover.levels)


@kernel
def live_slots(items: Items, slots: NDArray[np.int64]) -> None:
    """Write the slots of all items, in the order of insertion, to int64[number of items]."""
    count = 0
    for place in range(items.ring[SPAN]):
        slot = slot_at(items, place)
        if items.rows[slot] != DEAD:
            slots[count] = slot
            count += 1
