"""Appending of a step in one call: commits it, cuts its windows and inserts the items."""

from __future__ import annotations

import cython

if not cython.compiled:
    from headrace.kernels.kinds import GivenBytes, GivenLongs, Int
    from headrace.store.commit import Lanes
    from headrace.tables.items.inserting import insert_rows
    from headrace.tables.items.items import Items
    from headrace.tables.items.layout import WINDOW_WORDS
    from headrace.tables.windows.buffer import WindowBuffer


def append(items: Items, lanes: Lanes, buffer: WindowBuffer, first_key: Int) -> tuple[int, int]:
    """Commits one transition of every lane, cuts its windows, and inserts the items.

    Args:
        items: of the table.
        lanes: of the block.
        buffer: cuts the windows.
        first_key: of the first item; the others follow.

    Returns:
        The same as `inserting.insert`; the buffer's `total` is the number of items to insert.
    """
    buffer.begin(lanes.count, 0)
    lanes.take_step()
    buffer.find_in_step(lanes.window.page_of(lanes.last), lanes.last)
    # No episode ends here, so all windows have the shape of the first.
    return _insert_windows(items, buffer, first_key, 1)


def append_ends(
    items: Items,
    lanes: Lanes,
    buffer: WindowBuffer,
    first_key: Int,
    final: GivenBytes,
    idle: GivenBytes,
    ended: GivenLongs,
    first_final: Int,
) -> tuple[int, int]:
    """Does the same as `append`, where episodes end or lanes hold nothing; see `EpisodeBoundary`."""
    commit_ends(lanes, buffer, final, idle, ended, first_final)
    return _insert_windows(items, buffer, first_key, 1 if buffer.is_every_row else buffer.total)


def commit_ends(
    lanes: Lanes,
    buffer: WindowBuffer,
    final: GivenBytes,
    idle: GivenBytes,
    ended: GivenLongs,
    first_final: Int,
) -> None:
    """Does the part of `append_ends` before the insertion of items."""
    ends: Int = ended.shape[0]
    for lane in range(final.shape[0]):
        ends += cython.cast(Int, final[lane] != 0)
    buffer.begin(lanes.count, ends)
    lanes.take_marked(final, idle, True)
    buffer.find_in_block(lanes.window.page_of(lanes.last), 1)
    lanes.commit_finals(ended, first_final)
    for place in range(ended.shape[0]):
        buffer.find_at_end(lanes.last + ended[place])


def _insert_windows(items: Items, buffer: WindowBuffer, first_key: Int, num_shapes: Int) -> tuple[Int, Int]:
    return insert_rows(
        items,
        first_key,
        items.keys[:0],
        buffer.rows[: buffer.total],
        buffer.shapes[: WINDOW_WORDS * num_shapes],
        buffer.priority,
    )
