"""Episodes out of the concatenated arrays of an npz file."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from headrace.datasets.dataset import EpisodeDataset
from headrace.datasets.exporting.header import Header
from headrace.datasets.foreign.npz import header_of_foreign
from headrace.datasets.npz.archive import NpzArchive
from headrace.datasets.npz.writing import HEADER, LENGTHS, MARK
from headrace.errors import DatasetError, SpecError
from headrace.trajectories.episode import Episode

Array = np.ndarray[Any, Any]


class NpzDataset(EpisodeDataset):
    """The episodes of an npz file, whose arrays are in memory.

    Args:
        path: of the file.

    Raises:
        FileNotFoundError, DatasetError: as `load_npz`.
    """

    format_name = "npz"

    def __init__(self, path: Path) -> None:
        with NpzArchive(path) as archive:
            self._path = archive.path
            if HEADER in archive.names or archive.comment == MARK:
                self._header, self._arrays = _read_own(archive)
            else:
                self._header, self._arrays = header_of_foreign(archive)
        self._offsets: dict[str, NDArray[np.int64]] = {
            name: self._header.offsets(column) for name, column in self._header.structure.columns.items()
        }
        lengths = self._header.lengths
        super().__init__(num_episodes=len(lengths), total_steps=sum(lengths), metadata=self._header.metadata)

    def _read(self, index: int) -> Episode:
        facts = self._header.episode(index)
        arrays = {}
        for name, array in self._arrays.items():
            start, stop = self._offsets[name][index : index + 2].tolist()
            # A copy: what is done to the episode is not done to the dataset.
            arrays[name] = array[start:stop].astype(facts.dtypes.get(name, array.dtype))
        try:
            return self._header.structure.unflatten(
                arrays, seed=facts.seed, options=facts.options, id=facts.id
            )
        except SpecError as error:
            raise DatasetError(f"{self._path}: episode {index}: {error}") from error

    def _close(self) -> None:
        self._arrays = {}


def check_written(path: Path, header: Header) -> None:
    """Read a file that was just written, and compare it with what was to be in it.

    Raises:
        DatasetError: it is not that.
    """
    # Rules: datasets G6
    with NpzArchive(path) as archive:
        if archive.read(HEADER).item() != header.to_json():
            raise DatasetError(f"{path}: the header was not written as it is")
        if archive.read(LENGTHS).tolist() != header.lengths:
            raise DatasetError(f"{path}: the lengths were not written as they are")
        for name, column in header.structure.columns.items():
            expected = ((int(header.offsets(column)[-1]), *column.shape), header.widest(column))
            found = archive.verify(name)
            if found != expected:
                raise DatasetError(f"{path}: {name}: expected {expected}, got {found}")


def _read_own(archive: NpzArchive) -> tuple[Header, dict[str, Array]]:
    text = archive.read(HEADER)
    if text.shape or text.dtype.kind != "U":
        raise DatasetError(
            f"{archive.path}: {HEADER}: expected one string, got {text.dtype}{list(text.shape)}"
        )
    try:
        header = Header.from_json(text.item())
    except SpecError as error:
        raise DatasetError(f"{archive.path}: {HEADER}: {error}") from error
    lengths = archive.read(LENGTHS)
    if lengths.tolist() != header.lengths:
        raise DatasetError(f"{archive.path}: {LENGTHS}: they are not those of the header")
    arrays = {}
    for name, column in header.structure.columns.items():
        array = archive.read(name)
        shape, dtype = (int(header.offsets(column)[-1]), *column.shape), header.widest(column)
        if array.shape != shape or array.dtype != dtype:
            raise DatasetError(
                f"{archive.path}: {name}: expected {dtype}{list(shape)}, as the lengths of the episodes say, got "
                f"{array.dtype}{list(array.shape)}"
            )
        arrays[name] = array
    return header, arrays
