"""The samples that a client sends to one queue, in order, without waiting for each.

A sample is copied into its place in a ring, sent soon, and stays there until the server confirms that it is in the
queue. So samples in flight can be sent again when the connection is lost, and the server stores each number once. Over
a Unix socket the ring is shared memory, and messages carry no samples.

The thread that sends a sample also writes to the socket: at once if nothing is in flight, and otherwise several samples
in one message. A thread in the background sends samples whose sender turns to other work, and connects again.
"""

from __future__ import annotations

import os
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, NamedTuple, Protocol

from headrace import forking
from headrace.clock import SYSTEM_CLOCK
from headrace.errors import Closed, DeadlineExceeded, Disconnected
from headrace.server.client.link import Link
from headrace.server.client.queues.sample_ring import SampleRing
from headrace.server.client.reply import Reply
from headrace.server.messages.requests import OpenSender, SendSamples
from headrace.server.messages.samples import SampleLayout
from headrace.waits import Wait

_MESSAGE_NBYTES = 1 << 20
# While samples are in flight, further ones are collected, and this often the sender looks whether answers have come.
_LOOK_SECONDS = 200e-6
# The background thread sends such samples after this time.
_BACKGROUND_SECONDS = 1e-3
_LONGEST_PAUSE_SECONDS = 0.1
_IDLE_SECONDS = 1.0
_FIRST_RETRY_SECONDS, _LONGEST_RETRY_SECONDS = 0.01, 1.0
# A waiting thread looks this often whether Ctrl-C has come.
_TURN_SECONDS = 0.5
_LEAVING_SECONDS = 1.0


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


class _Message(NamedTuple):
    """Samples that are in flight: the coming answer, and the number of the last one."""

    reply: Reply
    last: int


