"""The items of one table, as arrays in the order of insertion, and what each selector keeps beside them.

Items lie in a ring. A new one goes in at the end; one that leaves is marked, and the ends move over marked slots. So
the order of insertion needs no list, the newest and the oldest are at hand, and a uniform draw is a random slot that is
drawn again if it is marked (`ring.make_room` keeps at least half of the slots live). Keys rise along the ring, so a
key is found by interpolation, without an index.

What most tables do not need costs them nothing: priorities and windows have arrays only once two items differ, touches
only if a heap asks for them.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from headrace.replay.heap import Heap, heap_moved, heap_push, heap_remove
from headrace.replay.journal import remember
from headrace.replay.sum_tree import refresh
from headrace.store.intrinsics import prefetch
from headrace.store.jit import Float, Int, kernel, kernel_apart, unsigned
from headrace.store.layout import StoreArrays
from headrace.store.pinning import pin_in_page, pin_page, pin_window
from headrace.store.seams import pin_stream
from headrace.store.window import follow

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

DEAD = 0xFFFFFFFF  # rows[slot] of an item that left
CUSTOM = 5  # of the kinds of selectors: the one that no kernel serves (`custom_ring.py`)

# The bounds of a weight above 0: 2**32 of the heaviest still have a finite sum.
LIGHTEST, HEAVIEST = 5e-324, 1e290

# Kinds of selectors.
FIFO, LIFO, UNIFORM, PRIORITIZED, HEAP = KINDS = range(5)

# The columns of `windows`.
REAL, INVENTED, LOOKAHEAD = range(3)
WINDOW_WORDS = 3
# The window of every item that is one row.
ONE_ROW = np.array([[1, 0, 0]], np.uint32)
# In place of a lookahead: the window goes on over ends of episodes (`store.seams`).
STREAM = 0xFFFFFFFF


class Index(NamedTuple):
    """What one selector keeps of a table. Arrays that its kind does not use are empty.

    Attributes:
        kind: FIFO, LIFO, UNIFORM, PRIORITIZED or HEAP.
        exponent: of the priorities (PRIORITIZED).
        nodes, levels: the sum tree (PRIORITIZED).
        heap: the heap (HEAP).
    """

    kind: int
    exponent: float
    nodes: NDArray[np.float64]
    levels: NDArray[np.int64]
    heap: Heap


class Items(NamedTuple):
    """The arrays of a table; `[capacity]` each, or empty while all items agree.

    Attributes:
        keys: uint64, rising along the ring.
        rows: uint32, the first row of the window, or DEAD.
        times: uint32, how often it was sampled.
        priorities: float64; empty while every item has priority `common[PRIORITY_OF_ALL]`.
        windows: uint32[capacity, 3]: real rows, invented rows, further rows that are kept; empty while every item has
            the window `common_window`.
        touches: int64: when it was last inserted or updated; empty without a heap.
        common: float64[COMMON_WORDS].
        common_window: uint32[3].
        ring: int64[RING_WORDS].
        journal: int64: how to undo the change that is under way (`journal.py`); empty where nothing has to survive
            the process.
    """

    keys: NDArray[np.uint64]
    rows: NDArray[np.uint32]
    times: NDArray[np.uint32]
    priorities: NDArray[np.float64]
    windows: NDArray[np.uint32]
    touches: NDArray[np.int64]
    common: NDArray[np.float64]
    common_window: NDArray[np.uint32]
    ring: NDArray[np.int64]
    sampler: Index
    remover: Index
    journal: NDArray[np.int64]


class Scratch(NamedTuple):
    """Room for kernels to work in, made anew by `ItemRing` when a larger batch comes.

    Attributes:
        changed, parents: int64[n]: slots, and nodes of a sum tree.
        slot: int64[1].
        chance: float64[1].
    """

    changed: NDArray[np.int64]
    parents: NDArray[np.int64]
    slot: NDArray[np.int64]
    chance: NDArray[np.float64]


def new_scratch(count: int) -> Scratch:
    """Room for `count` changed slots."""
    return Scratch(np.zeros(count, np.int64), np.zeros(count, np.int64), np.zeros(1, np.int64), np.zeros(1))


@kernel
def slot_at(items: Items, place: Int) -> Int:
    """The slot of the item `place` places after the oldest."""
    slot = items.ring[FIRST] + place
    capacity = items.rows.shape[0]
    return slot - capacity if slot >= capacity else slot


@kernel
def priority_of(items: Items, slot: Int) -> Float:
    """An item's priority."""
    return items.priorities[unsigned(slot)] if items.priorities.shape[0] else items.common[PRIORITY_OF_ALL]


@kernel
def window_of(items: Items, slot: Int, word: Int) -> Int:
    """One word of an item's window."""
    return np.int64(items.windows[slot, word] if items.windows.shape[0] else items.common_window[word])


@kernel
def weight(exponent: Float, priority: Float) -> Float:
    """The weight of a priority, kept where neither it nor a sum of weights leaves the range of a float."""
    # Rules: replay S4
    if priority <= 0.0:
        return 0.0
    raised = priority if exponent == 1.0 else priority**exponent
    return min(max(raised, LIGHTEST), HEAVIEST)


@kernel
def ask_for(items: Items, slot: Int) -> None:
    """Have the processor fetch an item, which is looked at soon."""
    prefetch(items.rows, slot)
    prefetch(items.priorities, slot)


