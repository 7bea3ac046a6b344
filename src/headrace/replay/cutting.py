"""From committed rows to windows: which items a rule makes, and when.

The rule of `windows()` in closed form, applied row by row as rows are committed, for every
lane of a block in one call. An episode of T transitions has T + 1 rows when its final row is known; rules of length 1
count only the T transitions.
"""

# Rules: trajectories W1, W5, W6

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from headrace.ends import EndOfEpisode
from headrace.replay.items import INVENTED, LOOKAHEAD, REAL, WINDOW_WORDS
from headrace.store.handles import handles_of, opened
from headrace.store.jit import Int, kernel, opening
from headrace.store.layout import FINAL, LANES, LINKED, PADDING, STEP_MASK, USED, StoreArrays
from headrace.store.memory import open_store
from headrace.store.pinning import pin_page, pin_window
from headrace.store.window import follow, step_after

# EndOfEpisode by number, for kernels.
END_NUMBERS = {end: number for number, end in enumerate(EndOfEpisode)}
DROP, TRUNCATE, PAD, TILE, LAST, CONTINUE = (END_NUMBERS[end] for end in EndOfEpisode)
# The whole episode is one window if it has at most `length` rows, and none otherwise.
WHOLE = len(END_NUMBERS)


class Cut(NamedTuple):
    """A rule, as numbers.

    Attributes:
        length: rows of a window.
        stride: rows from the start of one window to the next.
        end: the number of an `EndOfEpisode`, or WHOLE. Windows that CONTINUE are not cut here (`streams`).
        lookahead: rows after the window that must be there too, or the end of the episode.
    """

    length: int
    stride: int
    end: int
    lookahead: int


class Windows(NamedTuple):
    """Where windows are written.

    Attributes:
        rows: int64[capacity], first rows.
        shapes: uint32[capacity, 3]: real rows, invented rows, lookahead.
        lanes: int64[capacity]: the lane in the block.
        total: int64[1], how many.
    """

    rows: NDArray[np.int64]
    shapes: NDArray[np.uint32]
    lanes: NDArray[np.int64]
    total: NDArray[np.int64]


def room_for(rows: int, ends: int, cut: Cut) -> int:
    """Upper bound of the number of windows in `rows` rows with `ends` episode ends."""
    if cut.end == WHOLE:
        return ends
    return 2 * rows + ends * (cut.length + cut.lookahead + 2)


def new_windows(capacity: int) -> Windows:
    """Room for so many windows."""
    return Windows(
        np.empty(capacity, np.int64),
        np.empty((capacity, 3), np.uint32),
        np.empty(capacity, np.int64),
        np.zeros(1, np.int64),
    )


class Cutter:
    """A rule whose windows are cut and inserted in the call that stores the rows.

    Args:
        cut: the rule.
        priorities: float64[1], of the items.

    Attributes:
        cut, priorities: as above.
        out: the windows of the last call.
        made: how many of them became items.
        handles: int64[6, 2], of all these, for kernels (`open_cutter`).
    """

    def __init__(self, cut: Cut, priorities: NDArray[np.float64]) -> None:
        self.cut = cut
        self.priorities = np.asarray(priorities, np.float64)
        self.out = new_windows(0)
        self.made = 0
        self._numbers = np.array(cut, np.int64)
        self.handles = handles_of(self._numbers, self.priorities, *self.out)

    def make_room(self, windows: int) -> None:
        """See to it that so many windows fit."""
        if len(self.out.rows) >= windows:
            return
        out = new_windows(windows)
        handles = handles_of(*out)
        # No call from here on, after which Ctrl-C could come (test_interrupts.py).
        self.handles[2:] = handles
        self.out = out


@opening
def open_cutter(handles: NDArray[np.int64]) -> tuple[Cut, NDArray[np.float64], Windows]:
    """What a `Cutter` has handles of."""
    numbers = opened(handles, 0, np.int64)
    rows = opened(handles, 2, np.int64)
    return (
        Cut(numbers[0], numbers[1], numbers[2], numbers[3]),
        opened(handles, 1, np.float64),
        Windows(
            rows,
            opened(handles, 3, np.uint32).reshape((rows.shape[0], WINDOW_WORDS)),
            opened(handles, 4, np.int64),
            opened(handles, 5, np.int64),
        ),
    )


@kernel
def cut_block(store: StoreArrays, page: Int, steps: Int, cut: Cut, out: Windows) -> None:
    """The windows that the last `steps` committed vector steps of a page complete; their pages are pinned."""
    lanes = store.pages[page, LANES]
    used = store.pages[page, USED]
    first = page * store.page_rows
    for step in range(used - steps, used):
        for lane in range(lanes):
            row = first + step * lanes + lane
            word = np.int64(store.steps[row])
            if word & PADDING:
                continue
            _cut_row(store, row, lane, word, page, step, lanes, cut, out)
            if word & LINKED:
                _cut_row(
                    store,
                    np.int64(store.links[row]) - 1,
                    lane,
                    FINAL | step_after(word & STEP_MASK, 1),
                    page,
                    0,
                    lanes,
                    cut,
                    out,
                )
            if word & (FINAL | LINKED):
                cut_end(store, row, lane, cut, out)


@kernel
def cut_block_in(
    memory: NDArray[np.uint8],
    places: NDArray[np.int64],
    page_rows: Int,
    page: Int,
    length: Int,
    stride: Int,
    end: Int,
    lookahead: Int,
    rows: NDArray[np.int64],
    shapes: NDArray[np.uint32],
    lanes: NDArray[np.int64],
    total: NDArray[np.int64],
) -> None:
    """`cut_block` of one step, quick to call: the arrays are carved from their memory here."""
    store = open_store(memory, places, page_rows)
    cut_block(store, page, 1, Cut(length, stride, end, lookahead), Windows(rows, shapes, lanes, total))


