"""The rows of one worker, seen from the collector: pages are leased to it, and batches made of what it commits."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from typing import Any, Protocol

from headrace.collectors.batches.block_reader import BlockReader
from headrace.collectors.batches.lent_pages import LentPages
from headrace.collectors.batches.rollout_store import rollout_store
from headrace.collectors.handle.forwarded_rows import ForwardedRows
from headrace.collectors.messages import Ready, RowsAt
from headrace.errors import Closed
from headrace.leases.connection import LeaseConnection
from headrace.leases.destination import Destination, ReplayItems
from headrace.leases.frames import Frame
from headrace.leases.grantor import LeaseGrantor
from headrace.leases.messages import Message
from headrace.spec import Signature
from headrace.store.memory.arena import Arena
from headrace.store.store import Store


class Send(Protocol):
    """Sends messages to a worker in one piece; does nothing if the worker is gone."""

    def __call__(self, *messages: Message, descriptors: tuple[int, ...] = ()) -> None:
        """Sends them."""
        ...


def shared_store(ready: Ready, signature: Signature) -> Store:
    """Returns a store for the rollouts of a worker, in memory that it can map."""
    return rollout_store(signature, ready.steps, ready.num_envs, Arena.shared)


class WorkerRows:
    """Leases pages to a worker, commits what it reports, and makes batches of it.

    Args:
        ready: describes the worker.
        send: sends messages to it.
        items: takes the rows into a replay; None: they are in a store of their own, until they are copied into batches.
            `ForwardedRows` do both.
        may_wait: whether the worker is to wait for a page that is not free; else that is `StoreFull`.
    """

    def __init__(
        self,
        ready: Ready,
        send: Send,
        items: ReplayItems | ForwardedRows | None = None,
        may_wait: Callable[[], bool] = lambda: False,
    ) -> None:
        self._ready = ready
        self._send = send
        self._items = items
        self._may_wait = may_wait
        self._writer = -1
        self._reader: BlockReader | None = None

    def open(self, signature: dict[str, Any]) -> None:
        """Tells the worker where to write steps of these columns from now on, and leases the first pages to it.

        Args:
            signature: of one step, as JSON. A replay has its own.

        Raises:
            StoreFull: no page is free.
        """
        before = None if self._reader is None else (self._grantor, self._connection, self._store)
        self._connect(self._items or Destination(self._new_store(Signature.from_json(signature))))
        if before is not None:
            grantor, connection, store = before
            self._grantor.continue_episodes(grantor.lane_steps)
            connection.close()
            store.close()
        rows = RowsAt.of(self._store, self._writer, begins_pages=self._owns_store)
        self._send(rows, descriptors=(self._store.share(),))
        self._grantor.open(self._ready.observed)
        self._grantor.lease_owed()

    def _new_store(self, signature: Signature) -> Store:
        return shared_store(self._ready, signature)

    @property
    def _owns_store(self) -> bool:
        return not isinstance(self._items, ReplayItems)

    def reopen(self, signature: dict[str, Any]) -> None:
        """Does as `open` for a worker that goes on from a loaded state: its episodes so far end here."""
        self._close_connection()
        if self._items is None:
            self.disown()
        self._reader = None
        self.open(signature)

    def _connect(self, destination: Destination) -> None:
        """Makes the grantor of the next writer."""
        if self._reader is not None:
            self._reader.forget()
        num_envs = self._ready.num_envs
        self._writer += 1
        self._store = destination.store
        lender = LentPages(self._store) if self._owns_store else None
        reader = BlockReader(self._store, num_envs, self._ready.observed, lender)
        self._connection = LeaseConnection(self._store, self._send)
        self._grantor = LeaseGrantor(
            destination,
            num_envs,
            self._send,
            writer=self._writer,
            may_wait=self._may_wait,
            committed=reader.add,
            left=reader.leave,
        )
        self._connection.grantors[self._writer] = self._grantor
        self._reader = (
            reader  # The last one: the thread that listens may look meanwhile whether rows are open.
        )

    def take(self, frame: Frame) -> None:
        """Takes in a message of the lease protocol; see `LeaseConnection.take`."""
        self._connection.take(frame)

    @property
    def owes_pages(self) -> bool:
        """Whether the worker waits for pages of a full store; False before the rows are opened."""
        return self._reader is not None and self._connection.owes_pages

    def lease_owed(self) -> None:
        """See `LeaseGrantor.lease_owed`."""
        self._connection.lease_owed()

    def stop_leasing(self) -> None:
        """See `LeaseGrantor.stop_leasing`."""
        if self._reader is not None:  # Else they could not be opened, and that error is on its way.
            self._grantor.stop_leasing()
        if isinstance(self._items, ForwardedRows):
            self._items.hurry()

    @property
    def committed(self) -> BlockReader:
        """Reads the steps committed since it was last read."""
        assert self._reader is not None
        return self._reader

    @property
    def has_pending(self) -> bool:
        """Whether items wait for a rate limiter, or rows are on their way to a replay."""
        return self._items is not None and self._items.has_pending

    @property
    def is_forwarding(self) -> bool:
        """Whether rows are on their way to a replay that is elsewhere."""
        return isinstance(self._items, ForwardedRows) and self._items.is_forwarding

    def describe_pending(self) -> str:
        """Names what `has_pending` tells of; empty where nothing waits."""
        return "" if self._items is None else self._items.describe_pending()

    def end_episodes(self) -> None:
        """Gives each open episode its final row in the replay; see `LeaseGrantor.end_episodes`."""
        if self._items is not None:
            with suppress(Closed):  # The replay was closed first.
                self._grantor.end_episodes()

    def fail(self, failure: BaseException) -> None:
        """Ends the waits of learners for rows that only this worker could write."""
        if self._items is not None:
            self._items.fail(failure)

    def close(self) -> None:
        """Releases everything; a replay stays open.

        Raises:
            StoreFull: no page is free for the final rows, or a replay elsewhere has no room; all is released.
            DeadlineExceeded: a replay elsewhere did not take the last rows in time; all is released.
        """
        try:
            self._close_connection()
        finally:
            try:
                if isinstance(self._items, ForwardedRows):
                    self._items.finish()
            finally:
                self.disown()

    def _close_connection(self) -> None:
        """Ends the episodes, and the leases of the present writer."""
        if self._reader is None:  # It was never opened.
            return
        try:
            self.end_episodes()
        finally:
            self._reader.forget()
            self._connection.close()

    def disown(self) -> None:
        """Closes this process's copy of a store of its own. A replay follows forks itself."""
        if self._owns_store and self._reader is not None:
            self._store.close()
