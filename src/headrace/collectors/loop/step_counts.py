"""Counts of the steps that a writer reports: frames, versions, and episodes that ended."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

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
        self.reset()

    def reset(self) -> None:
        """All environments begin an episode, and all steps before were counted."""
        self._returns = np.zeros(self._num_envs)
        self._lengths = np.zeros(self._num_envs, np.int64)

    def count(self, writer: PageWriter) -> StepCounts:
        """Counts the steps that the writer has not reported yet."""
        versions = writer.unreported_versions
        if not versions:
            return StepCounts()
        resets = writer.unreported_resets
        took = np.ones((len(versions), self._num_envs), np.int64)
        took.reshape(-1)[resets] = 0
        steps = Counter(versions)
        resets_of = Counter(versions[step] for step in (resets // self._num_envs).tolist())
        stamps = {version: count * self._num_envs - resets_of[version] for version, count in steps.items()}
        ended = writer.unreported("terminated") | writer.unreported("truncated")
        episodes = self._episodes(writer.unreported("reward"), ended, took)
        return StepCounts(sum(stamps.values()), episodes, stamps)

    def _episodes(
        self, rewards: NDArray[np.float32], ended: NDArray[np.bool_], took: NDArray[np.int64]
    ) -> list[tuple[float, int]]:
        """Returns return and length of the episodes that end in these steps; `[steps, n]` each.

        Args:
            rewards, ended: of each step.
            took: 1 where a transition was taken, 0 elsewhere.
        """
        steps = len(took)
        # Lane after lane: first what its open episode has brought so far, last a border between lanes.
        sums = np.zeros((self._num_envs, steps + 2))
        lengths, closes = np.zeros(sums.shape, np.int64), np.zeros(sums.shape, np.bool_)
        sums[:, 0], sums[:, 1:-1] = self._returns, rewards.T
        lengths[:, 0], lengths[:, 1:-1] = self._lengths, took.T
        closes[:, -1], closes[:, 1:-1] = True, ended.T
        stops = np.flatnonzero(closes)
        starts = np.concatenate(([0], stops[:-1] + 1))
        step = stops % (steps + 2)
        is_open = step > steps
        returns = np.add.reduceat(sums.reshape(-1), starts)
        counts = np.add.reduceat(lengths.reshape(-1), starts)
        self._returns, self._lengths = returns[is_open], counts[is_open]
        whole = np.flatnonzero(~is_open)
        order = whole[np.argsort(step[whole], kind="stable")]
        return list(zip(returns[order].tolist(), counts[order].tolist(), strict=True))
