"""Beginnings of episodes, found by comparing an observation with the one to which the last step led."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

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
    # Nearly always so, which the bytes tell faster than NumPy.
    if states.all_open and all(given == expected for given, expected in _bytes(recorder, columns)):
        return None
    new = ~(states.open | states.resetting)
    if recorder.has_begun:
        new |= _differing(recorder, columns)
    if 1 not in new.tobytes():
        return None
    lanes = np.flatnonzero(new)
    running = lanes[states.open[lanes]]
    return EpisodeStarts(columns, lanes, running[states.rows(running) > 0])


def _bytes(recorder: LaneRecorder, columns: Columns) -> Iterator[tuple[bytes, bytes]]:
    """Gives the bytes of each column of an observation and of the kept one, as they are stored."""
    for name, spec in recorder.columns.observation.specs.items():
        kept = recorder.kept_value(name)
        yield np.asarray(columns[name], spec.dtype).tobytes(), np.asarray(kept, spec.dtype).tobytes()


def _differing(recorder: LaneRecorder, columns: Columns) -> NDArray[np.bool_]:
    """bool[lanes]: where an observation is not the kept one."""
    count = recorder.states.lanes
    found = np.zeros(count, np.bool_)
    for pair in _bytes(recorder, columns):
        if pair[0] != pair[1]:
            given, expected = (np.frombuffer(each, np.uint8).reshape(count, -1) for each in pair)
            found |= (given != expected).any(axis=1)
    return found
