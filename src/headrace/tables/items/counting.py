"""How many rows the items of a table hold."""

from __future__ import annotations

import cython

if not cython.compiled:
    from headrace.kernels.kinds import Bytes, Int
    from headrace.tables.items.items import Items
    from headrace.tables.items.layout import (
        DEAD,
        FIRST,
        LOOKAHEAD,
        REAL,
        RECORD_ROW,
        RECORD_WORDS,
        SPAN,
        STREAM,
        WINDOW_WORDS,
    )


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
    real: Int = items.common_window[REAL]
    lookahead: Int = items.common_window[LOOKAHEAD]
    slot: Int = items.ring[FIRST] - 1
    for _ in range(items.ring[SPAN]):
        slot = slot + 1 if slot + 1 < items.capacity else 0
        row = cython.cast(Int, items.records[RECORD_WORDS * slot + RECORD_ROW])
        if row == DEAD:
            continue
        if items.windows.shape[0]:
            real = items.windows[WINDOW_WORDS * slot + REAL]
            lookahead = items.windows[WINDOW_WORDS * slot + LOOKAHEAD]
        kept: Int = real if lookahead == STREAM else real + lookahead
        for step in range(kept):
            if step > 0:
                row = items.window.row_after(row) if lookahead == STREAM else items.window.follow(row, 1)
                if row < 0:
                    break  # A lookahead ends with its episode.
            if marks[row] == 0:
                marks[row] = 1
                found += 1
    return found
