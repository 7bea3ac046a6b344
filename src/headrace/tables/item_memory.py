"""Memory that holds every array of a table's items.

It begins with a few words about its layout (`ItemShape`), by which a file of items is opened.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from headrace.store.layout import MAX_ROWS
from headrace.store.memory.arena import Arena
from headrace.store.memory.arena_layout import ArenaLayout
from headrace.store.memory.out_of_space import out_of_space
from headrace.tables.description.selectors import Selector
from headrace.tables.items.layout import (
    COMMON_WORDS,
    HEAP,
    KINDS,
    LARGEST_PRIORITY,
    PRIORITIZED,
    RECORD_ROW,
    RECORD_TIMES,
    RECORD_WORDS,
    REMOVER_EXPONENT,
    REMOVER_KIND,
    REMOVER_SIGN,
    RING_WORDS,
    SAMPLER_EXPONENT,
    SAMPLER_KIND,
    SAMPLER_SIGN,
    WINDOW_WORDS,
    IndexArrays,
    ItemArrays,
    tree_levels,
)

_LINE = 64

# The words of "about".
ABOUT_WORDS = 16
_MAGIC, _VERSION, _SHAPE = 0, 1, 2
_MAGIC_NUMBER, _THIS_VERSION = 0x68725F6974656D73, 1


class ItemShape(NamedTuple):
    """Properties that decide the layout of a table's arrays.

    Attributes:
        capacity: slots for items.
        with_windows, with_priorities: whether each item has one of its own.
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
    def has_last_updates(self) -> bool:
        """Whether each item has the number of its last update."""
        return HEAP in (self.sampler_kind, self.remover_kind)


def shape_for(
    sampler: Selector,
    remover: Selector,
    capacity: int,
    *,
    with_windows: bool = False,
    with_priorities: bool = False,
) -> ItemShape:
    """Returns the shape for these selectors: a heap orders items by priorities, so each has its own."""
    needs_priorities = HEAP in (sampler.kind, remover.kind)
    return ItemShape(capacity, with_windows, with_priorities or needs_priorities, sampler.kind, remover.kind)


class ItemMemory(NamedTuple):
    """The arrays of a table, and where they lie.

    Attributes:
        arrays: the arrays.
        shape: decides the layout.
        layout: the place of each array by name.
        arena: the memory of the arrays.
    """

    arrays: ItemArrays
    shape: ItemShape
    layout: ArenaLayout
    arena: Arena


def new_items(
    shape: ItemShape, sampler: Selector, remover: Selector, make_arena: Callable[[int], Arena] = Arena.private
) -> ItemMemory:
    """Returns empty arrays.

    Args:
        shape: with the kinds of these selectors.
        sampler, remover: descriptions of the selectors.
        make_arena: where the arrays lie, called with the number of bytes.
    """
    layout = _layout(shape)
    try:
        arena = make_arena(layout.nbytes)
    except OSError as error:
        raise out_of_space(f"{layout.nbytes} bytes for {shape.capacity} items", error) from error
    about = arena.array(0, (ABOUT_WORDS,), np.int64)
    about[_SHAPE : _SHAPE + len(shape)] = shape
    about[_VERSION], about[_MAGIC] = _THIS_VERSION, _MAGIC_NUMBER
    return with_selectors(_mapped(shape, layout, arena), sampler, remover)


def found_items(arena: Arena) -> ItemMemory | None:
    """Returns the arrays in an arena, by the words at its beginning; None if these are not valid.

    The arrays are not checked, and their selectors are set afterwards (`with_selectors`).
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
    return _mapped(shape, layout, arena) if layout.nbytes == arena.nbytes else None


def with_selectors(memory: ItemMemory, sampler: Selector, remover: Selector) -> ItemMemory:
    """Returns the same arrays with these selectors, which are of the kinds in the shape."""
    arrays = memory.arrays
    arrays.ring[SAMPLER_KIND], arrays.ring[REMOVER_KIND] = sampler.kind, remover.kind
    arrays.common[SAMPLER_EXPONENT], arrays.common[REMOVER_EXPONENT] = sampler.exponent, remover.exponent
    arrays.common[SAMPLER_SIGN], arrays.common[REMOVER_SIGN] = sampler.sign, remover.sign
    largest = arrays.ring.view(np.float64)[LARGEST_PRIORITY:][:1]
    # Zero in new arrays and in files of 0.1.0.
    if not 1.0 <= largest[0] < np.inf:
        largest[:] = 1.0
    for index, selector in ((arrays.sampler, sampler), (arrays.remover, remover)):
        if selector.kind == PRIORITIZED:
            index.levels[:] = tree_levels(memory.shape.capacity)
    # Mapped again, because the kinds, exponents and signs are read with the arrays.
    return _mapped(memory.shape, memory.layout, memory.arena)


def _layout(shape: ItemShape) -> ArenaLayout:
    capacity = shape.capacity
    layout = ArenaLayout(alignment=_LINE)
    layout.add("about", (ABOUT_WORDS,), np.int64)
    # Key, row and times of an item side by side: a draw reads all three, from one place of memory.
    layout.add("records", (capacity, RECORD_WORDS), np.uint32)
    layout.add("priorities", (capacity if shape.with_priorities else 0,), np.float64)
    layout.add("windows", ((capacity if shape.with_windows else 0) * WINDOW_WORDS,), np.uint32)
    layout.add("last_updates", (capacity if shape.has_last_updates else 0,), np.int64)
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


def _mapped(shape: ItemShape, layout: ArenaLayout, arena: Arena) -> ItemMemory:
    flat: dict[str, Any] = layout.arrays(arena)
    ring, common, records = flat["ring"], flat["common"], flat["records"]
    arrays = ItemArrays(
        records=records,
        keys=records.reshape(-1).view(np.uint64)[:: RECORD_WORDS // 2],
        rows=records[:, RECORD_ROW],
        times=records[:, RECORD_TIMES],
        priorities=flat["priorities"],
        windows=flat["windows"].reshape(-1, WINDOW_WORDS),
        last_updates=flat["last_updates"],
        common=common,
        common_window=flat["common_window"],
        ring=ring,
        sampler=_index(flat, "sampler", ring[SAMPLER_KIND], *common[[SAMPLER_EXPONENT, SAMPLER_SIGN]]),
        remover=_index(flat, "remover", ring[REMOVER_KIND], *common[[REMOVER_EXPONENT, REMOVER_SIGN]]),
        journal=flat["journal"],
    )
    return ItemMemory(arrays, shape, layout, arena)


def _index(flat: dict[str, Any], role: str, kind: Any, exponent: Any, sign: Any) -> IndexArrays:
    return IndexArrays(
        kind=int(kind),
        exponent=float(exponent),
        nodes=flat[f"{role}_nodes"],
        levels=flat[f"{role}_levels"],
        heap_slots=flat[f"{role}_heap_slots"],
        heap_positions=flat[f"{role}_heap_places"],
        sign=float(sign),
    )
