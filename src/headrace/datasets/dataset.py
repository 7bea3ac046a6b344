"""A dataset of episodes, opened for reading."""

from __future__ import annotations

import operator
from collections.abc import Iterator, Mapping, Sequence
from types import TracebackType
from typing import Any, ClassVar, Self, SupportsIndex, overload

from headrace.errors import Closed
from headrace.trajectories.episode import Episode


class EpisodeDataset(Sequence[Episode]):
    """A read-only sequence of episodes in a file: each is read when it is asked for.

    `len`, an index (negative too), a slice (gives a list), any number of iterations. It is a context manager; leaving
    it closes the file. A format derives from it and says how one episode is read, in `_read`, and what there is to
    close, in `_close`.

    Args:
        num_episodes: how many there are.
        total_steps: transitions of all episodes.
        metadata: what the file says about the dataset.
        observation_space: a gymnasium space; None where the format has none.
        action_space: as `observation_space`.

    Attributes:
        format_name: "minari", "parquet" or "npz".

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
        """One episode, `0 <= index < len(self)`, in arrays that are the caller's.

        Raises:
            DatasetError: it cannot be read; with file, episode and field.
        """
        raise NotImplementedError(f"{type(self).__name__} does not say how an episode is read")

    def _close(self) -> None:
        """Let go of the file; called once."""

    def __len__(self) -> int:
        return self._num_episodes

    @overload
    def __getitem__(self, index: SupportsIndex) -> Episode: ...
    @overload
    def __getitem__(self, index: slice) -> list[Episode]: ...

    def __getitem__(self, index: SupportsIndex | slice) -> Episode | list[Episode]:
        """An episode, or a list of them.

        Raises:
            IndexError: out of range.
            Closed: the dataset is closed.
            DatasetError: the file is damaged.
        """
        if isinstance(index, slice):
            return [self._checked_read(each) for each in range(*index.indices(len(self)))]
        wanted = operator.index(index)
        place = wanted + len(self) if wanted < 0 else wanted
        if not 0 <= place < len(self):
            raise IndexError(f"episode {wanted}: the dataset has {len(self)} episodes")
        return self._checked_read(place)

    def _checked_read(self, index: int) -> Episode:
        if self.is_closed:
            raise Closed("the dataset is closed; open it again to read")
        return self._read(index)

    def __iter__(self) -> Iterator[Episode]:
        # Not by `Sequence`, which would take any IndexError for the end.
        for index in range(len(self)):
            yield self._checked_read(index)

    def close(self) -> None:
        """Close the file; reading raises `Closed` from here on. Closing twice does nothing."""
        if not self.is_closed:
            self.is_closed = True
            self._close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def __repr__(self) -> str:
        closed = ", closed" if self.is_closed else ""
        return f"{type(self).__name__}({len(self)} episodes, {self.total_steps} steps{closed})"
