"""Passes over all items of a table: their slots, the pages and the rows that they hold."""

from __future__ import annotations

import cython

if not cython.compiled:
    from headrace.kernels.kinds import Bytes, Int, Longs
    from headrace.tables.items.items import Items
    from headrace.tables.items.layout import LIVE, LOOKAHEAD, REAL, SPAN, STREAM


def live_slots(items: Items, slots: Longs) -> None:
    """Writes the slots of all items, in the order of insertion.

    Args:
        slots: int64[number of items].
    """
    if slots.shape[0] < items.ring[LIVE]:
        raise ValueError(f"slots: expected {items.ring[LIVE]}, got {slots.shape[0]}")
    count: Int = 0
    with cython.nogil:
        for place in range(items.ring[SPAN]):
            slot: Int = items.slot_at(place)
            if not items.is_dead(slot):
                slots[count] = slot
                count += 1


def pin_items(items: Items, change: Int) -> None:
    """Adds `change` to the references of each page that an item holds, for each item."""
    with cython.nogil:
        for place in range(items.ring[SPAN]):
            slot: Int = items.slot_at(place)
            if not items.is_dead(slot):
                items.pin(slot, change)


def count_rows(items: Items, marks: Bytes) -> int:
    """Counts the rows that the items hold, each row once.

    Args:
        items: of the table.
        marks: uint8[rows of the store], zeros; rows that are held are marked.
    """
    found: Int = 0
    with cython.nogil:
        for place in range(items.ring[SPAN]):
            slot: Int = items.slot_at(place)
            if not items.is_dead(slot):
                found += _mark_rows(items, slot, marks)
    return found


def _mark_rows(items: Items, slot: Int, marks: Bytes) -> Int:
    """Marks the rows of one item; returns how many were not marked."""
    found: Int = 0
    row = items.row_of(slot)
    lookahead = items.window_of(slot, LOOKAHEAD)
    kept: Int = items.window_of(slot, REAL)
    if lookahead != STREAM:
        kept += lookahead
    for step in range(kept):
        if step > 0:
            row = items.window.row_after(row) if lookahead == STREAM else items.window.follow(row, 1)
            if row < 0:
                break  # A lookahead ends with its episode.
        if marks[row] == 0:
            marks[row] = 1
            found += 1
    return found