class SampleStream:
    """Sends the samples of a client to one queue. Thread-safe.

    Args:
        client: has the connection.
        queue: its name.
        layout: of a sample.
    """

    def __init__(self, client: Linked, queue: str, layout: SampleLayout) -> None:
        self._client = client
        self._queue = queue
        self._session = os.urandom(16)
        self._ring = SampleRing(layout, is_shared=client.can_share)
        self._places = layout.places
        self._sample_nbytes = layout.nbytes
        self._together = 1
        self._forks = forking.forks
        self._lock = threading.Lock()
        self._opening = threading.Lock()
        # Numbers of the last sample that is in the ring, in a message, in the queue.
        self._written = self._sent = self._stored = 0
        self._link: Link | None = None
        self._was_open = False
        self._lost_at = 0.0
        # Servers that have ended the connection on purpose, and the reason of the last.
        self._goodbyes = 0
        self._goodbye = ""
        self._flying: deque[_Message] = deque()
        self._look_at = 0.0
        # The queue's refusal, and whether a call has raised it.
        self._refusal: Exception | None = None
        self._was_told = False
        self._closing = threading.Event()
        self._is_armed = False
        self._armed = threading.Event()
        self._opened = threading.Event()
        self._background: threading.Thread | None = None

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
        if not self._was_open or self._forks != forking.forks:
            self._check_process()
            self._open_within(self._client.timeout if timeout is None else timeout)
        with self._lock:
            if (
                self._written - self._stored >= self._places
                or self._refusal is not None
                or self._closing.is_set()
            ):
                self._wait_for(
                    lambda: self._written - self._stored < self._places, timeout, self._full_message
                )
            self._ring.write(self._written + 1, values)
            self._written += 1
            if self._sent == self._stored or self._written - self._sent >= self._together:
                self._send()
            elif time.perf_counter() >= self._look_at:
                self._look_for_answers()
            else:
                self._arm()

    def wait(self, timeout: float | None) -> None:
        """Returns when all samples are in the queue.

        Raises:
            DeadlineExceeded, Disconnected: not in time; `.pending` is the number of those that are not confirmed.
            Closed: the queue or the client is closed.
        """
        self._check_process()
        with self._lock:
            last = self._written
            if last > self._stored or self._refusal is not None:
                self._wait_for(lambda: self._stored >= last, timeout, self._waiting_message)

    def close(self) -> None:
        """Ends the stream; samples that are not confirmed may be lost. A second call does nothing."""
        with self._lock:
            if self._closing.is_set():
                return
            self._closing.set()
            self._armed.set()
            thread = self._background
        if thread is not None:
            thread.join(_LEAVING_SECONDS)
        self._ring.close()

    @property
    def owes_samples(self) -> bool:
        """Whether samples are not confirmed, and no call has told that they were refused."""
        return self._written > self._stored and not self._was_told

    def _full_message(self, seconds: float) -> str:
        return (
            f"send: {self._places} samples are in flight, and the queue had no place for {seconds:.3g} s; nothing was "
            "stored. Take batches faster, or give the queue more buffers"
        )

    def _waiting_message(self, seconds: float) -> str:
        return f"wait: {self._pending} samples were not in the queue within {seconds:.3g} s"

    @property
    def _pending(self) -> int:
        return self._written - self._stored

    # ---- waiting ---------------------------------------------------------------------------------------------------

    def _wait_for(
        self, is_over: Callable[[], bool], timeout: float | None, message: Callable[[float], str]
    ) -> None:
        """Waits for answers; the lock is held, and released meanwhile."""
        wait = Wait(SYSTEM_CLOCK, timeout, message, lambda: self._pending)
        goodbyes = self._goodbyes
        while True:
            self._advance()
            self._check()
            if is_over():
                return
            if self._goodbyes != goodbyes:
                raise Closed(f"{self._goodbye}; {self._pending} samples are not confirmed")
            link, oldest = self._link, self._flying[0].reply if self._flying else None
            left = _TURN_SECONDS if timeout is None else min(timeout - wait.seconds, _TURN_SECONDS)
            with self._unlocked():
                self._look(wait)
                if link is not None and oldest is not None:
                    link.is_answered(oldest, time.monotonic() + left)
                else:
                    self._opened.wait(left)

    def _look(self, wait: Wait) -> None:
        """Raises if the time of a wait is over, or if the server was not reached for the client's timeout."""
        longest = self._client.timeout
        try:
            wait.look(None)
        except DeadlineExceeded as error:
            if self._link is not None:
                raise
            raise self._disconnected(str(error)) from error
        if self._link is None and longest is not None and time.monotonic() - self._lost_at > longest:
            raise self._disconnected(f"it was not reached again in {longest:.3g} s")

    def _disconnected(self, reason: str) -> Disconnected:
        return Disconnected(
            f"the connection to {self._client.peer} is lost: {reason}; {self._pending} samples are not confirmed, and "
            "are kept for a later call",
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

    @contextmanager
    def _unlocked(self) -> Iterator[None]:
        self._lock.release()
        try:
            yield
        finally:
            self._lock.acquire()

    # ---- the connection; all with the lock held --------------------------------------------------------------------

    def _advance(self) -> None:
        """Takes the answers that have come, and sends the samples that are written."""
        if self._link is not None:
            self._link.look()
        self._settle()
        self._send()

    def _look_for_answers(self) -> None:
        """Sends the samples that are written if nothing is in flight any more."""
        if self._link is not None:
            self._link.look()
        self._settle()
        if self._sent == self._stored:
            self._send()
        else:
            self._look_at = time.perf_counter() + _LOOK_SECONDS
            self._arm()

    def _settle(self) -> None:
        """Notes the samples that are confirmed, or refused, or lost with the connection."""
        link = self._link
        while self._flying and self._flying[0].reply.is_done:
            error = self._flying[0].reply.error
            if error is None:
                self._stored = self._flying.popleft().last
            elif link is not None and link.failure is None and isinstance(error, Exception):
                self._refusal = error
                self._flying.clear()
                return
            else:
                break
        if link is not None and link.failure is not None:
            self._link = None
            if isinstance(link.failure, Closed):
                self._goodbyes += 1
                self._goodbye = str(link.failure)
            self._opened.clear()
            self._lost_at = time.monotonic()
            self._flying.clear()
            self._sent = self._stored

    def _send(self) -> None:
        link = self._link
        if link is None or self._refusal is not None:
            self._arm()
            return
        while self._sent < self._written:
            count = min(self._written - self._sent, self._together)
            first = self._sent + 1
            parts = [] if self._ring.descriptors else self._ring.parts(first, count)
            try:
                reply = link.begin(SendSamples(queue=self._queue, first=first, count=count), parts=parts)
            except (Disconnected, Closed):
                self._settle()
                self._arm()
                return
            self._flying.append(_Message(reply, first + count - 1))
            self._sent += count
        self._look_at = time.perf_counter() + _LOOK_SECONDS

    # ---- opening ---------------------------------------------------------------------------------------------------

    def _open(self) -> None:
        """Opens the sender at the server over the client's connection, which may be a new one."""
        with self._opening:
            link = self._client.link()
            if self._link is link:
                return
            request = OpenSender(queue=self._queue, session=self._session)
            reply = link.begin(request, descriptors=self._ring.descriptors)
            answer, _ = link.wait(reply, self._client.timeout)
            with self._lock:
                self._stored = self._sent = max(self._stored, answer.stored)
                most_nbytes = min(_MESSAGE_NBYTES, answer.most_nbytes)
                self._together = max(1, min(self._places // 2, most_nbytes // self._sample_nbytes))
                self._flying.clear()
                self._link = link
                self._was_open = True
                self._opened.set()
                self._send()

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

    # ---- the background --------------------------------------------------------------------------------------------

    def _arm(self) -> None:
        """Lets the background thread go on from here, soon."""
        if self._is_armed:
            return
        self._is_armed = True
        self._armed.set()
        if self._background is None:
            self._background = threading.Thread(target=self._run, name="headrace-samples", daemon=True)
            self._background.start()

    def _run(self) -> None:
        pause = _IDLE_SECONDS
        while not self._closing.is_set():
            was_armed = self._armed.wait(pause)
            if was_armed:
                self._armed.clear()
                self._is_armed = False
                time.sleep(_BACKGROUND_SECONDS)
            if self._link is None and self._pending:
                self._open_again()
            with self._lock:
                self._advance()
                if not was_armed and not self._pending:
                    self._background = None
                    return
            if not self._pending:
                pause = _IDLE_SECONDS
            else:
                pause = _BACKGROUND_SECONDS if was_armed else min(2 * pause, _LONGEST_PAUSE_SECONDS)

    def _open_again(self) -> None:
        pause = _FIRST_RETRY_SECONDS
        while not self._closing.is_set():
            try:
                self._open()
                return
            except (Disconnected, DeadlineExceeded, Closed):
                self._closing.wait(pause)
                pause = min(2 * pause, _LONGEST_RETRY_SECONDS)
            except Exception as error:
                with self._lock:
                    self._refusal = error
                return
