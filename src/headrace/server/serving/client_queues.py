"""The queues of a server as one client uses them."""

from __future__ import annotations

import mmap
import os
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from headrace.checks import check_seconds
from headrace.errors import Closed
from headrace.kernels.shared_count import SharedCount
from headrace.leases.checking import LeaseError
from headrace.leases.frames import Frame, Payload
from headrace.server.adopted_batch import BlockRows
from headrace.server.messages.answers import (
    Done,
    Failed,
    QueueBatch,
    QueueRecord,
    SamplesStored,
    SenderOpened,
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
from headrace.server.queue_core import Array, BatchQueueInfo
from headrace.server.serving.batches.batch_sender import BatchSender
from headrace.server.serving.client_blocks import ClientBlocks
from headrace.server.serving.served_queue import ServedQueue, Taker
from headrace.system import is_sealed

_SESSION_NBYTES = 16
_MOST_WAITING = 1024
_MOST_SAMPLES = 1 << 62


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
        self._senders: dict[str, _Sender] = {}
        self._takers: dict[int, tuple[ServedQueue, Taker]] = {}

    def take(self, request: OfQueue, frame: Frame) -> None:
        """Answers a request, now or later.

        Raises:
            LeaseError: it breaks the protocol.
            Exception: what the call raises, for the client.
        """
        served = self._queues.get(request.queue)
        if served is None:
            raise KeyError(f"no queue {request.queue!r}; there are {', '.join(map(repr, self._queues))}")
        match request:
            case SendSamples():
                sender = self._senders.get(request.queue)
                if sender is None:
                    raise LeaseError("expected OpenSender before samples")
                sender.take(request, frame.payload)
            case ConfirmSamples():
                sender = self._senders.get(request.queue)
                if sender is None:
                    raise LeaseError("expected OpenSender before samples")
                sender.confirm(request)
            case OpenSender():
                self._open(request, served, frame.descriptors)
            case TakeBatch():
                self._take_batch(request, served)
            case TakeTail():
                served.take_tail(self._taker(request.number, served, None))
            case GetQueueStatistics():
                self._sender.send(QueueRecord(number=request.number, record=served.core.info()))

    @property
    def waiting(self) -> int:
        """Number of requests that wait for batches."""
        return len(self._takers)

    # ---- samples ---------------------------------------------------------------------------------------------------

    def _open(self, request: OpenSender, served: ServedQueue, descriptors: Sequence[int]) -> None:
        if len(request.session) != _SESSION_NBYTES:
            raise LeaseError(f"session: expected {_SESSION_NBYTES} bytes, got {len(request.session)}")
        if not 0 <= request.stored < _MOST_SAMPLES:
            raise LeaseError(f"stored: expected the number of a sample, got {request.stored}")
        self._check_nbytes("a sample", served.layout.nbytes)
        earlier = self._senders.pop(request.queue, None)
        if earlier is not None:
            earlier.close()
        shared = self._mapped(served, descriptors) if descriptors else None
        sender = _Sender(served, request.session, shared, self._sender.send)
        self._senders[request.queue] = sender
        self._sender.send(
            SenderOpened(
                number=request.number, stored=sender.open(request.stored), most_nbytes=self._most_nbytes
            )
        )

    def _check_nbytes(self, what: str, nbytes: int) -> None:
        if nbytes > self._most_nbytes:
            raise ValueError(
                f"{what} of this queue has {nbytes} bytes, more than the {self._most_nbytes} of a message; give the "
                "server a larger payload_nbytes in its limits, or the queue smaller batches"
            )

    def _mapped(self, served: ServedQueue, descriptors: Sequence[int]) -> _Shared:
        if not self._in_place:
            raise LeaseError("expected memory files over a Unix socket only")
        layout, blocks = served.layout, served.block_layout
        descriptor, *others = descriptors
        _check_file(descriptor, layout.count_offset + COUNT_NBYTES)
        if len(others) > bool(blocks.count):
            raise LeaseError(
                f"expected at most {1 + bool(blocks.count)} memory files, got {len(descriptors)}"
            )
        for other in others:
            _check_file(other, blocks.nbytes)
        samples = mmap.mmap(descriptor, layout.nbytes * layout.places, prot=mmap.PROT_READ)
        count = mmap.mmap(descriptor, COUNT_NBYTES, offset=layout.count_offset)
        return _Shared(
            layout.columns(samples),
            SharedCount(np.frombuffer(count, np.int64)),
            ClientBlocks(blocks, others[0]) if others else None,
        )

    # ---- batches ---------------------------------------------------------------------------------------------------

    def _take_batch(self, request: TakeBatch, served: ServedQueue) -> None:
        served.take(self._taker(request.number, served, check_seconds(request.timeout)))

    def _taker(self, number: int, served: ServedQueue, timeout: float | None) -> Taker:
        """Returns the taker of a request, which waits from here on."""

        def deliver(arrays: list[Array], info: BatchQueueInfo) -> None:
            self._takers.pop(number, None)
            if not arrays:
                self._sender.send(Done(number=number))
                return
            try:
                copies = self._sender.placed_copies(dict(zip(served.columns, arrays, strict=True)))
                self._sender.send_batch(QueueBatch(number=number, arrays=copies.places, info=info), copies)
            except Exception as error:
                self._sender.send(Failed(number=number, failure=failure_of(error)))

        def refuse(error: Exception) -> None:
            self._takers.pop(number, None)
            self._sender.send(Failed(number=number, failure=failure_of(error)))

        self._check_nbytes("a batch", served.core.batch_nbytes)
        if len(self._takers) >= _MOST_WAITING:
            raise RuntimeError(
                f"expected at most {_MOST_WAITING} waiting requests of one client for batches, got one more"
            )
        taker = Taker(timeout, deliver, refuse)
        self._takers[number] = served, taker
        return taker

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


class _Waiting(NamedTuple):
    """Samples that wait for places.

    Attributes:
        number: of the request.
        last: number of the last of these samples.
        columns: arrays `[n, ...]`, one per leaf.
        rows: of the block in which they lie; None: they lie in no block.
    """

    number: int
    last: int
    columns: list[NDArray[Any]]
    rows: BlockRows | None

    def after(self, count: int) -> _Waiting:
        """Returns the same without the first `count` samples."""
        rows = None if self.rows is None else self.rows._replace(first=self.rows.first + count)
        return _Waiting(self.number, self.last, [column[count:] for column in self.columns], rows)


class _Shared(NamedTuple):
    """Memory of a client, in which its samples lie.

    Attributes:
        columns: arrays `[places, ...]`, one per leaf; read only.
        stored: number of the last sample that is in the queue, for the client. The server never reads it.
        blocks: of the same client, for large samples; None: it has none.
    """

    columns: list[NDArray[Any]]
    stored: SharedCount
    blocks: ClientBlocks | None


class _Sender:
    """The samples of one client for one queue."""

    def __init__(
        self, served: ServedQueue, session: bytes, shared: _Shared | None, send: Callable[..., None]
    ) -> None:
        self._served = served
        self._session = session
        self._send = send
        self._shared = shared
        # In shared memory: the sample whose confirmation the client waits for, and the request's number.
        self._awaited: ConfirmSamples | None = None
        self._waiting: deque[_Waiting] = deque()
        self._received = self._stored = 0
        # Places of the queue that were taken when samples were stored last, and how many in a row had these samples.
        self._places_taken = self._stored_alone = 0
        self._is_closed = False

    def open(self, known: int) -> int:
        """Returns the number of the last sample that is not to be stored again; see `SenderSessions.begin`."""
        self._served.core.count_senders(1)
        self._received = self._served.core.sessions.begin(self._session, self, known)
        if self._shared is not None:
            self._shared.stored.set(self._received)
        self._stored = self._received
        return self._received

    def take(self, request: SendSamples, payload: Payload) -> None:
        """Stores samples, or keeps them until there are places.

        Raises:
            LeaseError: they break the protocol.
        """
        if self._is_closed:
            raise LeaseError("the session goes on over another connection")
        first, count, places = request.first, request.count, self._served.layout.places
        in_flight = first + count - 1 - self._received
        if self._waiting:
            in_flight += sum(len(each.columns[0]) for each in self._waiting)
        if not (1 <= first <= self._received + 1 and count >= 1 and in_flight <= places):
            raise LeaseError(
                f"expected sample {self._received + 1} and at most {places} in flight, got {first}, {count}"
            )
        known = self._received + 1 - first
        self._received = max(self._received, first + count - 1)
        waiting = _Waiting(request.number, self._received, *self._located(request, payload))
        self._waiting.append(
            waiting.after(known) if known else waiting
        )  # Sent twice: a call was interrupted.
        if len(self._waiting) == 1 and not self.store_waiting():
            self._served.wait_for_places(self)
        self._served.serve()

    def _located(self, request: SendSamples, payload: Payload) -> tuple[list[NDArray[Any]], BlockRows | None]:
        """Returns the leaves of samples, with the values that the queue may store, and their rows in a block."""
        layout, first, count = self._served.layout, request.first, request.count
        if request.block >= 0:
            blocks = None if self._shared is None else self._shared.blocks
            if blocks is None or payload:
                raise LeaseError("expected samples in a block only of a client that shares blocks")
            rows = BlockRows(blocks, request.block, request.row)
            return layout.checked(blocks.rows(request.block, request.row, count)), rows
        return self._columns(first, count, payload), None

    def _columns(self, first: int, count: int, payload: Payload) -> list[NDArray[Any]]:
        layout = self._served.layout
        if self._shared is None:
            if len(payload) != count * layout.nbytes:
                raise LeaseError(f"payload: expected {count} samples, got {len(payload)} bytes")
            return layout.checked(layout.columns(payload))
        if payload:
            raise LeaseError("expected samples in shared memory, got a payload")
        shared = self._shared.columns
        begin = (first - 1) % layout.places
        end = begin + count
        if end <= layout.places:
            columns = [column[begin:end] for column in shared]
        else:
            columns = [np.concatenate([column[begin:], column[: end - layout.places]]) for column in shared]
        return layout.checked(columns)

    def store_waiting(self) -> bool:
        """See `WaitingSender.store_waiting`."""
        queue = self._served.core
        while self._waiting:
            number, last, columns, rows = self._waiting[0]
            try:
                stored = queue.store_rows(columns, rows)
            except Closed as error:
                self._waiting.popleft()
                self._send(Failed(number=number, failure=failure_of(error)))
                continue
            left = len(columns[0]) - stored
            if stored:
                self._note_batches(last - left, stored)
                self._note_stored(number, last - left)
            if left:
                self._waiting[0] = self._waiting[0].after(stored)
                return False
            self._waiting.popleft()
        return True

    def _note_batches(self, last: int, stored: int) -> None:
        """Tells the client which sample would begin a batch, if the last batch had samples of this client alone.

        Args:
            last: number of the last sample that is stored.
            stored: number of the samples just stored.
        """
        if self._shared is None or self._shared.blocks is None:
            return
        core = self._served.core
        taken = core.places_taken
        is_alone = taken == self._places_taken + stored
        self._places_taken, self._stored_alone = taken, self._stored_alone + stored if is_alone else 0
        is_known = self._stored_alone >= core.batch_size
        self._shared.blocks.first_of_batch.set(last + 1 + -taken % core.batch_size if is_known else 0)

    def _note_stored(self, number: int, last: int) -> None:
        """Notes that samples are stored, and tells the client."""
        self._stored = last
        if self._shared is None:
            self._send(SamplesStored(number=number, stored=last))
            return
        self._shared.stored.set(last)
        if self._awaited is not None and self._awaited.last <= last:
            self._awaited = None
            self._send(SamplesStored(number=number, stored=last))

    def confirm(self, request: ConfirmSamples) -> None:
        """Tells the client when a sample is stored.

        Raises:
            LeaseError: the sample was not sent.
        """
        if self._is_closed:
            raise LeaseError("the session goes on over another connection")
        if request.last > self._received:
            raise LeaseError(
                f"expected at most sample {self._received}, which was the last, got {request.last}"
            )
        if request.last <= self._stored:
            self._send(SamplesStored(number=request.number, stored=self._stored))
        elif self._awaited is None or request.last < self._awaited.last:
            self._awaited = request

    def close(self) -> None:
        """Forgets the samples that wait. A second call does nothing."""
        if self._is_closed:
            return
        self._is_closed = True
        self._waiting.clear()
        self._served.leave(self)
        self._served.core.sessions.end(self._session, self, self._stored)
        self._served.core.count_senders(-1)
