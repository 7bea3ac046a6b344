"""Counts of the steps that a writer reports: frames, versions, and episodes that ended."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from headrace.collectors.loop.episode_totals import EpisodeTotals
from headrace.envs.protocol import Indices
from headrace.leases.writing.page_writer import PageWriter


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


def count_steps(writer: PageWriter, totals: EpisodeTotals, lanes: int, going_on: Indices) -> StepCounts:
    """Counts the steps that a writer has not reported yet.

    Args:
        writer: of the steps.
        totals: of the episodes of its lanes; the steps are added.
        lanes: n.
        going_on: lanes whose episode goes on, although the last of these steps is marked truncated.
    """
    versions = writer.unreported_versions
    if not versions:
        return StepCounts()
    masked = writer.unreported_masked
    stamps = _stamps(versions, masked, lanes)
    episodes = totals.add(
        writer.unreported("reward"),
        writer.unreported("terminated"),
        writer.unreported("truncated"),
        masked,
        going_on,
    )
    return StepCounts(sum(stamps.values()), episodes, stamps)


def _stamps(versions: Sequence[Any], masked: NDArray[np.int64], lanes: int) -> dict[int, int]:
    """Returns the number of transitions of each version; `versions` has one a step, or those of each lane."""
    if not isinstance(versions[0], np.ndarray):
        first = versions[0]
        if versions.count(first) == len(versions):
            # Nearly always: a `Counter` takes as long as a third of a step, behind frames that fill the caches.
            count = len(versions) * lanes - masked.size
            return {first: count} if count else {}
        frames = {version: count * lanes for version, count in Counter(versions).items()}
        for step in (masked // lanes).tolist() if masked.size else ():
            frames[versions[step]] -= 1
        return {version: count for version, count in frames.items() if count}
    rows = np.delete(np.concatenate(versions), masked)
    numbers, counts = np.unique(rows, return_counts=True)
    return dict(zip(numbers.tolist(), counts.tolist(), strict=True))
