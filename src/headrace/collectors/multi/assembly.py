"""From rollouts of workers to batches: one of each rollout, or one of a rollout of every worker."""

# Rules: collectors CB1, CB5, CB8, CR2

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import NamedTuple

from headrace.collectors.batches.batch import Batch
from headrace.collectors.batches.batch_maker import BatchArrays, BatchMaker
from headrace.collectors.batches.block_reader import BlockReader
from headrace.collectors.batches.copy_threads import CopyThreads
from headrace.collectors.batches.episode_ids import EpisodeIds
from headrace.collectors.batches.episode_numbering import EpisodeNumbering
from headrace.collectors.batches.view_columns import ViewColumns
from headrace.collectors.loop.step_counts import StepCounts
from headrace.views import View


class Finished(NamedTuple):
    """A batch that waits for the learner.

    Attributes:
        batch: the batch.
        counts: of the steps of each worker in it.
    """

    batch: Batch
    counts: Mapping[int, StepCounts]

    @property
    def frames(self) -> int:
        """Real transitions."""
        return sum(counts.frames for counts in self.counts.values())


class Assembly:
    """Makes batches of the rollouts that workers complete. One thread adds rollouts.

    A synchronous batch has the rollouts of all workers, worker by worker; shorter ones have masked rows at their end.
    Each rollout is copied once, when it is complete, into its place in the arrays of the batch. Other batches show the
    wide columns of their rollout where the worker wrote them, and copy the others.

    Args:
        is_synchronous: whether a batch has a rollout of every worker; else each rollout is a batch.
        views: further columns of the batches of each worker.
        num_envs: n, the environments of each worker.
        steps: T of each worker.
        threads: copy the rollouts.

    Attributes:
        makers: of batches, with the lanes of the workers in their order: one for all workers, or one for each.
    """

    def __init__(
        self,
        is_synchronous: bool,
        views: Sequence[Mapping[str, View]],
        num_envs: int,
        steps: Sequence[int],
        threads: CopyThreads,
    ) -> None:
        self._is_synchronous = is_synchronous
        self._num_envs = num_envs
        self._workers, self._steps = len(steps), max(steps)
        self._threads = threads
        self._arrays: BatchArrays | None = None
        self._counts: dict[int, StepCounts] = {}
        if is_synchronous:
            lanes = num_envs * len(steps)
            self.makers = [BatchMaker(lanes, EpisodeNumbering(lanes), ViewColumns(views[0], lanes))]
            return
        ids = EpisodeIds()
        self.makers = [
            BatchMaker(num_envs, EpisodeNumbering(num_envs, ids), ViewColumns(each, num_envs), worker_idx)
            for worker_idx, each in enumerate(views)
        ]

    def begin(self) -> bool:
        """Notes that a batch is asked for, and none is complete or asked for; returns whether workers wait for that."""
        if self._is_synchronous:
            self._arrays, self._counts = None, {}
        return self._is_synchronous

    def add(self, worker_idx: int, rollout: BlockReader, counts: StepCounts) -> Finished | None:
        """Takes in a complete rollout; returns the batch that is complete with it.

        Args:
            worker_idx: the worker that collected it.
            rollout: its steps.
            counts: of its steps.
        """
        if not self._is_synchronous:
            maker = self.makers[worker_idx]
            arrays = maker.begin(rollout.signature, rollout.observed, rollout.steps, rollout.in_place())
            rollout.copy_into(arrays, 0, self._threads)
            return Finished(maker.finish(arrays), {worker_idx: counts})
        (maker,) = self.makers
        if self._arrays is None:
            self._arrays = maker.begin(rollout.signature, rollout.observed, self._steps)
        rollout.copy_into(self._arrays, worker_idx * self._num_envs, self._threads)
        self._counts[worker_idx] = counts
        if len(self._counts) < self._workers:
            return None
        return Finished(maker.finish(self._arrays), dict(sorted(self._counts.items())))

    @property
    def workers(self) -> Collection[int]:
        """The workers whose rollouts are in the batch that was asked for."""
        return self._counts.keys()

    @property
    def frames(self) -> int:
        """Frames of the rollouts in the batch that was asked for."""
        return sum(counts.frames for counts in self._counts.values())
