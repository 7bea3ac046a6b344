"""The way of most steps whose rule is more than "each row is an item": commit, cut and insert in one call."""

from __future__ import annotations

import cython

if not cython.compiled:
    from headrace.kernels.kinds import GivenBytes, GivenLongs, Int
    from headrace.store.commit import Lanes
    from headrace.tables.items.inserting import insert_rows
    from headrace.tables.items.items import Items
    from headrace.tables.windows.cutting import Cutter


def append_and_cut(items: Items, lanes: Lanes, cutter: Cutter, first_key: Int) -> tuple[int, int]:
    """Commit one transition of every lane, cut it, and insert the items.

    Args:
        items: of the table.
        lanes: of the block.
        cutter: cuts the windows.
        first_key: of the first item; the others follow.

    Returns:
        As `inserting.insert`; the cutter's `total` is how many were to go in.
    """
    cutter.begin(lanes.count, 0)
    lanes.take_step()
    cutter.cut_block(lanes.window.page_of(lanes.last), 1)
    # No episode ends here, so all windows have the shape of the first.
    return _insert_windows(items, cutter, first_key, 1)


def append_seam_and_cut(
    items: Items,
    lanes: Lanes,
    cutter: Cutter,
    first_key: Int,
    final: GivenBytes,
    idle: GivenBytes,
    ended: GivenLongs,
    first_final: Int,
) -> tuple[int, int]:
    """Does the same as `append_and_cut`, where some lanes hold nothing and some write the final row of their episode.

    Args:
        items, lanes, cutter, first_key: as there.
        final, idle, ended, first_final: see `commit_seam_and_cut`.

    Returns:
        As `inserting.insert`; the cutter's `total` is how many were to go in.
    """
    commit_seam_and_cut(lanes, cutter, final, idle, ended, first_final)
    # Where no episode ends, all windows have the shape of the first.
    num_shapes = cutter.total if ended.shape[0] else 1
    return _insert_windows(items, cutter, first_key, num_shapes)


def commit_seam_and_cut(
    lanes: Lanes,
    cutter: Cutter,
    final: GivenBytes,
    idle: GivenBytes,
    ended: GivenLongs,
    first_final: Int,
) -> None:
    """The part of `append_seam_and_cut` that leaves the items as they are.

    Args:
        lanes, cutter: as there.
        final, idle: see `Lanes.commit_marked`.
        ended, first_final: see `Lanes.commit_finals`.
    """
    cutter.begin(lanes.count, ended.shape[0])
    lanes.take_marked(final, idle, True)
    cutter.cut_block(lanes.window.page_of(lanes.last), 1)
    lanes.commit_finals(ended, first_final)
    for place in range(ended.shape[0]):
        cutter.cut_final(lanes.last + ended[place])


def _insert_windows(items: Items, cutter: Cutter, first_key: Int, num_shapes: Int) -> tuple[Int, Int]:
    return insert_rows(
        items,
        first_key,
        cutter.rows,
        cutter.total,
        cutter.shapes,
        num_shapes,
        items.uniforms,
        0,
        cutter.priority,
        0,
    )
