"""Making written rows part of the store: how far a page is used, where episodes begin."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from headrace.store.copying import place_fields
from headrace.store.handles import opened
from headrace.store.intrinsics import in_order
from headrace.store.jit import Int, kernel, opening
from headrace.store.layout import (
    FINAL,
    LANES,
    LINKED,
    NO_LINK,
    PADDING,
    STARTS,
    STEP_MASK,
    USED,
    StoreArrays,
)
from headrace.store.memory import clear_row, open_records, open_store
from headrace.store.pinning import link_final, note_link
from headrace.store.records import FIELD_WORDS
from headrace.store.window import step_after

# The words of a lane: at which of the block's steps the episode began that ended last, and the one after it; and the
# last row of the one that ended last, while the lane has not gone on.
ENDED_FROM, OPEN_FROM, LAST_ROW = range(3)
LANE_WORDS = 3


class Lanes(NamedTuple):
    """What is known of a block's lanes beside their rows.

    Attributes:
        steps: uint32[lanes], the index of each lane's next step in its episode.
        episodes: int64[lanes], the episode each lane is in.
        next_episode: int64[1], the store's counter of episodes.
        newest: int64[lanes], the rows of the step committed last.
        words: int64[LANE_WORDS, lanes].
        staged, fields: the memory and the fields of a `Stage` that is written before each commit; both are empty where
            rows are written themselves.
    """

    steps: NDArray[np.uint32]
    episodes: NDArray[np.int64]
    next_episode: NDArray[np.int64]
    newest: NDArray[np.int64]
    words: NDArray[np.int64]
    staged: NDArray[np.uint8]
    fields: NDArray[np.int64]


@opening
def open_lanes(handles: NDArray[np.int64]) -> Lanes:
    """The `Lanes` of these handles."""
    newest, fields = opened(handles, 3, np.int64), opened(handles, 6, np.int64)
    return Lanes(
        opened(handles, 0, np.uint32),
        opened(handles, 1, np.int64),
        opened(handles, 2, np.int64),
        newest,
        opened(handles, 4, np.int64).reshape((LANE_WORDS, newest.shape[0])),
        opened(handles, 5, np.uint8),
        fields.reshape((fields.shape[0] // FIELD_WORDS, FIELD_WORDS)),
    )


@kernel
def take_staged(
    memory: NDArray[np.uint8], places: NDArray[np.int64], store: StoreArrays, row: Int, lanes: Lanes
) -> None:
    """Write what is staged of the vector step at `row`, if anything is, before it is committed.

    Args:
        memory, places: see `open_store`.
    """
    if lanes.fields.shape[0] == 0:
        return
    records = open_records(memory, places)
    nbytes = records.shape[0] // store.steps.shape[0]
    place_fields(lanes.staged, lanes.fields, lanes.steps.shape[0], records, nbytes, row)


@kernel
def commit_steps(
    store: StoreArrays, page: Int, steps: Int, episodes: NDArray[np.int64], next_episode: NDArray[np.int64]
) -> None:
    """Take in the next `steps` vector steps of a page, whose rows and metadata are written already.

    Args:
        episodes: int64[lanes], the episode each lane is in; changed where one begins.
        next_episode: int64[1], the store's counter of episodes.
    """
    lanes = store.pages[page, LANES]
    used = store.pages[page, USED]
    starts = store.pages[page, STARTS]
    first = page * store.page_rows
    for step in range(used, used + steps):
        for lane in range(lanes):
            in_page = step * lanes + lane
            word = np.int64(store.steps[first + in_page])
            if word & PADDING:
                continue
            begins = (word & STEP_MASK) == 0
            if begins:
                episodes[lane] = next_episode[0]
                next_episode[0] += 1
            if begins or step == 0:
                store.start_rows[first + starts] = in_page
                store.start_ids[first + starts] = episodes[lane]
                starts += 1
    # What is known of the rows stands before they count: the process may be killed in between (replay D2).
    in_order()
    store.pages[page, STARTS] = starts
    in_order()
    store.pages[page, USED] = used + steps


@kernel
def commit_step_in(
    memory: NDArray[np.uint8],
    places: NDArray[np.int64],
    page_rows: Int,
    row: Int,
    lanes: NDArray[np.int64],
) -> None:
    """`commit_step`, quick to call: the arrays are opened here.

    Args:
        lanes: handles of `Lanes`.
    """
    store, block = open_store(memory, places, page_rows), open_lanes(lanes)
    take_staged(memory, places, store, row, block)
    commit_step(store, row, block)


@kernel
def commit_step(store: StoreArrays, row: Int, lanes: Lanes) -> None:
    """Take in the vector step at `row`, one transition of every lane.

    Its columns are written already; what is staged of them is written by `take_staged`, which goes before.
    """
    steps = lanes.steps
    for lane in range(steps.shape[0]):
        store.steps[row + lane] = steps[lane]
        lanes.newest[lane] = row + lane
    commit_steps(store, row // store.page_rows, 1, lanes.episodes, lanes.next_episode)
    for lane in range(steps.shape[0]):
        steps[lane] = step_after(np.int64(steps[lane]), 1)


@kernel
def commit_marked_in(
    memory: NDArray[np.uint8],
    places: NDArray[np.int64],
    page_rows: Int,
    row: Int,
    lanes: NDArray[np.int64],
    final: NDArray[np.bool_],
    idle: NDArray[np.bool_],
    committed: Int,
) -> None:
    """`commit_marked`, quick to call: the arrays are opened here."""
    store, block = open_store(memory, places, page_rows), open_lanes(lanes)
    take_staged(memory, places, store, row, block)
    clear_idle(memory, places, store.steps.shape[0], row, idle)
    commit_marked(store, row, block, final, idle, committed)


@kernel
def clear_idle(
    memory: NDArray[np.uint8], places: NDArray[np.int64], rows: Int, row: Int, idle: NDArray[np.bool_]
) -> None:
    """Clear the columns of the lanes that hold nothing in the vector step at `row`; see `clear_row`."""
    for lane in range(idle.shape[0]):
        if idle[lane]:
            clear_row(memory, places, rows, row + lane)


@kernel
def commit_marked(
    store: StoreArrays,
    row: Int,
    lanes: Lanes,
    final: NDArray[np.bool_],
    idle: NDArray[np.bool_],
    committed: Int,
) -> None:
    """Does the same as `commit_step`, where some lanes hold the final row of their episode and some hold nothing.

    Args:
        final, idle: bool[lanes].
        committed: the steps of the block, this one included.
    """
    steps = lanes.steps
    for lane in range(steps.shape[0]):
        word: Int = np.int64(steps[lane])
        if idle[lane]:
            word = PADDING
        elif final[lane]:
            word |= FINAL
            # The page may have held final rows beside other lanes before.
            store.links[row + lane] = NO_LINK
        store.steps[row + lane] = np.uint32(word)
        lanes.newest[lane] = row + lane
    commit_steps(store, row // store.page_rows, 1, lanes.episodes, lanes.next_episode)
    for lane in range(steps.shape[0]):
        if idle[lane]:
            if steps[lane] != 0:
                lanes.words[LAST_ROW, lane] = -1
            steps[lane] = 0
        elif final[lane]:
            _end_lane(lanes, lane, row + lane, committed)
        else:
            steps[lane] = step_after(np.int64(steps[lane]), 1)


@kernel
def commit_finals_in(
    memory: NDArray[np.uint8],
    places: NDArray[np.int64],
    page_rows: Int,
    last: Int,
    lanes: NDArray[np.int64],
    ended: NDArray[np.int64],
    first: Int,
    committed: Int,
) -> None:
    """`commit_finals`, quick to call: the arrays are opened here."""
    commit_finals(open_store(memory, places, page_rows), last, open_lanes(lanes), ended, first, committed)


@kernel
def commit_finals(
    store: StoreArrays, last: Int, lanes: Lanes, ended: NDArray[np.int64], first: Int, committed: Int
) -> None:
    """Take in the rows from `first` on, in a page of their own and written already, as the final rows of some lanes.

    Args:
        last: the first row of the step that the block committed last.
        ended: int64[m], the lanes.
        committed: see `commit_marked`.
    """
    if ended.shape[0] == 0:
        return
    for place in range(ended.shape[0]):
        store.steps[first + place] = lanes.steps[ended[place]] | np.uint32(FINAL)
    in_order()
    store.pages[first // store.page_rows, USED] += ended.shape[0]
    for place in range(ended.shape[0]):
        lane = ended[place]
        link_final(store, last + lane, first + place)
        _end_lane(lanes, lane, first + place, committed)


@kernel
def _end_lane(lanes: Lanes, lane: Int, row: Int, committed: Int) -> None:
    lanes.words[ENDED_FROM, lane] = lanes.words[OPEN_FROM, lane]
    lanes.words[OPEN_FROM, lane] = committed
    lanes.words[LAST_ROW, lane] = row
    lanes.steps[lane] = 0


@kernel
def note_finals(store: StoreArrays, page: Int, steps: Int) -> None:
    """Count the links to final rows of the last `steps` vector steps of a page."""
    lanes = store.pages[page, LANES]
    stop = page * store.page_rows + store.pages[page, USED] * lanes
    for row in range(stop - steps * lanes, stop):
        if np.int64(store.steps[row]) & LINKED:
            note_link(store, row, np.int64(store.links[row]) - 1)


@kernel
def episode_ids(store: StoreArrays, rows: NDArray[np.int64], ids: NDArray[np.int64]) -> None:
    """The episode of each row; -1 for row -1 and for a final row whose transitions are gone."""
    for index in range(rows.shape[0]):
        ids[index] = _episode_id(store, rows[index])


@kernel
def _episode_id(store: StoreArrays, row: Int) -> Int:
    if row < 0:
        return -1
    word = np.int64(store.steps[row])
    if word & FINAL and store.links[row] != 0:
        row = np.int64(store.links[row]) - 1
        if row >= store.steps.shape[0]:
            return -1
        word = np.int64(store.steps[row])
    page = row // store.page_rows
    in_page = row - page * store.page_rows
    lanes = store.pages[page, LANES]
    begin = in_page - min(word & STEP_MASK, in_page // lanes) * lanes
    first = page * store.page_rows
    low, high = 0, store.pages[page, STARTS]
    while high - low > 1:
        middle = (low + high) // 2
        if store.start_rows[first + middle] <= begin:
            low = middle
        else:
            high = middle
    return store.start_ids[first + low]
