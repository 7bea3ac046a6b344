"""The samples that a client sends to one queue, in order, without waiting for each.

A sample is copied into its place in a ring, sent soon, and stays there until the server confirms that it is in the
queue. So samples in flight can be sent again when the connection is lost, and the server stores each number once. Over
a Unix socket the ring is shared memory, and messages carry no samples. Large ones may lie in blocks instead, which the
server hands out as batches (`sample_blocks`).

The thread that sends a sample also writes to the socket: at once if nothing is in flight, and otherwise, or if samples
come fast, several of them in one message. `headrace.server.client.queues.flusher` sends those whose sender turns to
other work.
"""

from __future__ import annotations

import logging
import os
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any, Protocol

from headrace import forking
from headrace.clock import SYSTEM_CLOCK
from headrace.errors import Closed, DeadlineExceeded, Disconnected
from headrace.kernels.shared_count import SharedCount
from headrace.server.client.link import Link
from headrace.server.client.queues.farewell import FAREWELL
from headrace.server.client.queues.flusher import FLUSHER
from headrace.server.client.queues.lone_samples import LoneSamples
from headrace.server.client.queues.opened_sender import NextConfirmation, OpenedSender
from headrace.server.client.queues.packed_samples import PackedSamples
from headrace.server.client.queues.sample_blocks import SampleBlocks
from headrace.server.client.queues.sample_ring import SampleRing
from headrace.server.client.served_again import check_same
from headrace.server.messages.requests import ConfirmSamples, OpenSender, SendSamples
from headrace.server.messages.sample_blocks import BlockLayout
from headrace.server.messages.samples import SampleLayout
from headrace.spec import Signature
from headrace.waits import Wait, hold_again

_LOGGER = logging.getLogger(__name__)
# Limit of the bytes of samples in one message, which are copied while the next ones are written.
_MESSAGE_NBYTES = 1 << 20
_FIRST_RETRY_SECONDS, _LONGEST_RETRY_SECONDS = 0.01, 1.0
# In shared memory a confirmation comes within the time that the server takes for a message. Asking for it costs both
# sides more than looking for it.
_SPIN_NANOSECONDS = 100_000
# And it copies this many bytes in a nanosecond, at least.
_COPIED_NBYTES = 4
# A sender that collects so many while a message is on its way soon fills one.
_MANY_TOGETHER = 4
# While more of them come, samples wait for a full message through this many looks of the flusher, one a millisecond.
# One stream fills a message in 0.1 ms, and each of 64 in 10 ms.
_MOST_LOOKS = 16
# A waiting thread looks this often whether Ctrl-C has come.
_TURN_SECONDS = 0.5


class Linked(Protocol):
    """A client, as its streams call it.

    Attributes:
        peer: the server's address, for messages.
        timeout: in seconds, of calls that have none.
        can_share: whether the server can map memory of this process.
    """

    peer: str
    timeout: float | None
    can_share: bool

    def link(self) -> Link:
        """Returns the connection; makes a new one if the last has ended.

        Raises:
            Closed: the client is closed, or belongs to another process.
            Disconnected: the server is gone.
        """


