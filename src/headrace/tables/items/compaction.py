"""Moving items to other arrays, and rebuilding their indexes."""

from __future__ import annotations

import cython

if not cython.compiled:
    from headrace.kernels.kinds import Int
    from headrace.tables.items.items import Items
    from headrace.tables.items.layout import (
        CHANGES,
        FIRST,
        FLAGS,
        HAS_KEY_INDEX,
        LIVE,
        PRIORITY_OF_ALL,
        RECORD_ROW,
        RECORD_TIMES,
        RECORD_WORDS,
        REMOVER_KIND,
        RING_WORDS,
        SAMPLER_KIND,
        SPAN,
        WINDOW_WORDS,
    )


def move_items(old: Items, new: Items) -> None:
    """Copies the items of a ring, in their order, to an empty ring that is large enough."""
    if new.capacity < old.ring[LIVE]:
        raise ValueError(f"expected slots for {old.ring[LIVE]} items, got {new.capacity}")
    with cython.nogil:
        _copy_ring(old, new, _copy_items(old, new))
        new.fill(new.sampler)
        new.fill(new.remover)
    if new.ring[FLAGS] & HAS_KEY_INDEX:
        new.use_key_index()


def _copy_items(old: Items, new: Items) -> Int:
    """Copies the items that are there side by side; returns their number."""
    place: Int = 0
    for number in range(old.ring[SPAN]):
        slot: Int = old.slot_at(number)
        if old.is_dead(slot):
            continue
        new.keys[2 * place] = old.keys[2 * slot]
        for word in range(RECORD_ROW, RECORD_TIMES + 1):
            new.records[RECORD_WORDS * place + word] = old.records[RECORD_WORDS * slot + word]
        if new.priorities.shape[0]:
            new.priorities[place] = old.priority_of(slot)
        if new.windows.shape[0]:
            for word in range(WINDOW_WORDS):
                new.windows[WINDOW_WORDS * place + word] = old.window_of(slot, word)
        if new.last_updates.shape[0]:
            # Where nothing asked for last_updates before, their order is that of insertion.
            new.last_updates[place] = old.last_updates[slot] if old.last_updates.shape[0] else place
        place += 1
    return place


def _copy_ring(old: Items, new: Items, count: Int) -> None:
    """Copies the words that hold for all items; there are `count` of them."""
    for word in range(RING_WORDS):
        if word != SAMPLER_KIND and word != REMOVER_KIND:
            new.ring[word] = old.ring[word]
    new.ring[FIRST] = 0
    new.ring[SPAN] = count
    new.ring[LIVE] = count
    if new.last_updates.shape[0] and not old.last_updates.shape[0]:
        new.ring[CHANGES] = count
    new.common[PRIORITY_OF_ALL] = old.common[PRIORITY_OF_ALL]
    for word in range(WINDOW_WORDS):
        new.common_window[word] = old.common_window[word]


def reindex(items: Items) -> None:
    """Fills the empty indexes of both selectors."""
    with cython.nogil:
        items.fill(items.sampler)
        items.fill(items.remover)
