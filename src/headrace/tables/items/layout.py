"""Layout of a table's arrays: the words of its ring, of an item, of a window, of a draw."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from headrace.store.layout import STREAM as STREAM
from headrace.tables.description.selectors import CUSTOM as CUSTOM
from headrace.tables.description.selectors import FIFO as FIFO
from headrace.tables.description.selectors import HEAP as HEAP
from headrace.tables.description.selectors import KINDS as KINDS
from headrace.tables.description.selectors import LIFO as LIFO
from headrace.tables.description.selectors import PRIORITIZED as PRIORITIZED
from headrace.tables.description.selectors import UNIFORM as UNIFORM
from headrace.tables.description.window_rule import CONTINUE as CONTINUE
from headrace.tables.description.window_rule import DROP as DROP
from headrace.tables.description.window_rule import LAST as LAST
from headrace.tables.description.window_rule import PAD as PAD
from headrace.tables.description.window_rule import SELECTED as SELECTED
from headrace.tables.description.window_rule import TILE as TILE
from headrace.tables.description.window_rule import TRUNCATE as TRUNCATE
from headrace.tables.description.window_rule import WHOLE as WHOLE

# ---- items ---------------------------------------------------------------------------------------------------------

# The words of `ring`.
FIRST = 0  # the slot of the oldest item
SPAN = 1  # slots from the oldest to the newest, marked ones included
LIVE = 2  # items
CHANGES = 3  # number of insertions and updates so far
UNIQUE = 4  # items that were sampled at least once
SAMPLER_KIND = 5
REMOVER_KIND = 6
FLAGS = 7
# Counts of the table; kept here only where the items are in a file (`durable_ring.py`).
INSERTS, SAMPLES, DELETES, UPDATES, IGNORED_UPDATES, IGNORED_DELETES = range(8, 14)
# The largest priority of an item so far, 1.0 at first: the bits of a float64. Files of 0.1.0 lack this word.
LARGEST_PRIORITY = 14
RING_WORDS = 15
RING_WORDS_OF_0_1 = 14

# The bits of FLAGS.
HAS_SEQUENCES = 1  # some item was more than one row since the last reset
HAS_KEY_INDEX = 2  # keys do not rise along the ring: `Items.key_index` finds them

# The words of `common`.
PRIORITY_OF_ALL = 0  # the priority of every item while `priorities` is empty
SAMPLER_EXPONENT, REMOVER_EXPONENT, SAMPLER_SIGN, REMOVER_SIGN = range(1, 5)
COMMON_WORDS = 5

# The words of an item's record, of 32 bits: a key of two, then
RECORD_ROW, RECORD_TIMES, RECORD_WORDS = 2, 3, 4

DEAD = 0xFFFFFFFF  # the row of an item that left

# The words of a window.
REAL, PADDED, LOOKAHEAD = range(3)
WINDOW_WORDS = 3
# The window of every item that is one row.
ONE_ROW = np.array([[1, 0, 0]], np.uint32)


class IndexArrays(NamedTuple):
    """The arrays of one selector's index. Arrays that its kind does not use are empty.

    Attributes:
        kind: FIFO, LIFO, UNIFORM, PRIORITIZED, HEAP or CUSTOM.
        exponent: of the priorities (PRIORITIZED).
        nodes, levels: float64 and int64, the sum tree (PRIORITIZED).
        heap_slots, heap_positions: int64, the heap (HEAP).
        sign: of the heap: +1 for the smallest priority first, -1 for the largest.
    """

    kind: int
    exponent: float
    nodes: NDArray[np.float64]
    levels: NDArray[np.int64]
    heap_slots: NDArray[np.int64]
    heap_positions: NDArray[np.int64]
    sign: float


class ItemArrays(NamedTuple):
    """The arrays of a table; `[capacity]` each, or empty while all items agree.

    Attributes:
        records: uint32[capacity, RECORD_WORDS]: key, row and times of each item side by side.
        keys: uint64, of `records`, rising along the ring but where HAS_KEY_INDEX is set.
        rows: uint32, of `records`: the first row of the window, or DEAD.
        times: uint32, of `records`: how often it was sampled.
        priorities: float64; empty while every item has priority `common[PRIORITY_OF_ALL]`.
        windows: uint32[capacity, WINDOW_WORDS]: real rows, padded rows, further rows that are kept; empty while every
            item has the window `common_window`.
        last_updates: int64: when it was last inserted or updated; empty without a heap.
        common: float64[COMMON_WORDS].
        common_window: uint32[WINDOW_WORDS].
        ring: int64[RING_WORDS].
        sampler, remover: the data of the selectors.
        journal: int64: how to undo the change that is under way (`journal.py`); empty where nothing has to survive
            the process.
    """

    records: NDArray[np.uint32]
    keys: NDArray[np.uint64]
    rows: NDArray[np.uint32]
    times: NDArray[np.uint32]
    priorities: NDArray[np.float64]
    windows: NDArray[np.uint32]
    last_updates: NDArray[np.int64]
    common: NDArray[np.float64]
    common_window: NDArray[np.uint32]
    ring: NDArray[np.int64]
    sampler: IndexArrays
    remover: IndexArrays
    journal: NDArray[np.int64]


# Parameters and counters of a table's kernels, in an array that outlives the other arrays. After Ctrl-C, whose error
# replaces the result of a kernel, they tell which items were inserted and drawn.
MAX_SIZE, INSERTED, SAMPLED = range(3)
COUNTER_WORDS = 3

# ---- the sum tree --------------------------------------------------------------------------------------------------

# Children of a node, and the bits of their number.
CHILDREN, CHILD_BITS = 16, 4
# The first level with running sums. Below it they would take half a byte for each leaf and spare nothing: there a draw
# waits for memory.
SUMMED = 2


def tree_levels(capacity: int) -> NDArray[np.int64]:
    """Returns the index of the first node of each level of a tree over `capacity` slots, then that of the total."""
    sizes = [max(1, -(-capacity // CHILDREN)) * CHILDREN]
    while sizes[-1] > CHILDREN:
        sizes.append(-(-sizes[-1] // CHILDREN // CHILDREN) * CHILDREN)
    total_at = sum(sizes) + sum(sizes[SUMMED:])
    return np.array([*np.cumsum([0, *sizes[:-1]]), total_at], np.int64)


# ---- the journal ---------------------------------------------------------------------------------------------------

# The words of the journal: the mark, the number of entries, then the words of the ring and of all items.
ACTIVE, COUNT, SAVED_RING = 0, 1, 2
SAVED_PRIORITY = 24
SAVED_WINDOW = 25
ENTRIES = 32
# The words of an entry; the last is the first of a window.
ENTRY_SLOT, ENTRY_KEY, ENTRY_ROW, ENTRY_TIMES, ENTRY_PRIORITY, ENTRY_UPDATE, ENTRY_WINDOW = range(7)
ENTRY_WORDS = 9

# ---- drawing, inserting, cutting -----------------------------------------------------------------------------------

# The rows of a draw's integers and floats.
SLOT, TIMES, SIZE, ROW = range(4)
PROBABILITY, PRIORITY = range(2)

# Why inserting stopped.
DONE, NO_SLOT, NO_WINDOWS, NO_PRIORITIES = range(4)

# Problems of an item in a file.
NO_PROBLEM, KEY_FALLS, KEY_UNUSED, SPENT, BAD_PRIORITY, LATE_UPDATE, BAD_WINDOW = range(7)
