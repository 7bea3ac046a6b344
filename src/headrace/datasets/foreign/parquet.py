"""Episodes from Parquet files of other tools: one row for each step under the usual names."""

# Rules: datasets Q4

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from headrace.datasets.arrow import pa, to_numpy
from headrace.datasets.dataset import EpisodeDataset
from headrace.datasets.errors import dataset_errors
from headrace.datasets.exporting.structure import FREE_PARTS, part_of
from headrace.datasets.foreign.columns import episode_of, find_columns
from headrace.datasets.parquet.columns import FINAL
from headrace.datasets.parquet.rows import ParquetRows
from headrace.errors import SpecError
from headrace.trajectories.episode import Episode

_EPISODE = ("episode_id", "episode_index")
_ACCEPTED = {
    "observations": ("observations", "observation"),
    "actions": ("actions", "action"),
    "rewards": ("rewards", "reward"),
    "terminations": ("terminations", "terminated"),
    "truncations": ("truncations", "truncated"),
}


class ForeignParquetDataset(EpisodeDataset):
    """Episodes of a Parquet file without a header, whose rows are grouped by episode and end with a final row.

    Nested parts are columns with `/` in the name, or structs. Columns of other names are not read. The lists give the
    shapes.

    Args:
        rows: the open file, which `close` closes.

    Raises:
        DatasetError: columns are missing, or the rows are not those of episodes.
    """

    format_name = "parquet"

    def __init__(self, rows: ParquetRows) -> None:
        self._rows = rows
        self._columns = _find_columns(rows)
        with dataset_errors(rows.path):
            self._ids, self._starts = _find_episodes(rows)
        count = len(self._ids)
        super().__init__(num_episodes=count, total_steps=int(self._starts[-1]) - count)

    def _read(self, index: int) -> Episode:
        start, stop = self._starts[index : index + 2].tolist()
        table = self._rows.read(start, stop)
        steps = stop - start - 1
        arrays = {}
        with dataset_errors(self._rows.path, f"episode {index}"):
            for path, name in self._columns.items():
                values, part = table.column(name), part_of(path)
                has_final = part in FREE_PARTS and not values.slice(steps).null_count
                rows = steps + (has_final or part == "observations")
                arrays[path] = _tree(values.slice(0, rows), name)
            return episode_of(arrays, self._ids[index])

    def _close(self) -> None:
        self._rows.close()


def _find_columns(rows: ParquetRows) -> dict[str, str]:
    names = rows.schema.names
    with dataset_errors(rows.path):
        if len(set(names)) != len(names):
            raise SpecError(f"expected columns of different names, got {', '.join(names)}")
    missing = [" or ".join(each) for each in (_EPISODE, (FINAL,)) if not set(each) & set(names)]
    return find_columns(rows.path, names, _ACCEPTED, missing)


def _find_episodes(rows: ParquetRows) -> tuple[list[Any], NDArray[np.int64]]:
    """Returns the ids of the episodes, and the first row of each with the number of rows: [E + 1].

    Raises:
        SpecError: the rows of an episode are not next to each other, or do not end with a final row.
    """
    name = next(each for each in _EPISODE if each in rows.schema.names)
    ids, final = to_numpy(rows.column(name), name), to_numpy(rows.column(FINAL), FINAL)
    if not len(ids) or ids.ndim != 1 or not np.isin(final, (0, 1)).all():
        raise SpecError(f"expected rows with an id and a flag {FINAL}, got {len(ids)} rows")
    starts = np.concatenate(([0], np.flatnonzero(ids[1:] != ids[:-1]) + 1, [len(ids)])).astype(np.int64)
    found = ids[starts[:-1]].tolist()
    if len(set(found)) != len(found):
        twice = next(each for each in found if found.count(each) > 1)
        raise SpecError(f"episode {twice}: expected its rows next to each other; sort the file by {name}")
    expected = np.isin(np.arange(len(ids)), starts[1:] - 1)
    wrong = np.flatnonzero(final.astype(bool) != expected)
    if len(wrong):
        raise SpecError(
            f"episode {ids[wrong[0]]}: expected {FINAL} in its last row only; row {wrong[0]} of the file is wrong"
        )
    return found, starts


def _tree(values: Any, name: str) -> Any:
    """Returns an array, or for structs a mapping of arrays."""
    if not pa.types.is_struct(values.type):
        return to_numpy(values, name).copy()
    struct = values.combine_chunks()
    if struct.null_count:
        raise SpecError(f"{name}: expected a value in every row, got {struct.null_count} nulls")
    return {field.name: _tree(struct.field(field.name), f"{name}/{field.name}") for field in values.type}
