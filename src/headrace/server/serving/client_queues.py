"""The queues of a server as one client uses them."""

from __future__ import annotations

import mmap
import os
import sys
from collections.abc import Mapping, Sequence
from typing import Any

import cython
import numpy as np

from headrace.checks import check_seconds
from headrace.errors import Closed
from headrace.kernels.shared_count import SharedCount
from headrace.leases.checking import LeaseError
from headrace.leases.frames import Frame
from headrace.server.messages.answers import (
    Done,
    Failed,
    QueueBatch,
    QueueRecord,
    SenderOpened,
    SmallQueueBatch,
)
from headrace.server.messages.failures import failure_of
from headrace.server.messages.requests import (
    ConfirmSamples,
    GetQueueStatistics,
    OfQueue,
    OpenSender,
    SendSamples,
    TakeBatch,
    TakeTail,
)
from headrace.server.messages.samples import COUNT_NBYTES
from headrace.server.queue_info import BatchQueueInfo
from headrace.server.queue_places import Array
from headrace.server.serving.batches.batch_sender import BatchSender
from headrace.server.serving.client_blocks import ClientBlocks
from headrace.server.serving.queue_sender import QueueSender, SharedSamples
from headrace.server.serving.requests.request_numbers import check_unused
from headrace.server.serving.served_queue import Batch, Draw, ServedQueue, Taker
from headrace.system import is_sealed

if cython.compiled:
    from cython.cimports.headrace.kernels.instances import is_of
else:
    from headrace.kernels.instances import is_of
    from headrace.kernels.kinds import Int

_SESSION_NBYTES = 16
_MOST_WAITING = 1024
_MOST_SAMPLES = 1 << 62
# To describe and place the arrays of a smaller batch costs more than to copy them into the message.
_MOST_SMALL_NBYTES = 1 << 12


