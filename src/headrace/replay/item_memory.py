"""One stretch of memory that holds every array of a table's items.

A kernel is given the stretch and a list of places, and carves the arrays itself: numba takes 40 ns for each array that
it is given, and there are sixteen.

The stretch begins with a few words about itself, so that a file of items can be opened by what it says (`ItemShape`).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from headrace.replay.heap import Heap
from headrace.replay.items import (
    COMMON_WORDS,
    HEAP,
    KINDS,
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
from headrace.store.jit import opening, plain
from headrace.store.layout import MAX_ROWS
from headrace.store.room import no_room

_LINE = 64

# The words of a record: a key of two, then
RECORD_ROW, RECORD_TIMES, RECORD_WORDS = 2, 3, 4

# The words of "about".
ABOUT_WORDS = 16
_MAGIC, _VERSION, _SHAPE = 0, 1, 2
_MAGIC_NUMBER, _THIS_VERSION = 0x68725F6974656D73, 1


class ItemShape(NamedTuple):
    """What decides where the arrays of a table lie.

    Attributes:
        capacity: items that fit.
        with_windows, with_priorities: whether each item has its own.
        sampler_kind, remover_kind: of the selectors.
        journal: words of the journal (`journal.py`); 0 where nothing has to survive the process.
    """

    capacity: int
    with_windows: bool
    with_priorities: bool
    sampler_kind: int
    remover_kind: int
    journal: int = 0

    @property
    def has_touches(self) -> bool:
        """Whether it is known when each item was touched last."""
        return HEAP in (self.sampler_kind, self.remover_kind)


def shape_for(
    sampler: Selector, remover: Selector, capacity: int, *, with_windows: bool, with_priorities: bool
) -> ItemShape:
    """The shape for these selectors: a heap orders items by priorities, so each has its own."""
    needs_priorities = HEAP in (sampler.kind, remover.kind)
    return ItemShape(capacity, with_windows, with_priorities or needs_priorities, sampler.kind, remover.kind)


class ItemMemory(NamedTuple):
    """The arrays of a table, and what kernels are given to carve them from.

    Attributes:
        items: the arrays.
        memory: uint8[...], the whole stretch.
        places: int64[16, 2]: where each array begins and ends in it.
        shape: what decided that.
        layout: the places by name.
        arena: what the stretch lies in.
    """

    items: Items
    memory: NDArray[np.uint8]
    places: NDArray[np.int64]
    shape: ItemShape
    layout: ArenaLayout
    arena: Arena


def new_items(
    shape: ItemShape, sampler: Selector, remover: Selector, make_arena: Callable[[int], Arena] = Arena.private
) -> ItemMemory:
    """Empty arrays.

    Args:
        shape: with the kinds of these selectors.
        sampler, remover: descriptions of the selectors.
        make_arena: where the arrays lie, called with the number of bytes.
    """
    layout = _layout(shape)
    try:
        arena = make_arena(layout.nbytes)
    except OSError as error:
        raise no_room(f"{layout.nbytes} bytes for {shape.capacity} items", error) from error
    about = arena.array(0, (ABOUT_WORDS,), np.int64)
    about[_SHAPE : _SHAPE + len(shape)] = shape
    about[_VERSION], about[_MAGIC] = _THIS_VERSION, _MAGIC_NUMBER
    return with_selectors(_carved(shape, layout, arena), sampler, remover)


def found_items(arena: Arena) -> ItemMemory | None:
    """The arrays that are in an arena already, as it says of itself; None if it says what cannot be.

    Nothing in the arrays is looked at, and their selectors are still to be told (`with_selectors`).
    """
    if arena.nbytes < 8 * ABOUT_WORDS:
        return None
    about = arena.array(0, (ABOUT_WORDS,), np.int64)
    if about[_MAGIC] != _MAGIC_NUMBER or about[_VERSION] != _THIS_VERSION:
        return None
    capacity, windows, priorities, sampler, remover, words = about[_SHAPE : _SHAPE + 6].tolist()
    sane = 1 <= capacity <= MAX_ROWS and 0 <= words <= arena.nbytes // 8
    if not sane or not {windows, priorities} <= {0, 1} or not {sampler, remover} <= set(KINDS):
        return None
    shape = ItemShape(capacity, bool(windows), bool(priorities), sampler, remover, words)
    layout = _layout(shape)
    return _carved(shape, layout, arena) if layout.nbytes == arena.nbytes else None


def with_selectors(memory: ItemMemory, sampler: Selector, remover: Selector) -> ItemMemory:
    """The same arrays, told of their selectors, which are of the kinds that the shape says."""
    _begin(memory.items, sampler, remover, memory.shape.capacity)
    # Opened anew: the kinds, exponents and signs are read when the arrays are carved.
    return memory._replace(items=plain(open_items)(memory.memory, memory.places))


def records_of(memory: NDArray[np.uint8], places: NDArray[np.int64]) -> NDArray[np.uint32]:
    """uint32[capacity, 4]: key, as two words, row and times of each item, as they stand side by side."""
    return memory[places[0, 0] : places[0, 1]].view(np.uint32).reshape(-1, RECORD_WORDS)


def _carved(shape: ItemShape, layout: ArenaLayout, arena: Arena) -> ItemMemory:
    memory: NDArray[np.uint8] = arena.array(0, (layout.nbytes,), np.uint8)  # type: ignore[assignment]
    spans = layout.spans()[1:]
    return ItemMemory(plain(open_items)(memory, spans), memory, spans, shape, layout, arena)


def _layout(shape: ItemShape) -> ArenaLayout:
    capacity = shape.capacity
    layout = ArenaLayout(alignment=_LINE)
    layout.add("about", (ABOUT_WORDS,), np.int64)
    # Key, row and times of an item side by side: a draw reads all three, from one place of memory.
    layout.add("records", (capacity, RECORD_WORDS), np.uint32)
    layout.add("priorities", (capacity if shape.with_priorities else 0,), np.float64)
    layout.add("windows", ((capacity if shape.with_windows else 0) * WINDOW_WORDS,), np.uint32)
    layout.add("touches", (capacity if shape.has_touches else 0,), np.int64)
    layout.add("common", (COMMON_WORDS,), np.float64)
    layout.add("common_window", (WINDOW_WORDS,), np.uint32)
    layout.add("ring", (RING_WORDS,), np.int64)
    for role, kind in (("sampler", shape.sampler_kind), ("remover", shape.remover_kind)):
        _add_index(layout, role, kind, capacity)
    layout.add("journal", (shape.journal,), np.int64)
    return layout


def _add_index(layout: ArenaLayout, role: str, kind: int, capacity: int) -> None:
    levels = tree_levels(capacity) if kind == PRIORITIZED else np.zeros(0, np.int64)
    layout.add(f"{role}_nodes", (int(levels[-1]) + 1 if len(levels) else 0,), np.float64)
    layout.add(f"{role}_levels", (len(levels),), np.int64)
    slots = capacity if kind == HEAP else 0
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
        memory[places[15, 0] : places[15, 1]].view(np.int64),
    )
