"""A replay of this process whose writers send their steps over a connection."""

from __future__ import annotations

import functools
import socket
import threading
from itertools import count

import headrace as hr
from headrace.errors import Disconnected
from headrace.leases.channel import Channel
from headrace.leases.messages import Pin, Unpin
from headrace.leases.selector import PEERS
from headrace.replay.intake.writer import Writer
from headrace.replay.public import core_of
from headrace.server.client.row_writer import RemoteRowWriter
from headrace.server.messages.failures import failure_of
from headrace.server.messages.writing import OpenWriter, Refused, WriterAnswer, WriterRequest
from headrace.server.serving.writer import ServedWriter


class ServerEnd:
    """Serves the writers of one connection; see `headrace.leases.selector.Peer`."""

    def __init__(self, replay, channel):
        self.replay, self.channel = core_of(replay), channel
        self.writers = {}
        self.error = None
        self.ended = threading.Event()
        PEERS.add(self)

    def _send(self, *messages):
        PEERS.send(self, *messages)

    def take(self, frame):
        message = frame.message
        if isinstance(message, Unpin):
            self._send(Pin(pages=[]))
        elif isinstance(message, OpenWriter):
            try:
                self.writers[message.writer] = ServedWriter(self.replay, message, self._send)
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


class ClientEnd:
    """The connection of a client, with its writers."""

    def __init__(self, channel):
        self.channel, self.writers = channel, {}
        self.came = threading.Event()
        self.ended = threading.Event()
        PEERS.add(self)

    def send(self, *messages, payload=b""):
        PEERS.send(self, *messages, payload=payload)

    def round_trip(self):
        """Returns when the server has taken everything that was sent."""
        self.came.clear()
        self.send(Unpin(pages=[]))
        assert self.came.wait(20)

    def take(self, frame):
        if isinstance(frame.message, Pin):
            self.came.set()
        else:
            self.writers[frame.message.writer].take(frame.message)

    waits = False

    def look(self):
        pass

    def end(self, error):
        for writer in self.writers.values():
            writer.lose(error)
        self.channel.close()
        self.ended.set()


class RemotelyWritten(hr.Replay):
    """A replay whose writers are those of a client."""

    def __init__(self, *args, **kwargs):
        super().__init__(*args, **kwargs)
        self.client = self.server = None
        self._numbers = count()

    def row_writer(self, lanes=1, items=(), history=None, max_pending=1000, timeout=None):
        if self.client is None:
            self.connect()
        number = next(self._numbers)
        writer = RemoteRowWriter(
            self.signature,
            self.table_names,
            "replay",
            number,
            20.0,
            lanes,
            items,
            history,
            max_pending,
            timeout,
        )
        self.client.writers[number] = writer
        writer.open(self.client)
        return writer

    def writer(self, lanes=1, items=(), history=None, max_pending=1000, timeout=None):
        return Writer(self.row_writer(lanes, items, history, max_pending, timeout))

    def connect(self):
        one, other = socket.socketpair()
        client = Channel(one, WriterAnswer | Pin)
        server = Channel(other, WriterRequest | Unpin)
        self.client, self.server = ClientEnd(client), ServerEnd(self, server)

    def disconnect(self):
        """Ends the connection and waits until both ends have noticed."""
        if self.client is None:
            return
        client, server = self.client, self.server
        self.client = None
        client.channel.shutdown()
        assert client.ended.wait(20)
        assert server.ended.wait(20)
        assert server.error is None, server.error


def _behind_the_writers(name):
    """A request of the same client, which the server takes after the steps that were appended before."""
    call = getattr(hr.Replay, name)

    @functools.wraps(call)
    def behind(self, *args, **kwargs):
        if self.client is not None:
            for writer in self.client.writers.values():
                writer.push()
            self.client.round_trip()
        return call(self, *args, **kwargs)

    return behind


for _name in ("table", "sample", "update_priorities", "delete", "reset", "can_insert", "can_sample"):
    setattr(RemotelyWritten, _name, _behind_the_writers(_name))
