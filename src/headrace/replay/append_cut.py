"""The way of most steps whose rule is more than "each row is an item": commit, cut and insert in one call."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from headrace.replay.cutting import Cut, Windows, cut_block, cut_final
from headrace.replay.inserting import insert
from headrace.replay.item_memory import open_items
from headrace.replay.items import Scratch
from headrace.store.commit import clear_idle, commit_finals, commit_marked, commit_step
from headrace.store.jit import Int, kernel
from headrace.store.memory import open_store


@kernel
def append_and_cut(
    memory: NDArray[np.uint8],
    places: NDArray[np.int64],
    page_rows: Int,
    item_memory: NDArray[np.uint8],
    item_places: NDArray[np.int64],
    page: Int,
    row: Int,
    lane_steps: NDArray[np.uint32],
    episodes: NDArray[np.int64],
    next_episode: NDArray[np.int64],
    newest: NDArray[np.int64],
    length: Int,
    stride: Int,
    end: Int,
    lookahead: Int,
    rows: NDArray[np.int64],
    shapes: NDArray[np.uint32],
    lanes: NDArray[np.int64],
    total: NDArray[np.int64],
    first_key: Int,
    priorities: NDArray[np.float64],
    max_size: Int,
    uniforms: NDArray[np.float64],
    changed: NDArray[np.int64],
    parents: NDArray[np.int64],
    slot: NDArray[np.int64],
    chance: NDArray[np.float64],
) -> tuple[Int, Int, Int]:
    """Commit one transition of every lane, cut it, and insert the items.

    Args:
        length, stride, end, lookahead: the `Cut`.
        rows, shapes, lanes, total: the `Windows`, written; with room for one of each lane.

    Returns:
        As `inserting.insert`; `total[0]` is how many were to go in.
    """
    store = open_store(memory, places, page_rows)
    commit_step(store, page, row, lane_steps, episodes, next_episode, newest)
    total[0] = 0
    cut_block(store, page, 1, Cut(length, stride, end, lookahead), Windows(rows, shapes, lanes, total))
    items = open_items(item_memory, item_places)
    scratch = Scratch(changed, parents, slot, chance)
    # No episode ends here, so all windows have the shape of the first.
    return insert(
        store, items, first_key, rows[: total[0]], shapes[:1], priorities, 0, max_size, uniforms, scratch
    )


@kernel
def append_seam_and_cut(
    memory: NDArray[np.uint8],
    places: NDArray[np.int64],
    page_rows: Int,
    item_memory: NDArray[np.uint8],
    item_places: NDArray[np.int64],
    page: Int,
    row: Int,
    lane_steps: NDArray[np.uint32],
    episodes: NDArray[np.int64],
    next_episode: NDArray[np.int64],
    newest: NDArray[np.int64],
    final: NDArray[np.bool_],
    idle: NDArray[np.bool_],
    lane_words: NDArray[np.int64],
    committed: Int,
    ended: NDArray[np.int64],
    first_final: Int,
    length: Int,
    stride: Int,
    end: Int,
    lookahead: Int,
    rows: NDArray[np.int64],
    shapes: NDArray[np.uint32],
    lanes: NDArray[np.int64],
    total: NDArray[np.int64],
    first_key: Int,
    priorities: NDArray[np.float64],
    max_size: Int,
    uniforms: NDArray[np.float64],
    changed: NDArray[np.int64],
    parents: NDArray[np.int64],
    slot: NDArray[np.int64],
    chance: NDArray[np.float64],
) -> tuple[Int, Int, Int]:
    """As `append_and_cut`, where some lanes hold nothing and the episodes of some end, whose final rows are written.

    Args:
        final, idle, lane_words, committed: see `commit_marked`.
        ended, first_final: see `commit_finals`.
        length, stride, end, lookahead: the `Cut`.
        rows, shapes, lanes, total: the `Windows`, written; with room for all (`room_for`).

    Returns:
        As `inserting.insert`; `total[0]` is how many were to go in.
    """
    store = open_store(memory, places, page_rows)
    clear_idle(memory, places, store.steps.shape[0], row, idle)
    commit_marked(
        store, page, row, lane_steps, episodes, next_episode, newest, final, idle, lane_words, committed
    )
    total[0] = 0
    cut, out = Cut(length, stride, end, lookahead), Windows(rows, shapes, lanes, total)
    cut_block(store, page, 1, cut, out)
    commit_finals(store, row, ended, first_final, lane_steps, lane_words, committed)
    for place in range(ended.shape[0]):
        cut_final(store, row + ended[place], ended[place], cut, out)
    items = open_items(item_memory, item_places)
    scratch = Scratch(changed, parents, slot, chance)
    # Where no episode ends, all windows have the shape of the first.
    windows = shapes[: total[0] if ended.shape[0] else 1]
    return insert(
        store, items, first_key, rows[: total[0]], windows, priorities, 0, max_size, uniforms, scratch
    )
