"""Episodes into Minari's `main_data.hdf5`.

A small episode has a dozen small objects, whose overhead decides the speed. So the low-level API of h5py is used, and
types, extents and property lists are made once for each kind of dataset. The file has the format of HDF5 1.10: its
objects are smaller than those of the oldest format, which h5py takes by default, and have checksums.
"""

# Rules: datasets K5, K6

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from headrace.datasets.exporting.structure import Array
from headrace.datasets.hdf5 import h5py
from headrace.datasets.minari.hdf5.attributes import write_attributes
from headrace.datasets.minari.hdf5.layout import Layout
from headrace.errors import DatasetError, SpecError

MAIN_FILE = "main_data.hdf5"
# Attribute for the dtype of strings, whose width HDF5 does not keep.
DTYPE_ATTRIBUTE = "headrace_dtype"
_FORM = ("v110", "v110")
# A chunk is read and decompressed as a whole, and fits into the cache that HDF5 has for each dataset.
_CHUNK_BYTES = 2**20
_GZIP_LEVEL = 4
# Limits the memory for kinds of datasets where every episode has a new length.
_MAX_KINDS = 1024
# Number of episodes after which the file is opened anew.
_OPENED_AT_ONCE = 1000


class Hdf5Writer:
    """Writes episodes of one layout into a new file, numbered from 0.

    Args:
        path: of the file, which must not exist.
        layout: places of the arrays.
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
        """Writes one episode.

        Args:
            index: its number.
            arrays: by path.
            attributes: of its group, beside `id` and `total_steps`.

        Raises:
            SpecError: HDF5 cannot hold a string.
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
        """Writes the remaining data and closes the file."""
        self._file.close()

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
        """Returns the type, the extent and the properties of datasets of one dtype and shape."""
        creation = h5py.h5p.create(h5py.h5p.DATASET_CREATE)
        creation.set_chunk(_chunk(array.shape, array.dtype.itemsize))
        creation.set_fill_time(h5py.h5d.FILL_TIME_NEVER)
        if self._compression is None:
            creation.set_fletcher32()  # A checksum of each chunk; gzip has its own.
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
    """Reads a complete file again, and counts its episodes, steps and columns.

    Raises:
        DatasetError: the file holds other episodes.
    """
    # Rules: datasets G6
    found: Counter[str] = Counter()
    total = 0
    with h5py.File(path, "r") as file:
        names = list(file.id)
    for file, name in open_in_turn(path, names):
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


def open_in_turn(path: Path, names: Sequence[Any]) -> Iterator[tuple[Any, Any]]:
    """Yields the open file with each name; opens it anew at times, because HDF5 keeps in memory what it reads."""
    for begin in range(0, len(names), _OPENED_AT_ONCE):
        with h5py.File(path, "r") as file:
            for name in names[begin : begin + _OPENED_AT_ONCE]:
                yield file, name


def _chunk(shape: tuple[int, ...], itemsize: int) -> tuple[int, ...]:
    """Returns the shape of a chunk: a short episode as a whole, or the rows of `_CHUNK_BYTES`."""
    rows = _CHUNK_BYTES // max(1, int(np.prod(shape[1:])) * itemsize)
    return (max(1, min(shape[0], rows)), *(max(1, size) for size in shape[1:]))


def _limits(shape: tuple[int, ...], unlimited: Any) -> tuple[Any, ...]:
    # A chunk is at least 1 long, so an axis of length 0 must be able to grow.
    return (unlimited, *(size or unlimited for size in shape[1:]))


def _encoded(array: Array, where: str) -> tuple[Array, Any]:
    """Returns strings as UTF-8 in the width of the longest.

    HDF5 also has strings of variable length. It ends these at a NUL, does not compress them, and keeps them without
    checksums, where damage can hang its reader.
    """
    if array.dtype.kind == "S":
        return array, array.dtype
    try:
        encoded = np.char.encode(array, "utf-8")
    except UnicodeEncodeError as error:
        raise SpecError(f"{where}: expected strings that can be written as UTF-8: {error}") from error
    dtype = h5py.string_dtype("utf-8", max(1, encoded.dtype.itemsize))
    return encoded.astype(dtype), dtype