@kernel_apart
def likely_slots(items: Items, keys: NDArray[np.uint64], slots: NDArray[np.int64]) -> None:
    """The slots of keys if keys rise evenly along the ring; for one that cannot be there the oldest item's.

    Whether a key stands there is not known yet. There must be an item.
    """
    first, last = items.ring[FIRST], items.ring[SPAN] - 1
    capacity = items.rows.shape[0]
    low, high, slots_per_key = items.keys[first], items.keys[slot_at(items, last)], 0.0
    if high > low:
        slots_per_key = np.float64(last) / np.float64(high - low)
    for index in range(keys.shape[0]):
        slot = first
        if low <= keys[index] <= high:
            slot += np.int64(np.float64(keys[index] - low) * slots_per_key)
        slots[index] = slot - capacity if slot >= capacity else slot


@kernel
def find_slot(items: Items, key: Int) -> Int:
    """The slot of a key, or -1.

    Keys rise along the ring, evenly when one table gets them all: the first guess of an interpolation is right, and
    every further one leaves at most half of what was left.
    """
    low: Int = 0
    high: Int = items.ring[SPAN] - 1
    guess: Int = 0
    interpolates = True
    while low <= high:
        first, last = items.keys[slot_at(items, low)], items.keys[slot_at(items, high)]
        if key < first or key > last:
            return -1
        if interpolates and last > first:
            guess = low + np.int64(
                np.float64(key - first) * (np.float64(high - low) / np.float64(last - first))
            )
        else:
            guess = (low + high) // 2
        guess = min(max(low, guess), high)
        slot = slot_at(items, guess)
        found = items.keys[slot]
        if found == key:
            return slot if items.rows[slot] != DEAD else -1
        if found < key:
            low = guess + 1
        else:
            high = guess - 1
        interpolates = not interpolates
    return -1


@kernel
def index_insert(items: Items, index: Index, slot: Int) -> None:
    """Tell a selector of a new item. A sum tree's parents wait for `refresh`."""
    if index.kind == PRIORITIZED:
        index.nodes[unsigned(slot)] = weight(index.exponent, priority_of(items, slot))
    elif index.kind == HEAP:
        heap_push(index.heap, items.priorities, items.touches, slot)


@kernel
def index_update(items: Items, index: Index, slot: Int) -> None:
    """Tell a selector of a changed priority. A sum tree's parents wait for `refresh`."""
    if index.kind == PRIORITIZED:
        index.nodes[unsigned(slot)] = weight(index.exponent, priority_of(items, slot))
    elif index.kind == HEAP:
        heap_moved(index.heap, items.priorities, items.touches, slot)


@kernel
def index_remove(items: Items, index: Index, slot: Int) -> None:
    """Tell a selector of an item that leaves. A sum tree's parents wait for `refresh`."""
    if index.kind == PRIORITIZED:
        index.nodes[slot] = 0.0
    elif index.kind == HEAP:
        heap_remove(index.heap, items.priorities, items.touches, slot)


@kernel
def index_refresh(index: Index, slots: NDArray[np.int64], count: Int, scratch: Scratch) -> None:
    """Bring a selector up to date with the first `count` changed slots."""
    if index.kind == PRIORITIZED:
        refresh(index.nodes, index.levels, slots, count, scratch.parents)


@kernel
def kept_rows(store: StoreArrays, row: Int, real: Int, lookahead: Int) -> Int:
    """How many rows a window holds: its own and as many of its lookahead as its episode has.

    An item is made when its whole lookahead is stored or its episode is over, so the number is the same ever after.
    """
    kept = real
    while kept < real + lookahead and follow(store, row, kept) >= 0:
        kept += 1
    return kept


@kernel
def pin_rows(store: StoreArrays, row: Int, real: Int, lookahead: Int, change: Int) -> None:
    """Add `change` to the references of every page that an item holds: of its rows and the further ones it keeps."""
    if lookahead == STREAM:
        pin_stream(store, row, real, change)
    elif real == 1 and lookahead == 0:
        pin_page(store, row // store.page_rows, change)
    elif not pin_in_page(store, row, real + lookahead, change):
        pin_window(store, row, kept_rows(store, row, real, lookahead), change)


def unpin_items(store: StoreArrays, rows: NDArray[np.int64], windows: NDArray[np.uint32]) -> None:
    """Give back the pages of items that will not be in any table.

    Args:
        store: of the rows.
        rows: int64[M], the first of each.
        windows: uint32[M, 3], or uint32[1, 3] for all.
    """
    for row, window in zip(rows.tolist(), np.broadcast_to(windows, (len(rows), 3)).tolist(), strict=True):
        pin_rows(store, row, window[REAL], window[LOOKAHEAD], -1)


@kernel
def remove_slot(store: StoreArrays, items: Items, slot: Int) -> None:
    """Take an item out: of both selectors, of the ring, and off its pages."""
    index_remove(items, items.sampler, slot)
    index_remove(items, items.remover, slot)
    row = np.int64(items.rows[slot])
    pin_rows(store, row, window_of(items, slot, REAL), window_of(items, slot, LOOKAHEAD), -1)
    remember(items, slot)
    items.rows[slot] = DEAD
    ring = items.ring
    ring[LIVE] -= 1
    while ring[SPAN] > 0 and items.rows[ring[FIRST]] == DEAD:
        ring[FIRST] = slot_at(items, 1)
        ring[SPAN] -= 1
    while ring[SPAN] > 0 and items.rows[slot_at(items, ring[SPAN] - 1)] == DEAD:
        ring[SPAN] -= 1
