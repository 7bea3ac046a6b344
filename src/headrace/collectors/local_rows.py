"""Rollouts in this process: written into pages of a private store, and made part of it by direct calls."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from typing import Any

from headrace.collectors.batch import Batch
from headrace.collectors.blocks import BlockReader, EpisodeNumbering
from headrace.collectors.worker_rows import rollout_store
from headrace.leases.destination import StoreAlone
from headrace.leases.forwarding import Steps
from headrace.leases.grantor import LeaseGrantor
from headrace.leases.messages import POLICY_VERSIONS, Commit, Lease, Message, unpacked
from headrace.leases.page_writer import PageWriter, Purpose
from headrace.spec import Signature
from headrace.store.memory.arena import Arena


class LocalRows:
    """A page writer and its grantor.

    Args:
        signature: of one step.
        observed: names of the columns that an observation has.
        steps, num_envs: T and n.
        numbering: of the episodes.
        before: the rows so far, of fewer columns; episodes go on.

    Attributes:
        writer: fills the pages.
    """

    def __init__(
        self,
        signature: Signature,
        observed: Iterable[str],
        steps: int,
        num_envs: int,
        numbering: EpisodeNumbering,
        before: LocalRows | None = None,
    ) -> None:
        store = rollout_store(signature, steps, num_envs, Arena.private_sparse)
        self._store = store
        self._steps, self._num_envs = steps, num_envs
        self._pages: dict[Purpose, deque[int]] = {"rows": deque(), "finals": deque()}
        self._reader = BlockReader(store, num_envs, observed, numbering)
        self._grantor = LeaseGrantor(StoreAlone(store), num_envs, self._take, committed=self._reader.add)
        self._grantor.open(observed)
        self._grantor.lease_owed()
        self.writer = PageWriter(store.columns, store.arrays.page_rows, observed, num_envs, self._next_page)
        if before is not None:
            self._grantor.continue_from(before._grantor)
            self.writer.continue_from(before.writer)

    def _take(self, *messages: Message) -> None:
        for message in messages:
            if isinstance(message, Lease):
                self._pages[message.purpose].append(message.page)

    def _next_page(self, purpose: Purpose) -> int:
        return self._pages[purpose].popleft()

    def finish(self, commit: Commit) -> Batch:
        """The rollout that fills the page, as a batch; `commit` reports it."""
        self._grantor.commit(commit)
        batch = self._reader.take()
        self.writer.turn()
        return batch

    def steps_of(self, commit: Commit) -> Steps:
        """The steps of the newest rollout, which stay as they are until more is written."""
        first = commit.page * self._store.arrays.page_rows
        columns: dict[str, Any] = {}
        for name, column in self._store.columns.items():
            rows = column[first : first + self._steps * self._num_envs]
            columns[name] = rows.reshape(self._steps, self._num_envs, *rows.shape[1:])
        final_rows = unpacked(commit.final_rows, "final_rows")
        return Steps(
            columns,
            unpacked(commit.versions, "versions", POLICY_VERSIONS),
            unpacked(commit.final, "final"),
            unpacked(commit.idle, "idle"),
            unpacked(commit.ended, "ended"),
            {name: column[final_rows] for name, column in self._store.columns.items()},
        )
