"""A TCP connection from the collector to an actor, which both prove to be meant for."""

from __future__ import annotations

import hmac
import secrets
import socket
import time
from contextlib import suppress
from typing import NamedTuple

from headrace.errors import DeadlineExceeded, Disconnected

_NBYTES = 32
_PROOF_SECONDS = 5.0
# A machine that is gone without a word is noticed after 3 + 2 * 2 s, or when it takes no data for 7 s.
_IDLE_SECONDS, _PROBE_SECONDS, _PROBES, _UNSENT_MILLISECONDS = 3, 2, 2, 7000


class Secret(NamedTuple):
    """The proofs of both sides. Ray carries them to the actor.

    Attributes:
        collector: bytes that the collector sends first.
        actor: the actor's reply.
    """

    collector: bytes
    actor: bytes

    @classmethod
    def new(cls) -> Secret:
        """Returns random proofs."""
        return cls(secrets.token_bytes(_NBYTES), secrets.token_bytes(_NBYTES))


class Listener:
    """The actor's end before the collector has come: a port that takes one connection.

    Args:
        host: address of this machine in the cluster.
        secret: of the connection.
    """

    def __init__(self, host: str, secret: Secret) -> None:
        self._secret = secret
        self._socket = socket.create_server((host, 0))
        self.port: int = self._socket.getsockname()[1]

    def accept(self, timeout: float) -> socket.socket:
        """Waits for the collector and returns the connection. Other peers are refused.

        Raises:
            DeadlineExceeded: it did not come in time.
        """
        end = time.monotonic() + timeout
        with self._socket:
            while (left := end - time.monotonic()) > 0:
                self._socket.settimeout(left)
                with suppress(OSError):
                    connection, _ = self._socket.accept()
                    if self._is_collector(connection):
                        return _watched(connection)
                    connection.close()
        raise DeadlineExceeded(f"the collector did not connect within {timeout:g} s")

    def _is_collector(self, connection: socket.socket) -> bool:
        with suppress(OSError):
            connection.settimeout(_PROOF_SECONDS)
            if hmac.compare_digest(_receive(connection), self._secret.collector):
                connection.sendall(self._secret.actor)
                return True
        return False


def connect(connection: socket.socket, host: str, port: int, secret: Secret, timeout: float) -> None:
    """Connects the collector's socket, which was made before, to an actor.

    Raises:
        Disconnected: the actor is not there, or another process listens in its place.
    """
    try:
        connection.settimeout(timeout)
        connection.connect((host, port))
        connection.sendall(secret.collector)
        proof = _receive(connection)
    except OSError as error:
        raise Disconnected(f"the actor at {host}:{port} cannot be reached: {error}") from error
    if not hmac.compare_digest(proof, secret.actor):
        raise Disconnected(f"the process at {host}:{port} is not the worker")
    _watched(connection)


def _receive(connection: socket.socket) -> bytes:
    received = b""
    while len(received) < _NBYTES:
        data = connection.recv(_NBYTES - len(received))
        if not data:
            raise ConnectionError("the connection ended")
        received += data
    return received


def _watched(connection: socket.socket) -> socket.socket:
    connection.settimeout(None)
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for name, value in (
        ("TCP_KEEPIDLE", _IDLE_SECONDS),
        ("TCP_KEEPINTVL", _PROBE_SECONDS),
        ("TCP_KEEPCNT", _PROBES),
        ("TCP_USER_TIMEOUT", _UNSENT_MILLISECONDS),
    ):
        connection.setsockopt(socket.IPPROTO_TCP, getattr(socket, name), value)
    return connection
