"""From rollouts of workers to batches: one of each rollout, or one of a rollout of every worker."""

# Rules: collectors CB1, CB5, CB8, CR2

from __future__ import annotations

import threading
from collections import defaultdict
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import NamedTuple

from headrace.collectors.batches.batch import Batch
from headrace.collectors.batches.batch_maker import NOTHING, BatchArrays, BatchMaker
from headrace.collectors.batches.block_reader import BlockReader
from headrace.collectors.batches.copy_threads import CopyThreads
from headrace.collectors.batches.episode_ids import EpisodeIds
from headrace.collectors.batches.episode_numbering import EpisodeNumbering
from headrace.collectors.batches.last_rows import Marking
from headrace.collectors.batches.partial_rollout import Continuation, PartialRollout
from headrace.collectors.batches.view_columns import ViewColumns
from headrace.collectors.loop.step_counts import StepCounts
from headrace.views import View


class Finished(NamedTuple):
    """A batch that waits for the learner.

    Attributes:
        batch: the batch.
        counts: of the steps of each worker in it.
        total: the sum of these.
    """

    batch: Batch
    counts: Mapping[int, StepCounts]
    total: StepCounts

    @classmethod
    def of(cls, batch: Batch, counts: Mapping[int, StepCounts]) -> Finished:
        """Returns a batch with the sum of its counts."""
        total = StepCounts()
        for each in counts.values():
            total.add(each)
        return cls(batch, counts, total)

    @property
    def frames(self) -> int:
        """Real transitions."""
        return self.total.frames


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
        left_out: called with each worker whose rollout a batch lacks, before that worker can be taken back.
        marks: see `BatchMaker`.

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
        left_out: Callable[[int], None],
        marks: Marking | None,
    ) -> None:
        self._is_synchronous = is_synchronous
        self._num_envs = num_envs
        self._workers, self._steps = len(steps), max(steps)
        self._threads = threads
        self._arrays: BatchArrays | None = None
        self._counts: dict[int, StepCounts] = {}
        self._note_left_out = left_out
        self._left_out: set[int] = set()
        self._lock = threading.Lock()
        # Rollouts of a loaded state, by worker.
        self._continuations: defaultdict[int, Continuation] = defaultdict(Continuation)
        if is_synchronous:
            lanes = num_envs * len(steps)
            columns = ViewColumns(views[0], lanes)
            self.makers = [BatchMaker(lanes, EpisodeNumbering(lanes), columns, marks=marks)]
            return
        ids = EpisodeIds()
        self.makers = [
            BatchMaker(
                num_envs, EpisodeNumbering(num_envs, ids), ViewColumns(each, num_envs), worker_idx, marks
            )
            for worker_idx, each in enumerate(views)
        ]

    @property
    def is_synchronous(self) -> bool:
        """Whether one rollout of each worker makes a batch."""
        return self._is_synchronous

    def begin(self) -> None:
        """Notes that a synchronous batch is asked for, and none is complete or asked for."""
        self._arrays, self._counts = None, {}

    def add(self, worker_idx: int, rollout: BlockReader, counts: StepCounts) -> Finished | None:
        """Takes in a complete rollout; returns the batch that is complete with it.

        Args:
            worker_idx: the worker that collected it.
            rollout: its steps, after those of a loaded state.
            counts: of all its steps.
        """
        if not self._is_synchronous:
            maker, loaded_steps = self.makers[worker_idx], self._continuations[worker_idx].loaded_steps
            in_place = NOTHING if loaded_steps else rollout.in_place()
            steps = loaded_steps + rollout.steps
            arrays = maker.begin(rollout.signature, rollout.observed, steps, in_place)
            self._fill(arrays, 0, worker_idx, rollout)
            return Finished.of(maker.finish(arrays), {worker_idx: counts})
        (maker,) = self.makers
        if self._arrays is None:
            self._arrays = maker.begin(rollout.signature, rollout.observed, self._steps)
            for worker in self._counts:  # They were complete in a loaded state.
                loaded = self._continuations.pop(worker).loaded
                assert loaded is not None
                loaded.copy_into(self._arrays, worker * self._num_envs)
        self._fill(self._arrays, worker_idx * self._num_envs, worker_idx, rollout)
        with self._lock:
            self._counts[worker_idx] = counts
        return self._finish()

    def leave_out(self, worker_idx: int) -> Finished | None:
        """Masks the rows of a worker in this and later synchronous batches, until `take_back`. Any thread may call it.

        Returns:
            The batch that waited for this worker alone.
        """
        with self._lock:
            self._left_out.add(worker_idx)
        return self._finish() if self._is_synchronous else None

    def take_back(self, worker_idx: int) -> None:
        """Lets batches wait for a worker again. Any thread may call it."""
        with self._lock:
            self._left_out.discard(worker_idx)

    def _finish(self) -> Finished | None:
        """Returns the synchronous batch if it waits for no worker."""
        with self._lock:
            if self._arrays is None or len(self._left_out | self._counts.keys()) < self._workers:
                return None
            arrays, self._arrays = self._arrays, None
            for worker_idx in self._left_out.difference(self._counts):
                self._note_left_out(worker_idx)
        return Finished.of(self.makers[0].finish(arrays), dict(sorted(self._counts.items())))

    def _fill(self, arrays: BatchArrays, first: int, worker_idx: int, rollout: BlockReader) -> None:
        """Copies a rollout into the lanes of a batch from `first` on, and forgets its steps."""
        try:
            self._continuations[worker_idx].copy(rollout, arrays, first, self._threads)
        finally:
            rollout.forget()
            self.lose(worker_idx)

    # ---- state -----------------------------------------------------------------------------------------------------

    def note_continued(self, worker_idx: int, lanes: Sequence[int]) -> None:
        """Notes the lanes of a worker whose first step since a state was loaded continues an episode of the state."""
        self._continuations[worker_idx].continued = lanes

    def partial(self, worker_idx: int, rollout: BlockReader) -> PartialRollout | None:
        """Returns a copy of the steps that a worker has taken for its next batch; None if there are none.

        Args:
            worker_idx: the worker.
            rollout: its steps that were not added.
        """
        if worker_idx in self._counts:
            first = worker_idx * self._num_envs
            if self._arrays is not None:
                return PartialRollout.of(self._arrays, slice(first, first + self._num_envs))
            return self._continuations[worker_idx].loaded
        return self._continuations[worker_idx].partial(rollout, self._num_envs)

    def load(self, partial: Mapping[int, PartialRollout], complete: Mapping[int, StepCounts]) -> None:
        """Goes on with steps of a state in place of the present ones.

        Args:
            partial: the steps of workers for their next batch.
            complete: counts of those workers whose part of a synchronous batch is complete.
        """
        self._arrays, self._counts = None, dict(complete)
        self._continuations.clear()
        for worker_idx, steps in partial.items():
            self._continuations[worker_idx].loaded = steps

    def lose(self, worker_idx: int) -> None:
        """Forgets the steps of a loaded state, unless they are a complete part of a synchronous batch."""
        if worker_idx not in self._counts:
            self._continuations.pop(worker_idx, None)

    def counts_of(self, worker_idx: int) -> StepCounts | None:
        """Returns the counts of the rollout of a worker in the batch that was asked for; None: it is not complete."""
        return self._counts.get(worker_idx)

    @property
    def workers(self) -> Collection[int]:
        """The workers whose rollouts are in the batch that was asked for."""
        return self._counts.keys()

    @property
    def frames(self) -> int:
        """Frames of the rollouts in the batch that was asked for."""
        return sum(counts.frames for counts in self._counts.values())
