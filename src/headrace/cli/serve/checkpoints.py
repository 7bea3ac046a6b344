"""Checkpoints of the replays that `headrace serve` serves: loading and saving them."""

from __future__ import annotations

import errno
import logging
import os
from pathlib import Path

from headrace.cli.serve.settings import ReplaySettings
from headrace.errors import CheckpointError
from headrace.persist.checkpoint.folders import candidates
from headrace.replay.public import Replay
from headrace.server.serving.server import Server
from headrace.spec import first_difference

_LOGGER = logging.getLogger(__name__)


def open_replay(settings: ReplaySettings, saved: Path | None) -> Replay:
    """Returns a replay with the newest checkpoint of a directory, or an empty one.

    A replay with a path keeps its items itself, so no checkpoint is loaded into it.

    Args:
        settings: of the replay. Settings of tables replace the saved ones.
        saved: the directory of its checkpoints; None begins without.

    Raises:
        CheckpointError: no checkpoint in the directory is whole, or the newest has another signature.
    """
    if saved is None or settings.path is not None or not saved.is_dir() or not candidates(saved):
        return Replay(
            settings.signature,
            settings.tables,
            capacity=settings.capacity,
            path=settings.path,
            seed=settings.seed,
        )
    replay = Replay.load(saved, tables=settings.tables)
    difference = first_difference(settings.signature, replay.signature)
    if difference is not None:
        replay.close()
        raise CheckpointError(
            f"{saved}: the newest checkpoint has another signature: {difference}. Change the settings, give another "
            "directory, or set load_newest = false"
        )
    capacity = replay.statistics().store.capacity
    if settings.capacity not in (None, capacity):
        _LOGGER.warning(
            "%s: the replay keeps its capacity, that of its checkpoint: %s steps; capacity = %d has no effect. For "
            "another one begin without the checkpoint",
            saved,
            "any number of" if capacity is None else capacity,
            settings.capacity,
        )
    _LOGGER.info("%s: loaded, %s", saved, _sizes(replay))
    return replay


def require_directory(path: str) -> None:
    """Makes the directory of the checkpoints, so that no run finds out at its end that it cannot be saved.

    Raises:
        OSError: there can be none, or this process may not write to it.
    """
    Path(path).mkdir(parents=True, exist_ok=True)
    if not os.access(path, os.W_OK | os.X_OK):
        raise PermissionError(errno.EACCES, "checkpoints cannot be saved there", path)


def save(server: Server) -> None:
    """Saves the replays of a server. A failure is in the log; the next save may succeed."""
    try:
        folders = server.checkpoint()
    except CheckpointError:
        return
    _LOGGER.info("saved %s", ", ".join(map(str, folders.values())))


def _sizes(replay: Replay) -> str:
    tables = replay.statistics().tables.values()
    return ", ".join(f"{table.size} items in {table.name!r}" for table in tables)
