"""The window function on arrays: finds the rows at offsets from a row, within its segment.

Columns are arrays with one row after another. A *segment* is one trajectory in them: an episode, or the history of one
environment. The value at an index of a segment is data where the index is known, and else the fill
(`store.window` does the same for stored rows).
"""

# Rules: views V6, V7

from __future__ import annotations

import cython

if not cython.compiled:
    from headrace.kernels.kinds import Bool, Bytes, GivenLongs, Int, Longs
    from headrace.store.layout import EDGE, KNOWN, UNKNOWN


def resolve(
    rows: GivenLongs,
    begins: GivenLongs,
    ends: GivenLongs,
    offsets: GivenLongs,
    is_post: Bool,
    found: Longs,
    known: Bytes,
) -> int:
    """Finds the rows at `offsets` from each of `rows`, within their segments.

    Args:
        rows: int64[M].
        begins: int64[M], the first row of each row's segment.
        ends: int64[M], the row after the last value that is known in each row's segment.
        offsets: int64[W].
        is_post: whether the value of a row is known only after acting there.
        found: int64[M * W], written, `[M, W]` side by side: the row to read.
        known: uint8[M * W], written: KNOWN, or EDGE if `found` has the nearest value that this row may show, else
            UNKNOWN.

    Returns:
        The number of entries that are not KNOWN.
    """
    missing: Int = 0
    with cython.nogil:
        furthest: Int = offsets[0]
        for number in range(offsets.shape[0]):
            furthest = max(furthest, offsets[number])
        place: Int = 0
        for index in range(rows.shape[0]):
            row: Int = rows[index]
            begin: Int = begins[index]
            end: Int = ends[index]
            # A view that looks only back is never shown the reward that follows its row's own action.
            has_front: Bool = end > begin and not (is_post and row == begin and furthest < 0)
            for number in range(offsets.shape[0]):
                target: Int = row + offsets[number]
                status: Int = KNOWN
                if target >= end:
                    target = end - 1
                    status = EDGE if end > begin else UNKNOWN
                elif target < begin:
                    target = begin
                    status = EDGE if has_front else UNKNOWN
                if status != KNOWN:
                    missing += 1
                found[place] = target
                known[place] = status
                place += 1
    return missing
