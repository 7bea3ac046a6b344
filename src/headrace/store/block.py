"""The lanes of one writer in a store: their pages, steps, and ends of episodes."""

from __future__ import annotations

from collections import deque
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from headrace.store.layout import ENDED, ENDED_FROM, LAST_ROW, OPEN_FROM, USED, LaneArrays
from headrace.store.left_lanes import LeftLanes
from headrace.store.staging import Stage
from headrace.store.store import Store


class EpisodeBoundary(NamedTuple):
    """The lanes of a step that hold nothing, and those whose episodes end with it.

    Attributes:
        final: bool[lanes]: lanes that hold their final row.
        idle: bool[lanes]: lanes that hold nothing.
        ended: int64[m]: lanes whose final rows stand in a page of their own, written already.
        first: the first of these rows.
    """

    final: NDArray[np.bool_]
    idle: NDArray[np.bool_]
    ended: NDArray[np.int64]
    first: int


class WrittenSteps(NamedTuple):
    """Vector steps that stand in a page already, and how episodes run through them.

    Rows are counted from the first row of these steps, and rise.

    Attributes:
        page, steps: the next `steps` vector steps of this page.
        final: int64[f]: rows that hold the final row of their lane's episode.
        idle: int64[i]: rows of lanes that hold nothing; no episode of the lane is open there.
        ended: int64[m]: the last transition of an episode whose final row stands in a page of its own.
        final_rows: int64[m]: these final rows, as rows of the store. They fill pages of one lane from their first row
            on.
        versions: int32[steps], of the policy that acted at each step, or int32[steps * lanes], at each row; 0: unknown.
    """

    page: int
    steps: int
    final: NDArray[np.int64]
    idle: NDArray[np.int64]
    ended: NDArray[np.int64]
    final_rows: NDArray[np.int64]
    versions: NDArray[np.int32]


