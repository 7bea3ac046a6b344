"""Datasets of any format, opened by path or by Minari id."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

from headrace.datasets.dataset import EpisodeDataset
from headrace.datasets.exporting.atomic import whole_folder
from headrace.datasets.foreign.lerobot_meta import INFO
from headrace.datasets.foreign.public import load_d4rl, load_lerobot
from headrace.datasets.minari.ids import DATA_FOLDER, check_id
from headrace.datasets.minari.public import load_minari
from headrace.datasets.npz.public import load_npz
from headrace.datasets.parquet.public import load_parquet
from headrace.errors import DatasetError

_PARQUET, _ZIP, _HDF5 = b"PAR1", b"PK", b"\x89HDF"
# Arguments that say how to read a file that lacks something.
_ARGUMENTS = {
    load_d4rl: ("missing_final", "max_episode_steps"),
    load_minari: ("missing_final",),
    load_lerobot: ("missing_final",),
}


def open_dataset(source: str | os.PathLike[str], **arguments: Any) -> EpisodeDataset:
    """Opens a dataset in the format that the first bytes of its file have.

    Args:
        source: an npz, Parquet or D4RL file, the folder of a Minari or LeRobot dataset, or a Minari id.
        arguments: `missing_final` and `max_episode_steps`, as the function that loads the format has them.

    Raises:
        ValueError: an argument that the format has no use for, or a wrong value.
        FileNotFoundError: neither the path nor the id exists.
        DatasetError: the path is not a dataset, or the dataset is damaged.
    """
    path = whole_folder(Path(source))
    if path.is_dir():
        return _load(load_lerobot if _holds_lerobot(path) else load_minari, path, arguments)
    if not path.exists():
        return _by_id(os.fspath(source), arguments)
    with path.open("rb") as file:
        begin = file.read(len(_PARQUET))
    if begin == _PARQUET:
        return _load(load_parquet, path, arguments)
    if begin.startswith(_ZIP):
        return _load(load_npz, path, arguments)
    if begin == _HDF5:
        return _load(load_d4rl, path, arguments)
    raise DatasetError(
        f"{path.absolute()}: expected an npz, Parquet or D4RL file, or the folder of a Minari or LeRobot dataset"
    )


def holds_dataset(folder: Path) -> bool:
    """Whether a folder is that of a Minari dataset, or the data folder in it, or that of a LeRobot dataset."""
    minari = any((place / "metadata.json").exists() for place in (folder, folder / DATA_FOLDER))
    return minari or _holds_lerobot(folder)


def _holds_lerobot(folder: Path) -> bool:
    return (folder / INFO).exists()


def _load(
    load: Callable[..., EpisodeDataset], source: str | Path, arguments: dict[str, Any]
) -> EpisodeDataset:
    for name in arguments:
        if name not in _ARGUMENTS.get(load, ()):
            formats = [each.__name__.removeprefix("load_") for each in _ARGUMENTS if name in _ARGUMENTS[each]]
            raise ValueError(f"{name} is for datasets of {', '.join(formats)}; {source} is none of them")
    return load(source, **arguments)


def _by_id(name: str, arguments: dict[str, Any]) -> EpisodeDataset:
    try:
        check_id(name)
    except ValueError:
        raise FileNotFoundError(f"no such file or folder: {Path(name).absolute()}") from None
    return _load(load_minari, name, arguments)
