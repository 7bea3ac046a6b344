"""Episodes from Minari's arrow and parquet data.

An episode is a folder, named by its number, with `metadata.json` and files `part-N.arrow` or `part-N.parquet`. A row is
an observation with the action, reward and flags that followed; in the row of the last observation these are padding.
"""

# Rules: datasets K11, K12

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from gymnasium import Space, spaces

from headrace.datasets.arrow import ipc, pa, parquet, to_numpy
from headrace.datasets.errors import dataset_errors
from headrace.datasets.exporting.structure import Array
from headrace.datasets.images import decode_images
from headrace.datasets.minari.jpeg import FORMATS, is_jpeg
from headrace.datasets.minari.metadata import METADATA_FILE, Metadata
from headrace.datasets.minari.recorded import Recorded, one_column
from headrace.datasets.minari.tree_reading import read_tree
from headrace.errors import SpecError

_FLAGS = ("terminations", "truncations")
_COLUMNS = ("observations", "actions", "rewards", *_FLAGS)
_SHAPE = b"shape"


class ArrowEpisodes:
    """Episodes of one folder.

    Args:
        folder: the dataset's `data`.
        metadata: of the dataset.

    Attributes:
        file: the folder.
        names: of the folders of the episodes, in the order of their numbers.
    """

    def __init__(self, folder: Path, metadata: Metadata) -> None:
        self.file = folder
        self._metadata = metadata
        folders = [entry.name for entry in folder.iterdir() if entry.is_dir() and entry.name.isdecimal()]
        self.names = sorted(folders, key=int)

    def rows(self, part: str) -> list[int | None]:
        """Returns the number of rows that a part of each episode has; None where it cannot be read."""
        counted = map(self._count, self.names)
        return [each and each[part == "observations"] for each in counted]

    def read(self, index: int) -> Recorded:
        """Reads the parts of one episode.

        Raises:
            DatasetError: with the folder, the episode and the field.
        """
        name = self.names[index]
        with dataset_errors(self.file, name):
            columns = self._columns(name, None)
            missing = [column for column in _COLUMNS if column not in columns]
            if missing:
                raise SpecError(f"missing {', '.join(missing)}")
            noted = self._noted(name)
            flags = _flags(columns)
            steps = _count_steps(flags, noted.get("total_steps"))
            return {
                "observations": _tree(
                    columns["observations"], self._metadata.observation_space, "observations"
                ),
                "actions": _tree(columns["actions"].slice(0, steps), self._metadata.action_space, "actions"),
                "rewards": one_column(_array(columns["rewards"].slice(0, steps), "rewards")),
                **{flag: array[:steps] for flag, array in flags.items()},
                "infos": _tree(columns["infos"], None, "infos") if "infos" in columns else {},
                "seed": noted.get("seed"),
                "options": noted.get("options"),
            }

    def _count(self, name: str) -> tuple[int, int] | None:
        """Returns the numbers of transitions and of rows of an episode; None if they cannot be read."""
        try:
            flags = _flags(self._columns(name, list(_FLAGS)))
            return _count_steps(flags, self._noted(name).get("total_steps")), len(flags["terminations"])
        except Exception:
            return None  # Reading the episode raises the error.

    def _columns(self, name: str, wanted: list[str] | None) -> dict[str, Any]:
        """Reads the columns of an episode: Minari cuts a long one into batches, and a very long one into files."""
        suffix = f".{self._metadata.data_format}"
        files = sorted((self.file / name).glob(f"*{suffix}"), key=_part_number)
        if not files:
            raise FileNotFoundError(f"there is no file {self.file / name}/part-0{suffix}")
        read = _read_parquet if suffix == ".parquet" else _read_arrow
        table = pa.concat_tables([read(file, wanted) for file in files])
        table.validate(full=True)  # Neither format detects damaged data by itself.
        return {column: table.column(column).combine_chunks() for column in table.column_names}

    def _noted(self, name: str) -> dict[str, Any]:
        file = self.file / name / METADATA_FILE
        noted = json.loads(file.read_text(encoding="utf-8")) if file.is_file() else {}
        if not isinstance(noted, dict):
            raise TypeError(f"{METADATA_FILE}: expected a JSON object, got {type(noted).__name__}")
        return noted


