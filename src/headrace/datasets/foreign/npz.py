"""Episodes from npz files of other tools: arrays over all episodes under the usual names."""

# Rules: datasets Z3

from __future__ import annotations

import logging
from collections import Counter

import numpy as np
from numpy.typing import NDArray

from headrace.datasets.dataset import EpisodeDataset
from headrace.datasets.errors import dataset_errors
from headrace.datasets.exporting.structure import FREE_PARTS, Array, describe, part_of
from headrace.datasets.foreign.columns import episode_of, find_columns
from headrace.datasets.npz.archive import LENGTHS, NpzArchive
from headrace.errors import DatasetError
from headrace.trajectories.episode import Episode

_log = logging.getLogger(__name__)

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


class ForeignNpzDataset(EpisodeDataset):
    """Episodes of an npz file without a header, whose arrays are in memory.

    Args:
        archive: is read at once.

    Raises:
        DatasetError: arrays are missing or do not fit.
    """

    format_name = "npz"

    def __init__(self, archive: NpzArchive) -> None:
        self._file = archive.path
        columns = _read_columns(archive)
        if LENGTHS in archive.names:
            lengths = _read_lengths(archive)
        else:
            lengths = _lengths_from_flags(archive, columns)
            _insert_final_observations(archive, columns, lengths)
        rows = {path: _rows(archive, path, array, lengths) for path, array in columns.items()}
        self._columns = columns
        self._offsets = {path: np.concatenate(([0], np.cumsum(each))) for path, each in rows.items()}
        super().__init__(num_episodes=len(lengths), total_steps=int(lengths.sum()))

    def _read(self, index: int) -> Episode:
        arrays = {}
        for path, column in self._columns.items():
            start, stop = self._offsets[path][index : index + 2].tolist()
            arrays[path] = column[start:stop].copy()
        with dataset_errors(self._file, f"episode {index}"):
            return episode_of(arrays)

    def _close(self) -> None:
        self._columns = {}


def _read_columns(archive: NpzArchive) -> _Columns:
    """Reads the arrays by path; flags become bool."""
    ends = {LENGTHS, _NEXT} & {part_of(name) for name in archive.names}
    missing = [] if ends else [f"{LENGTHS} or {_NEXT}"]
    found = find_columns(archive.path, archive.names, _ACCEPTED, missing)
    columns = {path: archive.read(name) for path, name in found.items()}
    for path in ("terminations", "truncations"):
        flags = columns.get(path)
        if flags is None or flags.ndim != 1 or not np.isin(flags, (0, 1)).all():
            raise DatasetError(f"{archive.path}: {path}: expected one array of booleans of shape [steps]")
        columns[path] = flags.astype(bool)
    return columns


def _read_lengths(archive: NpzArchive) -> _Lengths:
    lengths = archive.read(LENGTHS)
    if lengths.ndim != 1 or lengths.dtype.kind not in "iu" or not len(lengths) or lengths.min() < 1:
        raise DatasetError(f"{archive.path}: {LENGTHS}: expected one or more integers above 0")
    return lengths.astype(np.int64)


def _lengths_from_flags(archive: NpzArchive, columns: _Columns) -> _Lengths:
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
                f"{archive.path}: {path}: expected {steps} rows, as most arrays have, got {count}"
            )
    if not steps:
        raise DatasetError(f"{archive.path}: expected at least one step, got none")
    ends = np.flatnonzero(columns["terminations"] | columns["truncations"])
    return np.diff(np.union1d(ends + 1, [steps]), prepend=0).astype(np.int64)


def _insert_final_observations(archive: NpzArchive, columns: _Columns, lengths: _Lengths) -> None:
    """Inserts the last next observation of each episode after its observations."""
    stops, steps = np.cumsum(lengths), int(lengths.sum())
    for path in [path for path in columns if part_of(path) == "observations"]:
        name = _NEXT + path.removeprefix("observations")
        following, array = archive.read(name), columns[path]
        if array.shape != following.shape or array.dtype != following.dtype or array.shape[:1] != (steps,):
            raise DatasetError(
                f"{archive.path}: {name}: expected {steps} rows like those of {path} "
                f"({describe(array.dtype, array.shape)}), got {describe(following.dtype, following.shape)}"
            )
        inside = np.setdiff1d(np.arange(steps - 1), stops - 1)
        if not np.array_equal(array[inside + 1], following[inside], equal_nan=array.dtype.kind in "fc"):
            _log.warning(
                "%s: some rows of %s are not the observations that follow in their episode, which are used instead",
                archive.path,
                name,
            )
        columns[path] = np.insert(array, stops, following[stops - 1], axis=0)


def _rows(archive: NpzArchive, path: str, array: Array, lengths: _Lengths) -> _Lengths:
    """Returns the rows of each episode in an array: T, or T+1 with a row for the reset."""
    part = part_of(path)
    allowed = [lengths] if part != "observations" else []
    allowed += [lengths + 1] if part in ("observations", *FREE_PARTS) else []
    for rows in allowed:
        if array.ndim and len(array) == rows.sum():
            return rows
    raise DatasetError(
        f"{archive.path}: {path}: expected {' or '.join(str(rows.sum()) for rows in allowed)} rows for {len(lengths)} "
        f"episodes of {lengths.sum()} steps, got {list(array.shape)}"
    )
