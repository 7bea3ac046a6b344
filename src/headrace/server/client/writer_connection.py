"""The connection over which the writers of a client send their steps; it comes back when it is lost."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from contextlib import suppress

from headrace.errors import Closed, Disconnected
from headrace.leases.channel import Channel
from headrace.leases.frames import Frame, Payload
from headrace.leases.messages import Goodbye, Message
from headrace.leases.selector import PEERS
from headrace.server.client.row_writer import RemoteRowWriter

_LOGGER = logging.getLogger(__name__)
_FIRST_PAUSE = 0.01
_LONGEST_PAUSE = 1.0


class WriterConnection:
    """Connects the writers of a client with the server; see `headrace.leases.selector.Peer`.

    A connection of their own, so that no batch on its way to the client holds up steps on their way to the server.
    A lost connection is made again by a thread of its own, with pauses of 10 ms at first and of 1 s at last.

    Args:
        connect: connects with the server and does the handshake. An `OSError` is tried again, save a
            `PermissionError`; every other error is final.

    Attributes:
        channel: to the server.
    """

    waits = is_full = False

    def __init__(self, connect: Callable[[], Channel]) -> None:
        self._connect = connect
        self._lock = threading.Lock()
        self._writers: dict[int, RemoteRowWriter] = {}
        self._stop = threading.Event()
        self._reason: Exception | None = None
        self.channel = connect()
        PEERS.add(self)

    def open(self, writer: RemoteRowWriter) -> None:
        """Opens a writer at the server.

        Raises:
            ValueError, TypeError, KeyError, StoreFull, Closed: as `Replay.writer`.
            Disconnected: the server is gone.
        """
        with self._lock:
            self._writers[writer.number] = writer
        writer.open(self)

    def send(self, *messages: Message, payload: Payload = b"") -> None:
        """Sends messages, the last one with the payload; writers send again what is lost with a connection."""
        with suppress(Disconnected):
            PEERS.send(self, *messages, payload=payload)

    # ---- in the thread that listens --------------------------------------------------------------------------------

    def take(self, frame: Frame) -> None:
        """See `Peer.take`."""
        message = frame.message
        if isinstance(message, Goodbye):
            self._reason = Closed(f"the server was stopped: {message.reason}")
            raise Disconnected("the server said goodbye")
        writer = self._writers.get(message.writer)
        if writer is not None:
            writer.take(message)

    def look(self) -> None:
        """See `Peer.look`."""

    def end(self, error: BaseException) -> None:
        """See `Peer.end`."""
        self.channel.close()
        for writer in self._all():
            writer.lose()
        if not isinstance(error, OSError):
            self._give_up(Disconnected(f"the server sent what was not asked for: {error}"))
        elif self._reason is not None:
            self._give_up(self._reason)
        elif not self._stop.is_set():
            _LOGGER.info("the connection of writers is lost, and made again: %s", error)
            threading.Thread(target=self._reconnect, name="headrace-reconnect", daemon=True).start()

    def _all(self) -> list[RemoteRowWriter]:
        with self._lock:
            return list(self._writers.values())

    def _give_up(self, error: Exception) -> None:
        for writer in self._all():
            writer.give_up(error)

    # ---- reconnecting ----------------------------------------------------------------------------------------------

    def _reconnect(self) -> None:
        pause = _FIRST_PAUSE
        while not self._stop.wait(pause):
            pause = min(2 * pause, _LONGEST_PAUSE)
            try:
                channel = self._connect()
            except OSError as error:
                if isinstance(error, PermissionError):
                    self._give_up(error)
                    return
                continue
            except Exception as error:
                self._give_up(error)
                return
            with self._lock:
                if self._stop.is_set():
                    channel.close()
                    return
                self.channel = channel
                PEERS.add(self)
            for writer in self._all():
                writer.reopen(self)
            return

    def close(self) -> None:
        """Ends the connection. Writers that are still open raise `Closed`. A second call does nothing."""
        with self._lock:
            self._stop.set()
        PEERS.remove(self)
        self.channel.close()
        self._give_up(Closed("the client is closed"))
