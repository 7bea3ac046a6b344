"""Items leave and get other priorities, a whole batch a call."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from headrace.replay.items import (
    DEAD,
    SPAN,
    TOUCHES,
    Items,
    Scratch,
    ask_for,
    find_slot,
    index_refresh,
    index_update,
    likely_slots,
    remove_slot,
)
from headrace.replay.journal import remember
from headrace.replay.table_handles import open_items_of, open_scratch_of
from headrace.store.intrinsics import AHEAD, prefetch
from headrace.store.jit import Int, kernel, unsigned
from headrace.store.layout import StoreArrays


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
    """Set priorities; of two entries for one key the last wins.

    Returns:
        How many entries named an item; -1 if a priority is negative or not finite, and nothing has changed.
    """
    # Rules: replay P1, P2
    for index in range(priorities.shape[0]):
        if not 0.0 <= priorities[index] < np.inf:
            return -1
    if items.ring[SPAN] == 0:
        # A slot where no item ever stood looks like one with key 0 (test_no_key_is_found_where_no_item_is_left).
        return 0
    slots = scratch.changed
    likely_slots(items, keys, slots)
    found = 0
    for index in range(keys.shape[0]):
        likely = slots[unsigned(min(index + AHEAD, keys.shape[0] - 1))]
        ask_for(items, likely)
        prefetch(items.sampler.nodes, likely)
        slot = slots[index]
        if items.keys[unsigned(slot)] != keys[index] or items.rows[unsigned(slot)] == DEAD:
            slot = find_slot(items, keys[index])
            if slot < 0:
                continue
        slots[unsigned(found)] = slot
        found += 1
        remember(items, slot)
        items.priorities[unsigned(slot)] = priorities[index]
        if items.touches.shape[0]:
            items.touches[slot] = items.ring[TOUCHES]
            items.ring[TOUCHES] += 1
        index_update(items, items.sampler, slot)
        index_update(items, items.remover, slot)
    index_refresh(items.sampler, slots, found, scratch)
    index_refresh(items.remover, slots, found, scratch)
    return found


@kernel
def update_in(table: NDArray[np.int64], keys: NDArray[np.uint64], priorities: NDArray[np.float64]) -> Int:
    """`update`, quick to call.

    Args:
        table: handles of the table (`table_handles`).
    """
    return update(open_items_of(table), keys, priorities, open_scratch_of(table))
