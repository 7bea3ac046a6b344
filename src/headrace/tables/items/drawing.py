"""Items are drawn, a whole batch a call.

The arrays of a draw of B items:

* keys: uint64[B].
* integers: int64[4, B]: slot, times sampled, size of the table and first row, by the words of `layout`.
* probabilities, priorities: float64[B].
"""

from __future__ import annotations

import cython

if not cython.compiled:
    from headrace.kernels.hints import prefetch
    from headrace.kernels.kinds import Doubles, Float, Int, LongTable, UIntTable, ULongs
    from headrace.tables.indexes.sum_tree import SumTree
    from headrace.tables.items.items import Index, Items
    from headrace.tables.items.layout import (
        DEAD,
        FIFO,
        FIRST,
        HEAP,
        LIFO,
        LIVE,
        PRIORITIZED,
        PRIORITY_OF_ALL,
        RECORD_ROW,
        RECORD_TIMES,
        RECORD_WORDS,
        ROW,
        SAMPLED,
        SIZE,
        SLOT,
        SPAN,
        TIMES,
        UNIQUE,
        WINDOW_WORDS,
    )


# ---- one after the other ---------------------------------------------------------------------------------------------


def choose(items: Items, index: Index) -> tuple[int, float]:
    """Picks an item without counting it as sampled; returns its slot and its chance."""
    chance = choose_one(items, index, 0)
    return items.changed[0], chance


def choose_one(items: Items, index: Index, to: Int) -> Float:
    """Picks an item and writes its slot to `items.changed[to]`; returns its chance."""
    kind = index.kind
    if kind == FIFO or kind == LIFO or kind == HEAP:
        items.changed[to] = _end_slot(items, index)
        return 1.0
    if kind == PRIORITIZED:
        whole: Float = index.tree.total()
        if whole > 0.0:
            items.numbers.fill(items.uniforms, 0, 1)
            index.tree.find(items.uniforms, 0, items.changed, to, 1)
            chance: Float = index.tree.nodes[items.changed[to]] / whole
            return chance
    while _choose_evenly(items, to, 1) == 0:
        pass
    chance = 1.0 / items.ring[LIVE]
    return chance


def _end_slot(items: Items, index: Index) -> Int:
    """Returns the one slot that can be picked: the oldest, the newest, or the first of a heap."""
    if index.kind == HEAP:
        slot: Int = index.heap.slots[0]
        return slot
    return items.slot_at(0 if index.kind == FIFO else items.ring[SPAN] - 1)


def _choose_evenly(items: Items, begin: Int, count: Int) -> Int:
    """Picks the slots that the next numbers fall on, except those without an item; returns their number.

    They are written to `items.changed[begin : begin + count]`.
    """
    first: Int = items.ring[FIRST]
    span: Int = items.ring[SPAN]
    items.numbers.fill(items.uniforms, 0, count)
    for place in range(count):
        slot: Int = first + min(cython.cast(Int, items.uniforms[place] * span), span - 1)
        slot = slot - items.capacity if slot >= items.capacity else slot
        items.changed[begin + place] = slot
        prefetch(items.records, RECORD_WORDS * slot)
        prefetch(items.priorities, slot)
    picked: Int = 0
    for place in range(count):
        slot = items.changed[begin + place]
        # Written in any case, and kept if the item is there: without a jump, which could not be predicted.
        items.changed[begin + picked] = slot
        picked += cython.cast(Int, items.records[RECORD_WORDS * slot + RECORD_ROW] != DEAD)
    return picked


# ---- many ------------------------------------------------------------------------------------------------------------


def draw(
    items: Items, keys: ULongs, integers: LongTable, probabilities: Doubles, priorities: Doubles
) -> None:
    """Draws as many items as there are keys; all are drawn from the same items, and none is removed.

    Args:
        items: at least one.
        keys, integers, probabilities, priorities: written.
    """
    with cython.nogil:
        draw_all(items, keys, integers, probabilities, priorities)


def draw_all(
    items: Items, keys: ULongs, integers: LongTable, probabilities: Doubles, priorities: Doubles
) -> None:
    """See `draw`."""
    count = keys.shape[0]
    begin: Int = 0
    while begin < count:
        # Draws per round: few enough that prefetched data are still in a near cache when they are read.
        end: Int = begin + min(count - begin, items.uniforms.shape[0], items.changed.shape[0])
        end = begin + _choose_many(items, begin, end, integers, probabilities)
        _take(items, begin, end, keys, integers, priorities)
        begin = end