class SampleStream:
    """Sends the samples of a client to one queue. Thread-safe.

    Args:
        client: has the connection.
        queue: its name.
        signature: of a sample.
        max_in_flight: samples that are sent and not confirmed, at most; fewer if they take more than 4 MiB.
    """

    def __init__(self, client: Linked, queue: str, signature: Signature, max_in_flight: int) -> None:
        layout = self._layout = SampleLayout(signature)
        self._client = client
        self._queue = queue
        self._signature = signature
        self._session = os.urandom(16)
        places = self._places = min(max_in_flight, layout.most_places)
        self._ring = SampleRing(signature, layout, places, is_shared=client.can_share)
        self._rows = self._ring.rows
        # The short way of `put`: returns whether it was enough. It runs without the lock, while samples come fast.
        self.put_quickly = self._rows.put
        # For large samples, as long as the connection lasts.
        self._blocks: SampleBlocks | None = None
        self._count = self._ring.count()
        self._is_shared = client.can_share
        self._sample_nbytes = layout.nbytes
        self._together = 1
        self._forks = forking.forks
        # Of one thread at a time, which holds it once; see `hold_again`.
        self._lock = threading.RLock()
        self._opening = threading.Lock()
        # Number of the last sample that is in the queue.
        self._stored = 0
        # Of the connection; None while there is none.
        self._sender: OpenedSender | None = None
        # Sends samples that are alone; None: this is not to be.
        self._lone: LoneSamples | None = None
        # Forks of this process as `put` expects them; -1 before the sender is open.
        self._open_forks = -1
        self._lost_at = 0.0
        # Servers that have ended the connection on purpose, and the reason of the last.
        self._goodbyes = 0
        self._goodbye = ""
        # What the last server missed that ended the connection for that.
        self._lacked = ""
        # The queue's refusal, and whether a call has raised it.
        self._refusal: Exception | None = None
        self._was_told = False
        self._closing = threading.Event()
        self._opened = threading.Event()
        # Whether samples wait for a full message, because they come fast, and whether they came so fast lately.
        self._gathers = self._came_fast = False
        # At the flusher's last look: number of the last sample, and of looks since samples came fast.
        self._seen = self._looks = 0
        self._is_watched = self._will_flush = self._is_reopening = False

    # ---- calls -----------------------------------------------------------------------------------------------------

    def put(self, values: Sequence[Any], timeout: float | None) -> None:
        """Takes a sample over; it is sent soon.

        Args:
            values: one per leaf, checked.
            timeout: in seconds, for a place in the ring.

        Raises:
            DeadlineExceeded, Disconnected: there was none; the sample is not sent.
            Closed: the queue or the client is closed.
        """
        if self._open_forks != forking.forks:
            self._check_process()
            self._open_within(self._client.timeout if timeout is None else timeout)
        rows = self._rows
        with self._lock:
            rows.take_over()
            while rows.written >= rows.free_until:
                self._find_place(timeout)
                rows.take_over()  # Others have sent meanwhile.
            if self._blocks is not None:
                self._blocks.place(rows)
            rows.append(values)
            if rows.written >= rows.full_at:
                self._gathers = self._came_fast = True
                self._send()
            elif not self._gathers and self._is_idle():
                self._gathers = self._came_fast = rows.written - rows.sent >= _MANY_TOGETHER
                self._send()
            elif not self._will_flush:
                self._flush_later()
            if self._gathers:
                self._let_be_quiet()
            elif self._is_watched and self._lone is not None:
                self._lone.note_sent()
                rows.lone = self._lone

    def _is_idle(self) -> bool:
        """Returns whether nothing is in flight, with the lock held.

        The first sample behind a message looks for the message's confirmation, which may wait in the socket: nobody
        reads that while samples are sent one by one.
        """
        sender = self._sender
        if sender is None or self._count.get() >= self._rows.sent:
            return True
        if self._is_shared or self._rows.written > self._rows.sent + 1:
            return False
        sender.link.look()
        return self._count.get() >= self._rows.sent

    def _let_be_quiet(self) -> None:
        """Lets `put_quickly` write the next samples if they only wait for a full message; the lock is held."""
        if self._will_flush and self._ring.may_be_quiet:
            rows, until = self._rows, self._rows.full_at
            place = 0 if self._blocks is None else self._blocks.next_place(rows.written + 1)
            rows.quiet_until = min(until, place) if place else until

    def wait(self, timeout: float | None) -> None:
        """Returns when all samples are in the queue.

        Raises:
            DeadlineExceeded, Disconnected: not in time; `.pending` is the number of those that are not confirmed.
            Closed: the queue or the client is closed.
        """
        self._check_process()
        with self._lock:
            self._rows.take_over()
            last = self._rows.written
            self._send()
            self._wait_for(lambda: self._stored >= last, timeout, self._waiting_message)

    def close(self) -> None:
        """Ends the stream; samples that are not confirmed may be lost. A second call does nothing."""
        with self._lock:
            if self._closing.is_set():
                return
            self._closing.set()
            self._rows.take_over()
            self._rows.free_until = 0
        FAREWELL.discard(self)
        self._ring.close()

    @property
    def owed(self) -> int:
        """Number of samples that are not confirmed, unless a call has told that they were refused."""
        with self._lock:
            self._settle()
            return 0 if self._was_told else self._pending

    @property
    def owes_samples(self) -> bool:
        """Whether there are such samples."""
        return self.owed > 0

    def _full_message(self, seconds: float) -> str:
        return (
            f"send: {self._places} samples are in flight to queue {self._queue!r} on {self._client.peer}, which had no "
            f"place for {seconds:.3g} s; nothing was stored. Take batches faster, or give the queue more buffers"
        )

    def _waiting_message(self, seconds: float) -> str:
        return (
            f"wait: {self._pending} samples were not in queue {self._queue!r} on {self._client.peer} within "
            f"{seconds:.3g} s; they stay on their way. Take batches faster, or wait longer"
        )

    @property
    def _pending(self) -> int:
        return self._rows.written - self._stored

    # ---- waiting ---------------------------------------------------------------------------------------------------

    def _find_place(self, timeout: float | None) -> None:
        """Waits for a place in the ring, with the lock held."""
        if self._is_shared and timeout != 0:
            copying = self._together * self._sample_nbytes // _COPIED_NBYTES
            self._count.is_reached(self._rows.written - self._places + 1, _SPIN_NANOSECONDS + copying)
        self._settle()
        if self._rows.written >= self._rows.free_until:
            self._wait_for(
                lambda: self._rows.written - self._stored < self._places, timeout, self._full_message
            )

    def _wait_for(
        self, is_over: Callable[[], bool], timeout: float | None, message: Callable[[float], str]
    ) -> None:
        """Waits for answers; the lock is held, and released meanwhile."""
        wait: Wait | None = None
        goodbyes = self._goodbyes
        while True:
            self._look_for_answers()
            self._check()
            if is_over():
                return
            if self._goodbyes != goodbyes:
                raise Closed(f"{self._goodbye}; {self._pending} samples are not confirmed")
            if self._rows.sent == self._stored:
                self._send()
            wait = wait or Wait(SYSTEM_CLOCK, timeout, message, lambda: self._pending)
            left = _TURN_SECONDS if timeout is None else min(timeout - wait.seconds, _TURN_SECONDS)
            sender, stored = self._sender, self._stored
            if sender is not None and sender.is_shared:
                self._ask_to_confirm(sender)
            try:
                self._lock.release()
                try:
                    self._look(wait)
                    if sender is not None:
                        sender.link.is_answered(NextConfirmation(sender, stored), time.monotonic() + left)
                    else:
                        self._opened.wait(left)
                finally:
                    self._lock.acquire()
            except BaseException:
                hold_again(self._lock)
                raise
            finally:
                self._rows.take_over()

    def _ask_to_confirm(self, sender: OpenedSender) -> None:
        """Asks for an answer, which ends the wait that follows, when a message of samples is stored."""
        last = min(self._stored + self._together, self._rows.sent)
        if last > self._stored:
            with suppress(Disconnected, Closed):
                sender.link.post(ConfirmSamples(number=sender.number, queue=self._queue, last=last))

    def _look(self, wait: Wait) -> None:
        """Raises if the time of a wait is over, or if the server was not reached for the client's timeout."""
        longest = self._client.timeout
        try:
            wait.look(None)
        except DeadlineExceeded as error:
            if self._sender is not None:
                raise
            # Its text has the remedies of a server that is there.
            raise self._disconnected(f"it was not reached again in {wait.seconds:.3g} s") from error
        if self._sender is None and longest is not None and time.monotonic() - self._lost_at > longest:
            raise self._disconnected(f"it was not reached again in {longest:.3g} s")

    def _disconnected(self, reason: str) -> Disconnected:
        return Disconnected(
            f"queue {self._queue!r}: the connection to {self._client.peer} is lost: {reason}; {self._pending} samples "
            "are not confirmed, and are kept for a later call",
            pending=self._pending,
        )

    def _check(self) -> None:
        if self._refusal is not None:
            self._was_told = True
            raise type(self._refusal)(str(self._refusal))
        if self._closing.is_set():
            raise Closed("the client is closed")

    def _check_process(self) -> None:
        """Raises `Closed` in a forked child, in which the locks may be held for ever."""
        if self._forks != forking.forks:
            self._client.link()

    # ---- the connection; all with the lock held --------------------------------------------------------------------

    def _look_for_answers(self) -> None:
        if self._sender is not None:
            self._sender.link.look()
        self._settle()

    def _advance(self) -> None:
        """Takes the answers that have come, and sends the samples that are written if nothing is in flight."""
        self._look_for_answers()
        if self._rows.sent == self._stored:
            self._send()

    def _settle(self) -> None:
        """Notes the samples that are confirmed, or refused, or lost with the connection."""
        self._rows.take_over()
        sender = self._sender
        if sender is not None:
            self._stored = max(self._stored, min(self._count.get(), self._rows.written))
            # An interrupted call may have sent more than it noted.
            self._rows.sent = max(self._rows.sent, self._stored)
            failure = sender.link.failure
            if failure is not None:
                self._lose(failure, sender.link.lacked)
            elif sender.error is not None:
                self._refusal = sender.error
        is_open = self._refusal is None and not self._closing.is_set()
        self._rows.free_until = self._stored + self._places if is_open else 0

    def _lose(self, failure: BaseException, lacked: str) -> None:
        """Notes that the connection has ended: what is not confirmed will be sent again."""
        self._sender = self._lone = None
        self._leave_blocks()
        if isinstance(failure, Closed):
            self._goodbyes += 1
            self._goodbye = str(failure)
        if f"queue {self._queue!r}" in lacked:
            self._take_lacked(lacked)
        self._opened.clear()
        self._lost_at = time.monotonic()
        self._rows.sent = self._stored

    def _take_lacked(self, lacked: str) -> None:
        """Notes what the server missed: what is missing a second time, though all was sent again, is an error."""
        if lacked == self._lacked:
            self._refusal = Closed(
                f"{self._client.peer} missed samples twice: {lacked}; {self._pending} samples are not confirmed"
            )
        else:
            self._lacked = lacked
            _LOGGER.warning(
                "%s: %s; samples that are not confirmed are sent again", self._client.peer, lacked
            )

    @property
    def _most_together(self) -> int:
        """Number of samples in one message. The server does not copy those of a block, so it need not begin soon."""
        is_in_block = self._blocks is not None and self._blocks.is_in_block
        return max(1, self._places // 2) if is_in_block else self._together

    def _leave_blocks(self) -> None:
        """Moves the samples that are not confirmed into the ring: an old server may still need their blocks."""
        if self._blocks is not None:
            self._rows.take_over()
            self._rows.lie_in_ring()
            for number in range(self._stored + 1, self._rows.written + 1):
                values = self._blocks.values(number)
                if values is not None:
                    self._ring.restore(number, values)
            self._blocks = None

    def _send(self) -> None:
        """Sends the samples that are written."""
        sender, most = self._sender, self._most_together
        if sender is not None and self._refusal is None:
            with suppress(Disconnected, Closed):
                while self._rows.sent < self._rows.written:
                    count = min(self._rows.written - self._rows.sent, most)
                    self._rows.sent += self._send_some(sender, self._rows.sent + 1, count)
        self._rows.full_at = self._rows.sent + most
        if not self._is_watched and self._pending:
            self._is_watched = True
            FLUSHER.watch(self)

    def _send_some(self, sender: OpenedSender, first: int, count: int) -> int:
        """Sends `count` samples at most; returns their number."""
        block, row = -1, 0
        if self._blocks is not None:
            count, block, row = self._blocks.piece(first, count)
        message = SendSamples(
            number=sender.number, queue=self._queue, first=first, count=count, block=block, row=row
        )
        if self._is_shared:
            sender.link.post(message)
        else:
            before, packed = sender.samples.packed(self._ring.parts(first, count))
            sender.link.post(*before, message, parts=packed)
        return count

    def _flush_later(self) -> None:
        self._will_flush = True
        FLUSHER.flush(self)

    # ---- opening ---------------------------------------------------------------------------------------------------

    def _open(self) -> None:
        """Opens the sender at the server over the client's connection, which may be a new one."""
        with self._opening:
            link = self._client.link()
            if self._sender is not None and self._sender.link is link:
                return
            check_same(link.served, self._queue, self._signature, self._client.peer)
            request = OpenSender(
                queue=self._queue, session=self._session, stored=self._stored, places=self._places
            )
            count = self._ring.count()
            blocks = self._new_blocks(link, count)
            try:
                descriptors = self._ring.descriptors + (() if blocks is None else (blocks.descriptor,))
                reply = link.begin(request, descriptors=descriptors)
            finally:
                if blocks is not None:
                    blocks.close_descriptor()
            answer, _ = link.wait(reply, self._client.timeout)
            with self._lock:
                self._rows.take_over()
                self._stored = self._rows.sent = max(self._stored, answer.stored)
                self._leave_blocks()
                self._count, self._blocks = count, blocks
                self._count.set(self._stored)
                most_nbytes = min(_MESSAGE_NBYTES, answer.most_nbytes)
                self._together = max(1, min(self._places // 2, most_nbytes // self._sample_nbytes))
                samples = PackedSamples(self._layout, link.packer)
                sender = OpenedSender(link, reply.number, self._count, samples, is_shared=self._is_shared)
                link.listen(reply.number, sender.take)
                self._sender = sender
                FAREWELL.add(self)
                self._lone = self._lone_samples(sender)
                self._open_forks = self._forks
                self._opened.set()
                self._settle()
                self._send()

    def _lone_samples(self, sender: OpenedSender) -> LoneSamples | None:
        """Returns what sends samples that are alone; None where each takes the long way."""
        link = sender.link
        may_be = self._ring.may_be_quiet and link.direct.is_possible
        if not may_be or self._blocks is not None or sender.samples.are_packed:
            return None
        message = SendSamples(number=sender.number, queue=self._queue, first=0, count=1)
        samples = None if self._is_shared else self._ring.samples()
        return LoneSamples(link, message, self._count, samples)

    def _new_blocks(self, link: Link, stored: SharedCount) -> SampleBlocks | None:
        if not self._is_shared:
            return None
        layout = BlockLayout(self._signature, link.served[self._queue].batch_size)
        return SampleBlocks(layout, self._signature, stored) if layout.count else None

    def _open_within(self, timeout: float | None) -> None:
        """Opens the sender; connects again, with pauses, until `timeout` seconds are over."""
        deadline = None if timeout is None else time.monotonic() + timeout
        pause = _FIRST_RETRY_SECONDS
        while True:
            try:
                self._open()
                return
            except Disconnected:
                if deadline is not None and time.monotonic() + pause > deadline:
                    raise
            time.sleep(pause)
            pause = min(2 * pause, _LONGEST_RETRY_SECONDS)

    # ---- the background; see `Flushed` -----------------------------------------------------------------------------

    def flush_soon(self) -> bool:
        """Sends what is collected if nothing is in flight; returns whether something is collected still."""
        with self._lock:
            self._will_flush = False
            self._rows.take_over()
            if self._closing.is_set() or self._sender is None:
                return False
            if self._still_gathers():
                self._will_flush = True
                self._let_be_quiet()
                return True
            self._advance()
            # After a lost connection `look_after` goes on.
            self._will_flush = self._rows.sent < self._rows.written and self._opened.is_set()
            return self._will_flush

    def _still_gathers(self) -> bool:
        """Returns whether samples still wait for a full message: more of them come, and it is not too long ago."""
        grows, self._seen = self._rows.written > self._seen, self._rows.written
        self._looks, self._came_fast = 0 if self._came_fast else self._looks + 1, False
        self._gathers = self._gathers and grows and self._looks < _MOST_LOOKS
        return self._gathers

    def look_after(self) -> bool:
        """Takes answers, and connects again if the connection is lost; returns whether something is in flight."""
        with self._lock:
            self._is_watched = False
            self._rows.take_over()
            if self._closing.is_set() or self._refusal is not None:
                return False
            self._advance()
            if self._sender is None and self._pending and not self._is_reopening:
                self._is_reopening = True
                threading.Thread(target=self._open_again, name="headrace-reconnect", daemon=True).start()
            self._is_watched = self._pending > 0
            return self._is_watched

    def _open_again(self) -> None:
        pause = _FIRST_RETRY_SECONDS
        while not self._closing.is_set():
            try:
                self._open()
                break
            except (Disconnected, DeadlineExceeded, Closed):
                self._closing.wait(pause)
                pause = min(2 * pause, _LONGEST_RETRY_SECONDS)
            except Exception as error:
                with self._lock:
                    self._refusal = error
                    self._settle()
                break
        with self._lock:
            self._is_reopening = False
