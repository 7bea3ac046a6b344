"""The window function: finds the rows at offsets from a row.

This is the only code that follows lanes and page links, stops at episode ends and at the write head. Next
observations, frame stacks, n-step returns, sequences and views all call it. tests/store/test_window.py compares it
with a list of lists under random lanes, episode lengths, page sizes, evictions and offsets.
"""

from __future__ import annotations

import cython

from headrace.store.layout import StoreArrays

if not cython.compiled:
    from headrace.kernels.hints import prefetch
    from headrace.kernels.kinds import Bool, Bytes, GivenLongs, GivenUInts, Int, Longs, LongTable
    from headrace.store.layout import (
        AHEAD,
        EDGE,
        EMPTY,
        ENDED,
        FINAL,
        KNOWN,
        LANES,
        LINKED,
        NEXT,
        NO_LINK,
        ORPHAN,
        PREVIOUS,
        STARTS,
        STEP_HALF,
        STEP_MASK,
        UNKNOWN,
        USED,
    )


class Window:
    """The rows of a store as they follow one another: in the lanes of pages, in episodes, and in streams.

    A stream is a lane's rows one after another, over the ends of its episodes: windows stop at the end of an episode,
    except those of rules that say CONTINUE. Its rows are those of the lane as they were written: an episode's
    transitions, its final row, wherever that stands, then the next episode.

    Args:
        arrays: of the store.
    """

    # Rules: trajectories A10 (streams)

    def __init__(self, arrays: StoreArrays) -> None:
        self.pages = arrays.pages
        self.steps = arrays.steps
        self.links = arrays.links
        self.start_rows = arrays.start_rows
        self.start_ids = arrays.start_ids
        self.freed = arrays.freed
        self.page_rows = arrays.page_rows

    # ---- one row -----------------------------------------------------------------------------------------------------

    def page_of(self, row: Int) -> Int:
        """Returns the page of a row."""
        # Rows have 32 bits, and processors divide such numbers twice as fast.
        return cython.cast(cython.uint, row) // cython.cast(cython.uint, self.page_rows)

    def word(self, row: Int) -> Int:
        """Returns the word of a row: its step index and its flags."""
        return cython.cast(Int, self.steps[row])

    def link(self, row: Int) -> Int:
        """Returns the row to which this one is linked; -1 if there is none."""
        return cython.cast(Int, self.links[row]) - 1

    def walk(self, row: Int, offset: Int) -> tuple[Int, Int]:
        """Finds the row `offset` vector steps on in the same lane, in any episode.

        Returns:
            The row, and 0; or, beyond the lane's pages, the oldest row of the lane (going back) or -1 (going on), and
            the number of missing steps.
        """
        page = self.page_of(row)
        lanes: Int = self.pages[page, LANES]
        place = row - page * self.page_rows + offset * lanes
        if 0 <= place < self.pages[page, USED] * lanes:
            return row + offset * lanes, 0  # In the same page, as nearly always.
        return self._walk_pages(row, page, offset)

    def _walk_pages(self, row: Int, page: Int, offset: Int) -> tuple[Int, Int]:
        in_page = row - page * self.page_rows
        lanes: Int = self.pages[page, LANES]
        lane = in_page % lanes
        step: Int = in_page // lanes + offset
        while step >= self.pages[page, USED]:
            following: Int = self.pages[page, NEXT]
            if following < 0:
                return -1, step - self.pages[page, USED] + 1
            step -= self.pages[page, USED]
            page = following
        while step < 0:
            previous: Int = self.pages[page, PREVIOUS]
            if previous < 0:
                return page * self.page_rows + lane, step
            page = previous
            step += self.pages[page, USED]
        return page * self.page_rows + step * lanes + lane, 0

    def follow(self, row: Int, offset: Int) -> Int:
        """Returns the row `offset` steps on in the same episode, the final row included; -1 if there is none."""
        if offset == 0:
            return row
        word = self.word(row)
        if offset < 0:
            return self._follow_back(row, word, -offset)
        if word & (FINAL | ENDED):
            return -1
        if word & LINKED:
            return self.link(row) if offset == 1 else -1
        target, missing = self.walk(row, offset)
        if offset == 1:
            return target if missing == 0 else -1
        if missing == 0 and _is_step(self.word(target), step_after(word & STEP_MASK, offset)):
            return target
        # Not in the lane itself: it may be the final row that stands beside it. Between the two there may be a start of
        # another episode, but never one with the same step index: it counts from 0.
        before, missing = self.walk(row, offset - 1)
        if missing == 0:
            last = self.word(before)
            if last & LINKED and _is_step(last, step_after(word & STEP_MASK, offset - 1)):
                return self.link(before)
        return -1

    def _follow_back(self, row: Int, word: Int, distance: Int) -> Int:
        link: Int = self.links[row] if word & FINAL else NO_LINK
        if link == ORPHAN:
            return -1
        if link != NO_LINK:
            row = link - 1
            distance -= 1
            word = self.word(row)
        step = word & STEP_MASK
        if step < STEP_HALF and distance > step:
            return -1
        target, missing = self.walk(row, -distance)
        return target if missing == 0 else -1

    def oldest(self, row: Int, distance: Int) -> Int:
        """Returns the oldest stored row among the last `distance` steps of this row's episode."""
        word: Int = self.word(row)
        link: Int = self.links[row] if word & FINAL else NO_LINK
        if link == ORPHAN:
            return row
        if link != NO_LINK:
            row = link - 1
            distance -= 1
            word = self.word(row)
        step = word & STEP_MASK
        if step < STEP_HALF and distance > step:
            distance = step
        target, _ = self.walk(row, -distance)
        return target

    def newest(self, row: Int, distance: Int) -> Int:
        """Returns the newest stored row among the next `distance` steps of this row's episode."""
        low: Int = 0
        found: Int = row
        high: Int = distance + 1
        while high - low > 1:
            middle = (low + high) // 2
            target = self.follow(row, middle)
            if target >= 0:
                low, found = middle, target
            else:
                high = middle
        return found

    def reach(self, row: Int, direction: Int) -> Int:
        """Returns the number of stored rows of this row's episode after it (`direction` 1) or before it (-1)."""
        low: Int = 0
        high: Int = 1
        while self.follow(row, direction * high) >= 0:
            low, high = high, 2 * high
        while high - low > 1:
            middle = (low + high) // 2
            if self.follow(row, direction * middle) >= 0:
                low = middle
            else:
                high = middle
        return low

    def row_after(self, row: Int) -> Int:
        """Returns the row written after this one in its lane, in any episode; -1 if there is none yet."""
        if self.word(row) & LINKED:
            return self.link(row)
        row = self.place_in_lane(row)
        page: Int = self.page_of(row)
        in_page: Int = row - page * self.page_rows
        lanes: Int = self.pages[page, LANES]
        lane = in_page % lanes
        while True:
            in_page += lanes
            if in_page >= self.pages[page, USED] * lanes:
                page = self.pages[page, NEXT]
                if page < 0:
                    return -1
                in_page = lane
                if self.pages[page, USED] == 0:
                    return -1
            row = page * self.page_rows + in_page
            if not self.word(row) & EMPTY:
                return row

    def place_in_lane(self, row: Int) -> Int:
        """Returns the row itself, or the transition before it if it is a final row outside its lane."""
        if self.word(row) & FINAL and self.links[row] != NO_LINK:
            return self.link(row)
        return row

    def episode_id(self, row: Int) -> Int:
        """Returns the episode of a row; -1 for row -1 and for a final row whose transitions are gone."""
        if row < 0:
            return -1
        word: Int = self.word(row)
        if word & FINAL and self.links[row] != 0:
            row = self.link(row)
            if row >= self.steps.shape[0]:
                return -1
            word = self.word(row)
        page = self.page_of(row)
        first = page * self.page_rows
        in_page = row - first
        lanes: Int = self.pages[page, LANES]
        begin = in_page - min(word & STEP_MASK, in_page // lanes) * lanes
        low: Int = 0
        high: Int = self.pages[page, STARTS]
        while high - low > 1:
            middle = (low + high) // 2
            if self.start_rows[first + middle] <= begin:
                low = middle
            else:
                high = middle
        found: Int = self.start_ids[first + low]
        return found

    # ---- many rows ---------------------------------------------------------------------------------------------------

    def episode_ids(self, rows: GivenLongs, ids: Longs) -> None:
        """Writes the episode of each row; see `episode_id`.

        Args:
            rows: int64[M].
            ids: int64[M], written.
        """
        with cython.nogil:
            for index in range(rows.shape[0]):
                ids[index] = self.episode_id(rows[index])

    def rows_of_windows(self, starts: GivenLongs, counts: GivenUInts, rows: LongTable) -> None:
        """Writes the rows of windows: `counts[i]` rows from `starts[i]` on, then -1.

        A window that crosses the end of an episode continues in the next one (`row_after`); only rules with CONTINUE
        make such windows.

        Args:
            starts: int64[B].
            counts: uint32[B].
            rows: int64[B, L], written.
        """
        with cython.nogil:
            for item in range(rows.shape[0]):
                self._write_window(starts[item], counts[item], rows, item)

    def _write_window(self, row: Int, count: Int, rows: LongTable, item: Int) -> None:
        page: Int = self.page_of(row)
        for place in range(rows.shape[1]):
            if place >= count:
                rows[item, place] = -1
                continue
            rows[item, place] = row
            if place + 1 >= count:
                continue
            if self.word(row) & (LINKED | FINAL):
                row = self.row_after(row)
                page = self.page_of(row)
                continue
            in_page: Int = row - page * self.page_rows + self.pages[page, LANES]
            if in_page >= self.pages[page, USED] * self.pages[page, LANES]:
                in_page -= self.pages[page, USED] * self.pages[page, LANES]
                page = self.pages[page, NEXT]
            row = page * self.page_rows + in_page

    def rows_of_one_length(self, starts: Longs, count: Int, length: Int, rows: Longs, to: Int) -> None:
        """Writes the rows of windows that all have `length` rows, each in one episode.

        Within a window only the step to its last row can lead to a final row that stands beside the lane.

        Args:
            starts: int64[count].
            rows: int64[...]; `count * length` numbers from `to` on are written.
        """
        for item in range(count):
            row: Int = starts[item]
            place = to + item * length
            stop = place + length
            rows[place] = row
            if length == 1:
                continue
            page: Int = self.page_of(row)
            lanes: Int = self.pages[page, LANES]
            end: Int = page * self.page_rows + self.pages[page, USED] * lanes
            for place in range(to + item * length + 1, stop - 1):
                row += lanes
                if row >= end:
                    row -= self.pages[page, USED] * lanes + page * self.page_rows
                    page = self.pages[page, NEXT]
                    row += page * self.page_rows
                    end = page * self.page_rows + self.pages[page, USED] * lanes
                rows[place] = row
            prefetch(self.steps, row)
        if length > 1:
            for item in range(count):
                last = to + (item + 1) * length - 1
                rows[last] = self.follow(rows[last - 1], 1)

    def resolve(self, starts: Longs, offsets: Longs, is_post: Bool, rows: Longs, known: Bytes) -> int:
        """Finds the rows at `offsets` from each of `starts`, within their episodes.

        Args:
            starts: int64[M]; -1 stands for a padded row: nothing is known there.
            offsets: int64[W].
            is_post: the column is known only after acting (a post column): a final row has no value of it.
            rows: int64[M * W], written, `[M, W]` side by side: where to read. Always a row that can be read, also
                where nothing is known.
            known: uint8[M * W], written: KNOWN, or EDGE if `rows` has the nearest value that this row may show, else
                UNKNOWN.

        Returns:
            The number of entries that are not KNOWN.
        """
        with cython.nogil:
            missing = self.resolve_into(
                starts, 0, starts.shape[0], offsets, 0, offsets.shape[0], is_post, rows, known, 0
            )
        return missing

    def resolve_into(
        self,
        starts: Longs,
        first: Int,
        count: Int,
        offsets: Longs,
        begin: Int,
        width: Int,
        is_post: Bool,
        rows: Longs,
        known: Bytes,
        to: Int,
    ) -> Int:
        """Does `resolve` for parts of the arrays: `count` starts, `width` offsets; writes from `to` on."""
        # Rules: views V2, V6, V7
        missing: Int = 0
        furthest: Int = offsets[begin]
        for number in range(begin, begin + width):
            furthest = max(furthest, offsets[number])
        last = first + count - 1
        for number in range(width):
            offset: Int = offsets[begin + number]
            for index in range(first, min(first + AHEAD, last + 1)):
                self._ask_for(starts[index], offset)
            for index in range(count):
                if first + index + AHEAD <= last:
                    self._ask_for(starts[first + index + AHEAD], offset)
                start: Int = starts[first + index]
                place = to + index * width + number
                if start < 0:
                    missing += 1
                    rows[place] = 0
                    known[place] = UNKNOWN
                    continue
                target: Int = self.follow(start, offset)
                if target >= 0 and not (is_post and self.word(target) & FINAL):
                    rows[place] = target
                    known[place] = KNOWN
                    continue
                missing += 1
                target, found = self._edge(start, offset, furthest, is_post)
                rows[place] = target
                known[place] = found
        return missing

    def _ask_for(self, row: Int, offset: Int) -> None:
        """Prefetches the words that `follow` will read: each would be a separate cache miss."""
        if row < 0:
            return
        prefetch(self.steps, row)
        if offset != 0:
            prefetch(self.steps, row + offset * self.pages[self.page_of(row), LANES])

    def _edge(self, start: Int, offset: Int, furthest: Int, is_post: Bool) -> tuple[Int, Int]:
        """Returns the row with the value nearest to a missing one, and whether this row may show it."""
        # Rules: views V6
        if offset < 0:
            oldest = self.oldest(start, -offset)
            # Values that follow the row's own action are shown only to a view that includes them anyway.
            if is_post and (self.word(oldest) & FINAL or (oldest == start and furthest < 0)):
                return start, UNKNOWN
            return oldest, EDGE
        target: Int = self.newest(start, offset)
        if is_post and self.word(target) & FINAL:
            target = self.follow(target, -1)
            if target < 0:
                return start, UNKNOWN
        return target, EDGE


def step_after(step: Int, count: Int) -> Int:
    """Returns the step index `count` steps on; past its bits it continues as `layout.STEP_HALF` says."""
    later = step + count
    if later <= STEP_MASK:
        return later
    return STEP_HALF + (later - STEP_MASK - 1) % (STEP_MASK + 1 - STEP_HALF)


def _is_step(word: Int, step: Int) -> Bool:
    return (word & EMPTY) == 0 and (word & STEP_MASK) == step
