"""The window function: from a row and offsets to the rows that stand there.

This is the only code that follows lanes and page links, stops at episode ends and at the write head. Next
observations, frame stacks, n-step returns, sequences and views all call it. tests/store/test_window.py compares it
with a list of lists under random lanes, episode lengths, page sizes, evictions and offsets.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from headrace.store.intrinsics import AHEAD, prefetch
from headrace.store.jit import Bool, Int, kernel, kernel_apart
from headrace.store.layout import (
    ENDED,
    FINAL,
    LANES,
    LINKED,
    NEXT,
    NO_LINK,
    ORPHAN,
    PADDING,
    PREVIOUS,
    STEP_HALF,
    STEP_MASK,
    USED,
    StoreArrays,
)
from headrace.store.memory import open_store

# What stands at an offset of a row.
UNKNOWN = 0  # nothing, and nothing near it either
EDGE = 1  # nothing, but the nearest value of the episode may be shown in its place
KNOWN = 2


@kernel
def page_of(store: StoreArrays, row: Int) -> Int:
    """The page in which a row stands. Rows have 32 bits, and processors divide such numbers twice as fast."""
    return np.int64(np.uint32(row) // np.uint32(store.page_rows))


@kernel
def walk(store: StoreArrays, row: Int, offset: Int) -> tuple[Int, Int]:
    """The row `offset` vector steps on in the same lane, whatever episode it is in.

    Returns:
        The row, and 0; or, where the lane's pages end, the oldest row of the lane (going back) or -1 (going on),
        and how many steps are missing.
    """
    pages = store.pages
    page = page_of(store, row)
    in_page = row - page * store.page_rows
    lanes = pages[page, LANES]
    place = in_page + offset * lanes
    if 0 <= place < pages[page, USED] * lanes:
        return row + offset * lanes, 0  # In the same page, as nearly always; the rest is divisions.
    step = in_page // lanes
    lane = in_page - step * lanes
    step += offset
    while step >= pages[page, USED]:
        following = pages[page, NEXT]
        if following < 0:
            return -1, step - pages[page, USED] + 1
        step -= pages[page, USED]
        page = following
    while step < 0:
        previous = pages[page, PREVIOUS]
        if previous < 0:
            return page * store.page_rows + lane, step
        page = previous
        step += pages[page, USED]
    return page * store.page_rows + step * lanes + lane, 0


@kernel
def step_after(step: Int, count: Int) -> Int:
    """The step index `count` steps on (layout.STEP_HALF says how it goes on past its bits)."""
    later = step + count
    if later <= STEP_MASK:
        return later
    return STEP_HALF + (later - STEP_MASK - 1) % (STEP_MASK + 1 - STEP_HALF)


@kernel
def _is_step(word: Int, step: Int) -> Bool:
    return (word & PADDING) == 0 and (word & STEP_MASK) == step


@kernel
def follow(store: StoreArrays, row: Int, offset: Int) -> Int:
    """The row `offset` steps on in the same episode, the final row included; -1 if there is none (yet, or any more)."""
    if offset == 0:
        return row
    word = np.int64(store.steps[row])
    if offset < 0:
        return _follow_back(store, row, word, -offset)
    if word & (FINAL | ENDED):
        return -1
    if word & LINKED:
        return np.int64(store.links[row]) - 1 if offset == 1 else -1
    target, missing = walk(store, row, offset)
    if offset == 1:
        return target if missing == 0 else -1
    if missing == 0 and _is_step(np.int64(store.steps[target]), step_after(word & STEP_MASK, offset)):
        return target
    # Not in the lane itself: it may be the final row that stands beside it. Between the two there may be a start of
    # another episode, but never one with the same step index: it counts from 0.
    before, missing = walk(store, row, offset - 1)
    if missing == 0:
        last = np.int64(store.steps[before])
        if last & LINKED and _is_step(last, step_after(word & STEP_MASK, offset - 1)):
            return np.int64(store.links[before]) - 1
    return -1


@kernel
def _follow_back(store: StoreArrays, row: Int, word: Int, distance: Int) -> Int:
    link = np.int64(store.links[row]) if word & FINAL else NO_LINK
    if link == ORPHAN:
        return -1
    if link != NO_LINK:
        row = link - 1
        distance -= 1
        word = np.int64(store.steps[row])
    step = word & STEP_MASK
    if step < STEP_HALF and distance > step:
        return -1
    target, missing = walk(store, row, -distance)
    return target if missing == 0 else -1


@kernel
def oldest(store: StoreArrays, row: Int, distance: Int) -> Int:
    """The oldest row that is still there of the last `distance` steps of this row's episode."""
    word = np.int64(store.steps[row])
    link = np.int64(store.links[row]) if word & FINAL else NO_LINK
    if link == ORPHAN:
        return row
    if link != NO_LINK:
        row = link - 1
        distance -= 1
        word = np.int64(store.steps[row])
    step = word & STEP_MASK
    if step < STEP_HALF and distance > step:
        distance = step
    target, _ = walk(store, row, -distance)
    return target


