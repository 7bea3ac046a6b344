"""Items leave and get other priorities, a whole batch a call."""

from __future__ import annotations

import cython

if not cython.compiled:
    from headrace.kernels.hints import prefetch
    from headrace.kernels.kinds import (
        Bool,
        Float,
        GivenDoubles,
        GivenLongs,
        GivenUIntTable,
        GivenULongs,
        Int,
        Longs,
        ULong,
    )
    from headrace.store.layout import AHEAD
    from headrace.store.pages.pinning import Pins
    from headrace.tables.items.items import Items, is_priority
    from headrace.tables.items.layout import (
        CHANGES,
        DEAD,
        FIRST,
        HEAP,
        LARGEST_PRIORITY,
        LOOKAHEAD,
        PRIORITIZED,
        REAL,
        RECORD_ROW,
        RECORD_WORDS,
        SPAN,
        WINDOW_WORDS,
    )


def remove(items: Items, slots: Longs) -> None:
    """Removes items; each slot has one, and is named once."""
    with cython.nogil:
        for index in range(slots.shape[0]):
            items.remove_slot(slots[index])
        items.sampler.refresh(slots, 0, slots.shape[0])
        items.remover.refresh(slots, 0, slots.shape[0])


def unpin_items(pins: Pins, rows: GivenLongs, windows: GivenUIntTable) -> None:
    """Releases the pages of items that will be in no table.

    Args:
        pins: of the store.
        rows: int64[M], the first of each.
        windows: uint32[M, WINDOW_WORDS], or uint32[1, WINDOW_WORDS] for all.
    """
    if windows.shape[0] not in (1, rows.shape[0]) or windows.shape[1] != WINDOW_WORDS:
        raise ValueError(f"windows: expected 1 or {rows.shape[0]}, got {windows.shape[0]}")
    for index in range(rows.shape[0]):
        window: Int = index if windows.shape[0] > 1 else 0
        real = cython.cast(Int, windows[window, REAL])
        pins.pin_rows(rows[index], real, cython.cast(Int, windows[window, LOOKAHEAD]), -1)


def find_keys(items: Items, keys: GivenULongs, slots: Longs) -> int:
    """Writes the slots of the keys that have an item, one for each entry; returns their number.

    Args:
        slots: int64[M], as long as `keys`, written.
    """
    if slots.shape[0] < keys.shape[0]:
        raise ValueError(f"slots: expected {keys.shape[0]} or more, got {slots.shape[0]}")
    found: Int = 0
    with cython.nogil:
        for index in range(keys.shape[0]):
            slot: Int = items.find_slot(keys[index])
            if slot >= 0:
                slots[found] = slot
                found += 1
    return found


def update(items: Items, keys: GivenULongs, priorities: GivenDoubles) -> int:
    """Sets priorities; of two entries for one key the last wins. Items have priorities of their own.

    Returns:
        How many entries named an item; -1 if a priority is negative or not finite, and nothing has changed.
    """
    # Rules: replay P1, P2
    if keys.shape[0] != priorities.shape[0] or items.priorities.shape[0] == 0:
        raise ValueError(f"priorities: expected {keys.shape[0]}, got {priorities.shape[0]}")
    items.provide_scratch(keys.shape[0])
    with cython.nogil:
        found = _update(items, keys, priorities)
    return found


def _update(items: Items, keys: GivenULongs, priorities: GivenDoubles) -> Int:
    if not _are_priorities(priorities):
        return -1
    if items.ring[SPAN] == 0:
        # A slot where no item ever stood looks like one with key 0 (test_no_key_is_found_where_no_item_is_left).
        return 0
    _likely_slots(items, keys)
    remover = items.remover.kind
    largest: Float = items.ring_floats[LARGEST_PRIORITY]
    found: Int = 0
    for index in range(keys.shape[0]):
        likely: Int = items.changed[min(index + AHEAD, keys.shape[0] - 1)]
        prefetch(items.records, RECORD_WORDS * likely)
        prefetch(items.priorities, likely)
        prefetch(items.sampler.tree.nodes, likely)
        slot: Int = items.changed[index]
        if items.keys[2 * slot] != keys[index] or items.records[RECORD_WORDS * slot + RECORD_ROW] == DEAD:
            slot = items.find_slot(keys[index])
            if slot < 0:
                continue
        items.changed[found] = slot
        found += 1
        if items.journal.shape[0]:
            items.remember(slot)
        items.priorities[slot] = priorities[index]
        largest = max(largest, priorities[index])
        if items.last_updates.shape[0]:
            items.last_updates[slot] = items.ring[CHANGES]
            items.ring[CHANGES] += 1
        items.sampler.update(slot, priorities[index])
        if remover == PRIORITIZED or remover == HEAP:
            items.remover.update(slot, priorities[index])
    items.ring_floats[LARGEST_PRIORITY] = largest
    items.sampler.refresh(items.changed, 0, found)
    items.remover.refresh(items.changed, 0, found)
    return found


def _are_priorities(priorities: GivenDoubles) -> Bool:
    for index in range(priorities.shape[0]):
        if not is_priority(priorities[index]):
            return False
    return True


def _likely_slots(items: Items, keys: GivenULongs) -> None:
    """Writes the slots of keys that rise evenly along the ring; the oldest item's for a key outside the ring.

    Whether a key stands there is not known yet. There must be an item.
    """
    first: Int = items.ring[FIRST]
    last: Int = items.ring[SPAN] - 1
    low: ULong = items.key_of(first)
    high: ULong = items.key_of(items.slot_at(last))
    slots_per_key: Float = 0.0
    if high > low:
        slots_per_key = cython.cast(Float, last) / cython.cast(Float, high - low)
    for index in range(keys.shape[0]):
        key: ULong = keys[index]
        slot: Int = first
        if low <= key <= high:
            slot += cython.cast(Int, cython.cast(Float, key - low) * slots_per_key)
        slot = slot - items.capacity if slot >= items.capacity else slot
        items.changed[index] = slot
        if index < AHEAD:
            prefetch(items.records, RECORD_WORDS * slot)
            prefetch(items.priorities, slot)
            prefetch(items.sampler.tree.nodes, slot)
