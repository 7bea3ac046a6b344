"""How many rows the items of a table hold."""

from __future__ import annotations

import cython

if not cython.compiled:
    from headrace.kernels.kinds import Bytes, Int
    from headrace.tables.items import Items
    from headrace.tables.layout import LOOKAHEAD, REAL, SPAN, STREAM


def count_rows(items: Items, marks: Bytes) -> int:
    """How many rows the items hold, each counted once.

    Args:
        items: of the table.
        marks: uint8[rows of the store], zeros; those that are held are marked.
    """
    with cython.nogil:
        found = _count_rows(items, marks)
    return found


def _count_rows(items: Items, marks: Bytes) -> Int:
    found: Int = 0
    for place in range(items.ring[SPAN]):
        slot: Int = items.slot_at(place)
        if items.is_dead(slot):
            continue
        row: Int = items.row_of(slot)
        kept: Int = items.window_of(slot, REAL)
        lookahead: Int = items.window_of(slot, LOOKAHEAD)
        if lookahead != STREAM:
            kept = items.pins.kept_rows(row, kept, lookahead)
        for step in range(kept):
            if step > 0:
                row = items.window.row_after(row) if lookahead == STREAM else items.window.follow(row, 1)
            if marks[row] == 0:
                marks[row] = 1
                found += 1
    return found
