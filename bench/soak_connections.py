"""Connects to a server again and again, in good and in bad manner; nothing of it may stay behind.

    python -m bench.soak_connections [CONNECTIONS] [SEED] [AT_ONCE]

Of the connections half are clients that work (over TCP, TLS and a Unix socket), and half are peers that end the
handshake early, send bytes of any kind, cut a frame, or vanish while they wait. Then AT_ONCE connections (1,000) wait
for samples at the same time, each with a request that is cut behind it, while a client works; and vanish. Afterwards
the server has as many threads and descriptors as before, no connection, no wait, and about the memory of a tenth of the
way.
"""

from __future__ import annotations

import os
import random
import socket
import ssl
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import NamedTuple

import numpy as np

import headrace as hr
from headrace.leases.frames import encoded
from headrace.leases.messages import VERSION, Hello
from headrace.server.auth import NONCE_NBYTES
from headrace.server.messages.handshake import Greeting, Proof
from headrace.server.messages.requests import Sample

_SIGNATURE = hr.Signature.like({"n": 0, "row": np.zeros(100, np.float32)})
_SESSION = encoded(Hello(version=VERSION)) + encoded(Greeting(nonce=bytes(NONCE_NBYTES))) + encoded(Proof())
_WAIT = encoded(Sample(number=1, replay="r", table="empty", batch_size=1, timeout=None))
_SECONDS = 30.0
# Of the allocator, for what is used for the first time late.
_MORE_NBYTES = 32 << 20


class State(NamedTuple):
    """Resources of a process.

    Attributes:
        threads, descriptors: their numbers.
        nbytes: of memory.
    """

    threads: int
    descriptors: int
    nbytes: int


def state() -> State:
    """Returns what this process holds now."""
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return State(
        threading.active_count(), len(os.listdir("/proc/self/fd")), pages * os.sysconf("SC_PAGE_SIZE")
    )


class Peers:
    """Connects to the servers of one replay.

    Args:
        plain: a server with a Unix socket.
        secure: a server with TLS.
        tls: for clients of `secure`.
        seed: of what they do.
    """

    def __init__(self, plain: hr.Server, secure: hr.Server, tls: ssl.SSLContext, seed: int) -> None:
        self._plain, self._secure, self._tls = plain, secure, tls
        self._random = random.Random(seed)
        self._kinds: list[Callable[[], None]] = [
            self._client,
            self._unix_client,
            self._writer,
            self._secure_client,
            self._noise,
            self._cut,
            self._waiting,
            self._half_tls,
        ]

    def connect(self) -> None:
        """Connects once, in a random way."""
        self._random.choice(self._kinds)()

    def _client(self) -> None:
        with hr.Client(self._plain.addresses[0]) as client:
            client.replay("r").sample("t", 2)

    def _unix_client(self) -> None:
        with hr.Client(self._plain.addresses[1]) as client:
            client.replay("r").sample("t", 200)

    def _secure_client(self) -> None:
        with hr.Client(self._secure.address, tls=self._tls) as client:
            client.ping()

    def _writer(self) -> None:
        client = hr.Client(self._plain.addresses[0])
        writer = client.replay("r").writer(items=[hr.ItemRule("t", 1)])
        writer.append(_SIGNATURE.zeros())
        if self._random.random() < 0.5:
            writer.close()
        client.close()

    def _noise(self) -> None:
        data = self._random.randbytes(self._random.randrange(200))
        self._say(self._plain, _SESSION + data if self._random.random() < 0.5 else data)

    def _cut(self) -> None:
        self._say(self._plain, (_SESSION + _WAIT)[: self._random.randrange(len(_SESSION + _WAIT))])

    def _waiting(self) -> None:
        self._say(self._plain, _SESSION + _WAIT)

    def crowd(self, count: int) -> float:
        """Makes connections that wait at the same time; returns the seconds that a client needs for a batch meanwhile.

        Args:
            count: of connections.

        Raises:
            AssertionError: not all of them are served.
        """
        host, port = self._plain.addresses[0].removeprefix("tcp://").split(":")
        with ExitStack() as stack:
            for _ in range(count):
                peer = stack.enter_context(socket.create_connection((host, int(port)), timeout=_SECONDS))
                peer.sendall(_SESSION + _WAIT + _WAIT[: self._random.randrange(len(_WAIT))])
            end = time.monotonic() + _SECONDS
            while self._plain.statistics().connections < count:
                assert time.monotonic() < end, f"{self._plain.statistics().connections} of {count} are served"
                time.sleep(0.01)
            began = time.monotonic()
            self._client()
            return time.monotonic() - began

    def _half_tls(self) -> None:
        self._say(self._secure, b"\x16\x03\x01\x02\x00" + self._random.randbytes(50))

    def _say(self, server: hr.Server, data: bytes) -> None:
        host, port = server.addresses[0].removeprefix("tcp://").split(":")
        with socket.create_connection((host, int(port)), timeout=_SECONDS) as peer, suppress(OSError):
            peer.sendall(data)
            if self._random.random() < 0.5:
                peer.shutdown(socket.SHUT_WR)
                while peer.recv(1 << 16):
                    pass


