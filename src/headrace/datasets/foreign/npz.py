"""npz files of other origin: arrays over all episodes under the usual names."""

# Rules: datasets Z3

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from headrace.datasets.exporting.header import Header
from headrace.datasets.exporting.structure import FREE_PARTS, Structure
from headrace.datasets.npz.archive import NpzArchive
from headrace.errors import DatasetError, SpecError
from headrace.trajectories.episode import Episode

_log = logging.getLogger(__name__)

Array = np.ndarray[Any, Any]

_LENGTHS = "episode_lengths"
_NEXT = "next_observations"
# What stands under each of the names that are accepted for a part.
_NAMES = {
    "observations": ("observations",),
    "actions": ("actions",),
    "rewards": ("rewards",),
    "terminations": ("terminations", "terminals"),
    "truncations": ("truncations", "timeouts"),
}


def header_of_foreign(archive: NpzArchive) -> tuple[Header, dict[str, Array]]:
    """The header that the file would have had, and its arrays as `save_npz` lays them out.

    Raises:
        DatasetError: what is missing or does not fit.
    """
    found = _columns(archive)
    lengths = _lengths(archive, found)
    steps = int(lengths.sum())
    if _LENGTHS not in archive.names:
        found = _with_last_observations(archive, found, lengths)
    for name, array in found.items():
        part = name.partition("/")[0]
        allowed = {steps + len(lengths)} if part == "observations" else {steps}
        if part in FREE_PARTS:
            allowed.add(steps + len(lengths))
        if array.ndim == 0 or len(array) not in allowed:
            raise DatasetError(
                f"{archive.path}: {name}: expected {' or '.join(map(str, sorted(allowed)))} rows for {len(lengths)} "
                f"episodes of {steps} steps, got {list(array.shape)}"
            )
    return _header(archive, found, lengths.tolist()), found


def _columns(archive: NpzArchive) -> dict[str, Array]:
    """The arrays by the names that `save_npz` uses; flags are bool."""
    columns, missing = {}, []
    for part, names in _NAMES.items():
        there = [name for name in archive.names if name.partition("/")[0] in names]
        if not there:
            missing.append(" or ".join(names))
        for name in there:
            columns[part + name[len(name.partition("/")[0]) :]] = archive.read(name)
    if _LENGTHS not in archive.names and not _below(archive, _NEXT):
        missing.append(f"{_LENGTHS} or {_NEXT}")
    if missing:
        raise DatasetError(
            f"{archive.path}: expected the arrays of episodes, but there is no {', no '.join(missing)}; there are "
            f"{', '.join(archive.names) or 'none'}"
        )
    for part in FREE_PARTS:
        columns.update({name: archive.read(name) for name in _below(archive, part) if name != part})
    for name in ("terminations", "truncations"):
        if name not in columns or columns[name].ndim != 1 or not np.isin(columns[name], (0, 1)).all():
            raise DatasetError(f"{archive.path}: {name}: expected one array of booleans of shape [steps]")
        columns[name] = columns[name].astype(bool)
    return columns


def _below(archive: NpzArchive, part: str) -> list[str]:
    return [name for name in archive.names if name.partition("/")[0] == part]


def _lengths(archive: NpzArchive, columns: Mapping[str, Array]) -> NDArray[np.int64]:
    if _LENGTHS in archive.names:
        lengths = archive.read(_LENGTHS)
        if lengths.ndim != 1 or lengths.dtype.kind not in "iu" or not len(lengths) or lengths.min() < 1:
            raise DatasetError(f"{archive.path}: {_LENGTHS}: expected one or more integers above 0")
        return lengths.astype(np.int64)
    _expect_one_length(archive, columns)
    ends = columns["terminations"] | columns["truncations"]
    if not len(ends):
        raise DatasetError(f"{archive.path}: expected at least one step, got none")
    # A tail without a flag is an episode that is not finished.
    stops = np.union1d(np.flatnonzero(ends) + 1, [len(ends)])
    return np.diff(stops, prepend=0).astype(np.int64)


def _expect_one_length(archive: NpzArchive, columns: Mapping[str, Array]) -> None:
    """Raises for the array whose length is not that of most: without episode_lengths each has a row for each step."""
    rows = {
        name: len(array)
        for name, array in columns.items()
        if array.ndim and name.partition("/")[0] not in FREE_PARTS
    }
    steps = Counter(rows.values()).most_common(1)[0][0]
    for name, count in rows.items():
        if count != steps:
            raise DatasetError(
                f"{archive.path}: {name}: expected {steps} rows, as most arrays have, got {count}"
            )


def _with_last_observations(
    archive: NpzArchive, columns: Mapping[str, Array], lengths: NDArray[np.int64]
) -> dict[str, Array]:
    """Put the last next observation of each episode behind its observations."""
    stops, steps = np.cumsum(lengths), int(lengths.sum())
    complete = dict(columns)
    for name in [name for name in columns if name.partition("/")[0] == "observations"]:
        following_name = _NEXT + name[len("observations") :]
        following, array = archive.read(following_name), columns[name]
        if array.shape != following.shape or array.dtype != following.dtype or array.shape[:1] != (steps,):
            raise DatasetError(
                f"{archive.path}: {following_name}: expected {steps} rows like those of {name} "
                f"({array.dtype}{list(array.shape)}), got {following.dtype}{list(following.shape)}"
            )
        inside = np.setdiff1d(np.arange(steps - 1), stops - 1)
        if not np.array_equal(array[inside + 1], following[inside], equal_nan=array.dtype.kind in "fc"):
            _log.warning(
                "%s: some of %s are not the observations that follow in the same episode; those are taken",
                archive.path,
                following_name,
            )
        complete[name] = np.insert(array, stops, following[stops - 1], axis=0)
    return complete


def _header(archive: NpzArchive, columns: Mapping[str, Array], lengths: list[int]) -> Header:
    """Made of stand-ins of the right lengths: the rows themselves are not looked at."""
    header: Header | None = None
    for index, length in enumerate(lengths):
        parts: dict[str, Any] = {"infos": {}, "extras": {}}
        for name, array in columns.items():
            rows = length + (len(array) != sum(lengths))
            _put(parts, name.split("/"), np.broadcast_to(np.zeros((), array.dtype), (rows, *array.shape[1:])))
        try:
            episode = Episode(**parts)
            header = header or Header(Structure.of(episode))
            header.add(episode, header.structure.check(index, episode))
        except SpecError as error:
            raise DatasetError(f"{archive.path}: episode {index}: {error}") from error
    if header is None:
        raise DatasetError(f"{archive.path}: expected at least one episode, got none")
    return header


def _put(tree: dict[str, Any], path: list[str], value: Array) -> None:
    for name in path[:-1]:
        tree = tree.setdefault(name, {})
    tree[path[-1]] = value
