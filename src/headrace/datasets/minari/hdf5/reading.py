"""Episodes out of Minari's `main_data.hdf5`.

The file is open only while something is read: others may append to it meanwhile, a process may fork, and readers do not
shut out one another.
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

from headrace.datasets.exporting.structure import Column, Structure, describe
from headrace.datasets.minari.hdf5.attributes import read_reset
from headrace.datasets.minari.hdf5.h5py import h5py
from headrace.datasets.minari.hdf5.layout import index_name, layout_of
from headrace.datasets.minari.hdf5.writing import DTYPE_ATTRIBUTE, MAIN_FILE, OPENED_AT_ONCE
from headrace.datasets.minari.jpeg import decode_jpeg_rows, is_jpeg
from headrace.datasets.minari.metadata import Metadata
from headrace.datasets.minari.recorded import DAMAGE, Recorded, damage_named, one_column
from headrace.errors import DatasetError, SpecError
from headrace.trees import join

Array = np.ndarray[Any, Any]

_EPISODE = re.compile(rb"episode_([0-9]+)")
_INDEX = re.compile(r"_index_[0-9]+")


class Hdf5Episodes:
    """The episodes of one file.

    Args:
        folder: the dataset's `data`.
        metadata: of the dataset.

    Attributes:
        file: which file.
        names: of the groups, in the order of their numbers.

    Raises:
        DatasetError: no HDF5 file, or a damaged one.
    """

    def __init__(self, folder: Path, metadata: Metadata) -> None:
        self.file = folder / MAIN_FILE
        self._metadata = metadata
        with damage_named(metadata.file):
            self._own = _OwnEpisodes(metadata.structure) if metadata.structure is not None else None
        if not self.file.is_file():
            raise DatasetError(f"{self.file}: there is no such file, and it is where the episodes should be")
        self._identity = _identity(self.file)
        with self._opened() as file, damage_named(self.file):
            matches = [match for name in file.id if (match := _EPISODE.fullmatch(name))]
        matches.sort(key=lambda match: int(match[1]))
        self.names = [match[0].decode() for match in matches]

    def steps(self) -> list[int | None]:
        """How many transitions each episode has, from the shape of its rewards; None where it cannot be read."""
        found: list[int | None] = []
        # An open file keeps in memory what it has shown of itself, so it is opened anew now and then.
        for begin in range(0, len(self.names), OPENED_AT_ONCE):
            with self._opened() as file:
                names = self.names[begin : begin + OPENED_AT_ONCE]
                found += [_rows(file, f"{name}/rewards") for name in names]
        return found

    def without_final(self) -> int:
        """How many episodes have T observations instead of T+1."""
        with self._opened() as file:
            return sum(
                rows is not None and rows == _rows(file, f"{name}/observations")
                for name, rows in zip(self.names, self.steps(), strict=True)
            )

    def read(self, index: int) -> Recorded:
        """The parts of one episode.

        Raises:
            DatasetError: with the file, the episode and the field.
        """
        name = self.names[index]
        with self._opened() as file, damage_named(self.file, name):
            group = file[name]
            reset = read_reset(group)
            if self._own is not None and _number(name) < self._metadata.own_episodes:
                return self._own.read(group, self.file, reset)
            return self._read_foreign(group, reset)

    def _read_foreign(self, group: Any, reset: dict[str, Any]) -> Recorded:
        reader = _TreeReader(self.file, group.name.lstrip("/"), self._metadata.may_have_jpeg_infos)
        infos = reader.read(group["infos"], None, "infos") if "infos" in group else {}
        extras = infos.pop("extras", {}) if isinstance(infos.get("extras"), dict) else {}
        single = {
            name: one_column(reader.read(group[name], None, name))
            for name in ("rewards", "terminations", "truncations")
        }
        return Recorded(
            observations=reader.read(group["observations"], self._metadata.observation_space, "observations"),
            actions=reader.read(group["actions"], self._metadata.action_space, "actions"),
            infos=infos,
            extras=extras,
            reset=reset,
            **single,
        )

    @contextmanager
    def _opened(self) -> Iterator[Any]:
        with damage_named(self.file):
            if _identity(self.file) != self._identity:
                raise DatasetError(
                    f"{self.file}: it was replaced since the dataset was opened; open it again"
                )
            file = h5py.File(self.file, "r")
        with file:
            yield file


class _OwnEpisodes:
    """Episodes that were written here: the metadata has their structure."""

    def __init__(self, structure: Structure) -> None:
        self._structure = structure
        self._datasets = {
            column: (structure.columns[column], path.encode())
            for column, path in layout_of(structure).datasets.items()
        }

    def read(self, group: Any, file: Path, reset: dict[str, Any]) -> Recorded:
        arrays = {}
        for path, (column, place) in self._datasets.items():
            with damage_named(file, group.name.lstrip("/"), path):
                arrays[path] = _read_column(h5py.h5d.open(group.id, place), column)
        # Unchecked: what to do without the last observation is for the caller to say.
        return Recorded(**self._structure.parts(arrays), reset=reset)


class _TreeReader:
    """Reads groups and datasets as the spaces say, or where there is none as they lie."""

    def __init__(self, file: Path, episode: str, may_have_jpeg_infos: bool) -> None:
        self._file = file
        self._episode = episode
        self._may_have_jpeg_infos = may_have_jpeg_infos

    def read(self, node: Any, space: Space[Any] | None, path: str) -> Any:
        with damage_named(self._file, self._episode, path):
            if isinstance(node, h5py.Group):
                return self._read_group(node, space, path)
            if isinstance(space, spaces.Dict | spaces.Tuple):
                raise SpecError(f"expected a group for {space}, got one dataset")
            return self._read_leaf(node, space)

    def _read_group(self, group: Any, space: Space[Any] | None, path: str) -> Any:
        names = list(group)
        if isinstance(space, spaces.Tuple):
            return self._read_tuple(group, space.spaces, path)
        if isinstance(space, spaces.Dict):
            missing = [key for key in space.spaces if key not in names]
            if missing:
                raise SpecError(f"missing {', '.join(missing)} of {space}")
            return {name: self.read(group[name], space.spaces.get(name), join(path, name)) for name in names}
        if space is not None:
            raise SpecError(f"expected one dataset for {space}, got a group")
        if names and all(map(_INDEX.fullmatch, names)):
            return self._read_tuple(group, [None] * len(names), path)
        return {name: self.read(group[name], None, join(path, name)) for name in names}

    def _read_tuple(self, group: Any, each: Any, path: str) -> tuple[Any, ...]:
        return tuple(
            self.read(group[index_name(index)], space, join(path, str(index)))
            for index, space in enumerate(each)
        )

    def _read_leaf(self, dataset: Any, space: Space[Any] | None) -> Array:
        array = dataset[()]
        if h5py.check_string_dtype(dataset.dtype) is not None:
            return _strings(dataset, array)
        if not isinstance(array, np.ndarray):
            raise SpecError(f"expected a row for each step, got one value: {array!r:.80}")
        shape = space.shape if isinstance(space, spaces.Box) else None
        if self._is_jpeg(array, dataset.dtype, space is None, shape):
            return decode_jpeg_rows(list(array), shape)
        if shape is not None and len(shape) > 1 and array.dtype == np.uint8 and array.ndim == 2:
            raise SpecError(
                f"expected images {list(shape)} or the bytes of JPEG files, got {array.shape[1]} bytes"
            )
        if array.dtype.kind not in "biufc":
            raise SpecError(f"expected numbers, booleans or strings, got {dataset.dtype}")
        return array

    def _is_jpeg(
        self, array: Array, dtype: np.dtype[Any], is_info: bool, shape: tuple[int, ...] | None
    ) -> bool:
        """Whether each row is a file: of one length, or each of its own."""
        if len(array) == 0:
            return False
        if h5py.check_vlen_dtype(dtype) == np.uint8:
            return is_jpeg(array[0])
        if array.dtype != np.uint8 or array.ndim != 2 or array.shape[1:] == shape:
            return False
        if is_info and not self._may_have_jpeg_infos:
            return False
        return all(map(is_jpeg, array)) if is_info else is_jpeg(array[0])


def _read_column(dataset: Any, column: Column) -> Array:
    """The array of a dataset that was written here."""
    if column.is_text:
        node = h5py.Dataset(dataset)
        array = _strings(node, node[()])
    else:
        array = np.empty(dataset.shape, dataset.dtype)
        if array.size:
            dataset.read(h5py.h5s.ALL, h5py.h5s.ALL, array)
    dtype = np.dtype(array.dtype.kind) if column.is_text else array.dtype
    if dtype != column.dtype or array.shape[1:] != column.shape:
        raise SpecError(f"expected {column}, got {describe(dtype, array.shape[1:])}")
    return array


def _strings(dataset: Any, array: Array) -> Array:
    """Strings as str, of the dtype that is noted beside them."""
    noted = dataset.attrs.get(DTYPE_ATTRIBUTE)
    wanted = np.dtype(noted) if noted is not None else None
    if wanted is not None and wanted.kind == "S":
        return array.astype(wanted, copy=False)
    if array.dtype.kind == "S":
        array = np.char.decode(array, "utf-8")
    else:
        texts = [text.decode() if isinstance(text, bytes) else text for text in array.ravel().tolist()]
        array = np.array(texts, "U").reshape(array.shape)
    return array if wanted is None else array.astype(wanted, copy=False)


def _rows(file: Any, path: str) -> int | None:
    """How many rows a dataset has, or the first one in a group; None where it cannot be read."""
    try:
        node = h5py.h5o.open(file.id, path.encode())
        while isinstance(node, h5py.h5g.GroupID):
            node = h5py.h5o.open(node, next(iter(node)))
        return int(node.shape[0])
    except DAMAGE:
        return None  # Reading the episode says what is wrong.


def _number(name: str) -> int:
    return int(name.rpartition("_")[2])


def _identity(file: Path) -> tuple[int, int]:
    found = os.stat(file)
    return found.st_dev, found.st_ino
