"""Beginnings of episodes, found by comparing an observation with the one to which the last step led."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from headrace.arrays import row_bytes
from headrace.trajectories.columns.step_columns import Columns
from headrace.trajectories.writers.lane_recorder import LaneRecorder


class EpisodeStarts(NamedTuple):
    """Lanes whose episodes begin with an observation.

    Attributes:
        columns: of the observation, `[lanes, ...]`.
        lanes: int64[n], rising: these lanes.
        unfinished: int64[m], rising: those of them whose last episode has steps and no end.
    """

    columns: Columns
    lanes: NDArray[np.int64]
    unfinished: NDArray[np.int64]


def find_starts(recorder: LaneRecorder, observation: Any) -> EpisodeStarts | None:
    """Returns the lanes that have no episode, or whose observation is not the next one of their last step; or None.

    Observations are compared bit by bit, as they are stored. Nothing changes.

    Raises:
        SpecError: the observation does not fit.
    """
    states = recorder.states
    columns = recorder.columns.observation.read_columns(observation)
    new = ~(states.open | states.resetting)
    if not new.all():
        new |= _differing(recorder, columns)
    if 1 not in new.tobytes():
        return None
    lanes = np.flatnonzero(new)
    running = lanes[states.open[lanes]]
    return EpisodeStarts(columns, lanes, running[states.rows(running) > 0])


def _differing(recorder: LaneRecorder, columns: Columns) -> NDArray[np.bool_]:
    """bool[lanes]: where an observation is not the kept one."""
    count = recorder.states.lanes
    found = np.zeros(count, np.bool_)
    for name, kept in recorder.kept_observation.items():
        dtype = recorder.columns.specs[name].dtype
        arrays = [np.ascontiguousarray(value, dtype) for value in (columns[name], kept)]
        # Nearly always equal, which the bytes tell faster than NumPy.
        if arrays[0].tobytes() != arrays[1].tobytes():
            given, expected = (row_bytes(array.reshape(count, -1)) for array in arrays)
            found |= (given != expected).any(axis=1)
    return found
