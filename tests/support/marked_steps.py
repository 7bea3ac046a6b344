"""Vector steps in which lanes hold final rows, written one by one as a page writer writes them."""

from collections.abc import Collection, Mapping

import numpy as np
from numpy.typing import NDArray

from headrace.replay.intake.writer import Writer
from headrace.store.block import EpisodeBoundary

NO_LANES = np.zeros(0, np.int64)


def append_marked(
    writer: Writer,
    step: Mapping[str, NDArray],
    final: NDArray[np.bool_],
    idle: NDArray[np.bool_],
    given: Collection[str],
) -> None:
    """Appends a step of all lanes of one block.

    Args:
        final: bool[lanes]: lanes that hold a final row, with the columns `given` and zeros in the others.
        idle: bool[lanes]: lanes that hold nothing.
    """
    rows = writer._rows
    rows.declare_final_columns(given)
    values = {name: np.array(value) for name, value in rows._rows.checked(step).items()}
    for name, value in values.items():
        if name not in given:
            value[final] = 0
    rows.make_room()
    rows._intake.append(values, rows._lanes.spans, EpisodeBoundary(final, idle, NO_LANES, -1))
    rows._intake.finish_call()
