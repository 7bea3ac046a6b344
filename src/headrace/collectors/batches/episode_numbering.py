"""Numbers of episodes, and of the steps in them, over batch borders."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import cython
import numpy as np
from numpy.typing import NDArray

from headrace.collectors.batches.episode_ids import EpisodeIds

if not cython.compiled:
    from headrace.kernels.kinds import GivenBytes, Int, Longs


class EpisodeNumbering:
    """Numbers the episodes of n lanes over batch borders.

    Ids count the starts: in the order of steps, and of lanes within a step. A replay's own ids count those of all its
    writers.

    Args:
        lanes: n.
        ids: gives out the numbers; shared by the numberings of several workers, it keeps them apart.

    >>> numbering = EpisodeNumbering(1)
    >>> starts = np.array([[True], [False], [True]])
    >>> ids, positions = numbering.number(starts, np.zeros((3, 1), bool))
    >>> ids[0].tolist(), positions[0].tolist()
    ([0, 0, 1], [0, 1, 0])
    """

    # Rules: collectors CB5

    def __init__(self, lanes: Int, ids: EpisodeIds | None = None) -> None:
        self._lanes = lanes
        self._source = ids or EpisodeIds()
        self._ids = np.full(lanes, -1, np.int64)
        self._lengths = np.zeros(lanes, np.int64)

    def state_dict(self) -> dict[str, Any]:
        """Returns the next number, and the number and length of the newest episode of each lane."""
        return {
            "next_id": self._source.next_id,
            "ids": np.array(self._ids),
            "lengths": np.array(self._lengths),
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Goes on with the numbers of a state. Lanes without a start in their next row go on with their episodes."""
        self._source.next_id = int(state["next_id"])
        self._ids, self._lengths = np.array(state["ids"], np.int64), np.array(state["lengths"], np.int64)

    def number(
        self, starts: NDArray[np.bool_], masked: NDArray[np.bool_]
    ) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Returns the episode of each step and its index in it, int64[n, T]; -1 and 0 where masked.

        Args:
            starts, masked: bool[T, n]: where an episode begins, and where no transition was taken.
        """
        first = self._source.take(int(np.count_nonzero(starts)))
        shape = self._lanes, len(starts)
        ids, positions = np.empty(shape, np.int64), np.empty(shape, np.int64)
        self._number(starts.reshape(-1), masked.reshape(-1), first, ids.reshape(-1), positions.reshape(-1))
        return ids, positions

    def _number(
        self, starts: GivenBytes, masked: GivenBytes, next_id: Int, ids: Longs, positions: Longs
    ) -> None:
        """Does `number` for arrays without axes; `next_id` is that of the first episode that begins."""
        steps: Int = starts.shape[0] // self._lanes
        row: Int = 0
        for step in range(steps):
            for lane in range(self._lanes):
                place: Int = lane * steps + step
                if starts[row]:
                    self._ids[lane] = next_id
                    self._lengths[lane] = 0
                    next_id += 1
                if masked[row]:
                    ids[place] = -1
                    positions[place] = 0
                else:
                    ids[place] = self._ids[lane]
                    positions[place] = self._lengths[lane]
                    self._lengths[lane] += 1
                row += 1
