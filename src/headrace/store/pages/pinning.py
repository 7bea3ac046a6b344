"""References to pages, by items, writers and final rows; a page without any is freed.

Everything here runs under the store's lock. A page whose last reference goes is put on the `freed` stack, whole: a
draw may remove the item that it hands out, and its rows are looked up after that. `take_freed` unlinks it from its
neighbours at the next turn, and `Store` uses it again once no reader can still be copying from it.
"""

from __future__ import annotations

import cython

if not cython.compiled:
    from headrace.kernels.hints import in_order
    from headrace.kernels.kinds import Bool, GivenLongs, Int
    from headrace.store.layout import (
        LANES,
        LINKED,
        LINKED_ROWS,
        NEXT,
        ORPHAN,
        PREVIOUS,
        REFERENCES,
        STARTS,
        STREAM,
        USED,
    )
    from headrace.store.window import Window


class Pins:
    """The references to the pages of a store.

    Args:
        window: of the store.
    """

    def __init__(self, window: Window) -> None:
        self.window = window

    # ---- pages -------------------------------------------------------------------------------------------------------

    def pin_page(self, page: Int, change: Int) -> None:
        """Adds `change` to the references of a page; a page without references goes on the stack of freed pages."""
        references: Int = self.window.pages[page, REFERENCES] + change
        self.window.pages[page, REFERENCES] = references
        if references == 0:
            top: Int = self.window.freed.shape[0] - 1
            height: Int = self.window.freed[top]
            self.window.freed[height] = page
            self.window.freed[top] = height + 1

    def pin_pages(self, pages: GivenLongs, change: Int) -> None:
        """Calls `pin_page` for each of these pages."""
        for number in range(pages.shape[0]):
            self.pin_page(pages[number], change)

    # ---- windows -----------------------------------------------------------------------------------------------------

    def pin_in_page(self, row: Int, most: Int, change: Int) -> Bool:
        """Does what `pin_window` does, for up to `most` rows, if all are in one page; otherwise does nothing.

        Returns:
            Whether they do. How many of them belong to the window need not be known then, so no row is looked at.
        """
        page = self.window.page_of(row)
        lanes: Int = self.window.pages[page, LANES]
        in_page = row - page * self.window.page_rows
        if in_page + (most - 1) * lanes >= self.window.pages[page, USED] * lanes:
            return False
        self.pin_page(page, change)
        return True

    def pin_window(self, row: Int, count: Int, change: Int) -> None:
        """Adds `change` to the references of each page under `count` rows from `row` on.

        A final row in a page of its own needs none: the page of the transition before it holds it (`link_final`).
        """
        if self.pin_in_page(row, count, change):
            return
        if count > 1:
            last = self.window.follow(row, count - 1)
            if self.window.place_in_lane(last) != last:
                count -= 1
        page: Int = self.window.page_of(row)
        lanes: Int = self.window.pages[page, LANES]
        count -= self.window.pages[page, USED] - (row - page * self.window.page_rows) // lanes
        following: Int = self.window.pages[page, NEXT]
        self.pin_page(page, change)
        while count > 0:
            page = following
            count -= self.window.pages[page, USED]
            following = self.window.pages[page, NEXT]
            self.pin_page(page, change)

    def pin_stream(self, row: Int, count: Int, change: Int) -> None:
        """Adds `change` to the references of every page between `row` and the last of `count` rows of its stream.

        A final row beside the lane needs none: the page of the transition before it holds it, also where the window
        begins with the final row.
        """
        page: Int = self.window.page_of(self.window.place_in_lane(row))
        self.pin_page(page, change)
        for _ in range(count - 1):
            row = self.window.row_after(row)
            target: Int = self.window.page_of(self.window.place_in_lane(row))
            while page != target:
                page = self.window.pages[page, NEXT]
                self.pin_page(page, change)

    def pin_rows(self, row: Int, real: Int, lookahead: Int, change: Int) -> None:
        """Adds `change` to the references of every page under the rows of an item, its lookahead included."""
        if lookahead == STREAM:
            self.pin_stream(row, real, change)
        elif real == 1 and lookahead == 0:
            self.pin_page(self.window.page_of(row), change)
        elif not self.pin_in_page(row, real + lookahead, change):
            self.pin_window(row, self.kept_rows(row, real, lookahead), change)

    def kept_rows(self, row: Int, real: Int, lookahead: Int) -> Int:
        """Returns the number of rows that a window holds: its own, and those of its lookahead in its episode.

        An item is made when its whole lookahead is stored or its episode is over, so the number is the same ever after.
        """
        kept: Int = real
        while kept < real + lookahead and self.window.follow(row, kept) >= 0:
            kept += 1
        return kept

    # ---- final rows --------------------------------------------------------------------------------------------------

    def link_final(self, last: Int, final: Int) -> None:
        """Links row `last`, where an episode ends, with its final row `final` in another page."""
        self.window.links[last] = final + 1
        self.window.links[final] = last + 1
        # The links before the flag that says that they are there (replay D2).
        in_order()
        self.window.steps[last] |= LINKED
        self.note_link(last, final)

    def note_link(self, last: Int, final: Int) -> None:
        """Counts a link, which holds the page of the final row."""
        self.window.pages[self.window.page_of(last), LINKED_ROWS] += 1
        self.window.pages[self.window.page_of(final), REFERENCES] += 1

    # ---- pages that nothing holds ------------------------------------------------------------------------------------

    def take_freed(self) -> None:
        """Unlinks the freed pages from their neighbours. They stay on the stack."""
        done: Int = 0
        while done < self.window.freed[self.window.freed.shape[0] - 1]:
            self._take_apart(self.window.freed[done])
            done += 1

    def _take_apart(self, page: Int) -> None:
        following: Int = self.window.pages[page, NEXT]
        previous: Int = self.window.pages[page, PREVIOUS]
        if following >= 0:
            self.window.pages[following, PREVIOUS] = -1
        if previous >= 0:
            self.window.pages[previous, NEXT] = -1
        if self.window.pages[page, LINKED_ROWS] > 0:
            self._drop_links(page)
        self.window.pages[page, LANES] = 0
        self.window.pages[page, USED] = 0
        self.window.pages[page, STARTS] = 0
        self.window.pages[page, LINKED_ROWS] = 0
        self.window.pages[page, NEXT] = -1
        self.window.pages[page, PREVIOUS] = -1

    def _drop_links(self, page: Int) -> None:
        """Releases the final rows of this page's episodes; a final row that is still held is an orphan."""
        first = page * self.window.page_rows
        for row in range(first, first + self.window.pages[page, USED] * self.window.pages[page, LANES]):
            if self.window.word(row) & LINKED:
                final = self.window.link(row)
                self.window.links[final] = ORPHAN
                self.pin_page(self.window.page_of(final), -1)
