"""What a collector has done so far (collectors, part 13)."""

from __future__ import annotations

import time
from collections import deque
from dataclasses import dataclass

import numpy as np


@dataclass(frozen=True)
class CollectorStatistics:
    """One collector at one instant.

    Attributes:
        frames, batches: handed out (free-running: written).
        episodes: finished.
        frames_discarded: collected and lost, to a failure or at the end.
        workers_alive: processes that collect.
        running, paused: of free-running collection.
        frames_per_second: of the last seconds.
        episode_return_mean, episode_length_mean: over the last 100 episodes; NaN before the first.
        lag_min, lag_mean, lag_max: newest version minus the version that acted, of the last batch.
        env_seconds, policy_seconds, wait_seconds: spent so far in the environments, in the policy, and waiting.
    """

    frames: int
    batches: int
    episodes: int
    frames_discarded: int
    workers_alive: int
    running: bool
    paused: bool
    frames_per_second: float
    episode_return_mean: float
    episode_length_mean: float
    lag_min: int
    lag_mean: float
    lag_max: int
    env_seconds: float
    policy_seconds: float
    wait_seconds: float


class Tally:
    """Counts as batches come; `record` makes the frozen record."""

    def __init__(self) -> None:
        self.frames = self.batches = self.episodes = self.frames_discarded = 0
        self.env_seconds = self.policy_seconds = self.wait_seconds = 0.0
        self._recent: deque[tuple[float, int]] = deque(maxlen=100)
        self._times: deque[tuple[float, int]] = deque([(time.perf_counter(), 0)], maxlen=64)
        self._lag = (0, 0.0, 0)

    def add_batch(
        self,
        frames: int,
        episodes: list[tuple[float, int]],
        versions: tuple[int, float, int],
        newest: int,
        completes_batch: bool,
    ) -> None:
        """Count what was collected.

        Args:
            frames: real transitions in it.
            episodes: (return, length) of those that ended.
            versions: the least, mean and greatest version that acted.
            newest: the version published last.
            completes_batch: whether a batch is complete with it.
        """
        self.frames += frames
        self.batches += completes_batch
        self.episodes += len(episodes)
        self._recent.extend(episodes)
        self._times.append((time.perf_counter(), self.frames))
        least, mean, greatest = versions
        self._lag = (newest - greatest, newest - mean, newest - least) if greatest >= 0 else (0, 0.0, 0)

    def record(self, *, workers_alive: int, running: bool, paused: bool) -> CollectorStatistics:
        """The record of now."""
        (begin, before), (end, after) = self._times[0], self._times[-1]
        returns, lengths = zip(*self._recent, strict=True) if self._recent else ((np.nan,), (np.nan,))
        return CollectorStatistics(
            frames=self.frames,
            batches=self.batches,
            episodes=self.episodes,
            frames_discarded=self.frames_discarded,
            workers_alive=workers_alive,
            running=running,
            paused=paused,
            frames_per_second=(after - before) / (end - begin) if end > begin else 0.0,
            episode_return_mean=float(np.mean(returns)),
            episode_length_mean=float(np.mean(lengths)),
            lag_min=self._lag[0],
            lag_mean=self._lag[1],
            lag_max=self._lag[2],
            env_seconds=self.env_seconds,
            policy_seconds=self.policy_seconds,
            wait_seconds=self.wait_seconds,
        )
