"""Event files for TensorBoard: the numbers that `headrace train` prints, and the return of each episode."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from headrace.cli.dqn.training import Progress
from headrace.cli.episodes import EpisodeLog


def writer_class() -> Any:
    """Returns the class that writes event files.

    Raises:
        ImportError: tensorboardX is missing.
    """
    try:
        from tensorboardX import SummaryWriter
    except ImportError as error:
        raise ImportError(
            f'--tensorboard needs tensorboardX: pip install "headrace[tensorboard]" ({error})'
        ) from error
    return SummaryWriter


class EventLog:
    """Writes scalars over frames; leaving its context writes the rest and closes the file.

    Args:
        folder: of the event files. An earlier part of the run may have files there. TensorBoard shows both as one run,
            and leaves out what the earlier part wrote after its last saved state.
        log: the episodes so far are not written again.

    Raises:
        ImportError: tensorboardX is missing.
    """

    def __init__(self, folder: Path, log: EpisodeLog) -> None:
        self._log, self._written = log, len(log.ended)
        self._writer = writer_class()(str(folder), purge_step=log.frames or None)

    def write(self, progress: Progress) -> None:
        """Writes the episodes that have ended since the last call, and the present numbers that are known."""
        new = self._log.ended[self._written :]
        for episode in new:
            self._writer.add_scalar("episode/return", episode.return_, episode.frame)
            self._writer.add_scalar("episode/length", episode.length, episode.frame)
        self._written += len(new)
        for name, value in dataclasses.asdict(progress).items():
            if value is not None and name != "frames":
                self._writer.add_scalar(f"train/{name}", value, progress.frames)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._writer.close()
