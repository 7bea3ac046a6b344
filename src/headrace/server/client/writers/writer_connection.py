"""The connection over which the writers of a client send their steps; it comes back when it is lost."""

from __future__ import annotations

import logging
import os
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from itertools import count

from headrace.clock import SYSTEM_CLOCK, Clock
from headrace.errors import Closed, DeadlineExceeded, Disconnected
from headrace.forking import ForkFollowers
from headrace.leases.frames import Frame, Payload
from headrace.leases.messages import Goodbye, Message
from headrace.leases.selector import PEERS
from headrace.server.client.connecting import WriterChannel
from headrace.server.client.writers.operation_stream import OperationStream
from headrace.server.client.writers.writer_link import WriterLink
from headrace.server.heartbeat import ANSWER_SECONDS, ASK_SECONDS, Heartbeat, Pulse
from headrace.server.messages.answers import Done
from headrace.server.messages.requests import Ping

_LOGGER = logging.getLogger(__name__)
_FIRST_PAUSE = 0.01
_LONGEST_PAUSE = 1.0
_NO_LIMIT = 1 << 62
_FOLLOWERS = ForkFollowers()


class WriterConnection:
    """Connects the writers of a client with the server; see `headrace.leases.selector.Peer`.

    A connection of their own, so that no batch on its way to the client holds up steps on their way to the server.
    A lost connection is made again by a thread of its own, with pauses of 10 ms at first and of 1 s at last.

    Args:
        connect: connects with the server and does the handshake. An `OSError` is tried again, save a
            `PermissionError`; every other error is final.
        peer: the server's address, for messages.
        timeout: seconds to wait for the server itself; None waits without limit.
        clock: of the heartbeat.

    Attributes:
        peer, timeout: see above.
        channel: to the server.
        shared_nbytes, packer: see `WriterChannel`.
        payload_nbytes: the same, of the server that was connected first.
        session: the name of the client's session, 16 random bytes.
        numbers: of its writers.
    """

    waits = is_full = is_at_work = False

    def __init__(
        self,
        connect: Callable[[], WriterChannel],
        peer: str,
        timeout: float | None,
        clock: Clock = SYSTEM_CLOCK,
    ) -> None:
        self._connect = connect
        self.peer = peer
        self.timeout = timeout
        # A finalizer, which may run anywhere, forgets a writer.
        self._lock = threading.RLock()
        self._clock = clock
        self._heartbeat = Heartbeat()
        self._streams: dict[int, OperationStream] = {}
        self._stop = threading.Event()
        self._reason: Exception | None = None
        # Of a server that stops; another one may come behind its address.
        self._goodbye: Closed | None = None
        # The operations that the server missed when it ended a connection for that.
        self._lacked = ""
        self.session = os.urandom(16)
        self.numbers = count()
        self.channel, self.shared_nbytes, self.packer, self.payload_nbytes = connect()
        _FOLLOWERS.add(self)
        PEERS.add(self)

    def open(self, stream: OperationStream) -> None:
        """Opens a writer at the server.

        Raises:
            ValueError, TypeError, KeyError, StoreFull, Closed: as `Replay.writer`.
            Disconnected: the server is gone.
        """
        with self._lock:
            if self._reason is not None:
                raise type(self._reason)(str(self._reason))
            self._streams[stream.number] = stream
        try:
            stream.attach(self)
            stream.wait_until_open()
        except BaseException:
            self.forget(stream)
            raise

    def forget(self, stream: WriterLink) -> None:
        """Forgets a writer, which sends nothing more."""
        with self._lock:
            self._streams.pop(stream.number, None)

    def streams(self) -> list[OperationStream]:
        """Returns the streams of all open writers."""
        with self._lock:
            return list(self._streams.values())

    def send(self, *messages: Message, payload: Payload = b"", descriptors: tuple[int, ...] = ()) -> None:
        """See `Connection.send`; writers send again what is lost with a connection."""
        parts = [memoryview(payload)] if len(payload) else []
        with suppress(Disconnected):
            PEERS.send(self, *messages, parts=parts, descriptors=descriptors, most=_NO_LIMIT)

    def call_later(self, seconds: float, call: Callable[[], None]) -> None:
        """See `Connection.call_later`; a lost connection may forget the call."""
        PEERS.call_at(time.monotonic() + seconds, call)

    # ---- in the thread that listens --------------------------------------------------------------------------------

    def take(self, frame: Frame) -> None:
        """See `Peer.take`."""
        message = frame.message
        if isinstance(message, Done):  # A sign of life.
            return
        if isinstance(message, Goodbye):
            self._take_goodbye(message)
        stream = self._streams.get(message.writer)
        if stream is not None:
            stream.take(message)

    def _take_goodbye(self, message: Goodbye) -> None:
        reason = message.reason or "the server has ended the connection"
        goodbye = Closed(f"{self.peer}: {reason}")
        if message.lacks and reason != self._lacked:
            # Everything is sent again; what is missing a second time does not come that way.
            self._lacked = reason
            _LOGGER.warning("%s; what is not acknowledged is sent again", goodbye)
        elif message.stops:
            self._goodbye = goodbye
        else:
            self._reason = goodbye
        raise Disconnected(f"the server said goodbye: {reason}")

    def look(self) -> None:
        """See `Peer.look`. Asks a server that is silent for a sign of life."""
        if not self._streams:
            self._heartbeat.restart()
            return
        pulse = self._heartbeat.look(self._clock.monotonic(), self.channel.bytes_in)
        if pulse is Pulse.ASK:
            self.send(Ping())
        elif pulse is Pulse.GONE:
            raise Disconnected(f"no sign of life in {ASK_SECONDS + ANSWER_SECONDS:g} s")

    def end(self, error: BaseException) -> None:
        """See `Peer.end`."""
        self.channel.close()
        goodbye, self._goodbye = self._goodbye, None
        for stream in self.streams():
            stream.lose(goodbye)
        if not isinstance(error, OSError):
            self._give_up(Disconnected(f"{self.peer} sent what was not asked for: {error}"))
        elif self._reason is not None:
            self._give_up(self._reason)
        elif not self._stop.is_set():
            _LOGGER.info("the connection of writers is lost, and made again: %s", error)
            threading.Thread(target=self._reconnect, name="headrace-reconnect", daemon=True).start()

    def _give_up(self, error: Exception) -> None:
        with self._lock:
            self._reason = self._reason or error
        for stream in self.streams():
            stream.give_up(error)

    # ---- reconnecting ----------------------------------------------------------------------------------------------

    def _reconnect(self) -> None:
        pause = _FIRST_PAUSE
        while not self._stop.wait(pause):
            pause = min(2 * pause, _LONGEST_PAUSE)
            try:
                channel, shared_nbytes, packer, _ = self._connect()
            except OSError as error:
                if isinstance(error, PermissionError):
                    self._give_up(error)
                    return
                continue
            except Closed:  # The server stops.
                continue
            except Exception as error:
                self._give_up(error)
                return
            with self._lock:
                if self._stop.is_set():
                    channel.close()
                    return
                self.channel, self.shared_nbytes, self.packer = channel, shared_nbytes, packer
                self._heartbeat.restart()
                PEERS.add(self)
            for stream in self.streams():
                stream.attach(self)
            return

    # ---- forks -----------------------------------------------------------------------------------------------------

    def before_fork(self) -> None:
        """See `Forked.before_fork`."""

    def after_fork_in_parent(self) -> None:
        """See `Forked.after_fork_in_parent`."""

    def after_fork_in_child(self) -> None:
        """Ends the writers of the child's copy: both processes would write to one connection."""
        self._lock = threading.RLock()
        self._reason = Closed(
            f"this client belongs to process {os.getppid()}; process {os.getpid()} was forked from it, and both would "
            "write to one connection. Make a client in the process that uses it"
        )
        for stream in self._streams.values():
            stream.become_inherited(self._reason)
        self._streams = {}

    # ---- the end ---------------------------------------------------------------------------------------------------

    @property
    def has_ended(self) -> bool:
        """Whether it will not be made again."""
        return self._reason is not None

    def close(self) -> None:
        """Ends the connection. Writers that are still open raise `Closed`. A second call does nothing."""
        with self._lock:
            self._stop.set()
        self._give_up(Closed("the client is closed"))
        PEERS.remove(self)
        self.channel.close()

    @property
    def unacknowledged(self) -> int:
        """Number of items of all writers that are not known to be applied; an upper bound."""
        return sum(stream.unacknowledged for stream in self.streams())

    def wait_until_applied(self) -> None:
        """Returns when every item of every writer is applied.

        Raises:
            DeadlineExceeded, Disconnected: some are not, `timeout` seconds later; `.pending` is their number.
        """
        deadline = None if self.timeout is None else time.monotonic() + self.timeout
        failure: DeadlineExceeded | Disconnected | None = None
        for stream in self.streams():
            try:
                stream.wait_until_applied(None if deadline is None else max(0.0, deadline - time.monotonic()))
            except (DeadlineExceeded, Disconnected) as error:
                error.pending += 0 if failure is None else failure.pending
                failure = error
        if failure is not None:
            raise failure
