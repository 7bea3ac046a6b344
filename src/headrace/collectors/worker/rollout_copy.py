"""A rollout as a batch, in the worker that collects it: for the hook after a rollout."""

# Rules: collectors CH1

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from headrace.collectors.batches.batch import Batch
from headrace.collectors.batches.batch_maker import BatchMaker
from headrace.collectors.batches.block_reader import BlockReader
from headrace.collectors.batches.episode_numbering import EpisodeNumbering
from headrace.collectors.batches.rollout_store import rollout_store
from headrace.collectors.batches.view_columns import ViewColumns
from headrace.collectors.loop.collecting import CollectingLoop
from headrace.leases.destination import Destination
from headrace.leases.forwarding import CommitForwarder
from headrace.leases.grantor import LeaseGrantor
from headrace.leases.messages import Commit
from headrace.leases.page_views import Columns
from headrace.leases.writing.page_writer import PageWriter
from headrace.spec import Signature
from headrace.store.memory.arena import Arena


class RolloutCopy:
    """Copies the steps of each rollout into a private store as they are reported, and makes a batch of them.

    The pages that a worker fills are not its own after a report, so nothing is read from them later. Episodes are
    numbered by the worker itself: ids of the batches that are handed out may differ.

    Args:
        loop: the collecting loop.
        worker_idx: of the batches.
        signature: of the columns that the loop writes.
    """

    def __init__(self, loop: CollectingLoop, worker_idx: int, signature: Signature) -> None:
        num_envs = loop.stepper.num_envs
        self._loop = loop
        numbering = EpisodeNumbering(num_envs)
        views = ViewColumns(loop.views, num_envs)
        self._maker = BatchMaker(num_envs, numbering, views, worker_idx, loop.marks)
        lengths, is_open = loop.episode_lengths, loop.is_open
        ids = np.cumsum(is_open) - 1
        state = {"next_id": int(is_open.sum()), "ids": ids, "lengths": lengths}
        numbering.load_state_dict(state)
        # Episodes may be under way: their next step is not the first one.
        self._begin(signature, np.maximum(lengths, 1) * is_open)

    def begin(self, signature: Signature) -> None:
        """Begins a rollout.

        Args:
            signature: of the columns that the loop writes; it may have more of them than before.
        """
        if signature == self._signature:
            return
        self._begin(signature, self._grantor.lane_steps)

    def _begin(self, signature: Signature, lane_steps: NDArray[np.integer]) -> None:
        """Continues in a store of these columns."""
        loop, num_envs = self._loop, self._loop.stepper.num_envs
        store = rollout_store(signature, loop.steps, num_envs, Arena.private_sparse)
        self._signature = signature
        self._reader = BlockReader(store, num_envs, loop.observed)
        self._forwarder = CommitForwarder(self._commit, store.arrays.page_rows, num_envs)
        self._grantor = LeaseGrantor(
            Destination(store), num_envs, self._forwarder.take, committed=self._reader.add
        )
        self._grantor.open(loop.observed)
        self._grantor.lease_owed()
        self._grantor.continue_episodes(lane_steps)

    def add_report(self, writer: PageWriter, commit: Commit) -> None:
        """Copies the steps of the report that the writer has just made, and the ends of the episodes that it cuts."""
        self._following = writer.following
        if commit.steps:
            steps, first = writer.steps_of(commit), 0
            while first < commit.steps:
                stop = min(commit.steps, first + self._forwarder.free)
                self._forwarder.forward(steps.part(first, stop, slice(0, self._loop.stepper.num_envs)))
                first = stop
        if commit.cut:
            self._forwarder.cut(*writer.cuts_of(commit))

    def _commit(self, commit: Commit, columns: Columns, finals: Columns) -> None:
        self._grantor.commit(commit, columns, finals, self._following)

    def take(self) -> Batch:
        """Returns the rollout as a batch `[n, T, ...]`."""
        arrays = self._maker.begin(self._reader.signature, self._reader.observed, self._loop.steps)
        self._reader.copy_into(arrays, 0)
        return self._maker.finish(arrays)
