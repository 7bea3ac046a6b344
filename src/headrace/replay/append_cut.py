"""The way of most steps whose rule is more than "each row is an item": commit, cut and insert in one call."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from headrace.replay.cutting import cut_block, cut_final, open_cutter
from headrace.replay.inserting import insert_of
from headrace.replay.table_handles import open_memory_of, open_store_of
from headrace.store.commit import (
    clear_idle,
    commit_finals,
    commit_marked,
    commit_step,
    open_lanes,
    take_staged,
)
from headrace.store.jit import Int, kernel


@kernel
def append_and_cut(
    table: NDArray[np.int64],
    lanes: NDArray[np.int64],
    cutter: NDArray[np.int64],
    row: Int,
    first_key: Int,
    uniforms: NDArray[np.float64],
) -> tuple[Int, Int, Int]:
    """Commit one transition of every lane, cut it, and insert the items.

    Args:
        table, lanes, cutter: handles of the table, of the block's `Lanes` and of the `Cutter`, which has room for one
            window of each lane.

    Returns:
        As `inserting.insert`; the cutter's `total[0]` is how many were to go in.
    """
    store, block = open_store_of(table), open_lanes(lanes)
    memory, places = open_memory_of(table)
    cut, priorities, out = open_cutter(cutter)
    take_staged(memory, places, store, row, block)
    commit_step(store, row, block)
    out.total[0] = 0
    cut_block(store, row // store.page_rows, 1, cut, out)
    # No episode ends here, so all windows have the shape of the first.
    rows = out.rows[: out.total[0]]
    return insert_of(table, store, first_key, rows, out.shapes[:1], priorities, 0, uniforms)


@kernel
def append_seam_and_cut(
    table: NDArray[np.int64],
    lanes: NDArray[np.int64],
    cutter: NDArray[np.int64],
    row: Int,
    first_key: Int,
    uniforms: NDArray[np.float64],
    final: NDArray[np.bool_],
    idle: NDArray[np.bool_],
    ended: NDArray[np.int64],
    first_final: Int,
    committed: Int,
) -> tuple[Int, Int, Int]:
    """Does the same as `append_and_cut`, where some lanes hold nothing and some write the final row of their episode.

    Args:
        table, lanes, cutter: as there; the cutter has room for all windows (`room_for`).
        final, idle, committed: see `commit_marked`.
        ended, first_final: see `commit_finals`.

    Returns:
        As `inserting.insert`; the cutter's `total[0]` is how many were to go in.
    """
    store = open_store_of(table)
    memory, places = open_memory_of(table)
    cut, priorities, out = open_cutter(cutter)
    block = open_lanes(lanes)
    take_staged(memory, places, store, row, block)
    clear_idle(memory, places, store.steps.shape[0], row, idle)
    commit_marked(store, row, block, final, idle, committed)
    out.total[0] = 0
    cut_block(store, row // store.page_rows, 1, cut, out)
    commit_finals(store, row, block, ended, first_final, committed)
    for place in range(ended.shape[0]):
        cut_final(store, row + ended[place], ended[place], cut, out)
    # Where no episode ends, all windows have the shape of the first.
    windows = out.shapes[: out.total[0] if ended.shape[0] else 1]
    rows = out.rows[: out.total[0]]
    return insert_of(table, store, first_key, rows, windows, priorities, 0, uniforms)
