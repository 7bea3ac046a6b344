"""Counts of the steps that a writer reports: frames, versions, and episodes that ended."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field

import numpy as np

from headrace.collectors.loop.episode_totals import EpisodeTotals
from headrace.leases.page_writer import PageWriter


@dataclass(slots=True)
class StepCounts:
    """Counts of some steps.

    Attributes:
        frames: real transitions.
        episodes: return and length of each episode that ended, in the order of their ends.
        stamps: version of the policy to the number of frames that it acted on.

    >>> counts = StepCounts(2, [(1.5, 3)], {7: 2})
    >>> counts.add(StepCounts(1, [], {7: 1}))
    >>> counts
    StepCounts(frames=3, episodes=[(1.5, 3)], stamps={7: 3})
    """

    frames: int = 0
    episodes: list[tuple[float, int]] = field(default_factory=list)
    stamps: dict[int, int] = field(default_factory=dict)

    def add(self, other: StepCounts) -> None:
        """Counts later steps too."""
        self.frames += other.frames
        self.episodes += other.episodes
        for version, frames in other.stamps.items():
            self.stamps[version] = self.stamps.get(version, 0) + frames


class StepCounter:
    """Counts the steps of a writer, all those of one report at once.

    Args:
        num_envs: n, the lanes of the writer.
    """

    def __init__(self, num_envs: int) -> None:
        self._num_envs = num_envs
        self._totals = EpisodeTotals(num_envs)

    def reset(self) -> None:
        """All environments begin an episode, and all steps before were counted."""
        self._totals.reset(np.arange(self._num_envs))

    def count(self, writer: PageWriter) -> StepCounts:
        """Counts the steps that the writer has not reported yet."""
        versions = writer.unreported_versions
        if not versions:
            return StepCounts()
        resets = writer.unreported_resets
        stamps = {version: count * self._num_envs for version, count in Counter(versions).items()}
        for step in (resets // self._num_envs).tolist():
            stamps[versions[step]] -= 1
        ended = writer.unreported("terminated") | writer.unreported("truncated")
        took = np.ones(ended.shape, np.bool_)
        took.reshape(-1)[resets] = False
        episodes = self._totals.add(writer.unreported("reward"), ended, took)
        return StepCounts(sum(stamps.values()), episodes, stamps)
