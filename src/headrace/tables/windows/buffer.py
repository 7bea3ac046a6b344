"""Windows of committed rows: found for every lane of a block in one call, written down, and pinned."""

from __future__ import annotations

from typing import NamedTuple

import cython
import numpy as np
from numpy.typing import NDArray

from headrace.tables.description.window_rule import WindowRule
from headrace.tables.windows.plan import WindowPlan

if not cython.compiled:
    from headrace.kernels.kinds import Bool, GivenLongs, Int, Longs
    from headrace.store.layout import EMPTY, FINAL, LANES, LINKED, STEP_MASK, USED
    from headrace.store.pages.pinning import Pins
    from headrace.store.window import step_after
    from headrace.tables.items.layout import (
        CONTINUE,
        LOOKAHEAD,
        PADDED,
        REAL,
        SELECTED,
        STREAM,
        TRUNCATE,
        WHOLE,
        WINDOW_WORDS,
    )


class Windows(NamedTuple):
    """Windows, as they become items.

    Attributes:
        rows: int64[M], first rows.
        shapes: uint32[M, 3], or uint32[1, 3] for all: real rows, padded rows, lookahead.
    """

    rows: NDArray[np.int64]
    shapes: NDArray[np.uint32]


class WindowBuffer(WindowPlan):
    """Finds the windows of one rule in committed rows, writes them down, and pins the pages under their rows.

    Kernels begin with `begin`, then call `find_in_block` and `find_at_end`.

    Args:
        pins: of the store.
        rule: in numbers.
        priorities: float64[1], of the items; empty: the largest priority so far.
        lanes: of the block whose windows go on over the ends of episodes; other rules need no memory of them.

    Attributes:
        is_every_row: whether each transition is a window by itself, at once.
        step_shape: uint32[1, 3], of all windows that are complete before their episode ends.
        priorities: as above.
        priority: the same, for kernels.
        rows: int64[capacity], the first rows of the windows of the last call.
        shapes: uint32[3 * capacity], see `Windows`.
    """

    def __init__(self, pins: Pins, rule: WindowRule, priorities: NDArray[np.float64], lanes: int = 0) -> None:
        WindowPlan.__init__(self, rule)
        self.pins = pins
        self.window = pins.window
        self.is_every_row = (
            self.length == self.stride == 1
            and self.lookahead == 0
            and self.end not in (CONTINUE, WHOLE, SELECTED)
        )
        self.priorities = priorities
        self.priority = priorities
        # Values of the word LOOKAHEAD of a window.
        self.kept = STREAM if self.end == CONTINUE else self.lookahead
        self.step_shape = np.array([[self.length, 0, self.kept]], np.uint32)
        lanes, length = (lanes, self.length) if self.end == CONTINUE else (0, 0)
        self.stream_rows = np.zeros((length, lanes), np.int64)
        self.stream_counts = np.zeros(lanes, np.int64)
        self.stream_waits = np.zeros(lanes, np.uint8)
        self._reserve(0)

    def begin(self, rows: Int, ends: Int) -> None:
        """Forgets the last windows; reserves memory for those in `rows` rows with `ends` ends of episodes."""
        self.total = 0
        most = self.most(rows, ends)
        if most > self.rows.shape[0]:
            self._reserve(2 * most)

    def most(self, rows: Int, ends: Int) -> Int:
        """Upper bound of the number of windows in `rows` rows with `ends` episode ends."""
        if self.end == WHOLE:
            return ends
        if self.is_every_row:
            return rows
        # Windows begin at rows that are stored, each at another.
        return 2 * rows + ends * self.most_of_end(self.window.steps.shape[0])

    def _reserve(self, capacity: Int) -> None:
        rows, shapes = np.empty(capacity, np.int64), np.empty(WINDOW_WORDS * capacity, np.uint32)
        # No call from here on, after which Ctrl-C could come (test_interrupts.py).
        self.rows, self.shapes = rows, shapes
        self._rows, self._shapes = rows, shapes

    def windows(self) -> Windows:
        """Copies of the windows of the last call: those that wait for a rate limiter outlive the next."""
        count = self.total
        if self.is_every_row:
            return Windows(self._rows[:count].copy(), self.step_shape)
        shapes = self._shapes[: WINDOW_WORDS * count].reshape(count, WINDOW_WORDS)
        return Windows(self._rows[:count].copy(), shapes.copy())

    def find_in_steps(self, page: Int, steps: Int) -> Windows:
        """Returns the windows that the last `steps` committed vector steps of a page complete."""
        rows: Int = steps * self.window.pages[page, LANES]
        stop = page * self.window.page_rows + self.window.pages[page, USED] * self.window.pages[page, LANES]
        ends: Int = 0
        for row in range(stop - rows, stop):
            ends += cython.cast(Int, self.window.word(row) & (FINAL | LINKED) != 0)
        self.begin(rows, ends)
        with cython.nogil:
            self.find_in_block(page, steps)
        return self.windows()

    def find_at_ends(self, rows: GivenLongs) -> Windows:
        """Returns the windows that the ends of episodes complete, after those in their rows were found.

        Args:
            rows: int64[m], the last rows in the lanes; those that are LINKED have a final row.
        """
        self.begin(rows.shape[0], rows.shape[0])
        for index in range(rows.shape[0]):
            self.find_at_end(rows[index])
        return self.windows()

    # ---- in kernels --------------------------------------------------------------------------------------------------

    def find_in_block(self, page: Int, steps: Int) -> None:
        """Finds the windows that the last `steps` committed vector steps of a page complete."""
        lanes: Int = self.window.pages[page, LANES]
        used: Int = self.window.pages[page, USED]
        first = page * self.window.page_rows
        if self.is_every_row:
            self._find_transitions(page, first + (used - steps) * lanes, steps * lanes)
            return
        for step in range(used - steps, used):
            linked: Int = 0
            for lane in range(lanes):
                row = first + step * lanes + lane
                word = self.window.word(row)
                if word & EMPTY:
                    self._wait(lane)
                    continue
                if self.end == CONTINUE:
                    self._extend(lane, row, word)
                else:
                    self._find_at_row(row, word, page, step, lanes)
                if word & FINAL:
                    self._find_remaining(row)
                linked |= word & LINKED
            if linked:
                self._find_at_linked(first + step * lanes, lanes)

    def find_in_step(self, page: Int, first: Int) -> None:
        """Finds the windows that the last step of a page completes, a transition of every lane from row `first` on."""
        if not self.is_every_row:
            self.find_in_block(page, 1)
            return
        lanes: Int = self.window.pages[page, LANES]
        for lane in range(lanes):
            self.rows[lane] = first + lane
        self.pins.pin_page(page, lanes)
        self._write_shape(0, 1, 0)
        self.total = lanes

    def _find_transitions(self, page: Int, first: Int, count: Int) -> None:
        """Finds a window in each of these rows that holds a transition."""
        total: Int = 0
        for row in range(first, first + count):
            self.rows[total] = row
            # A conditional step of the place, not a jump.
            total += cython.cast(Int, (self.window.word(row) & (EMPTY | FINAL)) == 0)
        if total:
            self.pins.pin_page(page, total)
            self._write_shape(0, 1, 0)
        self.total = total

    def _find_at_linked(self, first: Int, lanes: Int) -> None:
        """Finds the windows that the final rows beside the lanes of one step complete."""
        for row in range(first, first + lanes):
            if self.window.word(row) & LINKED:
                self.find_at_end(row)

    def find_at_end(self, row: Int) -> None:
        """Finds the windows that the end of one episode completes; see `find_at_ends`."""
        if self.is_every_row:
            return
        word = self.window.word(row)
        if word & LINKED:
            if self.end == CONTINUE:
                page = self.window.page_of(row)
                lane = (row - page * self.window.page_rows) % self.window.pages[page, LANES]
                self._extend(lane, self.window.link(row), FINAL)
            else:
                self._find_at_row(self.window.link(row), _word_after(word), 0, 0, 1)
        self._find_remaining(row)

    # ---- windows over the ends of episodes ---------------------------------------------------------------------------
    # The step index of a row starts anew with each episode and tells nothing about a stream. So the rows of each lane
    # are counted, and the newest are remembered.

    def _extend(self, lane: Int, row: Int, word: Int) -> None:
        """Adds a row to the stream of a lane, and finds the window that it completes."""
        self.stream_waits[lane] = 0
        if self.length == 1 and word & FINAL:
            return  # No transition starts at a final row (trajectories W6).
        count: Int = self.stream_counts[lane]
        self.stream_rows[count % self.length, lane] = row
        self.stream_counts[lane] = count + 1
        if self.completes(count, False):
            first = self.stream_rows[(count + 1 - self.length) % self.length, lane]
            if first < 0:
                return  # It was before the rows that are here (`restore_streams`).
            self.pins.pin_stream(first, self.length, 1)
            self._write(first, self.length, 0)

    def _wait(self, lane: Int) -> None:
        """Notes a lane that holds nothing in this step: after the second such step its rows may be out of reach."""
        if self.end == CONTINUE:
            if self.stream_waits[lane]:
                self.stream_counts[lane] = 0
            self.stream_waits[lane] = 1

    def end_streams(self, lanes: GivenLongs) -> None:
        """Starts a new stream in these lanes: no window crosses this point."""
        for place in range(lanes.shape[0]):
            self.stream_counts[lanes[place]] = 0

    def streams(self) -> NDArray[np.int64]:
        """Returns int64[2, lanes]: the number of rows in the stream of each lane, and whether the lane waits."""
        return np.array([np.asarray(self.stream_counts), np.asarray(self.stream_waits)], np.int64)

    def restore_streams(self, streams: NDArray[np.int64]) -> None:
        """Continues streams whose earlier rows are not here; no window begins at one of them.

        Args:
            streams: of `streams`.
        """
        np.asarray(self.stream_counts)[:] = streams[0]
        np.asarray(self.stream_waits)[:] = streams[1]
        np.asarray(self.stream_rows)[:] = -1

    def completes_a_stream(self) -> Bool:
        """Whether the next row completes a window over the ends of episodes in some lane."""
        for lane in range(self.stream_counts.shape[0]):
            if self.completes(self.stream_counts[lane], False):
                return True
        return False

    # ---- windows in one episode --------------------------------------------------------------------------------------

    def _find_at_row(self, row: Int, word: Int, page: Int, before: Int, lanes: Int) -> None:
        """Finds the regular window that this row completes, its lookahead included.

        Args:
            page, before, lanes: the page of `lanes` that it stands in, after so many rows of its lane; `before` is 0
                where that is not known.
        """
        step = word & STEP_MASK
        if not self.completes(step, word & FINAL != 0):
            return
        back = self.length - 1 + self.lookahead
        if back <= before:
            # All of it stands in one page, as nearly always.
            self.pins.pin_page(page, 1)
            self._write(row - back * lanes, self.length, 0)
            return
        self._emit(row, step, step - back)

    def _find_remaining(self, row: Int) -> None:
        """Finds the windows that remain when the episode of `row`, its last row in the lane, is over.

        The row's own flags tell whether there is a final row: it is FINAL itself, or LINKED to one.
        """
        word: Int = self.window.word(row)
        if word & LINKED:
            row = self.window.link(row)
            word = self.window.word(row)
        last = word & STEP_MASK
        self.begin_end(last, word & FINAL != 0)
        start = self.next_start()
        while start >= 0:
            self._emit(row, last, start)
            start = self.next_start()

    def _emit(self, row: Int, last: Int, start: Int) -> None:
        """Writes down and pins the window from row `start` of an episode on; `row` of the store is its row `last`."""
        first = self.window.follow(row, start - last)
        if first < 0:
            return
        real: Int = min(self.length, last + 1 - start)
        padded: Int = 0 if self.end in (TRUNCATE, WHOLE) else self.length - real
        self.pins.pin_window(first, min(self.length + self.lookahead, last + 1 - start), 1)
        self._write(first, real, padded)

    def _write(self, start: Int, real: Int, padded: Int) -> None:
        self.rows[self.total] = start
        self._write_shape(self.total, real, padded)
        self.total += 1

    def _write_shape(self, place: Int, real: Int, padded: Int) -> None:
        word = WINDOW_WORDS * place
        self.shapes[word + REAL] = real
        self.shapes[word + PADDED] = padded
        self.shapes[word + LOOKAHEAD] = self.kept


def _word_after(word: Int) -> Int:
    """Returns the word of the final row that follows the row of this word."""
    return FINAL | step_after(word & STEP_MASK, 1)


# ---- windows that a pattern selects ----------------------------------------------------------------------------------


def pin_before(pins: Pins, newest: GivenLongs, back: Int, count: Int, starts: Longs) -> Int:
    """Pins the pages under `count` rows that begin `back` rows before each of `newest`, in its episode.

    Args:
        newest: int64[m].
        starts: int64[m], of which the first are written: the first rows of these windows.

    Returns:
        The number of windows. One whose first row is not in the episode, or not in reach, is left out.
    """
    # Clients select windows: tests/server/test_selected_windows.py
    pinned: Int = 0
    for index in range(newest.shape[0]):
        start = pins.window.follow(newest[index], -back)
        if start >= 0:
            pins.pin_window(start, count, 1)
            starts[pinned] = start
            pinned += 1
    return pinned