def _count_steps(flags: Mapping[str, Array], noted: Any) -> int:
    """Returns the number of rows with an action: all but one, or all where the last observation is missing.

    A flag in the last row shows that it has an action, because padding has no flag. Otherwise the metadata of the
    episode decides, and without them the last row is padding, as Minari writes it.
    """
    flagged = flags["terminations"].astype(bool) | flags["truncations"].astype(bool)
    rows = len(flagged)
    is_whole = noted == rows  # Then an earlier flag is in the middle of the episode, which is refused later.
    return rows if is_whole or (rows and flagged[-1]) else max(0, rows - 1)


def _read_parquet(file: Path, columns: list[str] | None) -> Any:
    with parquet.ParquetFile(file) as opened:
        return opened.read(columns)


def _read_arrow(file: Path, columns: list[str] | None) -> Any:
    with pa.memory_map(str(file)) as source:
        table = ipc.open_file(source).read_all()
        return table.select(columns) if columns else table


def _part_number(file: Path) -> tuple[int, str]:
    match = re.search(r"(\d+)$", file.stem)
    return (int(match[1]) if match else 0, file.name)


def _flags(columns: Mapping[str, Any]) -> dict[str, Array]:
    return {flag: one_column(_array(columns[flag], flag)) for flag in _FLAGS}


def _tree(column: Any, space: Space[Any] | None, path: str) -> Any:
    return read_tree((column, None), space, path, _children, _read_array)


def _children(node: Any, _: Space[Any] | None) -> dict[str, Any] | None:
    """Returns the columns of a struct with their fields, except those that are null in every row."""
    column, _ = node
    if not pa.types.is_struct(column.type):
        return None
    return {
        field.name: (column.field(index), field)
        for index, field in enumerate(column.type)
        if not pa.types.is_null(field.type)
    }


def _read_array(node: Any, space: Space[Any] | None, path: str) -> Array:
    """Reads a column in the shape of its space, or in one that is noted beside it, or in that of its lists."""
    column, field = node
    shapes = _noted_shapes(((field and field.metadata) or {}).get(_SHAPE)) if space is None else []
    if space is not None and space.shape is not None and not isinstance(space, spaces.Text):
        shapes = [space.shape]
    array = _array(column, path, shapes[0] if shapes else None)
    size = int(np.prod(array.shape[1:]))
    for shape in shapes:
        if np.prod(shape, dtype=np.int64) == size:
            return array.reshape(len(array), *shape)
    if shapes:
        raise SpecError(f"{path}: expected rows of the shape {list(shapes[0])}, got {size} values")
    return array


def _array(column: Any, path: str, shape: tuple[int, ...] | None = None) -> Array:
    """Reads a column of numbers, strings, lists of numbers or images of a shape."""
    is_binary = pa.types.is_binary(column.type) or pa.types.is_large_binary(column.type)
    if is_binary and len(column) and is_jpeg(column[0].as_py() or b""):
        return decode_images(column.to_pylist(), shape, path, FORMATS)
    array = to_numpy(column, path, is_nullable=pa.types.is_floating)
    return np.char.decode(array, "utf-8") if array.dtype.kind == "S" else np.array(array)


def _noted_shapes(note: bytes | None) -> list[tuple[int, ...]]:
    """Returns the shapes that a note may mean: "2,3", or in Minari 0.5.0 a byte for each axis; "" is a scalar."""
    if note is None:
        return []
    as_bytes = tuple(note)
    try:
        return [tuple(int(size) for size in note.decode().split(",")) if note else (), as_bytes]
    except ValueError:
        return [as_bytes]
