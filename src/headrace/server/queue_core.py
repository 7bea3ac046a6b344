"""A queue with both its halves: senders fill batches, consumers wait for full ones."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import cython

from headrace.clock import Clock
from headrace.errors import Closed
from headrace.kernels.row_copy import joined
from headrace.server.batch_buffers import BatchBuffer, Lease
from headrace.server.queue_info import BatchQueueInfo
from headrace.server.queue_places import Array, QueuePlaces
from headrace.server.sender_sessions import SenderSessions
from headrace.spec import ArraySpec
from headrace.waits import Wait

if not cython.compiled:
    from headrace.kernels.kinds import Bool, Int


class QueueCore(QueuePlaces):
    """The inside of a `BatchQueue`, for the queue itself and for the server that shares it. Thread-safe.

    Args:
        specs, batch_size, slots, clock: see `QueuePlaces`.

    Attributes:
        sessions: of the clients that send samples.
    """

    def __init__(self, specs: Sequence[ArraySpec], batch_size: int, slots: int, clock: Clock) -> None:
        super().__init__(specs, batch_size, slots, clock)
        self._lent: Lease | None = None
        self._batches = 0
        # The partial batch that `close` found, and its places taken.
        self._tail: tuple[BatchBuffer, int] | None = None
        self._delivered = 0
        self._senders = 0
        self.sessions = SenderSessions(clock)
        self._buffers_replaced = 0

    # ---- batches -----------------------------------------------------------------------------------------------------

    def sample(
        self, timeout: float | None, build: Callable[[list[Array]], Any], *, copy: bool
    ) -> tuple[Any, BatchQueueInfo]:
        """Waits for the next full batch.

        Args:
            timeout: in seconds; None waits without limit.
            build: makes the batch of its arrays, one per leaf.
            copy: see `BatchQueue.sample`.

        Raises:
            DeadlineExceeded, Closed: see `BatchQueue.sample`.
        """
        with self._lock:
            return self._take(self._wait_for_batch(timeout), build, copy)

    def sample_now(self) -> tuple[list[Array], BatchQueueInfo] | None:
        """Returns the arrays of the next full batch, which belong to the caller; None if no batch is full.

        Raises:
            Closed: see `BatchQueue.sample`.
        """
        with self._lock:
            head = self._full_batch()
            return None if head is None else self._take(head, list, True)

    def sample_bytes_now(self) -> tuple[bytearray, BatchQueueInfo] | None:
        """Returns the next full batch as `sample_now` does, its leaves one behind the other."""
        if cython.compiled:
            self._lock.take()
            try:
                return self._bytes_now()
            finally:
                self._lock.give()
        else:
            with self._lock:
                return self._bytes_now()

    def _bytes_now(self) -> tuple[bytearray, BatchQueueInfo] | None:
        """Does `sample_bytes_now` with the lock held."""
        head: BatchBuffer | None = self._full_batch()
        if head is None:
            return None
        if not head.is_small:
            arrays, info = self._take(head, list, True)
            return joined(arrays), info
        data = joined(head.columns)
        return data, self._taken(head)

    def _wait_for_batch(self, timeout: float | None) -> BatchBuffer:
        """Waits, with the lock held, until the first pending batch is full."""
        wait: Wait | None = None
        while (head := self._full_batch()) is None:
            wait = wait or Wait(self._clock, timeout, self.empty_message)
            wait.turn(self._batch_full)
        return head

    def _full_batch(self) -> BatchBuffer | None:
        """Returns the first pending batch if it is full."""
        # In each turn of a wait: what another consumer was lent meanwhile must not keep all the memory from senders.
        if self._lent is not None:
            self._give_back(self._lent)
        if self._pending and len(self._pending[0].done) == self.batch_size:
            return self._pending[0]
        if self._closed and not self._pending:
            raise Closed("sample: the queue is closed and every full batch was taken; tail() has the rest")
        return None

    def _take(
        self, head: BatchBuffer, build: Callable[[list[Array]], Any], copy: Bool
    ) -> tuple[Any, BatchQueueInfo]:
        if copy and head.is_small:
            return self._take_copied(head, build)
        # The batch is taken after every call that can fail, so an error or Ctrl-C loses no batch.
        arrays = head.writable() if copy else head.read_only()
        lease = self._buffers.lend(head, arrays)
        batch = build(arrays)
        if copy:
            self._buffers.provide(self._free + 1)
        self._pending.popleft()
        self._delivered += self.batch_size
        info = self._info(self._batches)
        self._batches += 1
        if copy:
            # The caller keeps the memory that the senders filled, which is cheaper than copying it.
            self._buffers.abandon(lease)
            self._free_slot()
        else:
            self._lent = lease
        return batch, info

    def _take_copied(
        self, head: BatchBuffer, build: Callable[[list[Array]], Any]
    ) -> tuple[Any, BatchQueueInfo]:
        batch = build([column.copy() for column in head.columns])
        return batch, self._taken(head)

    def _taken(self, head: BatchBuffer) -> BatchQueueInfo:
        """Removes a batch that was copied; returns the state with it."""
        self._pending.popleft()
        self._delivered += self.batch_size
        info = self._info(self._batches)
        self._batches += 1
        self._buffers.put_back(head)
        self._free_slot()
        return info

    def empty_message(self, seconds: float) -> str:
        """The message of a `sample` whose time is over."""
        return (
            f"sample: no batch of {self.batch_size} was full within {seconds:.3g} s; "
            f"{self._info(self._batches).size} samples wait"
        )

    def _give_back(self, lease: Lease) -> None:
        self._buffers.provide(self._free + (not lease.over))
        self._lent = None
        self._buffers_replaced += not lease.over
        self._buffers.abandon(lease)
        self._free_slot()

    # ---- the end -----------------------------------------------------------------------------------------------------

    @property
    def is_closed(self) -> bool:
        """Whether it is closed for senders."""
        return self._closed

    def close(self) -> None:
        """See `BatchQueue.close`."""
        with self._lock:
            if self._closed:
                return
            self._copy_adopted()
            self._closed = True
            buffer, self._open = self._open, self._no_batch
            rows = self.batch_size - buffer.close()
            if rows < self.batch_size:
                self._pending.pop()
                if rows:
                    self._tail = buffer, rows
            self._place_free.notify_all()
            self._announce()

    @property
    def is_tail_written(self) -> bool:
        """Whether `tail` returns or raises at once: no sender that had its place before `close` is still copying."""
        with self._lock:
            return self._tail is None or len(self._tail[0].done) >= self._tail[1]

    def tail(self) -> list[Array] | None:
        """Returns, once, the samples that filled no batch, arrays `[m, ...]`; see `BatchQueue.tail`."""
        with self._lock:
            if not self._closed:
                raise ValueError("tail: expected a closed queue; call close() first")
            wait = Wait(self._clock, None, lambda _: "tail: samples that were sent before close are copied")
            while not self.is_tail_written:
                wait.turn(self._batch_full)
            if self._tail is None:
                return None
            buffer, rows = self._tail
            arrays = [column[:rows].copy() for column in buffer.columns]
            self._tail = None
            self._delivered += rows
            return arrays

    # ---- statistics --------------------------------------------------------------------------------------------------

    def info(self) -> BatchQueueInfo:
        """Returns the state; its `index` is that of the next batch."""
        with self._lock:
            return self._info(self._batches)

    def count_senders(self, change: int) -> None:
        """Adds to the number of open connections that `info.senders` shows. It is informative, not a limit."""
        with self._lock:
            self._senders += change

    def _info(self, index: Int) -> BatchQueueInfo:
        size: Int = 0
        for buffer in self._pending:
            size += len(buffer.done)
        if self._tail is not None:
            size += len(self._tail[0].done)
        return BatchQueueInfo(
            index,
            size,
            self._delivered + size,
            self._delivered,
            self._blocked_sends,
            self._senders,
            self._buffers_replaced,
        )
