"""Transitions to an npz file, column by column, without holding them in memory."""

from __future__ import annotations

import shutil
import tempfile
import zipfile
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import IO, Any, Self

import numpy as np
from numpy.typing import NDArray

from headrace import trees


class TransitionFile:
    """Columns `[frames, ...]` that grow, and become one npz file when this is closed.

    Rows go to one temporary file a column in the same folder, so what is collected may be larger than memory, and the
    number of rows need not be known before: what was collected until an interruption is kept.

    Args:
        path: of the npz file; its folder must exist.

    >>> with tempfile.TemporaryDirectory() as folder:
    ...     path = Path(folder) / "transitions.npz"
    ...     with TransitionFile(path) as file:
    ...         file.append({"observation": {"camera": np.zeros((3, 2), np.uint8)}, "reward": np.ones(3)})
    ...         file.append({"observation": {"camera": np.ones((1, 2), np.uint8)}, "reward": np.ones(1)})
    ...     with np.load(path, allow_pickle=False) as columns:
    ...         {name: columns[name].shape for name in columns}
    {'observation/camera': (4, 2), 'reward': (4,)}
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._columns: dict[str, _Column] = {}

    def append(self, rows: Mapping[str, Any]) -> None:
        """Add rows: columns, or trees of columns, `[k, ...]`."""
        for leaf in trees.leaves(trees.compile_tree(dict(rows), _is_array)):
            if leaf.path not in self._columns:
                self._columns[leaf.path] = _Column(self._path.parent, leaf.value)
            self._columns[leaf.path].append(leaf.value)

    def close(self) -> None:
        """Write the npz file, complete or not at all."""
        unfinished = self._path.with_suffix(".unfinished")
        try:
            with zipfile.ZipFile(unfinished, "w", zipfile.ZIP_STORED) as archive:
                for name, column in self._columns.items():
                    with archive.open(f"{name}.npy", "w", force_zip64=True) as entry:
                        column.write_to(entry)
            unfinished.replace(self._path)
        finally:
            unfinished.unlink(missing_ok=True)
            for column in self._columns.values():
                column.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def _is_array(value: object) -> bool:
    return isinstance(value, np.ndarray)


class _Column:
    """The rows of one column in a temporary file without a name."""

    def __init__(self, folder: Path, example: NDArray[Any]) -> None:
        self._file = tempfile.TemporaryFile(dir=folder)  # noqa: SIM115 - closed by `close`
        self._shape, self._dtype, self._rows = example.shape[1:], example.dtype, 0

    def append(self, values: NDArray[Any]) -> None:
        self._file.write(np.ascontiguousarray(values).data)
        self._rows += len(values)

    def write_to(self, entry: IO[bytes]) -> None:
        header = {
            "shape": (self._rows, *self._shape),
            "fortran_order": False,
            "descr": np.lib.format.dtype_to_descr(self._dtype),
        }
        np.lib.format.write_array_header_1_0(entry, header)
        self._file.seek(0)
        shutil.copyfileobj(self._file, entry, 1 << 20)

    def close(self) -> None:
        self._file.close()
