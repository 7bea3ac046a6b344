"""Counts of the steps that a writer reports: frames, versions, and episodes that ended."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from headrace.collectors.loop.episode_totals import EpisodeTotals
from headrace.envs.protocol import NO_ENVS, Indices
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

    def reset(self, envs: Indices | None = None) -> None:
        """Notes that environments (None: all) begin an episode; all steps before were counted."""
        self._totals.reset(np.arange(self._num_envs) if envs is None else envs)

    def state_dict(self) -> dict[str, Any]:
        """Returns the returns and lengths of the episodes under way."""
        return self._totals.state_dict()

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Goes on with the episodes of a state."""
        self._totals.load_state_dict(state)

    @property
    def lengths(self) -> NDArray[np.int64]:
        """int64[n], transitions so far of the episodes under way."""
        lengths: NDArray[np.int64] = self._totals.state_dict()["lengths"]
        return lengths

    def count(self, writer: PageWriter, going_on: Indices = NO_ENVS) -> StepCounts:
        """Counts the steps that the writer has not reported yet.

        Args:
            writer: of the steps.
            going_on: environments whose episode goes on, although the last of these steps is marked truncated.
        """
        versions = writer.unreported_versions
        if not versions:
            return StepCounts()
        masked = writer.unreported_masked
        frames = {version: count * self._num_envs for version, count in Counter(versions).items()}
        for step in (masked // self._num_envs).tolist():
            frames[versions[step]] -= 1
        stamps = {version: count for version, count in frames.items() if count}
        ended = writer.unreported("terminated") | writer.unreported("truncated")
        ended[-1, going_on] = False
        took = np.ones(ended.shape, np.bool_)
        took.reshape(-1)[masked] = False
        episodes = self._totals.add(writer.unreported("reward"), ended, took)
        return StepCounts(sum(stamps.values()), episodes, stamps)