@kernel
def newest(store: StoreArrays, row: Int, distance: Int) -> Int:
    """The newest row that is there of the next `distance` steps of this row's episode."""
    low, found = 0, row
    high = distance + 1
    while high - low > 1:
        middle = (low + high) // 2
        target = follow(store, row, middle)
        if target >= 0:
            low, found = middle, target
        else:
            high = middle
    return found


@kernel_apart
def reach(store: StoreArrays, row: Int, direction: Int) -> Int:
    """How many rows of this row's episode are there after it (`direction` 1) or before it (-1)."""
    low, high = 0, 1
    while follow(store, row, direction * high) >= 0:
        low, high = high, 2 * high
    while high - low > 1:
        middle = (low + high) // 2
        if follow(store, row, direction * middle) >= 0:
            low = middle
        else:
            high = middle
    return low


@kernel
def resolve(
    store: StoreArrays,
    starts: NDArray[np.int64],
    offsets: NDArray[np.int64],
    acting_gives: bool,
    rows: NDArray[np.int64],
    known: NDArray[np.uint8],
) -> Int:
    """The rows at `offsets` from each of `starts`, within their episodes.

    Args:
        starts: int64[M]; -1 stands for an invented row: nothing is known there.
        offsets: int64[W].
        acting_gives: the column is known only after acting (a post column): a final row has no value of it.
        rows: int64[M, W], written: where to read. Always a row that can be read, also where nothing is known.
        known: uint8[M, W], written: KNOWN, or EDGE if `rows` has the nearest value that this row may show,
            else UNKNOWN.

    Returns:
        How many places are not KNOWN.
    """
    # Rules: views V2, V6, V7
    missing = 0
    furthest = offsets[0]
    for place in range(offsets.shape[0]):
        furthest = max(furthest, offsets[place])
    last = starts.shape[0] - 1
    for place in range(offsets.shape[0]):
        offset = offsets[place]
        for index in range(starts.shape[0]):
            prefetch(store.steps, starts[min(index + AHEAD, last)])
            start = starts[index]
            if start < 0:
                missing += 1
                rows[index, place] = 0
                known[index, place] = UNKNOWN
                continue
            target = follow(store, start, offset)
            if target >= 0 and not (acting_gives and np.int64(store.steps[target]) & FINAL):
                rows[index, place] = target
                known[index, place] = KNOWN
                continue
            missing += 1
            rows[index, place], known[index, place] = _edge(store, start, offset, furthest, acting_gives)
    return missing


@kernel
def resolve_in(
    memory: NDArray[np.uint8],
    places: NDArray[np.int64],
    page_rows: Int,
    starts: NDArray[np.int64],
    offsets: NDArray[np.int64],
    acting_gives: bool,
    rows: NDArray[np.int64],
    known: NDArray[np.uint8],
) -> Int:
    """`resolve`, quick to call: the arrays are carved from their memory here."""
    return resolve(open_store(memory, places, page_rows), starts, offsets, acting_gives, rows, known)


@kernel
def _edge(store: StoreArrays, start: Int, offset: Int, furthest: Int, acting_gives: bool) -> tuple[Int, Int]:
    """The nearest value to a place where there is none, and whether this row may show it."""
    # Rules: views V6
    if offset < 0:
        target = oldest(store, start, -offset)
        # What follows the row's own action is shown only to a view that looks at it anyway.
        if acting_gives and (np.int64(store.steps[target]) & FINAL or (target == start and furthest < 0)):
            return start, UNKNOWN
        return target, EDGE
    target = newest(store, start, offset)
    if acting_gives and np.int64(store.steps[target]) & FINAL:
        target = follow(store, target, -1)
        if target < 0:
            return start, UNKNOWN
    return target, EDGE
