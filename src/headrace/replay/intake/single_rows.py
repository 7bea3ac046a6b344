"""Rows of one lane, one transition a call: for writers that take no more at once, and for items decided one by one."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from headrace.replay.intake.writer_like import WriterLike

_LANE = np.zeros(1, np.int64)
_NOT_IDLE = np.zeros(1, np.bool_)


def append_transition(
    writer: WriterLike,
    rows: Mapping[str, NDArray[Any]],
    final: NDArray[np.bool_],
    final_columns: Collection[str],
) -> int:
    """Does `WriterLike.append_rows` for the first transition alone, with the final row that follows it.

    Args:
        writer: of one lane.
        rows, final: see `WriterLike.append_rows`.
        final_columns: the columns that final rows hold values of.

    Returns:
        The number of rows that were stored: 1 or 2.
    """
    if final[0]:
        writer.end_lanes(_LANE, {name: rows[name][:1] for name in final_columns})
        return 1
    writer.make_room(2)
    if len(final) == 1 or not final[1]:
        writer.append_checked({name: column[0] for name, column in rows.items()})
        return 1
    finals = {name: rows[name][1:2] for name in final_columns}
    writer.append_ends({name: column[:1] for name, column in rows.items()}, _NOT_IDLE, _LANE, finals)
    return 2
