"""Rollouts in this process: written into pages of a private store, and made part of it by direct calls."""

from __future__ import annotations

from collections import deque

from headrace.collectors.batches.batch import Batch
from headrace.collectors.batches.batch_maker import NOTHING, BatchArrays, BatchMaker
from headrace.collectors.batches.block_reader import BlockReader
from headrace.collectors.batches.lent_pages import LentPages
from headrace.collectors.batches.partial_rollout import Continuation, PartialRollout
from headrace.collectors.batches.rollout_store import rollout_store
from headrace.collectors.loop.collecting import CollectingLoop
from headrace.collectors.loop.hooks import CollectHooks
from headrace.collectors.loop.step_counts import StepCounts
from headrace.envs.protocol import Indices
from headrace.leases.destination import Destination
from headrace.leases.forwarding import Steps, steps_of
from headrace.leases.grantor import LeaseGrantor
from headrace.leases.messages import Lease, Message
from headrace.leases.writing.page_writer import PageWriter, Purpose
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
        # Steps of the rollout under way that were taken in, and those of a loaded state before them.
        self._taken = 0
        self._continuation = Continuation()
        # Of the steps that were taken in, those that `add` has not returned, and their counts.
        self._held: list[Steps] = []
        self._held_counts = StepCounts()
        self._pages: dict[Purpose, deque[int]] = {"rows": deque(), "finals": deque()}
        self._reader = BlockReader(store, num_envs, observed, LentPages(store))
        self._maker = maker
        self._grantor = LeaseGrantor(
            Destination(store), num_envs, self._take, committed=self._reader.add, left=self._reader.leave
        )
        self._grantor.open(observed)
        self._grantor.lease_owed()
        self._writer = PageWriter(store.columns, store.arrays.page_rows, observed, num_envs, self._next_page)
        if before is not None:
            self._grantor.continue_episodes(before._grantor.lane_steps)
        loop.write_to(self._writer)

    def _take(self, *messages: Message) -> None:
        for message in messages:
            if isinstance(message, Lease):
                self._pages[message.purpose].append(message.page)

    def _next_page(self, purpose: Purpose) -> int:
        return self._pages[purpose].popleft()

    @property
    def has_steps(self) -> bool:
        """Whether steps were taken that `add` has not returned."""
        return bool(self._held) or self._writer.has_news

    def cut(self, envs: Indices | None) -> None:
        """Ends the episodes of environments (None: of all) after their last steps; their reset follows.

        Where `has_steps`, these steps tell of the ends; else the caller knows of the steps already.
        """
        self.hold()
        self._loop.cut(envs)
        if self._writer.has_news:
            commit, _ = self._loop.report()
            self._grantor.commit(commit)
            if self._held:
                self._held[-1] = self._held[-1].ending(*self._writer.cuts_of(commit))

    def hold(self) -> StepCounts:
        """Takes in the newest steps of the rollout under way; returns the counts of all that `add` will return."""
        if self._writer.has_news:
            steps, counts = self._take_in()
            self._held.append(steps)
            self._held_counts.add(counts)
        return self._held_counts

    def add(self) -> tuple[Steps, StepCounts]:
        """Takes in the newest steps of the rollout under way.

        Returns:
            The steps since the last call, which stay as they are until more is written, and their counts.
        """
        if not self._held:
            return self._take_in()
        counts, steps = self.hold(), Steps.joined(self._held)
        self._held, self._held_counts = [], StepCounts()
        return steps, counts

    def _take_in(self) -> tuple[Steps, StepCounts]:
        if not self._taken:
            self._continuation.continued = self._loop.continued
        commit, counts = self._loop.report()
        self._grantor.commit(commit)
        begin = commit.page * self._store.arrays.page_rows + self._taken * self._num_envs
        self._taken += commit.steps
        return steps_of(commit, self._store.columns, begin, self._num_envs), counts

    def complete(self, hooks: CollectHooks) -> tuple[Batch, Steps, StepCounts]:
        """Ends a rollout; returns its batch, and its last steps and their counts as `add` does.

        Steps that were not taken are masked in the batch.

        Raises:
            Exception: raised by the hook.
        """
        steps, counts = self.add()
        begin = self._loop.times.clock()
        if (marks := self._maker.marks) is not None:
            marks(steps.columns["truncated"], steps.taken)
        # Each page holds one rollout.
        if (message := self._writer.page_return) is not None:
            self._writer.begin_block()
            self._grantor.take_back(message)
        batch = self._maker.finish(self._arrays())
        self._taken = 0
        self._loop.times.note("write", begin)
        hooks.after(batch)
        return batch, steps, counts

    def _arrays(self) -> BatchArrays:
        """Returns the columns of the whole rollout."""
        reader, continuation = self._reader, self._continuation
        in_place = NOTHING if continuation.loaded_steps else reader.in_place()
        try:
            arrays = self._maker.begin(reader.signature, reader.observed, self._loop.steps, in_place)
            continuation.copy(reader, arrays, 0)
        finally:
            reader.forget()
        return arrays

    # ---- state -----------------------------------------------------------------------------------------------------

    def partial(self) -> PartialRollout | None:
        """Returns a copy of the steps of the rollout under way that were added; None if there are none."""
        return self._continuation.partial(self._reader, self._num_envs)

    def continue_after(self, steps: PartialRollout | None) -> None:
        """Lets the rollout that begins go on after the steps of a loaded state; None: there are none."""
        self._continuation = Continuation(steps)
