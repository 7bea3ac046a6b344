"""Episodes from the concatenated arrays of an npz file."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path

from headrace.datasets.dataset import EpisodeDataset
from headrace.datasets.errors import dataset_errors
from headrace.datasets.exporting.header import EpisodeFacts, Header
from headrace.datasets.exporting.structure import Array, describe
from headrace.datasets.foreign.flat import FlatDataset
from headrace.datasets.header_dataset import HeaderDataset
from headrace.datasets.npz.archive import HEADER, LENGTHS, MARK, NpzArchive
from headrace.errors import DatasetError


def open_npz(path: Path) -> EpisodeDataset:
    """Opens a file for `load_npz`."""
    with closing(NpzArchive(path)) as archive:
        if HEADER in archive.names or archive.comment == MARK:
            return NpzDataset(archive)
        return ForeignNpzDataset(archive)


class ForeignNpzDataset(FlatDataset):
    """Episodes of an npz file of another tool."""

    format_name = "npz"


class NpzDataset(HeaderDataset):
    """Episodes of a file of `save_npz`.

    Args:
        archive: is read at once; large arrays lie in temporary files.

    Raises:
        DatasetError: the file is damaged, or its arrays do not fit its header.
    """

    format_name = "npz"

    def __init__(self, archive: NpzArchive) -> None:
        super().__init__(archive.path, _read_header(archive))
        columns = self._header.structure.columns.values()
        self._offsets = {column.path: self._header.offsets(column) for column in columns}
        self._columns = {column.path: archive.read(column.path) for column in columns}
        for column in columns:
            got = self._columns[column.path]
            shape = int(self._offsets[column.path][-1]), *column.shape
            dtype = self._header.widest(column)
            if (got.shape, got.dtype) != (shape, dtype):
                raise DatasetError(
                    f"{archive.path}: {column.path}: expected {describe(dtype, shape)}, as the lengths of the episodes "
                    f"say, got {describe(got.dtype, got.shape)}"
                )

    def _arrays(self, index: int, facts: EpisodeFacts) -> dict[str, Array]:
        arrays = {}
        for path, column in self._columns.items():
            start, stop = self._offsets[path][index : index + 2].tolist()
            # A copy, so that changes to the episode do not change the dataset.
            arrays[path] = column[start:stop].astype(facts.dtypes.get(path, column.dtype))
        return arrays

    def _close(self) -> None:
        self._columns = {}


def _read_header(archive: NpzArchive) -> Header:
    text = archive.read(HEADER)
    with dataset_errors(archive.path, HEADER):
        if text.shape or text.dtype.kind != "U":
            raise ValueError(f"expected one string, got {describe(text.dtype, text.shape)}")
        header = Header.from_json(text.item())
    if archive.read(LENGTHS).tolist() != header.lengths:
        raise DatasetError(f"{archive.path}: {LENGTHS}: expected the lengths in the header, got others")
    return header
