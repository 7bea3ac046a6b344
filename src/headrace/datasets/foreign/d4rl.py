"""Episodes from D4RL files: arrays over all episodes in HDF5.

The layout is that of "D4RL: Datasets for Deep Data-Driven Reinforcement Learning" (Fu et al., 2020): `observations`,
`actions`, `rewards`, `terminals`, and where the file has them `timeouts`, `next_observations`, `infos/...` and
`metadata/...`.
"""

# Rules: datasets G10, G11

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from headrace.datasets.errors import dataset_errors, existing_file
from headrace.datasets.exporting.structure import Array, part_of
from headrace.datasets.foreign.flat import FlatDataset
from headrace.datasets.hdf5 import h5py
from headrace.datasets.large_arrays import empty_array
from headrace.datasets.minari.recorded import one_column
from headrace.datasets.nesting import nested
from headrace.errors import DatasetError

_SINGLE = ("rewards", "terminals", "terminations", "timeouts", "truncations")
_METADATA = "metadata"


class D4rlDataset(FlatDataset):
    """Episodes of a D4RL file. For the arguments see `load_d4rl`."""

    format_name = "d4rl"

    def __init__(self, path: Path, missing_final: str, max_episode_steps: int | None) -> None:
        file = existing_file(path)
        with dataset_errors(file, "expected an HDF5 file, whole"):
            opened = h5py.File(file, "r")
        with opened:
            arrays = D4rlArrays(file, opened, max_episode_steps)
            if missing_final == "error" and "next_observations" not in map(part_of, arrays.names):
                raise DatasetError(
                    f"{file}: there is no next_observations, so each episode lacks its last observation; "
                    'missing_final="drop" leaves out the last transitions, missing_final="repeat" only those that do '
                    "not terminate"
                )
            super().__init__(arrays, missing_final, arrays.metadata())


class D4rlArrays:
    """The arrays of an open D4RL file.

    Args:
        path: of the file.
        file: the open h5py file.
        max_episode_steps: the limit from which `timeouts` are made where the file has none.

    Attributes:
        path: of the file.
        names: of its arrays.

    Raises:
        DatasetError: the file has no `timeouts`, and there is no limit.
    """

    def __init__(self, path: Path, file: Any, max_episode_steps: int | None) -> None:
        self.path = path
        self._file = file
        found: list[str] = []
        with dataset_errors(path):
            file.visititems(lambda name, node: found.append(name) if isinstance(node, h5py.Dataset) else None)
        self.names = [name for name in found if part_of(name) != _METADATA]
        self._metadata_names = [name for name in found if part_of(name) == _METADATA]
        self._timeouts: Array | None = None
        if {"timeouts", "truncations"} & set(found) or "terminals" not in found:
            return
        if max_episode_steps is None:
            raise DatasetError(
                f"{path}: there is no timeouts, so the ends without a terminal are not known; give max_episode_steps, "
                "the number of steps after which the environment ended an episode"
            )
        terminals = self.read("terminals")
        with dataset_errors(path, "terminals"):
            self._timeouts = _timeouts(terminals, max_episode_steps)
        self.names.append("timeouts")

    def read(self, name: str) -> Array:
        """Reads one array; rewards and flags `[steps, 1]` become `[steps]`.

        Raises:
            DatasetError: the array is damaged.
        """
        if name == "timeouts" and self._timeouts is not None:
            return self._timeouts
        with dataset_errors(self.path, name):
            array = _array(self._file[name])
        return one_column(array) if name in _SINGLE else array

    def metadata(self) -> dict[str, Any]:
        """Reads everything under `metadata`, such as the algorithm and the weights of its policy."""
        found = {}
        for name in self._metadata_names:
            array = self.read(name)
            found[name.removeprefix(f"{_METADATA}/")] = array if array.ndim else array.item()
        return nested(found)


def _array(dataset: Any) -> Array:
    if h5py.check_string_dtype(dataset.dtype) is not None:
        return np.array(dataset.asstr()[()], np.str_)
    if not dataset.size or not dataset.ndim:
        return np.asarray(dataset[()])
    array = empty_array(dataset.shape, dataset.dtype)
    dataset.read_direct(array)
    return array


def _timeouts(terminals: Array, limit: int) -> Array:
    """Returns the flags of steps where an episode reaches the limit without a terminal."""
    numbers = np.arange(len(terminals))
    starts = np.concatenate(([0], np.flatnonzero(terminals) + 1))
    lengths = numbers - starts[np.searchsorted(starts, numbers, side="right") - 1] + 1
    timeouts: Array = (lengths % limit == 0) & (terminals == 0)
    return timeouts
