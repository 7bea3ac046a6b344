"""The rows that goals of hindsight come from, and those that tell the rewards for them."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from headrace.store.intrinsics import prefetch
from headrace.store.jit import Float, Int, kernel, kernel_apart
from headrace.store.layout import ENDED, FINAL, LANES, StoreArrays
from headrace.store.memory import open_store
from headrace.store.window import follow, reach

# The places of `goals.STRATEGIES`.
_FUTURE, _LAST = 0, 1
_READ_AHEAD = 64


@kernel
def number_runs_in(
    memory: NDArray[np.uint8],
    places: NDArray[np.int64],
    page_rows: Int,
    rows: NDArray[np.int64],
    runs: NDArray[np.int64],
) -> Int:
    """Number the runs of rows that share an item and an episode: each has one goal.

    Only items that go on over an end of episode have more than one.

    Args:
        rows: int64[B, L], -1 where a row is invented.
        runs: int64[B, L], written: the number of each row's run, -1 where a row is invented.

    Returns:
        How many there are.
    """
    store = open_store(memory, places, page_rows)
    count = 0
    for item in range(rows.shape[0]):
        for place in range(rows.shape[1]):
            runs[item, place] = -1
            if rows[item, place] < 0:
                continue
            if place == 0 or np.int64(store.steps[rows[item, place - 1]]) & (FINAL | ENDED):
                count += 1
            runs[item, place] = count - 1
    return count


@kernel
def draw_goals_in(
    memory: NDArray[np.uint8],
    places: NDArray[np.int64],
    page_rows: Int,
    rows: NDArray[np.int64],
    runs: NDArray[np.int64],
    uniforms: NDArray[np.float64],
    ratio: Float,
    strategy: Int,
    acting_gives: bool,
    goals: NDArray[np.int64],
) -> None:
    """Draw the row whose achieved goal each run is given.

    Args:
        rows, runs: int64[M], the runs rising.
        uniforms: float64[2, R]: whether the goal is replaced (below `ratio`), and by which of the rows that can be
            drawn, in their order.
        strategy: a place in `goals.STRATEGIES`.
        acting_gives: the column of what was achieved has no value at final rows.
        goals: int64[R], written: a row, or -1 for the goal that is stored.
    """
    store = open_store(memory, places, page_rows)
    for index in range(rows.shape[0]):
        if rows[index] >= 0:
            _read_ahead(store, rows[index])
    before = -1
    for index in range(rows.shape[0]):
        run = runs[index]
        if run > before:
            before = run
            goals[run] = -1
            if uniforms[0, run] < ratio:
                goals[run] = _goal_row(store, rows[index], uniforms[1, run], strategy, acting_gives)


@kernel
def _read_ahead(store: StoreArrays, row: Int) -> None:
    """Ask for the words that `reach` is about to look at: each would be a wait of its own."""
    lanes = store.pages[row // store.page_rows, LANES]
    prefetch(store.steps, row)
    distance = 1
    while distance <= _READ_AHEAD:
        prefetch(store.steps, row + distance * lanes)
        distance *= 2


@kernel_apart
def _goal_row(store: StoreArrays, row: Int, uniform: Float, strategy: Int, acting_gives: bool) -> Int:
    later = reach(store, row, 1)
    if acting_gives and np.int64(store.steps[follow(store, row, later)]) & FINAL:
        later -= 1  # -1 at a final row: it cannot be drawn itself.
    if strategy in (_FUTURE, _LAST):
        if later <= 0:
            return -1
        return follow(store, row, later if strategy == _LAST else 1 + int(uniform * later))
    earlier = reach(store, row, -1)
    count = earlier + later + 1
    return -1 if count == 0 else follow(store, row, int(uniform * count) - earlier)


@kernel
def steps_in(
    memory: NDArray[np.uint8],
    places: NDArray[np.int64],
    page_rows: Int,
    rows: NDArray[np.int64],
    counts: NDArray[np.int64],
    steps: NDArray[np.int64],
) -> None:
    """The rows of the transitions that are put together from each row on.

    Args:
        rows: int64[M].
        counts: int64[M], how many.
        steps: int64[M, n], written: -1 where there are fewer than n.
    """
    store = open_store(memory, places, page_rows)
    for index in range(rows.shape[0]):
        for step in range(steps.shape[1]):
            steps[index, step] = follow(store, rows[index], step) if step < counts[index] else -1


@kernel
def find_next_in(
    memory: NDArray[np.uint8],
    places: NDArray[np.int64],
    page_rows: Int,
    acted: NDArray[np.int64],
    runs: NDArray[np.int64],
    acting_gives: bool,
    goals: NDArray[np.int64],
    reached: NDArray[np.int64],
) -> None:
    """The rows that tell what transitions achieved. A run of which one is not there keeps the goal that is stored.

    Args:
        acted: int64[N], the rows whose rewards are shown, or -1; final rows, where no transition begins, become -1.
        runs: int64[N].
        goals: int64[R], changed to -1 where a reward cannot be told.
        reached: int64[N], written: the row after each, or -1.
    """
    store = open_store(memory, places, page_rows)
    for index in range(acted.shape[0]):
        row, run = acted[index], runs[index]
        reached[index] = -1
        if row < 0:
            continue
        if np.int64(store.steps[row]) & FINAL:
            acted[index] = -1
            continue
        if goals[run] < 0:
            continue
        after = follow(store, row, 1)
        if after < 0 or (acting_gives and np.int64(store.steps[after]) & FINAL):
            goals[run] = -1
        else:
            reached[index] = after
