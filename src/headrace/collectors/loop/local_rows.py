"""Rollouts in this process: written into pages of a private store, and made part of it by direct calls."""

from __future__ import annotations

from collections import deque

from headrace.collectors.batches.batch import Batch
from headrace.collectors.batches.batch_maker import BatchMaker
from headrace.collectors.batches.block_reader import BlockReader
from headrace.collectors.batches.lent_pages import LentPages
from headrace.collectors.batches.rollout_store import rollout_store
from headrace.collectors.loop.collecting import CollectingLoop
from headrace.collectors.loop.hooks import CollectHooks
from headrace.collectors.loop.step_counts import StepCounts
from headrace.leases.destination import Destination
from headrace.leases.forwarding import Steps, steps_of
from headrace.leases.grantor import LeaseGrantor
from headrace.leases.messages import Commit, Lease, Message
from headrace.leases.page_writer import PageWriter, Purpose
from headrace.store.memory.arena import Arena


class LocalRows:
    """A page writer and its grantor, for the columns that a loop knows now. The loop writes its next steps here.

    Args:
        loop: the loop.
        maker: of the batches.
        before: the rows so far, of fewer columns; episodes go on.
    """

    def __init__(
        self,
        loop: CollectingLoop,
        maker: BatchMaker,
        before: LocalRows | None = None,
    ) -> None:
        num_envs, observed = loop.stepper.num_envs, loop.observed
        store = rollout_store(loop.signature, loop.steps, num_envs, Arena.private_sparse)
        self._loop = loop
        self._store = store
        self._num_envs = num_envs
        # Steps of the rollout under way that were taken in.
        self._taken = 0
        self._pages: dict[Purpose, deque[int]] = {"rows": deque(), "finals": deque()}
        self._reader = BlockReader(store, num_envs, observed, LentPages(store))
        self._maker = maker
        self._grantor = LeaseGrantor(Destination(store), num_envs, self._take, committed=self._reader.add)
        self._grantor.open(observed)
        self._grantor.lease_owed()
        self._writer = PageWriter(store.columns, store.arrays.page_rows, observed, num_envs, self._next_page)
        if before is not None:
            self._grantor.continue_from(before._grantor)
        loop.write_to(self._writer)

    def _take(self, *messages: Message) -> None:
        for message in messages:
            if isinstance(message, Lease):
                self._pages[message.purpose].append(message.page)

    def _next_page(self, purpose: Purpose) -> int:
        return self._pages[purpose].popleft()

    def cut(self) -> None:
        """Ends the episodes that the loop has just cut."""
        if self._loop.writer.has_news:
            self._grantor.commit(self._loop.report()[0])

    def add(self, commit: Commit) -> Steps:
        """Takes in steps of a rollout under way; returns them as `steps_of` does."""
        self._grantor.commit(commit)
        steps = self.steps_of(commit, self._taken)
        self._taken += commit.steps
        return steps

    def complete(self, hooks: CollectHooks) -> tuple[Batch, Commit, StepCounts]:
        """Ends a rollout; returns its batch, and the report and counts of its last steps.

        Steps that were not taken are masked in the batch.

        Raises:
            Exception: raised by the hook.
        """
        commit, counts = self._loop.report()
        begin = self._loop.times.clock()
        self._grantor.commit(commit)
        reader = self._reader
        arrays = self._maker.begin(reader.signature, reader.observed, self._loop.steps, reader.in_place())
        reader.copy_into(arrays, 0)
        # Each page holds one rollout.
        if (message := self._writer.begin_block()) is not None:
            self._grantor.take_back(message)
        self._taken = 0
        batch = self._maker.finish(arrays)
        self._loop.times.note("write", begin)
        hooks.after(batch)
        return batch, commit, counts

    def steps_of(self, commit: Commit, first: int = 0) -> Steps:
        """Returns steps of the newest rollout, which stay as they are until more is written.

        Args:
            commit: of the steps.
            first: the first of them in the rollout.
        """
        begin = commit.page * self._store.arrays.page_rows + first * self._num_envs
        return steps_of(commit, self._store.columns, begin, self._num_envs)
