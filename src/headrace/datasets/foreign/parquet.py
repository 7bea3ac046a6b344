"""Parquet files of other origin: rows of episodes under the usual names."""

# Rules: datasets Q4

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from headrace.datasets.dataset import EpisodeDataset
from headrace.datasets.exporting.structure import FREE_PARTS
from headrace.datasets.parquet.columns import to_numpy
from headrace.datasets.parquet.pyarrow import pa
from headrace.datasets.parquet.rows import ParquetRows
from headrace.errors import DatasetError, SpecError
from headrace.trajectories.episode import Episode

Array = np.ndarray[Any, Any]

_EPISODE = ("episode_id", "episode_index")
_FINAL = "is_final"
# What stands under each of the names that are accepted for a part.
_PARTS = {
    "observations": ("observations", "observation"),
    "actions": ("actions", "action"),
    "rewards": ("rewards", "reward"),
    "terminations": ("terminations", "terminated"),
    "truncations": ("truncations", "truncated"),
}


class ForeignParquetDataset(EpisodeDataset):
    """The episodes of a file whose rows are grouped by episode, the last row of each being final.

    Nested parts are columns with `/` in the name, or structs. Columns of other names are not read. Shapes are those of
    the lists.

    Args:
        rows: the open file, which this closes.

    Raises:
        DatasetError: what is missing, or rows that are no episodes.
    """

    format_name = "parquet"

    def __init__(self, rows: ParquetRows) -> None:
        self._rows = rows
        self._columns = _columns(rows)
        self._ids, self._starts = _episodes(rows)
        lengths = np.diff(self._starts) - 1
        super().__init__(num_episodes=len(self._ids), total_steps=int(lengths.sum()))

    def _read(self, index: int) -> Episode:
        start, stop = self._starts[index : index + 2].tolist()
        table = self._rows.read(start, stop)
        steps = stop - start - 1
        parts: dict[str, Any] = {"infos": {}, "extras": {}}
        try:
            for path, name in self._columns.items():
                values = table.column(name)
                part = path.partition("/")[0]
                has_last = part == "observations" or (
                    part in FREE_PARTS and not values.slice(steps).null_count
                )
                _put(parts, path.split("/"), _tree(values.slice(0, steps + has_last), name))
            return Episode(**parts, id=self._ids[index])
        except SpecError as error:
            raise DatasetError(f"{self._rows.path}: episode {index}: {error}") from error

    def _close(self) -> None:
        self._rows.close()


def _columns(rows: ParquetRows) -> dict[str, str]:
    """Path in the episode to name in the file."""
    found, missing = {}, []
    names = rows.schema.names
    if len(set(names)) != len(names):
        raise DatasetError(f"{rows.path}: expected columns of different names, got {', '.join(names)}")
    for part, accepted in _PARTS.items():
        there = [name for name in names if name.partition("/")[0] in accepted]
        if not there:
            missing.append(" or ".join(accepted))
        found.update({part + name[len(name.partition("/")[0]) :]: name for name in there})
    missing += [" or ".join(each) for each in (_EPISODE, (_FINAL,)) if not set(each) & set(names)]
    if missing:
        raise DatasetError(
            f"{rows.path}: expected the columns of episodes, but there is no {', no '.join(missing)}; there are "
            f"{', '.join(names) or 'none'}"
        )
    found.update({name: name for name in names if name.partition("/")[0] in FREE_PARTS and "/" in name})
    return found


def _episodes(rows: ParquetRows) -> tuple[list[Any], NDArray[np.int64]]:
    """The episodes' ids, and where the rows of each begin: [E + 1]."""
    name = next(each for each in _EPISODE if each in rows.schema.names)
    try:
        ids = to_numpy(rows.column(name), name)
        final = to_numpy(rows.column(_FINAL), _FINAL)
    except SpecError as error:
        raise DatasetError(f"{rows.path}: {error}") from error
    if not len(ids) or ids.ndim != 1 or not np.isin(final, (0, 1)).all():
        raise DatasetError(f"{rows.path}: expected rows with an id and a flag {_FINAL}, got {len(ids)} rows")
    starts = np.concatenate(([0], np.flatnonzero(ids[1:] != ids[:-1]) + 1, [len(ids)])).astype(np.int64)
    found = ids[starts[:-1]].tolist()
    if len(set(found)) != len(found):
        twice = next(each for each in found if found.count(each) > 1)
        raise DatasetError(
            f"{rows.path}: episode {twice}: expected its rows next to each other; sort the file by {name}"
        )
    expected = np.zeros(len(ids), bool)
    expected[starts[1:] - 1] = True
    wrong = np.flatnonzero(final.astype(bool) != expected)
    if len(wrong):
        raise DatasetError(
            f"{rows.path}: episode {ids[wrong[0]]}: expected {_FINAL} in its last row and in no other, "
            f"row {wrong[0]} of the file is wrong"
        )
    return found, starts


def _tree(values: Any, name: str) -> Any:
    """An array, or for structs a mapping of arrays."""
    if not pa.types.is_struct(values.type):
        return to_numpy(values, name).copy()
    struct = values.combine_chunks()
    if struct.null_count:
        raise SpecError(f"{name}: expected a value in every row, got {struct.null_count} nulls")
    return {
        field.name: _tree(pa.chunked_array([struct.field(field.name)]), f"{name}/{field.name}")
        for field in values.type
    }


def _put(tree: dict[str, Any], path: list[str], value: Any) -> None:
    for name in path[:-1]:
        tree = tree.setdefault(name, {})
        if not isinstance(tree, dict):
            raise SpecError(f"{'/'.join(path)}: {name} is an array and has columns under it")
    tree[path[-1]] = value
