"""Where the loop writes: the rows of a page writer; and what a collector counts of the steps."""

from __future__ import annotations

from collections import Counter

import numpy as np
from numpy.typing import NDArray

from headrace.collectors.loop import Columns
from headrace.collectors.messages import Progress
from headrace.envs.protocol import Indices, StepResult
from headrace.leases.messages import Commit
from headrace.leases.page_writer import PageWriter


class StepSink:
    """Writes what the loop records into leased pages, and counts it.

    Args:
        writer: fills the pages.
        num_envs: n, the lanes of the writer.

    Attributes:
        writer: as above; another one where columns are added.
        frames: real transitions since `begin_report`.
        episodes: return and length of those that ended since then, as far as they are reported.
    """

    def __init__(self, writer: PageWriter, num_envs: int) -> None:
        self.writer = writer
        self._num_envs = num_envs
        self._returns = np.zeros(num_envs)
        self._lengths = np.zeros(num_envs, np.int64)
        self.begin_report()

    def begin_report(self) -> None:
        """Count anew."""
        self.frames = 0
        self.episodes: list[tuple[float, int]] = []
        self._stamps: Counter[int] = Counter()

    @property
    def row(self) -> Columns:
        """See `Sink.row`."""
        return self.writer.row

    @property
    def next_row(self) -> Columns:
        """See `Sink.next_row`."""
        return self.writer.next_row

    def record(
        self, actions: Columns, extras: Columns, result: StepResult, finals: Indices, version: int
    ) -> None:
        """See `Sink.record`."""
        values = {
            **actions,
            **extras,
            "reward": result.reward,
            "terminated": result.terminated,
            "truncated": result.truncated,
        }
        self.writer.record(values, version, result.reset_steps, finals, result.last_observation)
        self.frames += self._num_envs - len(result.reset_steps)

    def report(self) -> Commit:
        """Count the steps since the last report, all at once; returns the report of the writer."""
        if versions := self.writer.unreported_versions:
            took = np.ones((len(versions), self._num_envs), np.int64)
            took.reshape(-1)[self.writer.unreported_resets] = 0
            self._count_episodes(took)
            for version, frames in zip(versions, took.sum(1).tolist(), strict=True):
                self._stamps[version] += frames
        return self.writer.report()

    def _count_episodes(self, took: NDArray[np.int64]) -> None:
        """Add up returns and lengths of the episodes in the steps since the last report.

        Args:
            took: int64[steps, n], 1 where a transition was taken, 0 elsewhere.
        """
        writer, steps = self.writer, len(took)
        ended = writer.unreported("terminated") | writer.unreported("truncated")
        # Lane after lane: first what its open episode has brought so far, last a border between lanes.
        rewards = np.zeros((self._num_envs, steps + 2))
        lengths, closes = np.zeros(rewards.shape, np.int64), np.zeros(rewards.shape, np.bool_)
        rewards[:, 0], rewards[:, 1:-1] = self._returns, writer.unreported("reward").T
        lengths[:, 0], lengths[:, 1:-1] = self._lengths, took.T
        closes[:, -1], closes[:, 1:-1] = True, ended.T
        stops = np.flatnonzero(closes)
        starts = np.concatenate(([0], stops[:-1] + 1))
        step = stops % (steps + 2)
        is_open = step > steps
        returns = np.add.reduceat(rewards.reshape(-1), starts)
        counts = np.add.reduceat(lengths.reshape(-1), starts)
        self._returns, self._lengths = returns[is_open], counts[is_open]
        whole = np.flatnonzero(~is_open)
        order = whole[np.argsort(step[whole], kind="stable")]
        self.episodes += zip(returns[order].tolist(), counts[order].tolist(), strict=True)

    def cut(self) -> None:
        """All environments are about to be reset, and all steps are reported."""
        self.writer.cut()
        self._returns[:] = 0.0
        self._lengths[:] = 0

    def progress(self, *, closes_rollout: bool, seconds: tuple[float, float, float]) -> Progress:
        """Counts since `begin_report`."""
        return Progress(
            frames=self.frames,
            episodes=self.episodes,
            stamps=dict(self._stamps),
            closes_rollout=closes_rollout,
            seconds=seconds,
        )
