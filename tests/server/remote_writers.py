"""A replay of this process whose writers send their steps over connections that can be cut anywhere."""

import threading
from contextlib import suppress
from unittest import mock

import headrace as hr
from headrace.errors import Disconnected
from headrace.leases.channel import Channel
from headrace.leases.frames import encoded

_SECONDS = 20.0


class CutChannel(Channel):
    """A channel whose connection ends after some bytes were sent, in the middle of a frame or between two.

    Attributes:
        left: number of bytes until then; None: it does not end.
        is_dropped: called with each message; those for which it is true are not sent.
    """

    left = None
    is_dropped = staticmethod(lambda _: False)

    def keeps(self, message):
        return False  # Each message is sent by `send_soon`.

    def send_soon(self, *messages, payload=b"", parts=(), **options):
        if any(map(self.is_dropped, messages)):
            return True
        if self.left is None:
            return super().send_soon(*messages, payload=payload, parts=parts, **options)
        payload = b"".join([payload, *parts])
        *others, last = messages
        data = b"".join([*map(encoded, others), encoded(last, payload)])
        if len(data) <= self.left:
            self.left -= len(data)
            return super().send_soon(*messages, payload=payload, **options)
        if self.left:
            with suppress(OSError):
                self._socket.sendall(data[: self.left])
        self.left = 0
        self.shutdown()
        raise Disconnected("the connection was cut")


class RemotelyWritten:
    """A replay, its server, and a client.

    Args:
        unix: of the server's socket; None: it listens to TCP.
        args, kwargs: of the replay.

    Attributes:
        local: the replay itself.
        remote: the replay of the client.
        channels: of the client's writers, and of the server to them, the latest last.
    """

    def __init__(self, *args, unix=None, **kwargs):
        self.local = hr.Replay(*args, **kwargs)
        self._cut = [
            mock.patch("headrace.server.client.connecting.Channel", CutChannel),
            mock.patch("headrace.server.serving.connections.Channel", CutChannel),
        ]
        for each in self._cut:
            each.start()
        where = {} if unix is None else {"address": None, "unix": unix}
        self.server = hr.Server({"replay": self.local}, **where).start()
        self.client = hr.Client(self.server.address, timeout=_SECONDS)
        self.remote = self.client.replay("replay")

    def channel_of_writers(self):
        """The client's end of the connection of its writers."""
        return self.client._session._writers.channel

    def channel_of_server(self):
        """The server's end of it; None while there is no connection."""
        found = [
            each
            for each in self.server._connections._open
            if each._requests and each._requests._writers._writers
        ]
        return found[-1].channel if found else None

    def end(self):
        """Ends the client, and waits until the server has noticed."""
        with suppress(Disconnected, hr.DeadlineExceeded):
            self.client.close()
        deadline = threading.Event()
        while self.server.statistics().connections:
            assert not deadline.wait(0.001)

    def close(self):
        self.end()
        self.server.stop()
        self.local.close()
        for each in self._cut:
            each.stop()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()
