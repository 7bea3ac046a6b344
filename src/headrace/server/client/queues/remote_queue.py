"""A queue on a server."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Iterator
from typing import Any, NamedTuple

import cython
from numpy.typing import NDArray

from headrace.checks import check_seconds
from headrace.errors import Closed, DeadlineExceeded, HeadraceError
from headrace.leases.frames import ProtocolError
from headrace.server.client.answers.batch_builder import check_columns
from headrace.server.client.answers.placed_arrays import arrays_of
from headrace.server.client.connecting import NETWORK_SECONDS
from headrace.server.client.direct_sending import NumberedFrame
from headrace.server.client.link import Link
from headrace.server.client.queues.sample_stream import SampleStream
from headrace.server.client.queues.small_batches import SmallBatches
from headrace.server.client.reply import Reply
from headrace.server.client.session import Session
from headrace.server.messages.answers import SmallQueueBatch, TakenBatch
from headrace.server.messages.requests import GetQueueStatistics, TakeBatch, TakeTail
from headrace.server.queue_info import BatchQueueInfo
from headrace.spec import ArraySpec, Signature
from headrace.trajectories.columns.leaf_reader import LeafCheck, checked_reader
from headrace.trees import Leaf, build, compile_tree

if cython.compiled:
    from cython.cimports.headrace.kernels.instances import is_of
else:
    from headrace.kernels.instances import is_of

# The server answers a request that is given up.
_CANCEL_SECONDS = 1.0


class _Taken(NamedTuple):
    """A request for a batch, and the connection that it was sent over."""

    link: Link
    reply: Reply


class _LatestRequest:
    """A request for a batch.

    Args:
        timeout: as the caller gave it.
        seconds: the same, checked.
        frame: the request.
    """

    def __init__(self, timeout: Any, seconds: float | None, frame: NumberedFrame) -> None:
        self.timeout, self.seconds, self.frame = timeout, seconds, frame


class RemoteQueue:
    """A queue on a server, with the calls of `BatchQueue`; made by `Client.queue`. Thread-safe.

    Samples are sent without waiting for each: up to `max_in_flight` of them may be on their way, fewer if they take
    more than 4 MiB. `wait` returns when all of them are in the queue.

    Args:
        session: of the client.
        name: of the queue.
        signature: of a sample.
        max_in_flight: samples that are sent and not acknowledged, at most.

    Attributes:
        signature, max_in_flight: see above.

    >>> import headrace as hr
    >>> queue = hr.BatchQueue({"reward": 0.0}, batch_size=2)
    >>> with hr.Server({"q": queue}) as server, hr.Client(server.address) as client:
    ...     remote = client.queue("q")
    ...     remote.send({"reward": 1.0})
    ...     remote.send({"reward": 2.0})
    ...     remote.wait()
    ...     batch, info = remote.sample()
    >>> batch["reward"].tolist(), info.samples_received
    ([1.0, 2.0], 2)
    """

    def __init__(self, session: Session, name: str, signature: Signature, max_in_flight: int) -> None:
        self._session = session
        self._name = name
        self.signature = signature
        self.max_in_flight = max_in_flight
        specs = self.signature.columns
        self._columns = tuple(specs)
        self._node = compile_tree(self.signature.tree, lambda node: isinstance(node, ArraySpec))
        self._is_bare = isinstance(self._node, Leaf)
        self._small_batches = SmallBatches(self.signature)
        self._read = checked_reader(self._node, [LeafCheck(path, spec) for path, spec in specs.items()])
        self._stream = SampleStream(session, name, signature, max_in_flight)
        self._put_quickly = self._stream.put_quickly
        session.add_stream(self._stream)
        # Requests for batches whose callers gave up: a batch that still comes is for the next caller.
        self._abandoned: deque[_Taken] = deque()
        self._abandoned_tails: deque[_Taken] = deque()
        # Most callers always give the same timeout.
        self._latest = _LatestRequest(None, None, self._request_of(None))

    # ---- sending ---------------------------------------------------------------------------------------------------

    @cython.annotation_typing(False)
    def send(self, sample: Any, timeout: float | None = None) -> None:
        """Copies a sample and sends it, without waiting for the server to store it; see `wait`.

        A sample that was on its way when the connection ended is sent again, and stored once.

        Args:
            sample: a tree like the example of the queue.
            timeout: seconds to wait while the most samples are on their way; None waits without limit, 0 does not wait.

        Raises:
            SpecError: structure, shape, dtype or a value does not fit; the message has the path. Nothing is sent.
            DeadlineExceeded: the queue had no place for all of the timeout; the sample is not sent.
            Disconnected: the server is gone; the sample is not sent.
            Closed: the queue or the client is closed.
        """
        timeout = None if timeout is None else check_seconds(timeout)
        if not self._put_quickly(sample):
            self._stream.put(self._read(sample), timeout)

    @cython.annotation_typing(False)
    def wait(self, timeout: float | None = None) -> None:
        """Returns when all samples that were sent are in the queue.

        Args:
            timeout: in seconds; None waits without limit, 0 does not wait.

        Raises:
            DeadlineExceeded: the queue had no place for them; `.pending` is their number.
            Disconnected: the server is gone; `.pending` samples are kept, and sent by a later call.
            Closed: the queue or the client is closed.
        """
        self._stream.wait(check_seconds(timeout))

    # ---- taking ----------------------------------------------------------------------------------------------------

    @cython.annotation_typing(False)
    def sample(self, timeout: float | None = None, *, copy: bool = True) -> tuple[Any, BatchQueueInfo]:
        """Waits for the next full batch; see `BatchQueue.sample`. The arrays are the caller's own.

        Args:
            timeout: in seconds; None waits without limit, 0 does not wait.
            copy: False returns read-only arrays.

        Raises:
            DeadlineExceeded: no batch was full within the timeout; no sample is lost.
            Closed: the queue is closed and all full batches are taken.
            Disconnected: the server is gone; a batch that was on its way is lost.
        """
        latest = self._latest
        if timeout is not latest.timeout:
            seconds = check_seconds(timeout)
            latest = self._latest = _LatestRequest(timeout, seconds, self._request_of(seconds))
        reply = self._answered(self._abandoned) if self._abandoned else None
        if reply is None:
            reply = self._reply(latest.frame, latest.seconds, self._abandoned)
        arrays = self._arrays(reply)
        if not copy:
            for array in arrays:
                array.flags.writeable = False
        return self._tree(arrays), reply.answer.info

    def _request_of(self, seconds: float | None) -> NumberedFrame:
        return NumberedFrame(TakeBatch(queue=self._name, timeout=seconds), "number")

    def tail(self) -> Any:
        """Returns, once, the samples of a closed queue that filled no batch; see `BatchQueue.tail`.

        Of several callers, also in other processes, one gets them.

        Raises:
            ValueError: the queue is not closed.
            DeadlineExceeded: the server did not answer within the client's timeout; a later call returns the tail.
            Disconnected: the server is gone; a tail that was on its way is lost.
        """
        reply = self._answered(self._abandoned_tails)
        if reply is None:
            request = NumberedFrame(TakeTail(queue=self._name), "number")
            reply = self._reply(request, self._session.timeout, self._abandoned_tails)
        answer, _ = reply.result()
        return self._tree(self._arrays(reply)) if isinstance(answer, TakenBatch) else None

    def _arrays(self, reply: Reply) -> list[NDArray[Any]]:
        """Returns the leaves of a batch, which the caller may write into.

        Raises:
            Exception: the answer was another one.
        """
        answer, payload = reply.result()
        try:
            if is_of(answer, SmallQueueBatch):
                return self._small_batches.arrays(answer.rows, answer.data)
            arrays = arrays_of(answer.arrays, payload, reply.blocks)
            check_columns(self.signature, arrays)
            return arrays
        except (HeadraceError, AttributeError, KeyError, ValueError, TypeError, OverflowError) as error:
            raise ProtocolError(f"the server sent something that is not a batch: {error}") from error

    def _tree(self, arrays: list[NDArray[Any]]) -> Any:
        if self._is_bare:
            return arrays[0]
        return build(self._node, dict(zip(self._columns, arrays, strict=True)))

    def _reply(self, request: NumberedFrame, seconds: Any, abandoned: deque[_Taken]) -> Reply:
        """Sends a request and waits for its answer; a caller who gives up leaves it in `abandoned`."""
        link: Link = self._session.link(seconds)
        reply = link.ask(request)
        # The server ends the wait; this is for a server that does not answer.
        deadline = None if seconds is None else time.monotonic() + max(seconds, 0.0) + NETWORK_SECONDS
        try:
            if not link.is_answered(reply, deadline):
                raise DeadlineExceeded(f"{self._session.peer} did not answer in {seconds:.3g} s")
        except BaseException:
            abandoned.append(_Taken(link, reply))
            link.ask_to_cancel(reply)
            raise
        return reply

    @staticmethod
    def _answered(abandoned: deque[_Taken]) -> Reply | None:
        """Returns a batch, or the tail, that came for a caller who had given up."""
        while abandoned:
            try:
                taken = abandoned.popleft()
            except IndexError:  # Another thread was first.
                break
            if not taken.link.is_answered(taken.reply, time.monotonic() + _CANCEL_SECONDS):
                abandoned.append(taken)
                break
            if isinstance(taken.reply.answer, TakenBatch):
                return taken.reply
        return None

    def batches(self, copy: bool = True) -> Iterator[Any]:
        """Iterates over the batches until the queue is closed and no full batch is left; see `BatchQueue.batches`."""
        while True:
            try:
                batch = [self.sample(copy=copy)[0]]
            except Closed:
                if self._session.link().failure is None:
                    return
                raise
            # The generator must not keep the arrays alive while it waits for the next.
            yield batch.pop()

    def statistics(self) -> BatchQueueInfo:
        """Returns the queue's state, without taking a batch."""
        record: BatchQueueInfo = self._session.repeated(GetQueueStatistics(queue=self._name)).record
        return record

    def __repr__(self) -> str:
        return f"<BatchQueue {self._name!r} of {self.signature!r} on {self._session.peer}>"
