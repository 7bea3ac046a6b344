"""Who holds a page: references by items, writers and final rows, and what happens when the last one goes.

Everything here runs under the store's lock. A page whose last reference goes is put on the `freed` stack, whole: a
draw may remove the item that it hands out, and its rows are looked up after that. `take_freed` unlinks it from its
neighbours at the next turn, and `Store` uses it again once no reader can still be copying from it.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from headrace.store.intrinsics import in_order
from headrace.store.jit import Bool, Int, kernel
from headrace.store.layout import (
    FINAL,
    LANES,
    LINKED,
    LINKED_ROWS,
    NEXT,
    NO_LINK,
    ORPHAN,
    PREVIOUS,
    REFERENCES,
    STARTS,
    USED,
    StoreArrays,
)
from headrace.store.window import follow


@kernel
def pin_page(store: StoreArrays, page: Int, change: Int) -> None:
    """Add `change` (+1, -1, ...) to the references of a page; put it on the stack of freed ones when none is left."""
    store.pages[page, REFERENCES] += change
    if store.pages[page, REFERENCES] == 0:
        height = store.freed[-1]
        store.freed[height] = page
        store.freed[-1] = height + 1


@kernel
def pin_pages(store: StoreArrays, pages: NDArray[np.int64], change: Int) -> None:
    """`pin_page` for each of these."""
    for number in range(pages.shape[0]):
        pin_page(store, pages[number], change)


@kernel
def pin_in_page(store: StoreArrays, row: Int, most: Int, change: Int) -> Bool:
    """Do what `pin_window` does for any number of rows up to `most`, if these stand in one page; else nothing.

    Returns:
        Whether they do. How many of them belong to the window need not be known then, so no row is looked at.
    """
    page = row // store.page_rows
    lanes = store.pages[page, LANES]
    if row - page * store.page_rows + (most - 1) * lanes >= store.pages[page, USED] * lanes:
        return False
    pin_page(store, page, change)
    return True


@kernel
def pin_window(store: StoreArrays, row: Int, count: Int, change: Int) -> None:
    """Add `change` to the references of each page under `count` rows from `row` on.

    A final row in a page of its own needs no reference: the page of the transition before it holds it (`link_final`).
    """
    if pin_in_page(store, row, count, change):
        return
    page = row // store.page_rows
    if count > 1:
        last = follow(store, row, count - 1)
        if np.int64(store.steps[last]) & FINAL and store.links[last] != NO_LINK:
            count -= 1
    while True:
        in_page = row - page * store.page_rows
        lanes = store.pages[page, LANES]
        count -= store.pages[page, USED] - in_page // lanes
        following = store.pages[page, NEXT]
        row = following * store.page_rows + in_page % lanes
        pin_page(store, page, change)
        if count <= 0:
            return
        page = following


@kernel
def link_final(store: StoreArrays, last: Int, final: Int) -> None:
    """Tell that the episode that ends at row `last` has its final row at `final`, in another page."""
    store.links[last] = final + 1
    store.links[final] = last + 1
    # The links before the flag that says that they are there (replay D2).
    in_order()
    store.steps[last] |= np.uint32(LINKED)
    note_link(store, last, final)


@kernel
def note_link(store: StoreArrays, last: Int, final: Int) -> None:
    """Count a link that stands in the rows already (a worker wrote it): it holds the final row's page."""
    store.pages[last // store.page_rows, LINKED_ROWS] += 1
    store.pages[final // store.page_rows, REFERENCES] += 1


@kernel
def take_freed(store: StoreArrays) -> None:
    """Take the freed pages apart: nothing leads to them any more. They stay on the stack."""
    pages = store.pages
    done = 0
    while done < store.freed[-1]:
        page = store.freed[done]
        done += 1
        following, previous = pages[page, NEXT], pages[page, PREVIOUS]
        if following >= 0:
            pages[following, PREVIOUS] = -1
        if previous >= 0:
            pages[previous, NEXT] = -1
        if pages[page, LINKED_ROWS] > 0:
            _drop_links(store, page)
        for word in (LANES, USED, STARTS, LINKED_ROWS):
            pages[page, word] = 0
        pages[page, NEXT] = -1
        pages[page, PREVIOUS] = -1


@kernel
def _drop_links(store: StoreArrays, page: Int) -> None:
    """Give back the final rows that this page's episodes end in; a final row that stays is an orphan."""
    first = page * store.page_rows
    for row in range(first, first + store.pages[page, USED] * store.pages[page, LANES]):
        if np.int64(store.steps[row]) & LINKED:
            final = np.int64(store.links[row]) - 1
            store.links[final] = ORPHAN
            pin_page(store, final // store.page_rows, -1)
