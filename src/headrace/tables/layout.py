"""Where everything lies in a table's arrays: the words of its ring, of an item, of a window, of a draw."""

from __future__ import annotations

import numpy as np

from headrace.ends import EndOfEpisode
from headrace.store.layout import STREAM as STREAM

# The words of `ring`.
FIRST = 0  # the slot of the oldest item
SPAN = 1  # slots from the oldest to the newest, marked ones included
LIVE = 2  # items
TOUCHES = 3  # counts insertions and updates
UNIQUE = 4  # items that were sampled at least once
SAMPLER_KIND = 5
REMOVER_KIND = 6
HAS_SEQUENCES = 7  # whether some item was more than one row since the last reset
# What the table has counted; kept here only where the items are in a file (`durable_ring.py`).
INSERTS, SAMPLES, DELETES, UPDATES, IGNORED_UPDATES, IGNORED_DELETES = range(8, 14)
RING_WORDS = 14

# The words of `common`.
PRIORITY_OF_ALL = 0  # the priority of every item while `priorities` is empty
SAMPLER_EXPONENT, REMOVER_EXPONENT, SAMPLER_SIGN, REMOVER_SIGN = range(1, 5)
COMMON_WORDS = 5

# The words of an item's record, of 32 bits: a key of two, then
RECORD_ROW, RECORD_TIMES, RECORD_WORDS = 2, 3, 4

DEAD = 0xFFFFFFFF  # the row of an item that left

# Kinds of selectors; CUSTOM is the one that no kernel serves (`custom_ring.py`).
FIFO, LIFO, UNIFORM, PRIORITIZED, HEAP = KINDS = range(5)
CUSTOM = 5

# The words of a window.
REAL, INVENTED, LOOKAHEAD = range(3)
WINDOW_WORDS = 3
# The window of every item that is one row.
ONE_ROW = np.array([[1, 0, 0]], np.uint32)

# What kernels are told of a table, and count.
MAX_SIZE, INSERTED, SAMPLED = range(3)

# The words of the journal: the mark, the number of entries, then the words of the ring and what goes for all items.
ACTIVE, COUNT, SAVED_RING = 0, 1, 2
SAVED_PRIORITY = 24
SAVED_WINDOW = 25
ENTRIES = 32
ENTRY_WORDS = 9

# The rows of a draw's integers and floats.
SLOT, TIMES, SIZE, ROW = range(4)
PROBABILITY, PRIORITY = range(2)

# Why inserting stopped.
DONE, NO_SLOT, NO_SCRATCH, NO_WINDOWS, NO_PRIORITIES = range(5)

# EndOfEpisode by number.
END_NUMBERS = {end: number for number, end in enumerate(EndOfEpisode)}
DROP, TRUNCATE, PAD, TILE, LAST, CONTINUE = (END_NUMBERS[end] for end in EndOfEpisode)
# The whole episode is one window if it has at most `length` rows, and none otherwise.
WHOLE = len(END_NUMBERS)
# In place of the number of an end: nothing is cut, each window is chosen (`chosen.py`).
CHOSEN = WHOLE + 1
