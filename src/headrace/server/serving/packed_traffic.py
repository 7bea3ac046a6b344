"""The traffic of one client that travels compressed.

Large payloads are compressed and decompressed by other threads, one in each direction at a time. So the order of
requests and that of answers stay: a request is taken before the next one is read, and answers behind one that is
compressed wait for it.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from typing import NamedTuple

from headrace.leases.frames import Frame
from headrace.leases.messages import Message
from headrace.server.compression.packing import PackedPayload, PayloadPacker
from headrace.server.compression.payload_work import PayloadWork
from headrace.server.compression.unpacking import PackedFrame, PayloadUnpacker
from headrace.server.serving.batches.batch_sender import Send

# zstd takes 0.03 to 0.2 ms for so many bytes, and the way to another thread and back as long.
_LEAST_NBYTES = 1 << 16
# About what an answer takes while it waits, beside its payload.
_ANSWER_NBYTES = 512


class _Answer(NamedTuple):
    """An answer that waits for those before it.

    Attributes:
        messages: in their order.
        parts: of the payload of the last one.
        paths: of the columns of the parts; None: they are not compressed.
    """

    messages: Sequence[Message]
    parts: Sequence[memoryview]
    paths: Sequence[str | None] | None

    @property
    def nbytes(self) -> int:
        """About the bytes that it takes."""
        return _ANSWER_NBYTES + sum(map(len, self.parts))


class PackedTraffic:
    """Answers to one client and requests of it, some with compressed payloads.

    `send` and `send_columns` may be called from any thread, the other methods from that of the selector.

    Args:
        packer: of answers.
        unpacker: of requests.
        work: threads for large payloads.
        send: sends messages to the client without waiting.
        take: takes a request with its payload decompressed.
        look: asks for a call of `look` in the thread of the selector.

    Attributes:
        packer: see above.
        waiting_nbytes: of the answers that wait, about.
        is_unpacking: whether a request is decompressed, so that no other one may be taken.
    """

    def __init__(
        self,
        packer: PayloadPacker,
        unpacker: PayloadUnpacker,
        work: PayloadWork,
        send: Send,
        take: Callable[[Frame], None],
        look: Callable[[], None],
    ) -> None:
        self.packer = packer
        self._unpacker = unpacker
        self._work = work
        self._send = send
        self._take = take
        self._look = look
        # The first one is compressed by another thread, or is compressed already.
        self._waiting: deque[_Answer] = deque()
        self.waiting_nbytes = 0
        self._lock = threading.Lock()
        self._packed: PackedPayload | Exception | None = None
        self.is_unpacking = False
        self._unpacked: Frame | Exception | None = None
        self._packing_call: Future[None] | None = None
        self._unpacking_call: Future[None] | None = None

    @property
    def is_busy(self) -> bool:
        """Whether a payload is compressed or decompressed."""
        return self.is_unpacking or bool(self._waiting)

    # ---- answers ---------------------------------------------------------------------------------------------------

    def send(
        self, *messages: Message, parts: Sequence[memoryview] = (), descriptors: tuple[int, ...] = ()
    ) -> None:
        """Sends messages behind the answers that wait; see `PeerSelector.send`."""
        if descriptors:
            raise ValueError("expected no descriptors on a connection that compresses")
        self._add(_Answer(messages, parts, None))

    def send_columns(
        self, message: Message, parts: Sequence[memoryview], paths: Sequence[str | None]
    ) -> None:
        """Sends an answer with a payload that is compressed; see `BatchSender.send_columns`."""
        self._add(_Answer((message,), parts, paths))

    def _add(self, answer: _Answer) -> None:
        with self._lock:
            if not self._waiting and not self._is_slow(answer):
                self._send_now(answer)
                return
            self._waiting.append(answer)
            self.waiting_nbytes += answer.nbytes
            if len(self._waiting) == 1:
                self._begin_packing(answer)

    def _is_slow(self, answer: _Answer) -> bool:
        """Whether the thread of the selector must not compress an answer."""
        return answer.paths is not None and (
            answer.nbytes >= _LEAST_NBYTES
            and self.packer.tried_nbytes(answer.parts, answer.paths) >= _LEAST_NBYTES
        )

    def _send_now(self, answer: _Answer) -> None:
        if answer.paths is None:
            self._send(*answer.messages, parts=answer.parts)
            return
        before, parts = self.packer.packed(answer.parts, answer.paths)
        self._send(*before, *answer.messages, parts=parts)

    def _begin_packing(self, answer: _Answer) -> None:
        parts, paths = answer.parts, answer.paths
        assert paths is not None

        def done(packed: PackedPayload | Exception) -> None:
            self._packed = packed
            self._look()

        self._packing_call = self._work.begin(lambda: self.packer.packed(parts, paths), done)

    def _send_ready(self) -> None:
        """Sends the answers that wait no more.

        Raises:
            Exception: one cannot be compressed.
        """
        packed = self._packed
        if packed is None:
            return
        self._packed = None
        if isinstance(packed, Exception):
            raise packed
        with self._lock:
            first = self._next_waiting()
            self._send(*packed.before, *first.messages, parts=packed.parts)
            while self._waiting and not self._is_slow(self._waiting[0]):
                self._send_now(self._next_waiting())
            if self._waiting:
                self._begin_packing(self._waiting[0])

    def _next_waiting(self) -> _Answer:
        answer = self._waiting.popleft()
        self.waiting_nbytes -= answer.nbytes
        return answer

    # ---- requests --------------------------------------------------------------------------------------------------

    def take(self, frame: Frame) -> None:
        """Takes a frame of the client.

        Raises:
            ProtocolError: see `PayloadUnpacker.take`.
        """
        found = self._unpacker.take_packed(frame)
        if not isinstance(found, PackedFrame):
            if found is not None:
                self._take(found)
        elif found.nbytes < _LEAST_NBYTES:
            self._take(found.unpacked())
        else:
            self._begin_unpacking(found)

    def _begin_unpacking(self, packed: PackedFrame) -> None:
        self.is_unpacking = True

        def done(unpacked: Frame | Exception) -> None:
            self._unpacked = unpacked
            self._look()

        self._unpacking_call = self._work.begin(packed.unpacked, done)

    def _take_ready(self) -> None:
        """Takes the request that is decompressed.

        Raises:
            ProtocolError: it cannot be.
        """
        unpacked = self._unpacked
        if unpacked is None:
            return
        self._unpacked, self.is_unpacking = None, False
        if isinstance(unpacked, Exception):
            raise unpacked
        self._take(unpacked)

    # ---- looking and ending ----------------------------------------------------------------------------------------

    def look(self) -> None:
        """Goes on where other threads are done.

        Raises:
            ProtocolError: a request cannot be decompressed.
        """
        self._send_ready()
        self._take_ready()

    def close(self) -> None:
        """Gives up the answers and the request that wait, whose client is gone."""
        for call in (self._packing_call, self._unpacking_call):
            if call is not None:
                call.cancel()
        with self._lock:
            self._waiting.clear()
            self._packed = None
            self.waiting_nbytes = 0
