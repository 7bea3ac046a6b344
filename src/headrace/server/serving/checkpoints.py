"""Checkpoints of the replays of a server."""

from __future__ import annotations

import logging
import threading
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

from headrace.checks import check_count
from headrace.clock import SYSTEM_CLOCK, Clock
from headrace.errors import CheckpointError, HeadraceError
from headrace.replay.public import Replay
from headrace.server.serving.shared_runs import SharedRuns

_LOGGER = logging.getLogger(__name__)


class CheckpointCounts(NamedTuple):
    """The saves of a server.

    Attributes:
        saved, failed: number of saves.
        age: seconds since the newest that succeeded; None: there was none.
        seconds: that it took.
    """

    saved: int
    failed: int
    age: float | None
    seconds: float | None


def check_folder_name(name: str) -> None:
    """Raises ValueError if a replay of this name cannot be saved in a folder of the same name."""
    if name in (".", "..") or "/" in name or "\0" in name:
        raise ValueError(
            f"served: {name!r} cannot be the name of a folder, in which checkpoint= would save it; rename it"
        )


class Checkpoints:
    """Saves the replays of a server to `directory/name`, one save at a time. Thread-safe.

    Args:
        replays: by name.
        directory: made if it does not exist.
        keep: removes all but the newest checkpoints of each replay; None removes none.
        clock: time of ages.

    Attributes:
        runs: saves in a thread of its own.

    Raises:
        ValueError: the name of a replay cannot be that of a folder; or keep < 1.
    """

    def __init__(
        self, replays: Mapping[str, Replay], directory: Path, keep: int | None, clock: Clock = SYSTEM_CLOCK
    ) -> None:
        if keep is not None:
            check_count("keep", keep, 1)
        for name in replays:
            check_folder_name(name)
        self._replays = replays
        self._directory = directory
        self._keep = keep
        self._clock = clock
        self._saving = threading.Lock()
        self._saved = self._failed = 0
        # When the newest save ended, and how long it took.
        self._newest: tuple[float, float] | None = None
        self.runs: SharedRuns[dict[str, Path]] = SharedRuns(self.save, "headrace-checkpoint")

    def save(self) -> dict[str, Path]:
        """Saves each replay, and returns the new folders. One that fails does not keep the others from being saved.

        Raises:
            CheckpointError: replays could not be saved; the message names each with its reason.
        """
        with self._saving:
            began = self._clock.monotonic()
            try:
                found = self._save_all()
            except CheckpointError:
                self._failed += 1
                raise
            now = self._clock.monotonic()
            self._newest = now, now - began
            self._saved += 1
        return found

    def counts(self) -> CheckpointCounts:
        """Returns the numbers of saves so far, and the age of the newest. It waits for no save."""
        newest = self._newest
        if newest is None:
            return CheckpointCounts(self._saved, self._failed, None, None)
        ended, seconds = newest
        return CheckpointCounts(self._saved, self._failed, self._clock.monotonic() - ended, seconds)

    def _save_all(self) -> dict[str, Path]:
        found: dict[str, Path] = {}
        failures = []
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
