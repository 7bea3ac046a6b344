"""The rows of one worker, seen from the collector: pages are leased to it, and batches made of what it commits."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from typing import Protocol

from headrace.collectors.batch import Batch
from headrace.collectors.blocks import BlockReader, EpisodeNumbering
from headrace.collectors.messages import Ready, RowsAt
from headrace.errors import Closed
from headrace.leases.channel import Frame
from headrace.leases.connection import LeaseConnection
from headrace.leases.destination import Destination, StoreAlone
from headrace.leases.grantor import LeaseGrantor
from headrace.leases.messages import Message
from headrace.spec import Signature
from headrace.store.memory.arena import Arena
from headrace.store.store import Store

# A page holds a rollout. Two are leased for rows and three for final rows; the others are those of rollouts before,
# until these are copied out.
_PAGES = 16


def rollout_store(
    signature: Signature, steps: int, num_envs: int, make_arena: Callable[[int], Arena]
) -> Store:
    """A store whose pages hold one rollout each."""
    return Store(signature, make_arena=make_arena, page_rows=steps * num_envs, num_pages=_PAGES)


class Send(Protocol):
    """Sends messages to a worker in one piece; nothing happens where it is gone."""

    def __call__(self, *messages: Message, descriptors: tuple[int, ...] = ()) -> None:
        """Send them."""
        ...


class WorkerRows:
    """Leases pages to a worker, commits what it reports, and makes batches of it.

    Args:
        destination: takes the committed steps.
        ready: what the worker said of itself.
        numbering: of the episodes of its batches.
        send: sends messages to it.
        may_wait: see `LeaseGrantor`.
        before: the rows of the same worker so far, in another store; they are closed.
    """

    def __init__(
        self,
        destination: Destination,
        ready: Ready,
        numbering: EpisodeNumbering,
        send: Send,
        may_wait: Callable[[], bool] = lambda: False,
        before: WorkerRows | None = None,
    ) -> None:
        store = destination.store
        self._store = store
        self._send = send
        self._observed = ready.observed
        self._number: int = 0 if before is None else before._number + 1
        self._reader = BlockReader(store, ready.num_envs, ready.observed, numbering, worker_idx=0)
        self._connection = LeaseConnection(store, send)
        self._grantor = LeaseGrantor(
            destination,
            ready.num_envs,
            send,
            writer=self._number,
            may_wait=may_wait,
            committed=self._reader.add,
        )
        self._connection.grantors[self._number] = self._grantor
        self._is_own = isinstance(destination, StoreAlone)
        if before is not None:
            self._grantor.continue_from(before._grantor)
            before.close()

    def begin(self) -> None:
        """Tell the worker where to write, and lease the first pages to it.

        Raises:
            StoreFull: no page is free.
        """
        store = self._store
        rows = RowsAt(
            writer=self._number,
            signature=store.signature.to_json(),
            nbytes=store.arena.nbytes,
            num_pages=store.num_pages,
            page_rows=store.arrays.page_rows,
        )
        self._send(rows, descriptors=(store.share(),))
        self._grantor.open(self._observed)
        self._grantor.lease_owed()

    def take(self, frame: Frame) -> None:
        """Take in a message of the lease protocol; see `LeaseConnection.take`."""
        self._connection.take(frame)

    @property
    def owes_pages(self) -> bool:
        """See `LeaseGrantor.owes_pages`."""
        return self._connection.owes_pages

    def lease_owed(self) -> None:
        """See `LeaseGrantor.lease_owed`."""
        self._connection.lease_owed()

    def stop_leasing(self) -> None:
        """See `LeaseGrantor.stop_leasing`."""
        self._grantor.stop_leasing()

    def take_batch(self) -> Batch:
        """The steps committed since the last call as a batch."""
        return self._reader.take()

    def forget_batch(self) -> None:
        """The steps committed since the last call are not wanted as a batch."""
        self._reader.forget()

    def end_episodes(self) -> None:
        """Give each open episode its final row; see `LeaseGrantor.end_episodes`."""
        with suppress(Closed):  # The replay was closed first.
            self._grantor.end_episodes()

    def close(self) -> None:
        """Give everything back."""
        self._reader.forget()
        self._connection.close()
        if self._is_own:
            self._store.close()

    def disown(self) -> None:
        """In a forked child: let go of its copy of a private store."""
        self._store.close()
