"""Streams: the rows of a lane one after another, over the ends of its episodes.

Windows stop at the end of an episode; the one exception are the items of rules that say CONTINUE.
Their rows are those of the lane as they were written: an episode's transitions, its final row, wherever that stands,
then the next episode.
"""

# Rules: trajectories A10

from __future__ import annotations

import numpy as np

from headrace.store.jit import Int, kernel
from headrace.store.layout import FINAL, LANES, LINKED, NEXT, NO_LINK, PADDING, USED, StoreArrays
from headrace.store.pinning import pin_page


@kernel
def row_after(store: StoreArrays, row: Int) -> Int:
    """The row that was written after this one in its lane, whatever its episode; -1 if there is none yet."""
    pages = store.pages
    word = np.int64(store.steps[row])
    if word & LINKED:
        return np.int64(store.links[row]) - 1
    row = place_in_lane(store, row)
    page = row // store.page_rows
    in_page = row - page * store.page_rows
    lanes = pages[page, LANES]
    lane = in_page % lanes
    while True:
        in_page += lanes
        if in_page >= pages[page, USED] * lanes:
            page = pages[page, NEXT]
            if page < 0:
                return -1
            in_page = lane
            if pages[page, USED] == 0:
                return -1
        row = page * store.page_rows + in_page
        if not np.int64(store.steps[row]) & PADDING:
            return row


@kernel
def place_in_lane(store: StoreArrays, row: Int) -> Int:
    """The row itself, or the transition before it if it is a final row that stands beside its lane."""
    if np.int64(store.steps[row]) & FINAL and store.links[row] != NO_LINK:
        return np.int64(store.links[row]) - 1
    return row


@kernel
def pin_stream(store: StoreArrays, row: Int, count: Int, change: Int) -> None:
    """Add `change` to the references of every page between `row` and the last of `count` rows of its stream.

    A final row beside the lane needs none: the page of the transition before it holds it, also where the window begins
    with the final row.
    """
    page = place_in_lane(store, row) // store.page_rows
    pin_page(store, page, change)
    for _ in range(count - 1):
        row = row_after(store, row)
        target = place_in_lane(store, row) // store.page_rows
        while page != target:
            page = store.pages[page, NEXT]
            pin_page(store, page, change)
