"""A Minari dataset, opened for reading."""

# Rules: datasets K11 to K13

from __future__ import annotations

import logging
import warnings
from pathlib import Path
from typing import Protocol

from headrace.datasets.dataset import EpisodeDataset
from headrace.datasets.errors import dataset_errors
from headrace.datasets.minari.metadata import Metadata, read_metadata
from headrace.datasets.minari.recorded import Recorded, episode_of
from headrace.trajectories.episode import Episode

_logger = logging.getLogger(__name__)


class RecordedEpisodes(Protocol):
    """Episodes in one of Minari's formats."""

    file: Path
    names: list[str]

    def rows(self, part: str) -> list[int | None]:
        """Returns the number of rows that a part of each episode has; None where it cannot be read."""

    def read(self, index: int) -> Recorded:
        """Reads the parts of one episode.

        Raises:
            DatasetError: with the file, the episode and the field.
        """


class MinariEpisodes(EpisodeDataset):
    """Episodes of a Minari dataset.

    No file stays open between two reads, so other processes may read the dataset, and Minari may append to it.

    Args:
        folder: the dataset's `data`.
        missing_final: treatment of T observations instead of T+1: "error" or "drop".

    Raises:
        DatasetError: the folder does not hold a Minari dataset, or holds a damaged one.

    Warns:
        UserWarning: a `minari_version` that is not known; a `total_steps` that differs from the data.
    """

    format_name = "minari"

    def __init__(self, folder: Path, missing_final: str) -> None:
        metadata = read_metadata(folder)
        self._episodes = _open(folder, metadata)
        self._missing_final = missing_final
        steps = self._episodes.rows("rewards")
        total_steps = sum(filter(None, steps))
        if None in steps:
            unreadable = self._episodes.names[steps.index(None)]
            _logger.warning("%s: %s cannot be read; total_steps leaves it out", folder, unreadable)
        elif (noted := metadata.raw.get("total_steps")) != total_steps:
            warnings.warn(
                f"{metadata.file}: total_steps is {noted}, and the episodes have {total_steps}", stacklevel=3
            )
        if missing_final == "drop":
            observations = self._episodes.rows("observations")
            total_steps -= sum(
                rows is not None and rows == other for rows, other in zip(steps, observations, strict=True)
            )
        super().__init__(
            num_episodes=len(steps),
            total_steps=total_steps,
            metadata={**metadata.raw, "total_steps": total_steps, "total_episodes": len(steps)},
            observation_space=metadata.observation_space,
            action_space=metadata.action_space,
        )

    def _read(self, index: int) -> Episode:
        recorded = self._episodes.read(index)
        with dataset_errors(self._episodes.file, self._episodes.names[index]):
            return episode_of(recorded, self._missing_final)


def _open(folder: Path, metadata: Metadata) -> RecordedEpisodes:
    if metadata.data_format == "hdf5":
        from headrace.datasets.minari.hdf5.reading import Hdf5Episodes

        return Hdf5Episodes(folder, metadata)
    from headrace.datasets.minari.arrow import ArrowEpisodes

    return ArrowEpisodes(folder, metadata)
