"""All connections of a running server."""

from __future__ import annotations

import socket
import ssl
import threading
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from importlib import metadata

from headrace.clock import SYSTEM_CLOCK, Clock
from headrace.errors import Closed
from headrace.leases.channel import Channel
from headrace.leases.checking import LeaseError
from headrace.leases.frames import ProtocolError, encoded
from headrace.leases.messages import VERSION, Hello
from headrace.leases.selector import PeerSelector
from headrace.leases.tls.channel import TlsChannel
from headrace.leases.tls.session import TlsSession
from headrace.server.addresses import Address
from headrace.server.compression.payload_work import PayloadWork
from headrace.server.limits import Limits
from headrace.server.messages import handshake
from headrace.server.messages.answers import ServerRecord
from headrace.server.messages.handshake import Refusal, RefusalKind
from headrace.server.records import statistics_of
from headrace.server.serving.checkpoints import Checkpoints
from headrace.server.serving.connection import ServedConnection
from headrace.server.serving.deadlines import TableDeadlines
from headrace.server.serving.draining import Draining
from headrace.server.serving.listening import ListeningSocket
from headrace.server.serving.served import ServedObjects
from headrace.server.serving.served_queue import ServedQueue
from headrace.server.serving.served_weights import ServedWeights
from headrace.server.socket_options import set_options
from headrace.server.statistics import ConnectionCounts, ServerStatistics

_STOPS = "the server stops"
_LOOK_SECONDS = 0.02
# For the last messages of a server whose time is over.
_GOODBYE_SECONDS = 0.2