def _choose_many(items: Items, begin: Int, end: Int, integers: LongTable, probabilities: Doubles) -> Int:
    """Picks items for the draws `begin:end`; returns the number of draws, from the first on, that have one."""
    kind = items.sampler.kind
    if kind == PRIORITIZED and items.sampler.tree.total() > 0.0:
        _choose_by_priority(items, items.sampler.tree, begin, end, integers, probabilities)
        return end - begin
    if kind == FIFO or kind == LIFO or kind == HEAP:
        slot = _end_slot(items, items.sampler)
        for place in range(begin, end):
            integers[SLOT, place] = slot
            probabilities[place] = 1.0
        return end - begin
    picked = _choose_evenly(items, 0, end - begin)
    chance: Float = 1.0 / items.ring[LIVE]
    for place in range(picked):
        integers[SLOT, begin + place] = items.changed[place]
        probabilities[begin + place] = chance
    return picked


def _choose_by_priority(
    items: Items, tree: SumTree, begin: Int, end: Int, integers: LongTable, probabilities: Doubles
) -> None:
    whole: Float = tree.total()
    items.numbers.fill(items.uniforms, 0, end - begin)
    tree.find(items.uniforms, 0, items.changed, 0, end - begin)
    for place in range(begin, end):
        slot: Int = items.changed[place - begin]
        prefetch(items.records, RECORD_WORDS * slot)
        prefetch(items.priorities, slot)
        integers[SLOT, place] = slot
        probabilities[place] = tree.nodes[slot] / whole


def take(items: Items, begin: Int, end: Int, keys: ULongs, integers: LongTable, priorities: Doubles) -> None:
    """Counts the slots of the draws `begin:end`, which are set, as sampled; writes the other arrays.

    Args:
        items: of the slots.
        begin, end: of the draws.
        keys, integers, priorities: see above.
    """
    with cython.nogil:
        for place in range(begin, end):
            items.ask_for(integers[SLOT, place])
        _take(items, begin, end, keys, integers, priorities)


def _take(items: Items, begin: Int, end: Int, keys: ULongs, integers: LongTable, priorities: Doubles) -> None:
    if items.journal.shape[0]:
        for place in range(begin, end):
            items.remember(integers[SLOT, place])
    live: Int = items.ring[LIVE]
    for place in range(begin, end):
        integers[SIZE, place] = live
    items.ring[UNIQUE] += _count(items, begin, end, keys, integers)
    items.counters[SAMPLED] += end - begin
    if items.priorities.shape[0] == 0:
        priority: Float = items.common[PRIORITY_OF_ALL]
        for place in range(begin, end):
            priorities[place] = priority
        return
    for place in range(begin, end):
        priorities[place] = items.priorities[integers[SLOT, place]]


def _count(items: Items, begin: Int, end: Int, keys: ULongs, integers: LongTable) -> Int:
    """Counts slots as sampled; writes keys, times and rows. Returns the number of slots sampled for the first time."""
    fresh: Int = 0
    for place in range(begin, end):
        slot: Int = integers[SLOT, place]
        word = RECORD_WORDS * slot
        times = cython.cast(Int, items.records[word + RECORD_TIMES]) + 1
        items.records[word + RECORD_TIMES] = times
        fresh += cython.cast(Int, times == 1)
        keys[place] = items.keys[2 * slot]
        integers[TIMES, place] = times
        integers[ROW, place] = items.records[word + RECORD_ROW]
    return fresh


# ---- items that leave ------------------------------------------------------------------------------------------------


def draw_and_remove(
    items: Items,
    max_times: Int,
    keys: ULongs,
    integers: LongTable,
    probabilities: Doubles,
    priorities: Doubles,
    windows: UIntTable,
) -> None:
    """Draws like `draw`, one after the other: an item that was sampled `max_times` times is gone for the next draw.

    Args:
        items: they allow as many draws.
        max_times: as above.
        keys, integers, probabilities, priorities: written.
        windows: uint32[B, 3], written where the table has windows: an item that leaves takes its own along.
    """
    # Rules: replay L5
    with cython.nogil:
        for place in range(keys.shape[0]):
            if items.ring[LIVE] == 0:
                break
            probabilities[place] = choose_one(items, items.sampler, 0)
            slot: Int = items.changed[0]
            integers[SLOT, place] = slot
            _take(items, place, place + 1, keys, integers, priorities)
            if items.windows.shape[0]:
                for word in range(WINDOW_WORDS):
                    windows[place, word] = items.windows[WINDOW_WORDS * slot + word]
            if integers[TIMES, place] >= max_times:
                items.remove_slot(slot)
                items.sampler.refresh(items.changed, 0, 1)
                items.remover.refresh(items.changed, 0, 1)


def supply(items: Items, max_times: Int) -> int:
    """Returns the number of further samples that the items of a table with `max_times_sampled` allow."""
    # Rules: replay L6
    left: Int = 0
    with cython.nogil:
        for place in range(items.ring[SPAN]):
            slot: Int = items.slot_at(place)
            if not items.is_dead(slot):
                left += max_times - cython.cast(Int, items.records[RECORD_WORDS * slot + RECORD_TIMES])
    return left
