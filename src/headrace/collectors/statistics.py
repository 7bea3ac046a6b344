"""Counters of a collector since it was made."""

from __future__ import annotations

import threading
import time
from collections import Counter, deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from headrace.collectors.loop.step_counts import StepCounts
from headrace.collectors.loop.times import LoopSeconds
from headrace.error_texts import text_of


@dataclass(frozen=True)
class WorkerStatistics:
    """One worker at one instant.

    Attributes:
        worker_idx, pid: number and process id.
        alive: whether its process runs.
        frames, rollouts: of its own that were handed out (free-running: written).
        restarts: how often its process was started again.
        policy_version: the newest stamp among its rows; -1 before the first.
        last_step_age: seconds since it took a step; None before the first.
        last_error: the error that ended it, as text; None while it is well.
    """

    worker_idx: int
    pid: int
    alive: bool
    frames: int
    rollouts: int
    restarts: int
    policy_version: int
    last_step_age: float | None
    last_error: str | None


@dataclass(frozen=True)
class CollectorStatistics:
    """One collector at one instant.

    Attributes:
        frames, batches: handed out (free-running: written).
        episodes: finished.
        frames_discarded: collected, and lost by a failure or at the end.
        restarts: how often a worker was started again.
        workers_alive: processes that collect.
        running, paused: of free-running collection.
        failure: the error that has ended the collection, which the next call raises, as text; None while all is well.
        frames_per_second: over the last 64 batches.
        episode_return_mean, episode_length_mean: over the last 100 episodes; NaN before the first.
        lag_min, lag_mean, lag_max: newest version minus the version that acted, of the last batch. A synchronous batch
            keeps the weights with which it began: newer ones count from the next batch on.
        lag_histogram: lag to number of frames, over all frames that a policy acted on.
        lag_exceeded: batches with a lag beyond `max_staleness`.
        env_seconds, policy_seconds, write_seconds: spent so far in environments, in the policy, and in storing steps;
            by all workers together, in seconds. Workers report them with each rollout and each full page.
        wait_seconds: spent so far by collecting processes that stood still until the learner took a batch or a full
            store had room. An inline collector stands still from the end of one `next` to the next call.
        workers: one record each; none inline.
    """

    frames: int
    batches: int
    episodes: int
    frames_discarded: int
    restarts: int
    workers_alive: int
    running: bool
    paused: bool
    failure: str | None
    frames_per_second: float
    episode_return_mean: float
    episode_length_mean: float
    lag_min: int
    lag_mean: float
    lag_max: int
    lag_histogram: Mapping[int, int]
    lag_exceeded: int
    env_seconds: float
    policy_seconds: float
    write_seconds: float
    wait_seconds: float
    workers: tuple[WorkerStatistics, ...]


@dataclass(slots=True)
class WorkerTally:
    """Counters of one worker.

    Attributes:
        frames, rollouts, restarts, policy_version: see `WorkerStatistics`.
    """

    frames: int = 0
    rollouts: int = 0
    restarts: int = 0
    policy_version: int = -1

    def add(self, counts: StepCounts, rollouts: int) -> None:
        """Counts steps that are handed out (free-running: written), and complete rollouts."""
        self.frames += counts.frames
        self.rollouts += rollouts
        self.policy_version = max((self.policy_version, *counts.stamps))


