"""How to undo the change of a table that is under way, kept beside its items in a file.

A store on disk survives its process being killed at any instruction: mapped memory outlives it, so
whatever was stored is there, up to the very instruction. What is left to do is to make a change all or nothing. Before
a change begins, the words of the ring are saved and the journal is marked active; before a slot is overwritten, the
whole of it is saved; at the end the mark is taken away. Whoever opens the file and finds the mark puts everything back.

New items need no entries: their slots lie beyond the end of the ring, which is one of the words. But a slot that an
item has left may be filled again within the same change, so every slot that is written is saved.

Undo logging after J. Gray and A. Reuter, "Transaction Processing" (1993), chapter 10.
"""

# Rules: replay D2

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from headrace.store.intrinsics import in_order
from headrace.store.jit import Int, kernel

# The words of `journal`: the mark, the number of entries, then the words of the ring and what goes for all items.
ACTIVE, COUNT, SAVED_RING = 0, 1, 2
SAVED_PRIORITY = 24
SAVED_WINDOW = 25
ENTRIES = 32

# The words of an entry.
SLOT, KEY, ROW, TIMES, PRIORITY, TOUCH, WINDOW = range(7)
ENTRY_WORDS = 9


def words_for(entries: int) -> int:
    """How many words a journal of so many entries has."""
    return ENTRIES + ENTRY_WORDS * entries


@kernel
def remember(items: Any, slot: Int) -> None:
    """Save a slot that is about to be written; nothing where there is no journal."""
    journal = items.journal
    if journal.shape[0] == 0:
        return
    place = ENTRIES + ENTRY_WORDS * journal[COUNT]
    journal[place + SLOT] = slot
    journal[place + KEY] = np.int64(items.keys[slot])
    journal[place + ROW] = items.rows[slot]
    journal[place + TIMES] = items.times[slot]
    if items.priorities.shape[0]:
        journal[place + PRIORITY] = items.priorities.view(np.int64)[slot]
    if items.touches.shape[0]:
        journal[place + TOUCH] = items.touches[slot]
    if items.windows.shape[0]:
        for word in range(items.windows.shape[1]):
            journal[place + WINDOW + word] = items.windows[slot, word]
    # The entry before the number that makes it one, and both before the slot changes.
    in_order()
    journal[COUNT] += 1
    in_order()


def begin(items: Any, priority_word: int) -> None:
    """Save what a change starts from, and mark it. Whoever has done the change takes the mark (ACTIVE) away."""
    journal = items.journal
    journal[ACTIVE] = 0
    journal[COUNT] = 0
    journal[SAVED_RING : SAVED_RING + len(items.ring)] = items.ring
    journal[SAVED_PRIORITY] = items.common.view(np.int64)[priority_word]
    journal[SAVED_WINDOW : SAVED_WINDOW + len(items.common_window)] = items.common_window
    journal[ACTIVE] = 1


def is_sound(items: Any) -> bool:
    """Whether the journal can be followed: as many entries as fit, of slots that there are."""
    journal: NDArray[np.int64] = items.journal
    if journal[ACTIVE] not in (0, 1):
        return False
    if not journal[ACTIVE]:
        return True
    count = int(journal[COUNT])
    if not 0 <= words_for(count) <= len(journal):
        return False
    slots = journal[ENTRIES : words_for(count)].reshape(count, ENTRY_WORDS)[:, SLOT]
    return bool(((slots >= 0) & (slots < len(items.rows))).all())


def undo(items: Any, priority_word: int) -> None:
    """Put back what a change that never ended has overwritten. It may be done over and over."""
    journal = items.journal
    if not journal[ACTIVE]:
        return
    entries = journal[ENTRIES : words_for(int(journal[COUNT]))].reshape(-1, ENTRY_WORDS)
    # Backwards: a slot that was saved twice ends as it was first.
    for entry in entries[::-1]:
        slot = int(entry[SLOT])
        items.keys[slot], items.rows[slot], items.times[slot] = entry[KEY], entry[ROW], entry[TIMES]
        if len(items.priorities):
            items.priorities.view(np.int64)[slot] = entry[PRIORITY]
        if len(items.touches):
            items.touches[slot] = entry[TOUCH]
        if len(items.windows):
            items.windows[slot] = entry[WINDOW:]
    items.ring[:] = journal[SAVED_RING : SAVED_RING + len(items.ring)]
    items.common.view(np.int64)[priority_word] = journal[SAVED_PRIORITY]
    items.common_window[:] = journal[SAVED_WINDOW : SAVED_WINDOW + len(items.common_window)]
    journal[ACTIVE] = 0