def settled(servers: tuple[hr.Server, ...], replay: hr.Replay) -> State:
    """Returns what this process holds when nothing of a connection is left.

    Raises:
        AssertionError: something of one is left after 30 s.
    """
    end = time.monotonic() + _SECONDS
    while True:
        records = [server.statistics() for server in servers]
        waiting = replay.table("empty").statistics().waiting_samples
        if not waiting and not any(record.connections for record in records):
            break
        assert time.monotonic() < end, f"{waiting} waits are left, and connections: {records}"
        time.sleep(0.01)
    time.sleep(0.5)  # A connection without a handshake is in no record.
    return state()


def soak(
    connections: int, seed: int, contexts: tuple[ssl.SSLContext, ssl.SSLContext], at_once: int
) -> tuple[State, float]:
    """Makes the connections; returns what the process held afterwards, and the seconds of `Peers.crowd`.

    Args:
        connections: their number.
        seed: of what they do.
        contexts: of the server and of its clients.
        at_once: number of further ones that wait at the same time.

    Raises:
        AssertionError: something of a connection is left.
    """
    with tempfile.TemporaryDirectory() as folder, new_replay() as replay:
        plain = hr.Server({"r": replay}, unix=Path(folder) / "s")
        with plain, hr.Server({"r": replay}, tls=contexts[0]) as secure:
            peers, servers = Peers(plain, secure, contexts[1], seed), (plain, secure)
            for _ in range(connections // 10):
                peers.connect()
            before = settled(servers, replay)
            for _ in range(connections - connections // 10):
                peers.connect()
            seconds = peers.crowd(at_once)
            after = settled(servers, replay)
    assert after.threads <= before.threads, f"threads: {before.threads} before, {after.threads} after"
    assert after.descriptors <= before.descriptors, f"{before.descriptors} before, {after.descriptors} after"
    assert after.nbytes < before.nbytes + _MORE_NBYTES, f"bytes: {before.nbytes} before, {after.nbytes} after"
    return after, seconds


def new_replay() -> hr.Replay:
    """Returns a replay with a table from which can be sampled, and an empty one."""
    table = hr.Table("t", sampler=hr.selectors.Uniform(), remover=hr.selectors.Fifo(), max_size=12)
    replay = hr.Replay(_SIGNATURE, [table, hr.Table.queue("empty", 9)], capacity=20_000)
    with replay.writer(items=[hr.ItemRule("t", 1)]) as writer:
        for _ in range(10):
            writer.append(_SIGNATURE.zeros())
    return replay


def main() -> None:
    """Runs the soak with certificates of its own."""
    import trustme  # type: ignore[import-not-found, unused-ignore]

    connections = int(sys.argv[1]) if len(sys.argv) > 1 else 10_000
    seed = int(sys.argv[2]) if len(sys.argv) > 2 else 0
    at_once = int(sys.argv[3]) if len(sys.argv) > 3 else 1_000
    authority = trustme.CA()
    server, client = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER), ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    authority.issue_cert("127.0.0.1").configure_cert(server)
    authority.configure_trust(client)
    began = time.monotonic()
    found, seconds = soak(connections, seed, (server, client), at_once)
    print(f"{connections} connections in {time.monotonic() - began:.0f} s leave {found}")
    print(
        f"beside {at_once} that waited, a client connected, drew a batch and left in {1000 * seconds:.0f} ms"
    )


if __name__ == "__main__":
    main()
