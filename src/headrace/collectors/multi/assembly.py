"""From rollouts of workers to batches: one of each rollout, or one of a rollout of every worker."""

# Rules: collectors CB1, CB5, CB8, CR2

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Collection, Mapping, Sequence
from typing import NamedTuple

from headrace.collectors.batches.batch import Batch
from headrace.collectors.batches.batch_maker import BatchArrays, BatchMaker
from headrace.collectors.batches.block_reader import BlockReader
from headrace.collectors.batches.copy_threads import ONE_THREAD, CopyThreads
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


class Assembly(ABC):
    """Makes batches of the rollouts that workers complete. One thread adds rollouts."""

    @abstractmethod
    def add(self, worker_idx: int, rollout: BlockReader, counts: StepCounts) -> Finished | None:
        """Takes in a complete rollout; returns the batch that is complete with it.

        Args:
            worker_idx: the worker that collected it.
            rollout: its steps.
            counts: of its steps.
        """

    @abstractmethod
    def begin(self) -> bool:
        """Notes that a batch is asked for, and none is complete or asked for; returns whether workers wait for that."""

    @property
    @abstractmethod
    def makers(self) -> Sequence[BatchMaker]:
        """Makers of batches, with the lanes of the workers in their order."""

    @property
    @abstractmethod
    def workers(self) -> Collection[int]:
        """The workers whose rollouts are in the batch that was asked for."""

    @property
    @abstractmethod
    def frames(self) -> int:
        """Frames of the rollouts that wait for the rest of the batch that was asked for."""


class RolloutAssembly(Assembly):
    """Each rollout is a batch, of the worker that completed it.

    Args:
        views: further columns of the batches of each worker.
        num_envs: n, the environments of each worker.
        threads: copy the rollouts.
    """

    def __init__(
        self, views: Sequence[Mapping[str, View]], num_envs: int, threads: CopyThreads = ONE_THREAD
    ) -> None:
        self._threads = threads
        ids = EpisodeIds()
        self._makers = [
            BatchMaker(num_envs, EpisodeNumbering(num_envs, ids), ViewColumns(each, num_envs), worker_idx)
            for worker_idx, each in enumerate(views)
        ]

    def add(self, worker_idx: int, rollout: BlockReader, counts: StepCounts) -> Finished:
        """See `Assembly.add`."""
        maker = self._makers[worker_idx]
        arrays = maker.begin(rollout.signature, rollout.observed, rollout.steps)
        rollout.copy_into(arrays, 0, self._threads)
        return Finished(maker.finish(arrays), {worker_idx: counts})

    def begin(self) -> bool:
        """See `Assembly.begin`: the workers collect unasked."""
        return False

    @property
    def makers(self) -> Sequence[BatchMaker]:
        """See `Assembly.makers`: one for each worker."""
        return self._makers

    @property
    def workers(self) -> Collection[int]:
        """See `Assembly.workers`."""
        return ()

    @property
    def frames(self) -> int:
        """See `Assembly.frames`."""
        return 0


class SynchronousAssembly(Assembly):
    """A rollout of each worker makes a batch, worker by worker. Shorter rollouts have masked rows at their end.

    Each rollout is copied once, when it is complete, into its place in the arrays of the batch.

    Args:
        views: further columns.
        num_envs: n, the environments of each worker.
        steps: T of each worker.
        threads: copy the rollouts.
    """

    def __init__(
        self,
        views: Mapping[str, View],
        num_envs: int,
        steps: Sequence[int],
        threads: CopyThreads = ONE_THREAD,
    ) -> None:
        self._threads = threads
        lanes = num_envs * len(steps)
        self._maker = BatchMaker(lanes, EpisodeNumbering(lanes), ViewColumns(views, lanes))
        self._num_envs = num_envs
        self._workers = len(steps)
        self._steps = max(steps)
        self._arrays: BatchArrays | None = None
        self._counts: dict[int, StepCounts] = {}

    def add(self, worker_idx: int, rollout: BlockReader, counts: StepCounts) -> Finished | None:
        """See `Assembly.add`."""
        if self._arrays is None:
            self._arrays = self._maker.begin(rollout.signature, rollout.observed, self._steps)
        rollout.copy_into(self._arrays, worker_idx * self._num_envs, self._threads)
        self._counts[worker_idx] = counts
        if len(self._counts) < self._workers:
            return None
        return Finished(self._maker.finish(self._arrays), dict(sorted(self._counts.items())))

    def begin(self) -> bool:
        """See `Assembly.begin`."""
        self._arrays, self._counts = None, {}
        return True

    @property
    def makers(self) -> Sequence[BatchMaker]:
        """See `Assembly.makers`: one for all workers."""
        return [self._maker]

    @property
    def workers(self) -> Collection[int]:
        """See `Assembly.workers`."""
        return self._counts.keys()

    @property
    def frames(self) -> int:
        """See `Assembly.frames`."""
        return sum(counts.frames for counts in self._counts.values())