@kernel
def cut_finals_in(
    memory: NDArray[np.uint8],
    places: NDArray[np.int64],
    page_rows: Int,
    ended: NDArray[np.int64],
    ended_lanes: NDArray[np.int64],
    length: Int,
    stride: Int,
    end: Int,
    lookahead: Int,
    rows: NDArray[np.int64],
    shapes: NDArray[np.uint32],
    lanes: NDArray[np.int64],
    total: NDArray[np.int64],
) -> None:
    """`cut_finals`, quick to call: the arrays are carved from their memory here."""
    store = open_store(memory, places, page_rows)
    cut = Cut(length, stride, end, lookahead)
    cut_finals(store, ended, ended_lanes, cut, Windows(rows, shapes, lanes, total))


@kernel
def cut_finals(
    store: StoreArrays, rows: NDArray[np.int64], lanes: NDArray[np.int64], cut: Cut, out: Windows
) -> None:
    """The windows that the ends of episodes complete, after the rows themselves were cut; their pages are pinned.

    Args:
        rows: int64[m], the last rows in the lanes; those that are LINKED have a final row.
        lanes: int64[m].
    """
    for index in range(rows.shape[0]):
        cut_final(store, rows[index], lanes[index], cut, out)


@kernel
def cut_final(store: StoreArrays, row: Int, lane: Int, cut: Cut, out: Windows) -> None:
    """`cut_finals` of one lane."""
    word = np.int64(store.steps[row])
    if word & LINKED:
        final = FINAL | step_after(word & STEP_MASK, 1)
        _cut_row(store, np.int64(store.links[row]) - 1, lane, final, 0, 0, 1, cut, out)
    cut_end(store, row, lane, cut, out)


@kernel
def _cut_row(
    store: StoreArrays,
    row: Int,
    lane: Int,
    word: Int,
    page: Int,
    before: Int,
    lanes: Int,
    cut: Cut,
    out: Windows,
) -> None:
    """The regular window that this row completes, its lookahead included.

    Args:
        page, before, lanes: the page of `lanes` that it stands in, after so many rows of its lane; `before` is 0 where
            that is not known.
    """
    if cut.end == WHOLE:
        return
    step = word & STEP_MASK
    back = cut.length - 1 + cut.lookahead
    start = step - back
    # Divisions take most of the time here, and most windows begin at every step.
    if start < 0 or (cut.stride != 1 and start % cut.stride != 0):
        return
    if back == 0 and word & FINAL:
        return  # No transition starts at a final row (trajectories W6).
    if back <= before:
        # All of it stands in one page, as nearly always.
        pin_page(store, page, 1)
        _write_window(row - back * lanes, lane, cut.length, 0, cut, out)
        return
    _emit(store, row, -back, lane, cut.length, 0, back + 1, cut, out)


@kernel
def cut_end(store: StoreArrays, row: Int, lane: Int, cut: Cut, out: Windows) -> None:
    """The windows that remain when the episode of `row`, its last row in the lane, is over.

    The row's own flags tell whether there is a final row: it is FINAL itself, or LINKED to one.
    """
    word = np.int64(store.steps[row])
    if word & LINKED:
        row = np.int64(store.links[row]) - 1
        word = np.int64(store.steps[row])
    last = word & STEP_MASK
    if cut.end == WHOLE:
        if last < cut.length:
            _emit(store, row, -last, lane, last + 1, 0, last + 1, cut, out)
        return
    rows = last if cut.length == 1 and word & FINAL else last + 1
    regular = rows - cut.length
    # Regular windows whose lookahead the end of the episode cut short.
    start: Int = max(0, last - (cut.length - 1) - cut.lookahead + 1)
    start = -(-start // cut.stride) * cut.stride
    while start <= regular:
        kept = min(cut.length + cut.lookahead, last - start + 1)
        _emit(store, row, start - last, lane, cut.length, 0, kept, cut, out)
        start += cut.stride
    if cut.end == DROP or rows <= 0:
        return
    if cut.end == LAST:
        if regular >= 0 and regular % cut.stride != 0:
            kept = min(cut.length + cut.lookahead, last - regular + 1)
            _emit(store, row, regular - last, lane, cut.length, 0, kept, cut, out)
        return
    # The first start on the stride that leaves fewer rows than a window has.
    start = 0 if regular < 0 else (regular // cut.stride + 1) * cut.stride
    if cut.end != TILE and regular >= 0 and regular % cut.stride == 0:
        return
    while start < rows:
        real = rows - start
        invented = 0 if cut.end == TRUNCATE else cut.length - real
        _emit(store, row, start - last, lane, real, invented, last - start + 1, cut, out)
        if cut.end != TILE:
            return
        start += cut.stride


@kernel
def _emit(
    store: StoreArrays,
    row: Int,
    offset: Int,
    lane: Int,
    real: Int,
    invented: Int,
    kept: Int,
    cut: Cut,
    out: Windows,
) -> None:
    start = follow(store, row, offset)
    if start < 0:
        return
    pin_window(store, start, kept, 1)
    _write_window(start, lane, real, invented, cut, out)


@kernel
def _write_window(start: Int, lane: Int, real: Int, invented: Int, cut: Cut, out: Windows) -> None:
    place = out.total[0]
    out.rows[place] = start
    out.shapes[place, REAL] = real
    out.shapes[place, INVENTED] = invented
    out.shapes[place, LOOKAHEAD] = cut.lookahead
    out.lanes[place] = lane
    out.total[0] = place + 1
