"""One stretch of memory that holds every array of a table's items.

A kernel is given the stretch and a list of places, and carves the arrays itself: numba takes 40 ns for each array that
it is given, and there are fifteen.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from headrace.replay.heap import Heap
from headrace.replay.items import (
    COMMON_WORDS,
    HEAP,
    PRIORITIZED,
    REMOVER_EXPONENT,
    REMOVER_KIND,
    REMOVER_SIGN,
    RING_WORDS,
    SAMPLER_EXPONENT,
    SAMPLER_KIND,
    SAMPLER_SIGN,
    WINDOW_WORDS,
    Index,
    Items,
)
from headrace.replay.selectors import Selector
from headrace.replay.sum_tree import tree_levels
from headrace.store.arena import Arena, ArenaLayout
from headrace.store.jit import opening

_LINE = 64


class ItemMemory(NamedTuple):
    """The arrays of a table, and what kernels are given to carve them from.

    Attributes:
        items: the arrays.
        memory: uint8[...], the whole stretch.
        places: int64[15, 2]: where each array begins and ends in it.
    """

    items: Items
    memory: NDArray[np.uint8]
    places: NDArray[np.int64]


def new_items(
    capacity: int, sampler: Selector, remover: Selector, *, with_windows: bool, with_priorities: bool
) -> ItemMemory:
    """Empty arrays for `capacity` items."""
    has_heap = HEAP in (sampler.kind, remover.kind)
    layout = ArenaLayout(alignment=_LINE)
    # Key, row and times of an item side by side: a draw reads all three, from one place of memory.
    layout.add("records", (capacity, 4), np.uint32)
    layout.add("priorities", (capacity if with_priorities else 0,), np.float64)
    layout.add("windows", ((capacity if with_windows else 0) * WINDOW_WORDS,), np.uint32)
    layout.add("touches", (capacity if has_heap else 0,), np.int64)
    layout.add("common", (COMMON_WORDS,), np.float64)
    layout.add("common_window", (WINDOW_WORDS,), np.uint32)
    layout.add("ring", (RING_WORDS,), np.int64)
    for role, selector in (("sampler", sampler), ("remover", remover)):
        _add_index(layout, role, selector, capacity)
    arena = Arena.private(layout.nbytes)
    memory: NDArray[np.uint8] = arena.array(0, (layout.nbytes,), np.uint8)  # type: ignore[assignment]
    spans = layout.spans()
    _begin(open_items(memory, spans), sampler, remover, capacity)
    # Opened anew: the kinds, exponents and signs are read when the arrays are carved.
    return ItemMemory(open_items(memory, spans), memory, spans)


def _add_index(layout: ArenaLayout, role: str, selector: Selector, capacity: int) -> None:
    levels = tree_levels(capacity) if selector.kind == PRIORITIZED else np.zeros(0, np.int64)
    layout.add(f"{role}_nodes", (int(levels[-1]) + 1 if len(levels) else 0,), np.float64)
    layout.add(f"{role}_levels", (len(levels),), np.int64)
    slots = capacity if selector.kind == HEAP else 0
    layout.add(f"{role}_heap_slots", (slots + 1,), np.int64)
    layout.add(f"{role}_heap_places", (slots,), np.int64)


def _begin(items: Items, sampler: Selector, remover: Selector, capacity: int) -> None:
    items.ring[SAMPLER_KIND], items.ring[REMOVER_KIND] = sampler.kind, remover.kind
    items.common[SAMPLER_EXPONENT], items.common[REMOVER_EXPONENT] = sampler.exponent, remover.exponent
    items.common[SAMPLER_SIGN], items.common[REMOVER_SIGN] = sampler.sign, remover.sign
    for index, selector in ((items.sampler, sampler), (items.remover, remover)):
        if selector.kind == PRIORITIZED:
            index.levels[:] = tree_levels(capacity)


@opening
def open_items(memory: NDArray[np.uint8], places: NDArray[np.int64]) -> Items:
    """Carve the arrays of a table from its memory."""
    ring = memory[places[6, 0] : places[6, 1]].view(np.int64)
    common = memory[places[4, 0] : places[4, 1]].view(np.float64)
    records = memory[places[0, 0] : places[0, 1]]
    halves = records.view(np.uint32)
    return Items(
        records.view(np.uint64)[0::2],
        halves[2::4],
        halves[3::4],
        memory[places[1, 0] : places[1, 1]].view(np.float64),
        memory[places[2, 0] : places[2, 1]]
        .view(np.uint32)
        .reshape(((places[2, 1] - places[2, 0]) // 12, WINDOW_WORDS)),
        memory[places[3, 0] : places[3, 1]].view(np.int64),
        common,
        memory[places[5, 0] : places[5, 1]].view(np.uint32),
        ring,
        Index(
            ring[SAMPLER_KIND],
            common[SAMPLER_EXPONENT],
            memory[places[7, 0] : places[7, 1]].view(np.float64),
            memory[places[8, 0] : places[8, 1]].view(np.int64),
            Heap(
                memory[places[9, 0] : places[9, 1]].view(np.int64),
                memory[places[10, 0] : places[10, 1]].view(np.int64),
                common[SAMPLER_SIGN],
            ),
        ),
        Index(
            ring[REMOVER_KIND],
            common[REMOVER_EXPONENT],
            memory[places[11, 0] : places[11, 1]].view(np.float64),
            memory[places[12, 0] : places[12, 1]].view(np.int64),
            Heap(
                memory[places[13, 0] : places[13, 1]].view(np.int64),
                memory[places[14, 0] : places[14, 1]].view(np.int64),
                common[REMOVER_SIGN],
            ),
        ),
    )
