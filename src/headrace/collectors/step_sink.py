"""Where the loop writes: the rows of a page writer; and what a collector counts of the steps."""

from __future__ import annotations

from collections import Counter

import numpy as np

from headrace.collectors.loop import Columns
from headrace.collectors.messages import Progress
from headrace.envs.protocol import Indices, StepResult
from headrace.leases.page_writer import PageWriter


class StepSink:
    """Writes what the loop records into leased pages, and counts it.

    Args:
        writer: fills the pages.
        num_envs: n, the lanes of the writer.

    Attributes:
        writer: as above; another one where columns are added.
        frames: real transitions since `begin_report`.
        episodes: return and length of those that ended since then.
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
        values = {**actions, **extras, "reward": result.reward}
        values["terminated"], values["truncated"] = result.terminated, result.truncated
        self.writer.record(values, version, result.reset_steps, finals, result.last_observation)
        self._returns += result.reward
        self._lengths += 1
        if result.reset_steps.size:
            self._begin_episodes(result.reset_steps)
        if result.ended.size:
            ended = result.ended
            self.episodes += zip(self._returns[ended].tolist(), self._lengths[ended].tolist(), strict=True)
            self._begin_episodes(ended)
        frames = self._num_envs - len(result.reset_steps)
        self._stamps[version] += frames
        self.frames += frames

    def _begin_episodes(self, lanes: Indices) -> None:
        self._returns[lanes] = 0.0
        self._lengths[lanes] = 0

    def cut(self) -> None:
        """All environments are about to be reset."""
        self.writer.cut()
        self._begin_episodes(np.arange(self._num_envs))

    def progress(self, *, closes_rollout: bool, seconds: tuple[float, float, float]) -> Progress:
        """Counts since `begin_report`."""
        return Progress(
            frames=self.frames,
            episodes=self.episodes,
            stamps=dict(self._stamps),
            closes_rollout=closes_rollout,
            seconds=seconds,
        )
