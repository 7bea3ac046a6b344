"""A replay of this process whose writers send their steps over a connection."""

import functools
import socket
import threading
from contextlib import suppress
from itertools import count

import headrace as hr
from headrace.errors import Disconnected
from headrace.leases.channel import Channel
from headrace.leases.frames import encoded
from headrace.leases.selector import PEERS
from headrace.replay.intake.writer import Writer
from headrace.replay.public import core_of
from headrace.server.client.row_writer import RemoteRowWriter
from headrace.server.client.writer_connection import WriterConnection
from headrace.server.messages.failures import failure_of
from headrace.server.messages.writing import OpenWriter, Refused, WriterAnswer, WriterRequest
from headrace.server.serving.writer import ServedWriter
from headrace.server.serving.writer_sessions import WriterSessions


class ServerEnd:
    """Serves the writers of one connection; see `headrace.leases.selector.Peer`."""

    is_full = False

    def __init__(self, replay, channel, sessions):
        self.replay, self.channel, self.sessions = core_of(replay), channel, sessions
        self.writers = {}
        self.error = None
        self.ended = threading.Event()
        PEERS.add(self)

    def _send(self, *messages):
        with suppress(Disconnected):
            PEERS.send(self, *messages)

    def take(self, frame):
        message = frame.message
        if isinstance(message, OpenWriter):
            try:
                self.writers[message.writer] = ServedWriter(self.replay, message, self._send, self.sessions)
            except Exception as error:
                self._send(Refused(writer=message.writer, sequence=0, failure=failure_of(error)))
        else:
            self.writers[message.writer].take(frame)

    @property
    def waits(self):
        return any(writer.waits for writer in self.writers.values())

    def look(self):
        for writer in self.writers.values():
            writer.look()

    def end(self, error):
        if not isinstance(error, Disconnected):
            self.error = error
        for writer in self.writers.values():
            writer.close()
        self.channel.close()
        self.ended.set()


class CutChannel(Channel):
    """A channel whose connection ends after some bytes were sent, in the middle of a frame or between two.

    Attributes:
        left: number of bytes until then; None: it does not end.
    """

    left = None

    def send_soon(self, *messages, payload=b"", **options):
        if self.left is None:
            return super().send_soon(*messages, payload=payload, **options)
        *others, last = messages
        size = sum(len(encoded(each)) for each in others) + len(encoded(last, payload))
        if size <= self.left:
            self.left -= size
            return super().send_soon(*messages, payload=payload, **options)
        data = b"".join([*map(encoded, others), encoded(last, payload)])
        if self.left:
            with suppress(OSError):
                self._socket.sendall(data[: self.left])
        self.left = 0
        self.shutdown()
        raise Disconnected("the connection was cut")


class RemotelyWritten(hr.Replay):
    """A replay whose writers are those of a client."""

    def __init__(self, *args, **kwargs):
        super().__init__(*args, **kwargs)
        self.connection = None
        self.servers = []
        self._connecting = threading.Lock()
        self._sessions = WriterSessions()
        self._numbers = count()
        self._remote = []

    def row_writer(self, lanes=1, items=(), history=None, max_pending=1000, timeout=None):
        with self._connecting:
            if self.connection is None:
                self.connection = WriterConnection(self._connect)
        writer = RemoteRowWriter(
            self.signature,
            self.table_names,
            "replay",
            b"a session",
            next(self._numbers),
            20.0,
            lanes,
            items,
            history,
            max_pending,
            timeout,
        )
        self.connection.open(writer)
        self._remote.append(writer)
        return writer

    def writer(self, lanes=1, items=(), history=None, max_pending=1000, timeout=None):
        return Writer(self.row_writer(lanes, items, history, max_pending, timeout))

    def _connect(self):
        one, other = socket.socketpair()
        self.servers.append(ServerEnd(self, CutChannel(other, WriterRequest), self._sessions))
        return CutChannel(one, WriterAnswer)

    def wait_for_writers(self):
        """Returns when the server has taken everything that was appended."""
        for writer in self._remote:
            writer.settle()

    def disconnect(self):
        """Ends the connection and waits until the server has noticed."""
        if self.connection is None:
            return
        self.connection.close()
        for server in self.servers:
            assert server.ended.wait(20)
            assert server.error is None, server.error


def _behind_the_writers(name):
    """A request of the same client, which comes behind the steps that were appended before."""
    call = getattr(hr.Replay, name)

    @functools.wraps(call)
    def behind(self, *args, **kwargs):
        if self.connection is not None:
            self.wait_for_writers()
        return call(self, *args, **kwargs)

    return behind


for _name in ("table", "sample", "update_priorities", "delete", "reset", "can_insert", "can_sample"):
    setattr(RemotelyWritten, _name, _behind_the_writers(_name))
