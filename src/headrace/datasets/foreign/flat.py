"""Episodes from files of other tools: arrays over all episodes under the usual names, in npz or HDF5."""

# Rules: datasets Z3

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from headrace.datasets.dataset import EpisodeDataset
from headrace.datasets.errors import dataset_errors
from headrace.datasets.exporting.structure import FREE_PARTS, Array, describe, part_of
from headrace.datasets.foreign.columns import episode_of, find_columns
from headrace.datasets.large_arrays import take_rows
from headrace.datasets.npz.archive import LENGTHS
from headrace.errors import DatasetError
from headrace.trajectories.episode import Episode

_log = logging.getLogger(__name__)

# Rows of observations are compared in parts of this size.
_BYTES_AT_ONCE = 4 << 20
_NEXT = "next_observations"
_ACCEPTED = {
    "observations": ("observations",),
    "actions": ("actions",),
    "rewards": ("rewards",),
    "terminations": ("terminations", "terminals"),
    "truncations": ("truncations", "timeouts"),
}

_Columns = dict[str, Array]
_Lengths = NDArray[np.int64]


class NamedArrays(Protocol):
    """A file of arrays, open for reading.

    Attributes:
        path: of the file.
        names: of its arrays.
    """

    path: Path
    names: list[str]

    def read(self, name: str) -> Array:
        """Reads one array.

        Raises:
            DatasetError: the array is damaged.
        """


class FlatDataset(EpisodeDataset):
    """Episodes of arrays that hold one episode after the other.

    Args:
        arrays: are read at once; large ones lie in temporary files.
        missing_final: treatment of episodes whose last observation is not there, because there are neither
            `next_observations` nor lengths of episodes: "error", "drop" or "repeat", as in `load_d4rl`.
        metadata: description of the dataset.

    Raises:
        DatasetError: arrays are missing or do not fit.
    """

    def __init__(
        self, arrays: NamedArrays, missing_final: str = "error", metadata: Mapping[str, Any] | None = None
    ) -> None:
        self._file = arrays.path
        columns = _read_columns(arrays, missing_final)
        if LENGTHS in arrays.names:
            lengths = _read_lengths(arrays)
        else:
            lengths = _lengths_from_flags(arrays, columns)
            if _NEXT in map(part_of, arrays.names):
                _insert_final_observations(arrays, columns, lengths)
            else:
                lengths = _end_at_last_observations(arrays, columns, lengths, missing_final)
        rows = {path: _rows(arrays, path, array, lengths) for path, array in columns.items()}
        self._columns = columns
        self._offsets = {path: np.concatenate(([0], np.cumsum(each))) for path, each in rows.items()}
        super().__init__(num_episodes=len(lengths), total_steps=int(lengths.sum()), metadata=metadata)

    def _read(self, index: int) -> Episode:
        arrays = {}
        for path, column in self._columns.items():
            start, stop = self._offsets[path][index : index + 2].tolist()
            arrays[path] = column[start:stop].copy()
        with dataset_errors(self._file, f"episode {index}"):
            return episode_of(arrays)

    def _close(self) -> None:
        self._columns = {}


def _read_columns(arrays: NamedArrays, missing_final: str) -> _Columns:
    """Reads the arrays by path; flags become bool."""
    ends = {LENGTHS, _NEXT} & {part_of(name) for name in arrays.names}
    missing = [] if ends or missing_final != "error" else [f"{LENGTHS} or {_NEXT}"]
    found = find_columns(arrays.path, arrays.names, _ACCEPTED, missing)
    columns = {path: arrays.read(name) for path, name in found.items()}
    for path in ("terminations", "truncations"):
        flags = columns.get(path)
        if flags is None or flags.ndim != 1 or not np.isin(flags, (0, 1)).all():
            raise DatasetError(f"{arrays.path}: {path}: expected one array of booleans of shape [steps]")
        columns[path] = flags.astype(bool)
    return columns


def _read_lengths(arrays: NamedArrays) -> _Lengths:
    lengths = arrays.read(LENGTHS)
    if lengths.ndim != 1 or lengths.dtype.kind not in "iu" or not len(lengths) or lengths.min() < 1:
        raise DatasetError(f"{arrays.path}: {LENGTHS}: expected one or more integers above 0")
    return lengths.astype(np.int64)


