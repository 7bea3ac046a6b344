"""Numbers of episodes, steps and ends."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from headrace.trajectories.episode import Episode


@dataclass
class Tally:
    """Counts episodes, their steps, and how they ended.

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

    def count(self, length: int, terminated: bool, truncated: bool) -> None:
        """Counts one episode."""
        self.episodes += 1
        self.steps += length
        self.terminated += terminated
        self.truncated += truncated
        self.unfinished += not (terminated or truncated)

    def counted(self, episodes: Iterable[Episode]) -> Iterator[Episode]:
        """Gives the same episodes, and counts each of them."""
        for episode in episodes:
            self.count(len(episode), episode.terminated, episode.truncated)
            yield episode
