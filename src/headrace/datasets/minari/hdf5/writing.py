"""Episodes into Minari's `main_data.hdf5`.

A small episode is a dozen small objects, so what they cost decides: the low level of h5py is used, and types, spaces
and property lists are made once for each kind of dataset. The file is of HDF5 1.10's form: its objects are smaller
than those of the oldest, which is h5py's choice, and have checksums.
"""

# Rules: datasets K5, K6

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import numpy as np

from headrace.datasets.minari.hdf5.attributes import write_attributes
from headrace.datasets.minari.hdf5.h5py import h5py
from headrace.datasets.minari.hdf5.layout import Layout
from headrace.errors import DatasetError, SpecError

Array = np.ndarray[Any, Any]

MAIN_FILE = "main_data.hdf5"
# The dtype of strings, which HDF5 gives back without their width.
DTYPE_ATTRIBUTE = "headrace_dtype"
_FORM = ("v110", "v110")
# A chunk is read and unpacked as a whole, and fits into the cache that HDF5 keeps of each dataset.
_CHUNK_BYTES = 2**20
_GZIP_LEVEL = 4
# Episodes of ever new lengths do not fill the memory with what was made for each length.
_MAX_KINDS = 1024
# Episodes that are looked at before the file is opened anew.
OPENED_AT_ONCE = 1000


class Hdf5Writer:
    """Writes episodes of one layout into a new file, numbered from 0.

    Args:
        path: of the file, which must not exist.
        layout: where each array goes.
        compression: "gzip" or None.
    """

    def __init__(self, path: Path, layout: Layout, compression: str | None) -> None:
        self._layout = layout
        self._compression = compression
        self._groups = [group.encode() for group in layout.groups]
        self._kinds: dict[tuple[Any, ...], tuple[Any, Any, Any]] = {}
        self._scalar = h5py.h5s.create(h5py.h5s.SCALAR)
        self._file = h5py.File(path, "x", libver=_FORM)

    def write(self, index: int, arrays: Mapping[str, Array], attributes: Mapping[str, Any]) -> None:
        """Write one episode.

        Args:
            index: its number.
            arrays: by column.
            attributes: of its group, beside `id` and `total_steps`.

        Raises:
            SpecError: a string that HDF5 does not hold.
        """
        group = h5py.h5g.create(self._file.id, b"episode_%d" % index)
        self._write_number(group, b"id", index)
        self._write_number(group, b"total_steps", len(arrays["rewards"]))
        if attributes:
            write_attributes(h5py.Group(group), attributes)
        for place in self._groups:
            h5py.h5g.create(group, place)
        for column, path in self._layout.datasets.items():
            array = arrays[column]
            if array.dtype.kind in "US":
                self._write_strings(group, path, array, f"episode {index}: {column}")
            else:
                self._write_array(group, path.encode(), array)

    def close(self) -> None:
        """Write what is not on the disk yet."""
        self._file.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _write_number(self, group: Any, name: bytes, number: int) -> None:
        attribute = h5py.h5a.create(group, name, h5py.h5t.STD_I64LE, self._scalar)
        attribute.write(np.array(number, np.int64))

    def _write_array(self, group: Any, path: bytes, array: Array) -> None:
        key = (array.dtype, array.shape)
        kind = self._kinds.get(key)
        if kind is None:
            if len(self._kinds) >= _MAX_KINDS:
                self._kinds.clear()
            kind = self._kinds[key] = self._kind(array)
        dataset = h5py.h5d.create(group, path, *kind)
        if array.size:
            dataset.write(h5py.h5s.ALL, h5py.h5s.ALL, np.ascontiguousarray(array))

    def _kind(self, array: Array) -> tuple[Any, Any, Any]:
        """Type, extent and properties of the datasets of one dtype and shape."""
        creation = h5py.h5p.create(h5py.h5p.DATASET_CREATE)
        creation.set_chunk(_chunk(array.shape, array.dtype.itemsize))
        creation.set_fill_time(h5py.h5d.FILL_TIME_NEVER)
        if self._compression is None:
            creation.set_fletcher32()  # Damage of a chunk, which gzip finds, this finds too.
        else:
            creation.set_shuffle()
            creation.set_deflate(_GZIP_LEVEL)
        extent = h5py.h5s.create_simple(array.shape, _limits(array.shape, h5py.h5s.UNLIMITED))
        return h5py.h5t.py_create(array.dtype, logical=True), extent, creation

    def _write_strings(self, group: Any, path: str, array: Array, where: str) -> None:
        data, dtype = _encoded(array, where)
        dataset = h5py.Group(group).create_dataset(
            path,
            data=data,
            dtype=dtype,
            chunks=_chunk(data.shape, data.dtype.itemsize),
            maxshape=_limits(data.shape, None),
            compression=self._compression,
            fletcher32=self._compression is None,
        )
        dataset.attrs[DTYPE_ATTRIBUTE] = array.dtype.str


def check_written(path: Path, layout: Layout, steps: int, episodes: int) -> None:
    """Open a complete file again and count.

    Raises:
        DatasetError: it does not hold what was written.
    """
    # Rules: datasets G6
    found: Counter[str] = Counter()
    total = 0
    with h5py.File(path, "r") as file:
        names = list(file.id)
    # An open file keeps in memory what it has shown of itself, so it is opened anew now and then.
    for begin in range(0, len(names), OPENED_AT_ONCE):
        with h5py.File(path, "r") as file:
            for name in names[begin : begin + OPENED_AT_ONCE]:
                episode = h5py.h5g.open(file.id, name)
                found[""] += 1
                episode.links.visit(lambda link: found.update((link.decode(),)))
                total += h5py.h5d.open(episode, b"rewards").shape[0]
    expected = dict.fromkeys(["", *layout.groups, *layout.datasets.values()], episodes)
    if found != expected or total != steps:
        raise DatasetError(
            f"{path}: expected {episodes} episodes with {steps} steps and {len(expected) - 1} columns each, read "
            f"{found['']} with {total} and {len(found) - 1}; is the disk full or failing?"
        )


def _chunk(shape: tuple[int, ...], itemsize: int) -> tuple[int, ...]:
    """As many rows as fit; a short episode is one chunk of its size."""
    rows = _CHUNK_BYTES // max(1, int(np.prod(shape[1:])) * itemsize)
    return (max(1, min(shape[0], rows)), *(max(1, size) for size in shape[1:]))


def _limits(shape: tuple[int, ...], unlimited: Any) -> tuple[Any, ...]:
    # Along an axis of no length a chunk, which has a length, must have room to grow into.
    return (unlimited, *(size or unlimited for size in shape[1:]))


def _encoded(array: Array, where: str) -> tuple[Array, Any]:
    """Strings as UTF-8 of the length of the longest.

    HDF5 has strings of any length too. But it ends them at a NUL, does not compress them, and keeps them in a place
    without checksums, whose damage can hang its reader.
    """
    if array.dtype.kind == "S":
        return array, array.dtype
    try:
        encoded = np.char.encode(array, "utf-8")
    except UnicodeEncodeError as error:
        raise SpecError(f"{where}: expected strings that can be written as UTF-8: {error}") from error
    dtype = h5py.string_dtype("utf-8", max(1, encoded.dtype.itemsize))
    return encoded.astype(dtype), dtype
