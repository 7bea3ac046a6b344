"""A dataset whose file has a header."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from headrace.datasets.dataset import EpisodeDataset
from headrace.datasets.errors import dataset_errors
from headrace.datasets.exporting.header import EpisodeFacts, Header
from headrace.datasets.exporting.structure import Array
from headrace.trajectories.episode import Episode


class HeaderDataset(EpisodeDataset):
    """Base class of the datasets that were written with a header.

    Args:
        file: for errors.
        header: read from the file.
    """

    def __init__(self, file: Path, header: Header) -> None:
        self._file = file
        self._header = header
        lengths = header.lengths
        super().__init__(num_episodes=len(lengths), total_steps=sum(lengths), metadata=header.metadata)

    def _read(self, index: int) -> Episode:
        facts = self._header.episode(index)
        with dataset_errors(self._file, f"episode {index}"):
            return self._header.structure.unflatten(self._arrays(index, facts), **facts.reset)

    def _arrays(self, index: int, facts: EpisodeFacts) -> Mapping[str, Array]:
        """Reads the arrays of one episode by path, in the rows and dtypes of its facts."""
        raise NotImplementedError(f"{type(self).__name__} has no method _arrays, which reads one episode")
