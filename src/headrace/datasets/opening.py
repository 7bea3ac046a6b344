"""Datasets of any format, opened by path or by Minari id."""

from __future__ import annotations

import os
from pathlib import Path

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


def open_dataset(source: str | os.PathLike[str]) -> EpisodeDataset:
    """Opens a dataset in the format that the first bytes of its file have.

    Args:
        source: an npz, Parquet or D4RL file, the folder of a Minari or LeRobot dataset, or a Minari id.

    Raises:
        FileNotFoundError: neither the path nor the id exists.
        DatasetError: the path is not a dataset, or the dataset is damaged.
    """
    path = whole_folder(Path(source))
    if path.is_dir():
        return load_lerobot(path) if _holds_lerobot(path) else load_minari(path)
    if not path.exists():
        return _by_id(os.fspath(source))
    with path.open("rb") as file:
        begin = file.read(len(_PARQUET))
    if begin == _PARQUET:
        return load_parquet(path)
    if begin.startswith(_ZIP):
        return load_npz(path)
    if begin == _HDF5:
        return load_d4rl(path)
    raise DatasetError(
        f"{path.absolute()}: expected an npz, Parquet or D4RL file, or the folder of a Minari or LeRobot dataset"
    )


def holds_dataset(folder: Path) -> bool:
    """Whether a folder is that of a Minari dataset, or the data folder in it, or that of a LeRobot dataset."""
    minari = any((place / "metadata.json").exists() for place in (folder, folder / DATA_FOLDER))
    return minari or _holds_lerobot(folder)


def _holds_lerobot(folder: Path) -> bool:
    return (folder / INFO).exists()


def _by_id(name: str) -> EpisodeDataset:
    try:
        check_id(name)
    except ValueError:
        raise FileNotFoundError(f"no such file or folder: {Path(name).absolute()}") from None
    return load_minari(name)
