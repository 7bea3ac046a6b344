"""A dataset of episodes, opened for reading."""

from __future__ import annotations

import operator
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, ClassVar, SupportsIndex, overload

from headrace.closing import Closing
from headrace.errors import Closed
from headrace.trajectories.episode import Episode


class EpisodeDataset(Closing, Sequence[Episode]):
    """A read-only sequence of the episodes in a file. Each episode is read when it is asked for.

    It has `len`, indices (also negative ones), slices (as lists) and any number of iterations. It is a context manager
    that closes the file at the end. A subclass for a format reads one episode in `_read` and closes its file in
    `_close`.

    Args:
        num_episodes: number of episodes.
        total_steps: number of transitions in all episodes.
        metadata: description of the dataset, from the file.
        observation_space: a gymnasium space; None where the format has none.
        action_space: as `observation_space`.

    Attributes:
        format_name: "minari", "parquet", "npz", "d4rl" or "lerobot".

    >>> class Counting(EpisodeDataset):
    ...     def _read(self, index):
    ...         return Episode([0.0, 1.0], [index], [1.0], [True], [False])
    >>> with Counting(num_episodes=3, total_steps=3) as dataset:
    ...     len(dataset), dataset[-1].actions, len(dataset[1:])
    (3, array([2]), 2)
    """

    # Rules: datasets G3

    format_name: ClassVar[str] = ""

    def __init__(
        self,
        *,
        num_episodes: int,
        total_steps: int,
        metadata: Mapping[str, Any] | None = None,
        observation_space: Any = None,
        action_space: Any = None,
    ) -> None:
        self.total_steps = total_steps
        self.metadata: dict[str, Any] = dict(metadata or {})
        self.observation_space = observation_space
        self.action_space = action_space
        self.is_closed = False
        self._num_episodes = num_episodes

    def _read(self, index: int) -> Episode:
        """Reads one episode, `0 <= index < len(self)`, into new arrays.

        Raises:
            DatasetError: the episode cannot be read; the message has the file, the episode and the field.
        """
        raise NotImplementedError(f"{type(self).__name__} has no method _read, which reads one episode")

    def _close(self) -> None:
        """Closes the file; called once."""

    def __len__(self) -> int:
        return self._num_episodes

    @overload
    def __getitem__(self, index: SupportsIndex) -> Episode: ...
    @overload
    def __getitem__(self, index: slice) -> list[Episode]: ...

    def __getitem__(self, index: SupportsIndex | slice) -> Episode | list[Episode]:
        """Returns one episode, or a list of the episodes of a slice.

        Raises:
            IndexError: the index is out of range.
            Closed: the dataset is closed.
            DatasetError: the file is damaged.
        """
        if isinstance(index, slice):
            return [self._read_open(each) for each in range(*index.indices(len(self)))]
        wanted = operator.index(index)
        if not -len(self) <= wanted < len(self):
            raise IndexError(f"episode {wanted}: the dataset has {len(self)} episodes")
        return self._read_open(wanted % len(self))

    def _read_open(self, index: int) -> Episode:
        if self.is_closed:
            raise Closed("the dataset is closed; open it again to read")
        return self._read(index)

    def __iter__(self) -> Iterator[Episode]:
        # The method of `Sequence` would take any IndexError for the end.
        return map(self._read_open, range(len(self)))

    def close(self) -> None:
        """Closes the file; later reads raise `Closed`. A second call does nothing."""
        if not self.is_closed:
            self.is_closed = True
            self._close()

    def __repr__(self) -> str:
        closed = ", closed" if self.is_closed else ""
        return f"{type(self).__name__}({len(self)} episodes, {self.total_steps} steps{closed})"
