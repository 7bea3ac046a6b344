"""Counting episodes as they pass by."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from headrace.trajectories.episode import Episode


@dataclass
class Tally:
    """How many episodes, steps and ends there were.

    >>> tally = Tally()
    >>> _ = list(tally.counted([Episode([0.0, 1.0], [1], [1.0], [True], [False])]))
    >>> tally
    Tally(episodes=1, steps=1, terminated=1, truncated=0, unfinished=0)
    """

    episodes: int = 0
    steps: int = 0
    terminated: int = 0
    truncated: int = 0
    unfinished: int = 0

    def counted(self, episodes: Iterable[Episode]) -> Iterator[Episode]:
        """The same episodes, each counted once it was asked for."""
        for episode in episodes:
            self.episodes += 1
            self.steps += len(episode)
            self.terminated += episode.terminated
            self.truncated += episode.truncated
            self.unfinished += not (episode.terminated or episode.truncated)
            yield episode