class Tally:
    """Counts as batches come; `record` makes the frozen record. Thread-safe.

    Args:
        total_frames: where collection ends; -1 is no end.
        workers: their number.
        max_staleness: the largest lag that does not count as exceeded; None: any.

    Attributes:
        newest: the version of weights published last.
        frames, batches, frames_discarded: see `CollectorStatistics`.
        workers: the counters of each worker. One thread at a time changes them: the one that takes in, or hands out,
            rollouts.
    """

    def __init__(self, total_frames: int = -1, workers: int = 0, max_staleness: int | None = None) -> None:
        self._total = total_frames
        self.workers = [WorkerTally() for _ in range(workers)]
        self._max_staleness = max_staleness
        self.newest = 0
        self.frames = self.batches = self.frames_discarded = 0
        self._episodes = 0
        # The newest counts that were added.
        self._counted: StepCounts | None = None
        self._seconds = LoopSeconds()
        self._recent: deque[tuple[float, int]] = deque(maxlen=100)
        self._times: deque[tuple[float, int]] = deque([(time.perf_counter(), 0)], maxlen=64)
        self._lag = (0, 0.0, 0)
        self._lags: Counter[int] = Counter()
        self._lag_exceeded = 0
        self._lock = threading.Lock()

    def state_dict(self) -> dict[str, Any]:
        """Returns the counters, but for those of time."""
        with self._lock:
            return {
                "newest": self.newest,
                "frames": self.frames,
                "batches": self.batches,
                "frames_discarded": self.frames_discarded,
                "episodes": self._episodes,
                "recent": list(self._recent),
                "lag": self._lag,
                "lags": dict(self._lags),
                "lag_exceeded": self._lag_exceeded,
            }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Goes on with the counters of a state."""
        with self._lock:
            self.newest, self.frames, self.batches = state["newest"], state["frames"], state["batches"]
            self.frames_discarded, self._episodes = state["frames_discarded"], state["episodes"]
            self._recent = deque(map(tuple, state["recent"]), maxlen=self._recent.maxlen)
            self._times = deque([(time.perf_counter(), self.frames)], maxlen=self._times.maxlen)
            self._lag, self._lags = tuple(state["lag"]), Counter(state["lags"])
            self._lag_exceeded = state["lag_exceeded"]

    def is_complete(self) -> bool:
        """Whether `total_frames` were handed out (free-running: written)."""
        return 0 < self._total <= self.frames

    def discard(self, frames: int) -> None:
        """Counts transitions that were collected and are lost. Threads of several workers may call it."""
        with self._lock:
            self.frames_discarded += frames

    def add(self, counts: StepCounts, batches: int, *, newest: int | None = None) -> None:
        """Counts steps that are handed out (free-running: written).

        A second call in succession with the same object does nothing: Ctrl-C may have ended the first one anywhere.

        Args:
            counts: of the steps.
            batches: the number of batches that are complete with these steps.
            newest: the version from which the lag of the steps counts; None: that of the weights published last.
        """
        newest = self.newest if newest is None else newest
        stamps = counts.stamps.items()
        with self._lock:
            if counts is self._counted:
                return
            episodes = len(counts.episodes)
            # No call between these: Ctrl-C comes before or after all of them (test_interrupts_of_batches.py).
            self._counted = counts
            self.frames += counts.frames
            self.batches += batches
            self._episodes += episodes
            self._recent.extend(counts.episodes)
            self._times.append((time.perf_counter(), self.frames))
            self._count_lag([(max(0, newest - stamp), count) for stamp, count in stamps if stamp >= 0])

    def _count_lag(self, lags: Sequence[tuple[int, int]]) -> None:
        total = sum(count for _, count in lags)
        if total:
            mean = sum(lag * count for lag, count in lags) / total
            self._lag = (min(lags)[0], mean, max(lags)[0])
            self._lags.update(dict(lags))
            if self._max_staleness is not None:
                self._lag_exceeded += self._lag[2] > self._max_staleness

    def add_seconds(self, seconds: LoopSeconds) -> None:
        """Adds seconds spent by a loop."""
        with self._lock:
            self._seconds = LoopSeconds(*map(float.__add__, self._seconds, seconds))

    def record(
        self,
        *,
        running: bool,
        paused: bool,
        failure: BaseException | None = None,
        workers: Sequence[WorkerStatistics] = (),
    ) -> CollectorStatistics:
        """Returns the present counters.

        Args:
            running, paused, failure, workers: see `CollectorStatistics`.
        """
        # Without the lock: it may call a `__str__` of the user's.
        text = None if failure is None else text_of(failure)
        with self._lock:
            (begin, before), (end, after) = self._times[0], self._times[-1]
            seconds = {f"{part}_seconds": spent for part, spent in self._seconds._asdict().items()}
            returns, lengths = zip(*self._recent, strict=True) if self._recent else ((np.nan,), (np.nan,))
            return CollectorStatistics(
                frames=self.frames,
                batches=self.batches,
                episodes=self._episodes,
                frames_discarded=self.frames_discarded,
                restarts=sum(worker.restarts for worker in workers),
                workers_alive=sum(worker.alive for worker in workers),
                running=running,
                paused=paused,
                failure=text,
                frames_per_second=(after - before) / (end - begin) if end > begin else 0.0,
                episode_return_mean=float(np.mean(returns)),
                episode_length_mean=float(np.mean(lengths)),
                lag_min=self._lag[0],
                lag_mean=self._lag[1],
                lag_max=self._lag[2],
                lag_histogram=dict(self._lags),
                lag_exceeded=self._lag_exceeded,
                **seconds,
                workers=tuple(workers),
            )
