"""Checkpoints of the replays of a server."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Mapping
from pathlib import Path

from headrace.checks import check_count
from headrace.errors import CheckpointError, HeadraceError
from headrace.replay.public import Replay

_LOGGER = logging.getLogger(__name__)

Done = Callable[[Mapping[str, Path] | Exception], None]
"""Is called with the folders by name of the replay, or with the error."""


class Checkpoints:
    """Saves the replays of a server to `directory/name`, one save at a time. Thread-safe.

    Args:
        replays: by name.
        directory: made if it does not exist.
        keep: removes all but the newest checkpoints of each replay; None removes none.

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
        self._changed = threading.Condition()
        # Those who wait for a save that has not begun yet.
        self._asked: list[Done] = []
        self._is_busy = False

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

    def begin(self, done: Done) -> None:
        """Saves in a thread that is not the caller's. Calls that come during a save share the next one.

        Args:
            done: called in that thread; it must not raise.
        """
        with self._changed:
            self._asked.append(done)
            if not self._is_busy:
                self._is_busy = True
                threading.Thread(target=self._save_all, name="headrace-checkpoint", daemon=True).start()

    def _save_all(self) -> None:
        while True:
            with self._changed:
                asked, self._asked = self._asked, []
                if not asked:
                    self._is_busy = False
                    self._changed.notify_all()
                    return
            result: Mapping[str, Path] | Exception
            try:
                result = self.save()
            except Exception as error:
                result = error
            for done in asked:
                done(result)

    def wait(self, seconds: float) -> bool:
        """Waits at most so many seconds for the saves that were begun; returns whether none is left."""
        with self._changed:
            return self._changed.wait_for(lambda: not self._is_busy, seconds)
