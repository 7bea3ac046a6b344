"""Numbers of episodes, and of the steps in them, over batch borders."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray


class EpisodeNumbering:
    """Numbers the episodes of n lanes over batch borders.

    Ids count the starts: in the order of steps, and of lanes within a step. A replay's own ids count those of all its
    writers.

    >>> numbering = EpisodeNumbering(1)
    >>> starts = np.array([[True], [False], [True]])
    >>> ids, positions = numbering.number(starts, np.zeros((3, 1), bool))
    >>> ids[0].tolist(), positions[0].tolist()
    ([0, 0, 1], [0, 1, 0])
    """

    # Rules: collectors CB5

    def __init__(self, lanes: int) -> None:
        self._next_id = 0
        self._ids = np.full(lanes, -1, np.int64)
        self._lengths = np.zeros(lanes, np.int64)

    def number(
        self, starts: NDArray[np.bool_], masked: NDArray[np.bool_]
    ) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Returns the episode of each step and its index in it, int64[n, T]; -1 and 0 where masked.

        Args:
            starts, masked: bool[T, n]: where an episode begins, and where no transition was taken.
        """
        steps, lanes = starts.shape
        # Each lane is cut into pieces at the starts. Its first piece may go on with an episode of the block before.
        cuts = starts.T.copy()
        cuts[:, 0] = True
        first = np.flatnonzero(cuts)
        lane, step = np.divmod(first, steps)
        begins = starts[step, lane]
        ids_of = np.cumsum(starts.reshape(-1))[step * lanes + lane] + (self._next_id - 1)
        ids_of = np.where(begins, ids_of, self._ids[lane])
        before = np.where(begins, 0, self._lengths[lane])
        lengths = np.diff(first, append=steps * lanes)
        ids = np.repeat(ids_of, lengths).reshape(lanes, steps)
        positions = np.arange(steps * lanes) - np.repeat(first - before, lengths)
        positions = positions.reshape(lanes, steps)
        self._next_id += int(np.count_nonzero(starts))
        self._ids, self._lengths = ids[:, -1].copy(), positions[:, -1] + 1
        if masked.any():
            ids[masked.T] = -1
            positions[masked.T] = 0
        return ids, positions
