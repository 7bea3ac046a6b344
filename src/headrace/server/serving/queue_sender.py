"""The samples of one client for one queue, at the server."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import cython
import numpy as np
from numpy.typing import NDArray

from headrace.errors import Closed
from headrace.kernels.shared_count import SharedCount
from headrace.leases.checking import LeaseError, MissingMessages
from headrace.leases.frames import Payload
from headrace.server.adopted_batch import BlockRows
from headrace.server.messages.answers import Failed, SamplesStored
from headrace.server.messages.failures import failure_of
from headrace.server.messages.requests import ConfirmSamples, SendSamples
from headrace.server.serving.client_blocks import ClientBlocks
from headrace.server.serving.served_queue import ServedQueue

if not cython.compiled:
    from headrace.kernels.kinds import Int

# Payloads of samples up to this size are copied, into memory over which there are arrays.
_MOST_COPIED_NBYTES = 1 << 12


class WaitingSamples(NamedTuple):
    """Samples that wait for places.

    Attributes:
        number: of the request.
        last: number of the last of these samples.
        columns: arrays `[n, ...]`, one per leaf.
        begin, size: of these samples in the arrays: the first, and their number.
        rows: of the block in which they lie; None: they lie in no block.
    """

    number: int
    last: int
    columns: list[NDArray[Any]]
    begin: int
    size: int
    rows: BlockRows | None

    def after(self, count: int) -> WaitingSamples:
        """Returns the same without the first `count` samples."""
        rows = None if self.rows is None else self.rows._replace(first=self.rows.first + count)
        return self._replace(begin=self.begin + count, size=self.size - count, rows=rows)


class SharedSamples(NamedTuple):
    """Memory of a client, in which its samples lie.

    Attributes:
        columns: arrays `[places, ...]`, one per leaf; read only.
        stored: number of the last sample that is in the queue, for the client. The server never reads it.
        blocks: of the same client, for large samples; None: it has none.
    """

    columns: list[NDArray[Any]]
    stored: SharedCount
    blocks: ClientBlocks | None


class QueueSender:
    """The samples of one client for one queue.

    Args:
        served: the queue.
        session: name of the client's session.
        places: number of samples that the client may have sent without an acknowledgement.
        shared: memory in which the samples lie; None: they are payloads.
        send: sends messages to the client.
    """

    def __init__(
        self,
        served: ServedQueue,
        session: bytes,
        places: int,
        shared: SharedSamples | None,
        send: Callable[..., None],
    ) -> None:
        self._served = served
        self._core = served.core
        self._layout = served.layout
        self._session = session
        self._places = places
        self._send = send
        self._shared = shared
        # In shared memory: the sample whose confirmation the client waits for, and the request's number.
        self._awaited: ConfirmSamples | None = None
        self._waiting: deque[WaitingSamples] = deque()
        self._received = self._stored = 0
        # Places of the queue that were taken when samples were stored last, and how many in a row had these samples.
        self._places_taken = self._stored_alone = 0
        self._is_closed = False
        self._sample_nbytes = self._layout.nbytes
        # Memory for the samples of one small message, and arrays over it.
        self._copies: bytearray | None = None
        self._columns_of_copies: list[NDArray[Any]] = []

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
            MissingMessages: a sample before them did not arrive.
            LeaseError: they break the protocol.
        """
        if self._is_closed:
            raise LeaseError("the session goes on over another connection")
        # Of a peer: they may be any numbers of 64 bits.
        first: Int = request.first
        count: Int = request.count
        if first > self._received + 1:
            raise self._missing(request.queue, first)
        if first >= 1 and 1 <= count <= self._places:
            in_flight: Int = first + count - 1 - self._received
            if self._waiting:
                in_flight += sum([each.size for each in self._waiting])
            is_known = in_flight <= self._places
        else:
            is_known = False
        if not is_known:
            raise LeaseError(
                f"expected sample {self._received + 1} and at most {self._places} in flight, got {first}, {count}"
            )
        known: Int = self._received + 1 - first
        self._received = max(self._received, first + count - 1)
        columns, begin, rows = self._located(request, first, count, payload)
        if self._waiting or known:  # Known ones are sent twice: a call was interrupted.
            samples = WaitingSamples(request.number, self._received, columns, begin, count, rows).after(known)
            left: Int = samples.size
            if not self._waiting:
                left = self._store_again(samples)
            if left:
                self._keep(samples.after(samples.size - left))
        else:
            left = self._store(request.number, self._received, columns, begin, count, rows)
            if left:
                samples = WaitingSamples(request.number, self._received, columns, begin, count, rows)
                self._keep(samples.after(count - left))
        self._served.serve()

    def _keep(self, samples: WaitingSamples) -> None:
        """Notes samples that wait for places."""
        self._copies = None  # They lie there.
        self._waiting.append(samples)
        if len(self._waiting) == 1:
            self._served.wait_for_places(self)

    def _missing(self, queue: str, got: int) -> MissingMessages:
        return MissingMessages(f"expected sample {self._received + 1} of queue {queue!r}, got {got}")

    def _located(
        self, request: SendSamples, first: Int, count: Int, payload: Payload
    ) -> tuple[list[NDArray[Any]], int, BlockRows | None]:
        """Returns arrays with the leaves of samples, where these begin in them, and their rows in a block.

        The queue may store all values of these samples.
        """
        layout = self._layout
        if request.block >= 0:
            blocks = None if self._shared is None else self._shared.blocks
            if blocks is None or payload:
                raise LeaseError("expected samples in a block only of a client that shares blocks")
            rows = BlockRows(blocks, request.block, request.row)
            return layout.checked(blocks.rows(request.block, request.row, count)), 0, rows
        if self._shared is None:
            nbytes: Int = len(payload)
            if nbytes != count * self._sample_nbytes:
                raise LeaseError(f"payload: expected {count} samples, got {nbytes} bytes")
            if nbytes > _MOST_COPIED_NBYTES or layout.has_bools:
                return layout.checked(layout.columns(payload)), 0, None
            return self._copied(payload, nbytes), 0, None
        if payload:
            raise LeaseError("expected samples in shared memory, got a payload")
        return self._ring_rows((first - 1) % self._places, count)

    def _copied(self, payload: Payload, nbytes: Int) -> list[NDArray[Any]]:
        """Returns arrays over memory that has a copy of the samples until the next call; see `_keep`.

        To make arrays over a payload takes 7,000 instructions, and to copy a small one 600.
        """
        if self._copies is None:
            places = _MOST_COPIED_NBYTES // self._sample_nbytes
            self._copies = bytearray(places * self._sample_nbytes)
            self._columns_of_copies = self._layout.columns(self._copies)
        self._copies[:nbytes] = payload
        return self._columns_of_copies

    def _ring_rows(self, begin: Int, count: Int) -> tuple[list[NDArray[Any]], int, None]:
        """Returns samples of the ring as `_located` does."""
        assert self._shared is not None
        shared, end = self._shared.columns, begin + count
        if end <= self._places:
            if not self._layout.has_bools:
                return shared, begin, None
            columns = [column[begin:end] for column in shared]
        else:
            columns = [np.concatenate([column[begin:], column[: end - self._places]]) for column in shared]
        return self._layout.checked(columns), 0, None

    def store_waiting(self) -> bool:
        """See `WaitingSender.store_waiting`."""
        while self._waiting:
            samples = self._waiting[0]
            left: Int = self._store_again(samples)
            if left:
                self._waiting[0] = samples.after(samples.size - left)
                return False
            self._waiting.popleft()
        return True

    def _store_again(self, samples: WaitingSamples) -> Int:
        return self._store(
            samples.number, samples.last, samples.columns, samples.begin, samples.size, samples.rows
        )

    def _store(
        self,
        number: Any,
        last: Int,
        columns: Sequence[NDArray[Any]],
        begin: Int,
        count: Int,
        rows: BlockRows | None,
    ) -> Int:
        """Stores samples, and tells the client; returns the number of those without a place. See `WaitingSamples`."""
        try:
            stored: Int = self._core.store_rows(columns, begin, count, rows)
        except Closed as error:
            self._send(Failed(number=number, failure=failure_of(error)))
            return 0
        left: Int = count - stored
        if stored:
            is_told = False
            try:
                self._note_batches(last - left, stored)
                self._note_stored(number, last - left)
                is_told = self._shared is not None
            finally:  # Also if the client is gone: test_samples_of_a_client_that_is_gone_are_delivered.
                self._served.announce_filled(is_told)
        return left

    def _note_batches(self, last: Int, stored: Int) -> None:
        """Tells the client which sample would begin a batch, if the last batch had samples of this client alone.

        Args:
            last: number of the last sample that is stored.
            stored: number of the samples just stored.
        """
        if self._shared is None or self._shared.blocks is None:
            return
        core = self._core
        taken: Int = core.places_taken
        is_alone = taken == self._places_taken + stored
        self._places_taken, self._stored_alone = taken, self._stored_alone + stored if is_alone else 0
        is_known = self._stored_alone >= core.batch_size
        missing = (core.batch_size - taken % core.batch_size) % core.batch_size
        self._shared.blocks.first_of_batch.set(last + 1 + missing if is_known else 0)

    def _note_stored(self, number: Any, last: Int) -> None:
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
            MissingMessages: the sample did not arrive.
            LeaseError: the session goes on over another connection.
        """
        if self._is_closed:
            raise LeaseError("the session goes on over another connection")
        if request.last > self._received:
            raise self._missing(request.queue, request.last)
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
