"""The state of a training on disk: complete or absent, so that a run that was killed goes on from it.

A folder holds `training.pt` and the checkpoint of the replay that it names. The replay is written first and
`training.pt` is replaced last, so the two always belong together.
"""

from __future__ import annotations

import shutil
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

from headrace.cli.dqn.pytorch import torch
from headrace.cli.dqn.settings import DqnSettings
from headrace.datasets.exporting.atomic import writing
from headrace.errors import CheckpointError
from headrace.replay import Replay

_FORMAT = 1
_FILE = "training.pt"


@dataclass(frozen=True, kw_only=True)
class SavedTraining:
    """A training at one instant, without the rows of its replay.

    Attributes:
        env_id, steps, num_envs, seed, goal, settings: the arguments of the run.
        seconds: time of training up to here.
        learner: networks, optimizer and number of updates.
        log: the episodes so far, and those under way.
        losses: of the last updates.
        collector: as `AsyncCollector.state_dict` returned it.
    """

    env_id: str
    steps: int
    num_envs: int
    seed: int
    goal: float | None
    settings: DqnSettings
    seconds: float
    learner: Mapping[str, Any]
    log: Mapping[str, Any]
    losses: list[float]
    collector: Mapping[str, Any]


def save(folder: Path, training: SavedTraining, replay: Replay) -> None:
    """Writes the training, and removes the one that was there. A killed process leaves one of the two.

    Args:
        folder: it is created where it does not exist.
        training: the state, of the same instant as the replay.
        replay: nothing may be written to it meanwhile.

    Raises:
        OSError: it could not be written; the earlier one stays.
    """
    rows = replay.save(folder)
    content = {**vars(training), "settings": asdict(training.settings)}
    with writing(folder / _FILE, overwrite=True) as temporary:
        torch.save({"format": _FORMAT, "replay": rows.name, "training": _plain(content)}, temporary)
    for other in folder.iterdir():
        if other.is_dir() and other != rows:
            shutil.rmtree(other)


def load(folder: Path) -> tuple[SavedTraining, Path]:
    """Returns the training, and the checkpoint of its replay. Nothing in the files is executed (`weights_only=True`).

    Raises:
        CheckpointError: the folder has no training, or a damaged one.
    """
    path = folder / _FILE
    try:
        content = torch.load(path, weights_only=True, map_location="cpu")
        if content["format"] != _FORMAT:
            raise CheckpointError(f"{path}: expected format {_FORMAT}, got {content['format']!r}")
        fields = content["training"]
        arrays = {"collector": _arrays(fields["collector"]), "settings": DqnSettings(**fields["settings"])}
        return SavedTraining(**{**fields, **arrays}), folder / content["replay"]
    except CheckpointError:
        raise
    except Exception as error:
        raise CheckpointError(
            f"{path}: not the state of a run of headrace train ({type(error).__name__}: {error})"
        ) from error


def _plain(value: Any) -> Any:
    """Returns the tree with tensors in place of arrays: torch reads them without pickle."""
    return _mapped(value, np.ndarray, lambda array: torch.from_numpy(array.copy()))


def _arrays(value: Any) -> Any:
    return _mapped(value, torch.Tensor, lambda tensor: tensor.numpy())


def _mapped(value: Any, kind: type, change: Any) -> Any:
    if isinstance(value, kind):
        return change(value)
    if isinstance(value, Mapping):
        return {name: _mapped(child, kind, change) for name, child in value.items()}
    if isinstance(value, list | tuple):
        return type(value)(_mapped(child, kind, change) for child in value)
    return value
