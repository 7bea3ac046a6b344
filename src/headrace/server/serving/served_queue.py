"""One queue as the clients of a server use it: samples that wait for places, and requests that wait for batches."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable
from typing import Protocol, TypeAlias

import cython

from headrace.errors import Closed, DeadlineExceeded
from headrace.leases.selector import PeerSelector
from headrace.server.batch_queue import BatchQueue, core_of
from headrace.server.messages.sample_blocks import BlockLayout
from headrace.server.messages.samples import SampleLayout
from headrace.server.queue_core import QueueCore
from headrace.server.queue_info import BatchQueueInfo
from headrace.server.queue_places import Array

if not cython.compiled:
    from headrace.kernels.kinds import Bool


# The arrays of a batch, or its bytes.
Batch: TypeAlias = list[Array] | bytearray
# As text: gcc warns of what Cython makes of `| None` outside of functions.
Draw: TypeAlias = "Callable[[], tuple[Batch, BatchQueueInfo] | None]"


class WaitingSender(Protocol):
    """A client whose samples wait for places."""

    def store_waiting(self) -> bool:
        """Stores as many samples as there are places; returns whether none is left."""


class Taker:
    """A request for a batch.

    Args:
        timeout: in seconds; None: without limit.
        draw: takes a batch out of the queue, without waiting; see `QueueCore.sample_now`.
        deliver: takes the batch that `draw` returned, or the arrays of the tail.
        refuse: takes the error.
    """

    def __init__(
        self,
        timeout: float | None,
        draw: Draw,
        deliver: Callable[[Batch, BatchQueueInfo], None],
        refuse: Callable[[Exception], None],
    ) -> None:
        self._began = time.monotonic()
        self.deadline = None if timeout is None else self._began + max(timeout, 0.0)
        self.draw, self.deliver, self.refuse = draw, deliver, refuse

    def is_late(self, now: float) -> bool:
        """Whether its time is over."""
        return self.deadline is not None and self.deadline <= now

    def seconds(self, now: float) -> float:
        """Seconds for which it has waited."""
        return round(now - self._began, 3)


class ServedQueue:
    """A queue of a server. Used in the thread of the selector, which never waits for the queue.

    Args:
        queue: of this process.
        selector: of the server.

    Attributes:
        core: its inside.
        columns: paths of the leaves of a sample.
        layout: of its samples.
        block_layout: of blocks of its samples.
    """

    def __init__(self, queue: BatchQueue, selector: PeerSelector) -> None:
        self.core: QueueCore = core_of(queue)
        self.columns = tuple(queue.signature.columns)
        self.layout = SampleLayout(queue.signature)
        self.block_layout = BlockLayout(queue.signature, self.core.batch_size)
        self._selector = selector
        self._takers: deque[Taker] = deque()
        self._tail_takers: deque[Taker] = deque()
        self._senders: deque[WaitingSender] = deque()
        self._is_called = False
        self._alarm: float | None = None
        self.core.watch(self._call)

    def close(self) -> None:
        """Watches the queue no more."""
        self.core.unwatch(self._call)

    def _call(self) -> None:
        """Asks for a call of `serve`; any thread calls it, whenever the queue has changed."""
        if (self._takers or self._tail_takers or self._senders) and not self._is_called:
            self._is_called = True
            if not self._selector.is_current_thread:
                self._selector.call_soon(self.serve)

    def serve(self) -> None:
        """Does what changes of the queue allow; to be called after each change that this thread makes."""
        while self._is_called:
            self._is_called = False
            self._store_waiting()
            self._deliver()

    def announce_filled(self, is_told: Bool) -> None:
        """Wakes those who wait for batches that samples have filled, when the client knows that these are stored.

        Whoever is woken runs at once and may ask the client for more. If the client does not know by then, it lets that
        sample wait for others.

        Args:
            is_told: whether it knows already. False: its message leaves when the messages that came together are done.
        """
        if not self.core.has_filled:
            return
        if is_told:
            self.core.announce_filled()  # The caller serves the queue.
        else:
            self._selector.call_soon(self._announce_filled)

    def _announce_filled(self) -> None:
        self.core.announce_filled()
        self.serve()

    # ---- sending ---------------------------------------------------------------------------------------------------

    def wait_for_places(self, sender: WaitingSender) -> None:
        """Calls a sender when there are places."""
        self.core.count_blocked_send()
        self._senders.append(sender)
        self._store_waiting()  # A place may have become free before the sender was in the list.
        self.serve()

    def leave(self, sender: WaitingSender) -> None:
        """Calls a sender no more."""
        if sender in self._senders:
            self._senders.remove(sender)

    def _store_waiting(self) -> None:
        while self._senders:
            if not self._senders[0].store_waiting():
                return
            self._senders.popleft()

    # ---- taking ----------------------------------------------------------------------------------------------------

    def take_now(self, draw: Draw) -> tuple[Batch, BatchQueueInfo] | None:
        """Returns a batch; None if no batch is full, or if others wait for one.

        Args:
            draw: see `Taker`.

        Raises:
            Closed: see `BatchQueue.sample`.
        """
        if self._takers:
            return None
        found = draw()
        if self._is_called:
            self.serve()
        return found

    def take(self, taker: Taker) -> None:
        """Delivers a batch to a taker, now or when one is full."""
        self._takers.append(taker)
        self._deliver()
        self.serve()
        if taker in self._takers:
            self._end_late_takers()

    def take_tail(self, taker: Taker) -> None:
        """Delivers the tail, no arrays if there is none, as soon as senders in the queue's process have written it."""
        self._tail_takers.append(taker)
        self._deliver()
        self.serve()

    def leave_taker(self, taker: Taker) -> None:
        """Ends a wait for a batch or the tail."""
        for takers in (self._takers, self._tail_takers):
            if taker in takers:
                takers.remove(taker)

    def _deliver_tail(self) -> None:
        while self._tail_takers and self.core.is_tail_written:
            taker = self._tail_takers.popleft()
            try:
                arrays = self.core.tail()
            except ValueError as error:
                taker.refuse(error)
            else:
                taker.deliver(arrays or [], self.core.info())

    def _deliver(self) -> None:
        self._deliver_tail()
        while self._takers:
            try:
                found = self._takers[0].draw()
            except Closed as error:
                self._takers.popleft().refuse(error)
                continue
            if found is None:
                return
            self._takers.popleft().deliver(*found)

    def _end_late_takers(self) -> None:
        """Ends the waits whose time is over, and sets the alarm for the next."""
        now = time.monotonic()
        for taker in [taker for taker in self._takers if taker.is_late(now)]:
            self._takers.remove(taker)
            taker.refuse(DeadlineExceeded(self.core.empty_message(taker.seconds(now))))
        deadlines = [taker.deadline for taker in self._takers if taker.deadline is not None]
        if deadlines and (self._alarm is None or min(deadlines) < self._alarm):
            self._alarm = min(deadlines)
            self._selector.call_at(self._alarm, self._ring)

    def _ring(self) -> None:
        if self._alarm is not None and self._alarm <= time.monotonic():
            self._alarm = None
            self._end_late_takers()