class ClientQueues:
    """Answers the requests of one client to queues. Used in the thread of the selector.

    Args:
        queues: of the server, by name.
        sender: of answers.
        most_nbytes: of a sample or of a batch.
        in_place: whether the client may share memory with the server.
    """

    def __init__(
        self,
        queues: Mapping[str, ServedQueue],
        sender: BatchSender,
        most_nbytes: int,
        *,
        in_place: bool,
    ) -> None:
        self._queues = queues
        self._most_nbytes = most_nbytes
        self._sender = sender
        self._in_place = in_place
        # Large batches that are compressed may be small, and NumPy's numbers are those of a message here.
        may_be_small = sender.packer is None and sys.byteorder == "little"
        self._most_small_nbytes = _MOST_SMALL_NBYTES if may_be_small else -1
        self._senders: dict[str, QueueSender] = {}
        self._takers: dict[int, tuple[ServedQueue, Taker]] = {}

    def take(self, request: Any, frame: Frame) -> None:
        """Answers a request, now or later.

        Args:
            request: an `OfQueue`.
            frame: that it came in.

        Raises:
            LeaseError: it breaks the protocol.
            Exception: what the call raises, for the client.
        """
        served: ServedQueue | None = self._queues.get(request.queue)
        if served is None:
            raise KeyError(f"no queue {request.queue!r}; there are {', '.join(map(repr, self._queues))}")
        if is_of(request, SendSamples):
            self._opened(request).take(request, frame.payload)
        elif is_of(request, TakeBatch):
            self._take_batch(request, served)
        elif isinstance(request, ConfirmSamples):
            self._opened(request).confirm(request)
        elif isinstance(request, OpenSender):
            self._open(request, served, frame.descriptors)
        elif isinstance(request, TakeTail):
            self._check_nbytes("a batch", served.core.batch_nbytes)
            served.take_tail(self._taker(request.number, served, None))
        elif isinstance(request, GetQueueStatistics):
            self._sender.send(QueueRecord(number=request.number, record=served.core.info()))

    @property
    def waiting(self) -> int:
        """Number of requests that wait for batches."""
        return len(self._takers)

    # ---- samples ---------------------------------------------------------------------------------------------------

    def _opened(self, request: OfQueue) -> QueueSender:
        sender = self._senders.get(request.queue)
        if sender is None:
            raise LeaseError("expected OpenSender before samples")
        return sender

    def _open(self, request: OpenSender, served: ServedQueue, descriptors: Sequence[int]) -> None:
        if len(request.session) != _SESSION_NBYTES:
            raise LeaseError(f"session: expected {_SESSION_NBYTES} bytes, got {len(request.session)}")
        if not 0 <= request.stored < _MOST_SAMPLES:
            raise LeaseError(f"stored: expected the number of a sample, got {request.stored}")
        most = served.layout.most_places
        if not 1 <= request.places <= most:
            raise LeaseError(f"places: expected 1 to {most}, got {request.places}")
        self._check_nbytes("a sample", served.layout.nbytes)
        earlier = self._senders.pop(request.queue, None)
        if earlier is not None:
            earlier.close()
        shared = self._mapped(served, request.places, descriptors) if descriptors else None
        sender = QueueSender(served, request.session, request.places, shared, self._sender.send)
        self._senders[request.queue] = sender
        self._sender.send(
            SenderOpened(
                number=request.number, stored=sender.open(request.stored), most_nbytes=self._most_nbytes
            )
        )

    def _check_nbytes(self, what: str, nbytes: Int) -> None:
        if nbytes > self._most_nbytes:
            raise ValueError(
                f"{what} of this queue has {nbytes} bytes, more than the {self._most_nbytes} of a message; give the "
                "server a larger payload_nbytes in its limits, or the queue smaller batches"
            )

    def _mapped(self, served: ServedQueue, places: int, descriptors: Sequence[int]) -> SharedSamples:
        if not self._in_place:
            raise LeaseError("expected memory files over a Unix socket only")
        layout, blocks = served.layout, served.block_layout
        descriptor, *others = descriptors
        count_offset = layout.count_offset(places)
        _check_file(descriptor, count_offset + COUNT_NBYTES)
        if len(others) > bool(blocks.count):
            raise LeaseError(
                f"expected at most {1 + bool(blocks.count)} memory files, got {len(descriptors)}"
            )
        for other in others:
            _check_file(other, blocks.nbytes)
        samples = mmap.mmap(descriptor, layout.nbytes * places, prot=mmap.PROT_READ)
        count = mmap.mmap(descriptor, COUNT_NBYTES, offset=count_offset)
        return SharedSamples(
            layout.columns(samples),
            SharedCount(np.frombuffer(count, np.int64)),
            ClientBlocks(blocks, others[0]) if others else None,
        )

    # ---- batches ---------------------------------------------------------------------------------------------------

    def _take_batch(self, request: TakeBatch, served: ServedQueue) -> None:
        self._check_nbytes("a batch", served.core.batch_nbytes)
        found = served.take_now(self._draw_of(served))
        if found is not None:
            batch, info = found
            self._deliver(request.number, served, batch, info)
            return
        served.take(self._taker(request.number, served, check_seconds(request.timeout)))

    def _taker(self, number: int, served: ServedQueue, timeout: float | None) -> Taker:
        """Returns the taker of a request, which waits from here on."""

        def deliver(batch: Batch, info: BatchQueueInfo) -> None:
            self._takers.pop(number, None)
            self._deliver(number, served, batch, info)

        def refuse(error: Exception) -> None:
            self._takers.pop(number, None)
            self._sender.send(Failed(number=number, failure=failure_of(error)))

        check_unused((number,), self._takers)
        if len(self._takers) >= _MOST_WAITING:
            raise RuntimeError(
                f"expected at most {_MOST_WAITING} waiting requests of one client for batches, got one more"
            )
        taker = Taker(timeout, self._draw_of(served), deliver, refuse)
        self._takers[number] = served, taker
        return taker

    def _draw_of(self, served: ServedQueue) -> Draw:
        """Returns how batches of a queue are taken: those that lie in their messages as bytes, others as arrays."""
        core = served.core
        return core.sample_bytes_now if core.batch_nbytes <= self._most_small_nbytes else core.sample_now

    def _deliver(self, number: Int, served: ServedQueue, batch: Batch, info: BatchQueueInfo) -> None:
        """Answers with a batch or the tail; no arrays: there is none."""
        try:
            if isinstance(batch, bytearray):
                rows = served.core.batch_size
                self._sender.send(SmallQueueBatch(number=number, rows=rows, data=batch, info=info))
            elif batch:
                self._send_arrays(number, served, batch, info)
            else:
                self._sender.send(Done(number=number))
        except Exception as error:
            self._sender.send(Failed(number=number, failure=failure_of(error)))

    def _send_arrays(
        self, number: int, served: ServedQueue, arrays: list[Array], info: BatchQueueInfo
    ) -> None:
        copies = self._sender.placed_copies(dict(zip(served.columns, arrays, strict=True)))
        self._sender.send_batch(QueueBatch(number=number, arrays=copies.places, info=info), copies)

    def cancel(self, number: int) -> None:
        """Ends the wait of a request without an answer."""
        served, taker = self._takers.pop(number, (None, None))
        if served is not None and taker is not None:
            served.leave_taker(taker)

    def refuse_takers(self, reason: str) -> None:
        """Ends all waits for batches with `Closed`."""
        for served, taker in tuple(self._takers.values()):
            served.leave_taker(taker)
            taker.refuse(Closed(reason))

    # ---- ending ----------------------------------------------------------------------------------------------------

    def close(self) -> None:
        """Ends all waits, and stores no more samples. A second call does nothing."""
        for number in tuple(self._takers):
            self.cancel(number)
        while self._senders:
            self._senders.popitem()[1].close()


def _check_file(descriptor: int, nbytes: int) -> None:
    if not is_sealed(descriptor) or os.fstat(descriptor).st_size < nbytes:
        raise LeaseError(f"expected a sealed memory file of {nbytes} bytes")
