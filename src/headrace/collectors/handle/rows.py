"""The rows of one worker, seen from the collector: pages are leased to it, and batches made of what it commits."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any, Protocol

from headrace.collectors.batches.block_reader import BlockReader
from headrace.collectors.batches.rollout_store import rollout_store
from headrace.collectors.messages import Ready, RowsAt
from headrace.errors import Closed
from headrace.leases.connection import LeaseConnection
from headrace.leases.destination import Destination, ReplayItems
from headrace.leases.frames import Frame
from headrace.leases.grantor import LeaseGrantor
from headrace.leases.messages import Message
from headrace.replay.local import LocalReplay
from headrace.spec import Signature
from headrace.store.memory.arena import Arena
from headrace.store.store import Store
from headrace.tables.description.rules import ItemRule


class Send(Protocol):
    """Sends messages to a worker in one piece; does nothing if the worker is gone."""

    def __call__(self, *messages: Message, descriptors: tuple[int, ...] = ()) -> None:
        """Sends them."""
        ...


class WorkerRows:
    """Leases pages to a worker, commits what it reports, and makes batches of it.

    Args:
        ready: describes the worker.
        send: sends messages to it.
    """

    def __init__(self, ready: Ready, send: Send) -> None:
        self._ready = ready
        self._send = send
        self._writer = -1
        self._reader: BlockReader | None = None

    def open(self, signature: dict[str, Any]) -> None:
        """Tells the worker where to write steps of these columns from now on, and leases the first pages to it.

        Args:
            signature: of one step, as JSON.

        Raises:
            StoreFull: no page is free.
        """
        ready = self._ready
        store = rollout_store(Signature.from_json(signature), ready.steps, ready.num_envs, Arena.shared)
        before = None if self._reader is None else (self._grantor, self._connection, self._store)
        self._connect(Destination(store))
        if before is not None:
            grantor, connection, old_store = before
            self._grantor.continue_from(grantor)
            connection.close()
            old_store.close()
        self._begin()

    def reopen(self, signature: dict[str, Any]) -> None:
        """Does as `open` for a worker that goes on from a loaded state: its episodes so far end here."""
        self.close()
        self._reader = None
        self.open(signature)

    def _connect(self, destination: Destination, may_wait: Callable[[], bool] = lambda: False) -> None:
        """Makes the grantor of the next writer."""
        if self._reader is not None:
            self._reader.forget()
        num_envs, observed = self._ready.num_envs, self._ready.observed
        self._writer += 1
        self._store: Store = destination.store
        self._reader = BlockReader(self._store, num_envs, observed)
        self._connection = LeaseConnection(self._store, self._send)
        self._grantor = LeaseGrantor(
            destination,
            num_envs,
            self._send,
            writer=self._writer,
            may_wait=may_wait,
            committed=self._reader.add,
        )
        self._connection.grantors[self._writer] = self._grantor

    def _begin(self) -> None:
        store = self._store
        rows = RowsAt(
            writer=self._writer,
            signature=store.signature.to_json(),
            nbytes=store.arena.nbytes,
            num_pages=store.num_pages,
            page_rows=store.arrays.page_rows,
        )
        self._send(rows, descriptors=(store.share(),))
        self._grantor.open(self._ready.observed)
        self._grantor.lease_owed()

    def take(self, frame: Frame) -> None:
        """Takes in a message of the lease protocol; see `LeaseConnection.take`."""
        self._connection.take(frame)

    @property
    def owes_pages(self) -> bool:
        """Whether the worker waits for pages of a full store."""
        return self._connection.owes_pages

    def lease_owed(self) -> None:
        """See `LeaseGrantor.lease_owed`."""
        self._connection.lease_owed()

    def stop_leasing(self) -> None:
        """See `LeaseGrantor.stop_leasing`."""
        self._grantor.stop_leasing()

    @property
    def committed(self) -> BlockReader:
        """Reads the steps committed since it was last read."""
        assert self._reader is not None
        return self._reader

    def describe_pending(self) -> str:
        """Names the items that wait for a rate limiter; empty where none do."""
        return ""

    @property
    def has_pending(self) -> bool:
        """Whether items wait for a rate limiter."""
        return False

    def end_episodes(self) -> None:
        """Gives each open episode its final row where rows are kept; see `LeaseGrantor.end_episodes`."""

    def fail(self, failure: BaseException) -> None:
        """Ends the waits of learners for rows that only this worker could write."""

    def close(self) -> None:
        """Releases everything."""
        if self._reader is not None:  # Else it was never opened.
            self._reader.forget()
            self._connection.close()
            self._store.close()

    def disown(self) -> None:
        """Closes, in a forked child, the copy of a private store."""
        self._store.close()


class ReplayRows(WorkerRows):
    """Rows of a worker that go into a replay.

    Args:
        ready, send: see `WorkerRows`.
        replay: of this process.
        rules: which items the rows become.
        all_applied: called under the replay's lock when no item waits for a rate limiter any more.
        is_running: whether the worker collects freely: then the learner may remove items while it waits for a page.

    Raises:
        ValueError: a step of the environments does not fit into a page.
    """

    def __init__(
        self,
        ready: Ready,
        send: Send,
        replay: LocalReplay,
        rules: Sequence[ItemRule],
        all_applied: Callable[[], None],
        is_running: Callable[[], bool],
    ) -> None:
        super().__init__(ready, send)
        num_envs, page_rows = ready.num_envs, replay.store.arrays.page_rows
        if num_envs > page_rows:
            raise ValueError(
                f"replay_buffer: a step of the {num_envs} environments of the worker must fit into {page_rows} rows, "
                "1/32 of the capacity or 16 MiB; give the replay a larger capacity or the worker fewer environments"
            )
        self._replay = replay
        self._items = ReplayItems(replay, rules, all_applied)
        self._is_running = is_running

    def open(self, signature: dict[str, Any]) -> None:  # noqa: ARG002 - the replay's columns are written
        """See `WorkerRows.open`."""
        self._connect(self._items, lambda: self._is_running() and self._replay.items_may_leave())
        self._begin()

    def describe_pending(self) -> str:
        """See `WorkerRows.describe_pending`."""
        return self._items.describe_pending()

    @property
    def has_pending(self) -> bool:
        """See `WorkerRows.has_pending`."""
        return self._items.pending.count > 0

    def end_episodes(self) -> None:
        """See `WorkerRows.end_episodes`."""
        with suppress(Closed):  # The replay was closed first.
            self._grantor.end_episodes()

    def fail(self, failure: BaseException) -> None:
        """See `WorkerRows.fail`."""
        self._items.fail(failure)

    def close(self) -> None:
        """Releases everything; the replay stays open."""
        if self._reader is None:
            return
        try:
            self.end_episodes()
        finally:
            self._reader.forget()
            self._connection.close()

    def disown(self) -> None:
        """Does nothing: the replay follows forks itself."""