class Connections:
    """The listening sockets of a server, and its clients.

    Args:
        served: replays and queues.
        addresses: to listen at.
        token: that clients must know.
        tls: for TCP.
        checkpoints: of the replays; None where no directory was given.
        limits: of the server and of each connection.
        selector: of this server.
        clock: of the heartbeat.

    Attributes:
        addresses: with their true ports.
        selector, served, queues, weights, token, deadlines, version, checkpoints, limits, payload_work, clock: see
            `Host`.

    Raises:
        OSError: an address cannot be bound.
    """

    def __init__(
        self,
        served: ServedObjects,
        addresses: Sequence[Address],
        token: bytes | None,
        tls: ssl.SSLContext | None,
        checkpoints: Checkpoints | None,
        limits: Limits,
        selector: PeerSelector,
        clock: Clock = SYSTEM_CLOCK,
    ) -> None:
        self.served = served
        self.token = token
        self._tls = tls
        self.checkpoints = checkpoints
        self.limits = limits
        self.selector = selector
        self.clock = clock
        self.payload_work = PayloadWork()
        self.deadlines = TableDeadlines(selector)
        self.queues: Mapping[str, ServedQueue] = {
            name: ServedQueue(queue, selector) for name, queue in served.queues.items()
        }
        self.weights: Mapping[str, ServedWeights] = {
            name: ServedWeights(core, selector) for name, core in served.weights.items()
        }
        self.version = metadata.version("headrace")
        self._began = time.monotonic()
        self._lock = threading.Lock()
        self._open: set[ServedConnection] = set()
        self._total = self._rejected = self._protocol_errors = self._truncated = 0
        # Of the connections that have ended.
        self._bytes_in = self._bytes_out = 0
        self._is_stopping = False
        self._listening: list[ListeningSocket] = []
        try:
            for address in addresses:
                self._listening.append(ListeningSocket(address))
        except BaseException:
            self._stop_listening()
            self._close_served()
            raise
        self.addresses = [each.address for each in self._listening]
        for each in self._listening:
            selector.listen(each.socket, self._accept)

    def _accept(self, connection: socket.socket) -> None:
        try:
            set_options(connection)
            if self._is_stopping:
                self._refuse(connection, "closed", _STOPS)
                return
            if len(self._open) >= self.limits.connections:
                most = self.limits.connections
                self._refuse(connection, "protocol", f"the server has {most} connections and takes no more")
                return
            is_unix = connection.family == getattr(socket, "AF_UNIX", None)
            if self._tls is None or is_unix:
                channel = Channel(connection, handshake.ToServer)
            else:
                channel = TlsChannel(connection, handshake.ToServer, TlsSession(self._tls))
            served = ServedConnection(channel, self, is_unix=is_unix)
        except OSError:  # It has ended already.
            connection.close()
            return
        with self._lock:
            self._open.add(served)

    def _refuse(self, connection: socket.socket, kind: RefusalKind, reason: str) -> None:
        with self._lock:
            self._rejected += 1
        with connection, suppress(OSError):
            if self._tls is None:
                refusal = encoded(Hello(version=VERSION)) + encoded(Refusal(kind=kind, reason=reason))
                connection.send(refusal, socket.MSG_DONTWAIT)

    # ---- the host of its connections -------------------------------------------------------------------------------

    def count_welcome(self) -> None:
        """See `Host.count_welcome`."""
        with self._lock:
            self._total += 1

    def has_ended(self, connection: ServedConnection, error: BaseException) -> None:
        """See `Host.has_ended`."""
        channel = connection.channel
        with self._lock:
            self._open.discard(connection)
            self._bytes_in += channel.bytes_in
            self._bytes_out += channel.bytes_out
            is_broken = isinstance(error, ProtocolError | LeaseError)
            self._protocol_errors += is_broken
            self._truncated += channel.is_within_frame and not is_broken
            self._rejected += not connection.is_welcome and not isinstance(error, Closed)

    def server_record(self, number: int) -> ServerRecord:
        """See `Host.server_record`."""
        replays = {}
        for name, replay in self.served.replays.items():
            with suppress(Closed):
                replays[name] = replay.statistics()
        return ServerRecord(
            number=number,
            counts=self._counts(),
            replays=replays,
            closed=[name for name in self.served.replays if name not in replays],
            queues={name: queue.statistics() for name, queue in self.served.queues.items()},
        )

    # ---- statistics ------------------------------------------------------------------------------------------------

    def _counts(self) -> ConnectionCounts:
        saves = None if self.checkpoints is None else self.checkpoints.counts()
        with self._lock:
            open_now = tuple(self._open)
            return ConnectionCounts(
                connections=sum(each.is_welcome for each in open_now),
                connections_total=self._total,
                rejected_handshakes=self._rejected,
                protocol_errors=self._protocol_errors,
                truncated_frames=self._truncated,
                bytes_in=self._bytes_in + sum(each.channel.bytes_in for each in open_now),
                bytes_out=self._bytes_out + sum(each.channel.bytes_out for each in open_now),
                seconds_up=time.monotonic() - self._began,
                version=self.version,
                checkpoints=None if saves is None else saves.saved,
                failed_checkpoints=None if saves is None else saves.failed,
                checkpoint_age=None if saves is None else saves.age,
                checkpoint_seconds=None if saves is None else saves.seconds,
            )

    def statistics(self) -> ServerStatistics:
        """See `Server.statistics`."""
        return statistics_of(self.server_record(0))

    # ---- ending ----------------------------------------------------------------------------------------------------

    def close(self, drain_seconds: float) -> None:
        """Ends all connections, about `drain_seconds` from now at the latest."""
        deadline = time.monotonic() + drain_seconds
        self._is_stopping = True
        try:
            Draining(self.selector, self._clients, _STOPS).run(drain_seconds)
            self._stop_listening()
            deadline = max(deadline, time.monotonic() + _GOODBYE_SECONDS)
            while any(each.unsent for each in self._clients()) and time.monotonic() < deadline:
                time.sleep(_LOOK_SECONDS)
        finally:
            self._stop_listening()
            for each in self._clients():
                each.drop(Closed(_STOPS))
            self.payload_work.close(_GOODBYE_SECONDS)
            self._close_served()

    def _close_served(self) -> None:
        for queue in self.queues.values():
            queue.close()
        for weights in self.weights.values():
            weights.close()

    def _clients(self) -> tuple[ServedConnection, ...]:
        with self._lock:
            return tuple(self._open)

    def _stop_listening(self) -> None:
        for each in self._listening:
            self.selector.stop_listening(each.socket)
            with suppress(OSError):
                each.close()
        self._listening.clear()
