"""Episodes from Minari's `main_data.hdf5`.

The file is open only while something is read, so other processes may append to it meanwhile, a process may fork, and
readers do not lock out one another.
"""

# Rules: datasets K6, K11, X5

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
from gymnasium import Space, spaces

from headrace.datasets.errors import dataset_errors
from headrace.datasets.exporting.structure import Array, Column, Structure
from headrace.datasets.hdf5 import h5py
from headrace.datasets.images import decode_images
from headrace.datasets.minari.hdf5.attributes import read_reset
from headrace.datasets.minari.hdf5.layout import index_name, layout_of
from headrace.datasets.minari.hdf5.writing import DTYPE_ATTRIBUTE, MAIN_FILE, open_in_turn
from headrace.datasets.minari.jpeg import FORMATS, is_jpeg
from headrace.datasets.minari.metadata import Metadata
from headrace.datasets.minari.recorded import Recorded, one_column
from headrace.datasets.minari.tree_reading import read_tree
from headrace.errors import DatasetError, SpecError

_EPISODE = re.compile(rb"episode_([0-9]+)")
_INDEX = re.compile(r"_index_[0-9]+")


class Hdf5Episodes:
    """Episodes of one file.

    Args:
        folder: the dataset's `data`.
        metadata: of the dataset.

    Attributes:
        file: path of the file.
        names: of the groups, in the order of their numbers.

    Raises:
        DatasetError: the file is not an HDF5 file, or is damaged.
    """

    def __init__(self, folder: Path, metadata: Metadata) -> None:
        self.file = folder / MAIN_FILE
        self._metadata = metadata
        self._datasets: dict[str, bytes] = {}
        if metadata.structure is not None:
            with dataset_errors(metadata.file):
                datasets = layout_of(metadata.structure).datasets
            self._datasets = {path: place.encode() for path, place in datasets.items()}
        if not self.file.is_file():
            raise DatasetError(f"{self.file}: there is no such file, and it should hold the episodes")
        self._identity = _identity(self.file)
        with self._opened() as file, dataset_errors(self.file):
            matches = [match for name in file.id if (match := _EPISODE.fullmatch(name))]
        matches.sort(key=lambda match: int(match[1]))
        self.names = [match[0].decode() for match in matches]

    def rows(self, part: str) -> list[int | None]:
        """Returns the number of rows that a part of each episode has; None where it cannot be read."""
        with self._opened():
            pass  # Checks that the file is the one whose names are known.
        with dataset_errors(self.file):
            return [_rows(file, f"{name}/{part}") for file, name in open_in_turn(self.file, self.names)]

    def read(self, index: int) -> Recorded:
        """Reads the parts of one episode.

        Raises:
            DatasetError: with the file, the episode and the field.
        """
        name = self.names[index]
        with self._opened() as file, dataset_errors(self.file, name):
            group = file[name]
            is_own = int(name.rpartition("_")[2]) < self._metadata.own_episodes
            structure = self._metadata.structure
            parts = (
                self._read_own(group, name, structure) if is_own and structure else self._read_foreign(group)
            )
            return {**parts, **read_reset(group)}

    def _read_own(self, group: Any, name: str, structure: Structure) -> Recorded:
        """Reads an episode that `save_minari` wrote."""
        arrays = {}
        for path, place in self._datasets.items():
            with dataset_errors(self.file, name, path):
                arrays[path] = _read_column(h5py.h5d.open(group.id, place), structure.columns[path])
        return structure.parts(arrays)

    def _read_foreign(self, group: Any) -> Recorded:
        """Reads an episode that Minari wrote."""

        def read(part: str, space: Space[Any] | None = None) -> Any:
            return read_tree(group[part], space, part, _children, self._read_array)

        infos = read("infos") if "infos" in group else {}
        return {
            "observations": read("observations", self._metadata.observation_space),
            "actions": read("actions", self._metadata.action_space),
            **{part: one_column(read(part)) for part in ("rewards", "terminations", "truncations")},
            "extras": infos.pop("extras") if isinstance(infos.get("extras"), dict) else {},
            "infos": infos,
        }

    def _read_array(self, dataset: Any, space: Space[Any] | None, path: str) -> Array:
        with dataset_errors(self.file, dataset.name.split("/")[1], path):
            array = dataset[()]
        if h5py.check_string_dtype(dataset.dtype) is not None:
            return _strings(dataset, array)
        if not isinstance(array, np.ndarray):
            raise SpecError(f"{path}: expected a row for each step, got one value: {array!r:.80}")
        shape = space.shape if isinstance(space, spaces.Box) else None
        if self._is_jpeg(array, dataset.dtype, space is None, shape):
            return decode_images(list(array), shape, path, FORMATS)
        if shape is not None and len(shape) > 1 and array.dtype == np.uint8 and array.ndim == 2:
            raise SpecError(
                f"{path}: expected images {list(shape)} or the bytes of JPEG files, got {array.shape[1]} bytes"
            )
        if array.dtype.kind not in "biufc":
            raise SpecError(f"{path}: expected numbers, booleans or strings, got {dataset.dtype}")
        return array

    def _is_jpeg(
        self, array: Array, dtype: np.dtype[Any], is_info: bool, shape: tuple[int, ...] | None
    ) -> bool:
        """Whether each row is a JPEG file; files have one length, or each its own."""
        if len(array) == 0:
            return False
        if h5py.check_vlen_dtype(dtype) == np.uint8:
            return is_jpeg(array[0])
        if array.dtype != np.uint8 or array.ndim != 2 or array.shape[1:] == shape:
            return False
        if is_info:
            return self._metadata.may_have_jpeg_infos and all(map(is_jpeg, array))
        return is_jpeg(array[0])

    @contextmanager
    def _opened(self) -> Iterator[Any]:
        with dataset_errors(self.file):
            if _identity(self.file) != self._identity:
                raise DatasetError(
                    f"{self.file}: it was replaced since the dataset was opened; open it again"
                )
            file = h5py.File(self.file, "r")
        with file:
            yield file