class LaneBlock:
    """Lanes side by side that are appended together, from page to page.

    Rows are written first and committed afterwards; a row that is not committed is visible nowhere. One thread at a
    time may use a block; `commit_*` and everything that takes pages needs the store's lock, writing does not.

    Args:
        store: where the lanes live.
        lanes: number of lanes.
        history: number of its newest steps that stay in reach of later windows. Steps before the open episodes, or
            before those that ended last, are in reach of none.
        across: number of these steps that stay in reach in any case, for windows over the ends of episodes; None: all.
        stage: buffer for the small columns of each step; None if these are written to its rows.

    Attributes:
        lane_steps: uint32[lanes], the index of each lane's next step in its episode.
        newest_rows: int64[lanes], the rows of the step committed last; used again by the next.
        kernel: commits its steps, and counts them.
    """

    def __init__(
        self,
        store: Store,
        lanes: int,
        history: int,
        across: int | None = None,
        stage: Stage | None = None,
    ) -> None:
        self._store = store
        self.lanes = lanes
        self._history = history
        self._across = history if across is None else across
        self._page = -1
        self._reach: deque[tuple[int, int]] = deque()
        self._leased: deque[int] = deque()
        self._final_page = -1
        self._final_pages_ahead: deque[int] = deque()
        self._arrays = arrays = LaneArrays.empty(lanes)
        self.lane_steps, self.newest_rows, self._lane_words = arrays.steps, arrays.newest, arrays.words
        self.kernel = store.lanes(arrays, stage)

    # ---- pages -----------------------------------------------------------------------------------------------------

    def make_room(self, steps: int = 1) -> None:
        """Takes further pages if the present one has too few rows for `steps` more steps.

        Raises:
            StoreFull: no page is free; nothing in reach changed.
        """
        if self.kernel.begin_step():
            if self._leased:
                self._leave_pages()
            elif not self._go_on():
                self.lease_page()
            self._enter(self._leased.popleft())
        while self._rows_ahead() < steps * self.lanes:
            self.lease_page()

    def _go_on(self) -> bool:
        """Takes the page that an earlier block has left, for the first step; returns whether there is one."""
        # A walk back from a step trusts its index, so only rows of its own episode may precede it.
        if self._page >= 0 or self._across or self.lane_steps.any():
            return False
        page = self._store.go_on(self.lanes)
        if page >= 0:
            self._page = page
            self._leased.append(page)
        return page >= 0

    def leave(self, note: object = None) -> bool:
        """Lets a later block go on in the rest of the present page; `release` follows, also of the pages ahead.

        Episodes under way end in their last rows, so no window goes on in the rows of that block.

        Args:
            note: see `Store.take_back`.

        Returns:
            Whether there is a rest in which one may.
        """
        if not self._reach or self._across or self.kernel.is_full() or self._store.is_closed:
            return False
        self.end_without_final(np.flatnonzero(self.lane_steps))
        self._store.leave(self._reach[-1][0], note)
        return True

    def suspend(self) -> LeftLanes | None:
        """Gives back all pages in the midst of episodes; returns what `resume` needs, or None if it cannot help."""
        left = LeftLanes.of(self._reach, self._final_page, self._arrays, self.kernel)
        is_left = self.leave(left) and self.last >= 0
        if is_left and self._final_page >= 0:
            self._store.set_aside(self._final_page, left)
        for page in self.release():
            self._store.release(page)
        return left if is_left else None

    def resume(self, left: LeftLanes) -> bool:
        """Goes on with lanes whose block was suspended; returns False if another one has taken their pages since."""
        pages = [page for page, _ in left.reach]
        if not self._store.take_back(pages, left):
            return False
        left.restore(self._arrays, self.kernel)
        self._page = pages[-1]
        self.kernel.stop = self._stop_of(self._page)
        self._reach.extend(left.reach)
        if left.final_page >= 0 and self._store.take_back([left.final_page], left):
            self._final_page = left.final_page
        self._store.arrays.steps[self.last + np.flatnonzero(self.lane_steps)] &= ~np.uint32(ENDED)
        return True

    def _rows_ahead(self) -> int:
        """Returns the number of rows for which there are pages."""
        page_rows = self._store.arrays.page_rows // self.lanes * self.lanes
        return int(self.kernel.stop - self.kernel.row) + len(self._leased) * page_rows

    def _leave_pages(self) -> None:
        """Releases the pages that are out of reach of later windows."""
        # A page is out of reach once the next one's first step is.
        oldest = self._oldest_in_reach() if len(self._reach) > 1 else 0
        while len(self._reach) > 1 and self._reach[1][1] <= oldest:
            self._store.release(self._reach.popleft()[0])

    def _enter(self, page: int) -> None:
        """Makes the next step the first free one of this page."""
        kernel, arrays = self.kernel, self._store.arrays
        kernel.row = page * arrays.page_rows + int(arrays.pages[page, USED]) * self.lanes
        kernel.stop = self._stop_of(page)
        self._reach.append((page, kernel.committed))

    def _stop_of(self, page: int) -> int:
        """Returns the row behind the last one that a step of these lanes may take in a page."""
        page_rows = self._store.arrays.page_rows
        return page * page_rows + page_rows // self.lanes * self.lanes

    def _oldest_in_reach(self) -> int:
        """Returns the number of the oldest step that a later window may hold."""
        # Windows reach back to an ended episode until its lane goes on.
        words = self._lane_words
        first = int(np.where(self.lane_steps > 0, words[OPEN_FROM], words[ENDED_FROM]).min())
        return min(max(self.kernel.committed - self._history, first), self.kernel.committed - self._across)

    def release(self) -> list[int]:
        """Forgets all pages; returns those that the caller releases."""
        pages = [page for page, _ in self._reach] + list(self._leased) + list(self._final_pages_ahead)
        if self._final_page >= 0:
            pages.append(self._final_page)
        self._reach.clear()
        self._leased.clear()
        self._final_pages_ahead.clear()
        self._page = self._final_page = -1
        self.kernel.stop = self.kernel.row
        return pages

    @property
    def steps_ahead(self) -> int:
        """Number of steps for which there are pages."""
        return self._rows_ahead() // self.lanes

    @property
    def finals_ahead(self) -> int:
        """Number of final rows beside the lanes for which there are pages."""
        arrays = self._store.arrays
        free = 0 if self._final_page < 0 else arrays.page_rows - int(arrays.pages[self._final_page, USED])
        return free + len(self._final_pages_ahead) * arrays.page_rows

    # ---- steps -----------------------------------------------------------------------------------------------------

    @property
    def row(self) -> int:
        """The first row of the step to be written next; valid after `make_room`."""
        return self.kernel.row

    @property
    def last(self) -> int:
        """The first row of the step committed last."""
        return self.kernel.last

    def commit(self) -> None:
        """Commits the step at `row`, one transition of every lane."""
        self.kernel.take_step()

    def commit_ends(self, final: NDArray[np.bool_], idle: NDArray[np.bool_]) -> None:
        """Commits the step at `row`; `final` lanes hold their final row, `idle` lanes hold nothing."""
        self.kernel.take_marked(final, idle, True)

    def commit_final(self) -> None:
        """Commits the step at `row`: it holds the final rows of all lanes, with all columns written."""
        # The staged columns may be those of the next step
        # (test_an_interrupt_while_all_lanes_end_mixes_no_observations).
        every = np.ones(self.lanes, np.bool_)
        self.kernel.take_marked(every, ~every, False)

    # ---- steps that are written elsewhere --------------------------------------------------------------------------

    def lease_page(self) -> int:
        """Takes the next page for these lanes; pages are committed in the order in which they were leased.

        Raises:
            StoreFull: no page is free.
        """
        self._leave_pages()
        self._page = self._store.acquire(self.lanes, self._page)
        self._leased.append(self._page)
        return self._page

    def commit_written(self, written: WrittenSteps) -> None:
        """Takes in steps whose columns are written: their words, links, versions and episodes are written here.

        The steps go on in the page of the last ones, or begin the page that was leased next: the rest of the page
        before it stays unused.
        """
        if not written.steps:
            return
        if self._leased and written.page == self._leased[0]:
            self._leave_pages()
            self._enter(self._leased.popleft())
        self.kernel.commit_written(*written)

    def end_written(self, lanes: NDArray[np.int64], final_rows: NDArray[np.int64]) -> None:
        """Ends the open episodes of these lanes after their last step.

        Args:
            lanes: int64[m], rising.
            final_rows: int64[m]: rows of the store whose columns are written; see `WrittenSteps`.
        """
        if self.last < 0:
            self._end_elsewhere(lanes, final_rows)
        else:
            self.kernel.end_written(lanes, final_rows)

    def _end_elsewhere(self, lanes: NDArray[np.int64], final_rows: NDArray[np.int64]) -> None:
        """Ends episodes all of whose steps are in another store: no row of this one links to their final rows."""
        pages, page_rows = self._store.arrays.pages, self._store.arrays.page_rows
        for row in final_rows.tolist():  # They rise in the order in which their pages were leased.
            pages[row // page_rows, USED] = row % page_rows + 1
        self.lane_steps[lanes] = 0

    # ---- ends of episodes ------------------------------------------------------------------------------------------

    def tail(self, lane: int) -> int:
        """Returns the newest row of a lane, its final row if its episode has ended; -1 if there is none."""
        return self.last + lane if self.lane_steps[lane] else int(self._lane_words[LAST_ROW, lane])

    def end_without_final(self, lanes: NDArray[np.int64]) -> None:
        """Ends the episodes of these lanes, whose last observations are not known."""
        words, last = self._lane_words, self.last + lanes
        # Otherwise all their steps are in another store.
        if self.last >= 0:
            # The flag of the last row suffices: it is read before the row that would hold the next observation.
            self._store.arrays.steps[last] |= np.uint32(ENDED)
            words[ENDED_FROM, lanes], words[OPEN_FROM, lanes] = words[OPEN_FROM, lanes], self.kernel.committed
            words[LAST_ROW, lanes] = last
        self.lane_steps[lanes] = 0

    def drop(self, lanes: NDArray[np.int64]) -> None:
        """Ends the episodes of these lanes, of which no later window holds a row, so their pages may be released."""
        self.end_without_final(lanes)
        self._lane_words[ENDED_FROM, lanes] = self._lane_words[OPEN_FROM, lanes]
        self._lane_words[LAST_ROW, lanes] = -1

    def pages_for_finals(self, count: int, ahead: int) -> list[int]:
        """Returns the lanes of each page that the final rows of `count` lanes take, after `ahead` further steps."""
        if count == self.lanes:
            return [self.lanes] * (self._rows_ahead() <= ahead * self.lanes)
        return [1] * -(-max(0, count - self.finals_ahead) // self._store.arrays.page_rows)

    def hold_pages_for_finals(self, count: int) -> None:
        """Takes pages for the final rows of `count` lanes beside the lanes.

        Raises:
            StoreFull: no page is free; nothing in reach changed.
        """
        with self._store.lock:
            while self.finals_ahead < count:
                self._final_pages_ahead.append(self._store.acquire(1))

    def make_room_for_finals(self) -> tuple[int, int]:
        """Returns the first free row for final rows beside the lanes, and the number of rows that fit."""
        arrays = self._store.arrays
        if self._final_page < 0 or arrays.pages[self._final_page, USED] == arrays.page_rows:
            ahead = self._final_pages_ahead
            page = ahead.popleft() if ahead else self._store.acquire(1)
            if self._final_page >= 0:
                self._store.release(self._final_page)
            self._final_page = page
        used = int(arrays.pages[self._final_page, USED])
        return self._final_page * arrays.page_rows + used, arrays.page_rows - used

    def commit_finals(self, lanes: NDArray[np.int64], first: int) -> None:
        """Commits the rows from `first` on, written already, as the final rows of these lanes."""
        if self.last < 0:
            self._end_elsewhere(lanes, np.arange(first, first + len(lanes)))
        else:
            self.kernel.commit_finals(lanes, first)