def _lengths_from_flags(arrays: NamedArrays, columns: _Columns) -> _Lengths:
    """Returns the lengths of episodes that end at a flag; the last one may be unfinished.

    Raises:
        DatasetError: there are no steps, or an array has another number of rows than most.
    """
    rows = {
        path: len(array) for path, array in columns.items() if array.ndim and part_of(path) not in FREE_PARTS
    }
    steps = Counter(rows.values()).most_common(1)[0][0]
    for path, count in rows.items():
        if count != steps:
            raise DatasetError(
                f"{arrays.path}: {path}: expected {steps} rows, as most arrays have, got {count}"
            )
    if not steps:
        raise DatasetError(f"{arrays.path}: expected at least one step, got none")
    ends = np.flatnonzero(columns["terminations"] | columns["truncations"])
    return np.diff(np.union1d(ends + 1, [steps]), prepend=0).astype(np.int64)


def _insert_final_observations(arrays: NamedArrays, columns: _Columns, lengths: _Lengths) -> None:
    """Inserts the last next observation of each episode after its observations."""
    stops, steps = np.cumsum(lengths), int(lengths.sum())
    for path in [path for path in columns if part_of(path) == "observations"]:
        name = _NEXT + path.removeprefix("observations")
        following, array = arrays.read(name), columns[path]
        if array.shape != following.shape or array.dtype != following.dtype or array.shape[:1] != (steps,):
            raise DatasetError(
                f"{arrays.path}: {name}: expected {steps} rows like those of {path} "
                f"({describe(array.dtype, array.shape)}), got {describe(following.dtype, following.shape)}"
            )
        if not _is_followed(array, following, stops):
            _log.warning(
                "%s: some rows of %s are not the observations that follow in their episode, which are used instead",
                arrays.path,
                name,
            )
        rows = np.arange(steps)
        with_finals = take_rows(array, np.insert(rows, stops, rows[stops - 1]))
        with_finals[stops + np.arange(len(stops))] = following[stops - 1]
        columns[path] = with_finals


def _is_followed(array: Array, following: Array, stops: _Lengths) -> bool:
    """Whether each row of an episode, but its first, is the following one of the row before; NaN equals NaN."""
    last, at_once = len(array) - 1, max(1, _BYTES_AT_ONCE * len(array) // max(array.nbytes, 1))
    for begin in range(0, last, at_once):
        end = min(begin + at_once, last)
        after, expected = array[begin + 1 : end + 1], following[begin:end]
        differs = after != expected
        first, beyond = np.searchsorted(stops, (begin, end), "right")
        differs[stops[first:beyond] - 1 - begin] = False
        if differs.any() and array.dtype.kind in "fc":
            differs &= (after == after) | (expected == expected)
        if differs.any():
            return False
    return True


def _end_at_last_observations(
    arrays: NamedArrays, columns: _Columns, lengths: _Lengths, missing_final: str
) -> _Lengths:
    """Ends each episode at its last observation, or repeats that one; returns the new lengths.

    Without its last transition an episode is truncated. One of a single transition is left out.

    Raises:
        DatasetError: no transition is left.
    """
    steps, last = int(lengths.sum()), np.cumsum(lengths) - 1
    repeats = columns["terminations"][last] & (missing_final == "repeat")
    shorter = lengths - ~repeats
    if not shorter.any():
        raise DatasetError(f"{arrays.path}: no episode has a transition with the observation after it")
    stays = np.ones(steps, bool)
    stays[last[~repeats]] = False
    columns["truncations"][last[~repeats & (shorter > 0)] - 1] = True
    copies = np.ones(steps, np.int64)
    copies[last] += repeats
    copies[last[shorter == 0]] = 0
    for path, array in columns.items():
        if part_of(path) == "observations":
            columns[path] = take_rows(array, np.repeat(np.arange(steps), copies))
        elif array.ndim and len(array) == steps:
            columns[path] = take_rows(array, np.flatnonzero(stays))
    return shorter[shorter > 0]


def _rows(arrays: NamedArrays, path: str, array: Array, lengths: _Lengths) -> _Lengths:
    """Returns the rows of each episode in an array: T, or T+1 with a row for the reset."""
    part = part_of(path)
    allowed = [lengths] if part != "observations" else []
    allowed += [lengths + 1] if part in ("observations", *FREE_PARTS) else []
    for rows in allowed:
        if array.ndim and len(array) == rows.sum():
            return rows
    raise DatasetError(
        f"{arrays.path}: {path}: expected {' or '.join(str(rows.sum()) for rows in allowed)} rows for {len(lengths)} "
        f"episodes of {lengths.sum()} steps, got {list(array.shape)}"
    )
