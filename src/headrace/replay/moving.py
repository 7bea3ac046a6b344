"""Items move to larger arrays, and their indexes are made anew."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from headrace.replay.items import (
    DEAD,
    FIRST,
    HEAP,
    LIVE,
    PRIORITIZED,
    PRIORITY_OF_ALL,
    REMOVER_KIND,
    RING_WORDS,
    SAMPLER_KIND,
    SPAN,
    TOUCHES,
    WINDOW_WORDS,
    Items,
    index_insert,
    priority_of,
    slot_at,
    window_of,
)
from headrace.replay.sum_tree import rebuild
from headrace.store.jit import kernel


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
