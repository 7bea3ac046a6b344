"""Checkpoints of the replays of a server."""

from __future__ import annotations

import logging
import threading
from collections.abc import Mapping
from pathlib import Path

from headrace.checks import check_count
from headrace.errors import CheckpointError, HeadraceError
from headrace.replay.public import Replay
from headrace.server.serving.shared_runs import SharedRuns

_LOGGER = logging.getLogger(__name__)


class Checkpoints:
    """Saves the replays of a server to `directory/name`, one save at a time. Thread-safe.

    Args:
        replays: by name.
        directory: made if it does not exist.
        keep: removes all but the newest checkpoints of each replay; None removes none.

    Attributes:
        runs: saves in a thread of its own.

    Raises:
        ValueError: the name of a replay cannot be that of a folder; or keep < 1.
    """

    def __init__(self, replays: Mapping[str, Replay], directory: Path, keep: int | None) -> None:
        if keep is not None:
            check_count("keep", keep, 1)
        for name in replays:
            if name in (".", "..") or "/" in name or "\0" in name:
                raise ValueError(
                    f"served: {name!r} cannot be the name of a folder, in which checkpoint= would save it; rename it"
                )
        self._replays = replays
        self._directory = directory
        self._keep = keep
        self._saving = threading.Lock()
        self.runs: SharedRuns[dict[str, Path]] = SharedRuns(self.save, "headrace-checkpoint")

    def save(self) -> dict[str, Path]:
        """Saves each replay, and returns the new folders. One that fails does not keep the others from being saved.

        Raises:
            CheckpointError: replays could not be saved; the message names each with its reason.
        """
        found: dict[str, Path] = {}
        failures = []
        with self._saving:
            for name, replay in self._replays.items():
                folder = self._directory / name
                try:
                    folder.mkdir(parents=True, exist_ok=True)
                    found[name] = replay.save(folder, keep=self._keep)
                except (OSError, HeadraceError) as error:
                    failures.append(f"{name!r} to {folder}: {type(error).__name__}: {error}")
                    _LOGGER.error("could not save %s", failures[-1])
        if failures:
            raise CheckpointError("could not save " + "; ".join(failures))
        return found
