"""Episodes out of Minari's arrow and parquet data.

An episode is a folder, named by its number, with `metadata.json` and files `part-N.arrow` or `part-N.parquet`. A row is
an observation with the action, reward and flags that followed; in the row of the last observation these are padding.
"""

# Rules: datasets K11, K12

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import numpy as np

from headrace.datasets.minari.arrow.pyarrow import pa
from headrace.datasets.minari.arrow.values import arrow_infos, arrow_leaf, arrow_tree
from headrace.datasets.minari.metadata import METADATA_FILE, Metadata
from headrace.datasets.minari.recorded import DAMAGE, Recorded, damage_named, one_column
from headrace.errors import DatasetError

Array = np.ndarray[Any, Any]

_FLAGS = ("terminations", "truncations")
_COLUMNS = ("observations", "actions", "rewards", *_FLAGS)


class ArrowEpisodes:
    """The episodes of one folder.

    Args:
        folder: the dataset's `data`.
        metadata: of the dataset.

    Attributes:
        file: which folder.
        names: of the folders of the episodes, in the order of their numbers.
    """

    def __init__(self, folder: Path, metadata: Metadata) -> None:
        self.file = folder
        self._metadata = metadata
        folders = [entry.name for entry in folder.iterdir() if entry.is_dir() and entry.name.isdecimal()]
        self.names = sorted(folders, key=int)

    def steps(self) -> list[int | None]:
        """How many transitions each episode has, from its flags; None where they cannot be read."""
        return [counted and counted[0] for counted in map(self._count, self.names)]

    def without_final(self) -> int:
        """How many episodes have T observations instead of T+1."""
        return sum(
            counted is not None and counted[0] == counted[1] for counted in map(self._count, self.names)
        )

    def read(self, index: int) -> Recorded:
        """The parts of one episode.

        Raises:
            DatasetError: with the folder, the episode and the field.
        """
        name = self.names[index]
        with damage_named(self.file, name):
            table = self._table(name, None)
            table.validate(full=True)  # Neither format tells damaged data by itself.
            missing = [column for column in _COLUMNS if column not in table.column_names]
            if missing:
                raise DatasetError(f"{self.file}: {name}: missing {', '.join(missing)}")
            noted = self._noted(name)
            columns = {column: _combined(table, column) for column in table.column_names}
            flags = {flag: one_column(arrow_leaf(columns[flag], flag)) for flag in _FLAGS}
            steps = _count_steps(flags, noted.get("total_steps"))
            return Recorded(
                arrow_tree(columns["observations"], self._metadata.observation_space, "observations"),
                arrow_tree(columns["actions"].slice(0, steps), self._metadata.action_space, "actions"),
                one_column(arrow_leaf(columns["rewards"].slice(0, steps), "rewards")),
                flags["terminations"][:steps],
                flags["truncations"][:steps],
                arrow_infos(columns["infos"], "infos") if "infos" in columns else {},
                reset={"seed": noted.get("seed"), "options": noted.get("options")},
            )

    def _count(self, name: str) -> tuple[int, int] | None:
        """Transitions and rows of an episode."""
        try:
            table = self._table(name, _FLAGS)
            flags = {flag: one_column(arrow_leaf(_combined(table, flag), flag)) for flag in _FLAGS}
            return _count_steps(flags, self._noted(name).get("total_steps")), len(table)
        except DAMAGE:
            return None  # Reading it says what is wrong.

    def _table(self, name: str, columns: tuple[str, ...] | None) -> Any:
        """All rows of an episode: Minari cuts a long one into batches, and a very long one into files."""
        suffix = f".{self._metadata.data_format}"
        files = sorted((self.file / name).glob(f"*{suffix}"), key=_part_number)
        if not files:
            raise FileNotFoundError(f"there is no file {self.file / name}/part-0{suffix}")
        read = _read_parquet if suffix == ".parquet" else _read_arrow
        return pa.concat_tables([read(file, columns) for file in files])

    def _noted(self, name: str) -> dict[str, Any]:
        file = self.file / name / METADATA_FILE
        noted = json.loads(file.read_text(encoding="utf-8")) if file.is_file() else {}
        if not isinstance(noted, dict):
            raise TypeError(f"{METADATA_FILE}: expected a JSON object, got {type(noted).__name__}")
        return noted


def _count_steps(flags: dict[str, Array], noted: Any) -> int:
    """How many rows have an action: all but one, or all where the last observation is missing.

    A flag in the last row tells: padding has none. Without one the episode's own metadata does, and without that
    there is a row of padding, as Minari writes it.
    """
    flagged = flags["terminations"].astype(bool) | flags["truncations"].astype(bool)
    rows = len(flagged)
    if rows and flagged[-1]:
        return rows
    is_whole = noted == rows  # Then a flag before the last row is one in the middle, which is refused.
    return rows if is_whole else max(0, rows - 1)


def _combined(table: Any, column: str) -> Any:
    return table.column(column).combine_chunks()


def _read_parquet(file: Path, columns: tuple[str, ...] | None) -> Any:
    with pa.parquet.ParquetFile(file) as parquet:
        return parquet.read(list(columns) if columns else None)


def _read_arrow(file: Path, columns: tuple[str, ...] | None) -> Any:
    with pa.memory_map(str(file)) as source:
        table = pa.ipc.open_file(source).read_all()
        return table.select(list(columns)) if columns else table


def _part_number(file: Path) -> tuple[int, str]:
    match = re.search(r"(\d+)$", file.stem)
    return (int(match[1]) if match else 0, file.name)