def _children(node: Any, space: Space[Any] | None) -> dict[str, Any] | list[Any] | None:
    if not isinstance(node, h5py.Group):
        return None
    names = list(node)
    if isinstance(space, spaces.Dict) or not (names and all(map(_INDEX.fullmatch, names))):
        return {name: node[name] for name in names}
    return [node[index_name(index)] for index in range(len(names))]


def _read_column(dataset: Any, column: Column) -> Array:
    """Reads an array that `save_minari` wrote."""
    if column.is_text:
        node = h5py.Dataset(dataset)
        array = _strings(node, node[()])
    else:
        array = np.empty(dataset.shape, dataset.dtype)
        if array.size:
            dataset.read(h5py.h5s.ALL, h5py.h5s.ALL, array)
    found = Column.of(column.path, array)
    if found != column:
        raise SpecError(f"expected {column}, got {found}")
    return array


def _strings(dataset: Any, array: Array) -> Array:
    """Returns strings as str, in the dtype that is noted beside them."""
    wanted = np.dtype(dataset.attrs.get(DTYPE_ATTRIBUTE, "U"))
    if wanted.kind == "U" and array.dtype.kind == "S":
        array = np.char.decode(array, "utf-8")
    elif wanted.kind == "U":
        texts = [text.decode() if isinstance(text, bytes) else text for text in array.ravel().tolist()]
        array = np.array(texts, "U").reshape(array.shape)
    return array.astype(wanted, copy=False)


def _rows(file: Any, path: str) -> int | None:
    """Returns the number of rows of a dataset, or of the first one in a group; None if it cannot be read."""
    try:
        node = h5py.h5o.open(file.id, path.encode())
        while isinstance(node, h5py.h5g.GroupID):
            node = h5py.h5o.open(node, next(iter(node)))
        return int(node.shape[0])
    except Exception:
        return None  # Reading the episode raises the error.


def _identity(file: Path) -> tuple[int, int]:
    found = os.stat(file)
    return found.st_dev, found.st_ino
