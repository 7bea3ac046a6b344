"""Undo log of the present change of a table, beside its items in a file.

Mapped memory outlives a process that is killed, with every store up to the last instruction. The journal makes a change
complete or undone. Before a change, the words of the ring are saved and the journal is marked active. Before a slot is
overwritten, the whole slot is saved (`Items.remember`). At the end the mark is cleared. An opening that finds the mark
undoes the change.

New items need no entries: their slots lie beyond the end of the ring, which is one of the words. But a slot that an
item has left may be filled again within the same change, so every slot that is written is saved.

Undo logging after J. Gray and A. Reuter, "Transaction Processing" (1993), chapter 10.
"""

# Rules: replay D2

from __future__ import annotations

import numpy as np

from headrace.tables.items.layout import (
    ACTIVE,
    COUNT,
    ENTRIES,
    ENTRY_KEY,
    ENTRY_PRIORITY,
    ENTRY_ROW,
    ENTRY_SLOT,
    ENTRY_TIMES,
    ENTRY_UPDATE,
    ENTRY_WINDOW,
    ENTRY_WORDS,
    PRIORITY_OF_ALL,
    RING_WORDS,
    SAVED_PRIORITY,
    SAVED_RING,
    SAVED_WINDOW,
    WINDOW_WORDS,
    ItemArrays,
)


def words_for(entries: int) -> int:
    """Returns the number of words of a journal."""
    return ENTRIES + ENTRY_WORDS * entries


def begin(items: ItemArrays) -> None:
    """Saves the state before a change, and marks the change. The caller clears the mark (ACTIVE) afterwards."""
    journal = items.journal
    journal[ACTIVE] = 0
    journal[COUNT] = 0
    journal[SAVED_RING : SAVED_RING + RING_WORDS] = items.ring
    journal[SAVED_PRIORITY] = items.common.view(np.int64)[PRIORITY_OF_ALL]
    journal[SAVED_WINDOW : SAVED_WINDOW + WINDOW_WORDS] = items.common_window
    journal[ACTIVE] = 1


def is_sound(items: ItemArrays) -> bool:
    """Returns whether the journal is valid: its entries fit, and name slots of the ring."""
    journal = items.journal
    if journal[ACTIVE] not in (0, 1):
        return False
    if not journal[ACTIVE]:
        return True
    count = int(journal[COUNT])
    if not 0 <= words_for(count) <= len(journal):
        return False
    slots = journal[ENTRIES : words_for(count)].reshape(count, ENTRY_WORDS)[:, ENTRY_SLOT]
    return bool(((slots >= 0) & (slots < len(items.rows))).all())


def undo(items: ItemArrays) -> None:
    """Restores the slots that an interrupted change has overwritten. It may be repeated."""
    journal = items.journal
    if not journal[ACTIVE]:
        return
    entries = journal[ENTRIES : words_for(int(journal[COUNT]))].reshape(-1, ENTRY_WORDS)
    # Backwards: a slot that was saved twice ends as it was first.
    for entry in entries[::-1]:
        slot = int(entry[ENTRY_SLOT])
        items.keys[slot] = entry[ENTRY_KEY]
        items.rows[slot] = entry[ENTRY_ROW]
        items.times[slot] = entry[ENTRY_TIMES]
        if len(items.priorities):
            items.priorities.view(np.int64)[slot] = entry[ENTRY_PRIORITY]
        if len(items.last_updates):
            items.last_updates[slot] = entry[ENTRY_UPDATE]
        if len(items.windows):
            items.windows[slot] = entry[ENTRY_WINDOW:]
    items.ring[:] = journal[SAVED_RING : SAVED_RING + RING_WORDS]
    items.common.view(np.int64)[PRIORITY_OF_ALL] = journal[SAVED_PRIORITY]
    items.common_window[:] = journal[SAVED_WINDOW : SAVED_WINDOW + WINDOW_WORDS]
    journal[ACTIVE] = 0
