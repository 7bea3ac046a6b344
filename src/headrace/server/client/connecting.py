"""Connecting to a server: the socket, and the client's side of the handshake."""

from __future__ import annotations

import select
import socket
import ssl
import time
from contextlib import suppress
from dataclasses import dataclass, field
from typing import NamedTuple

from msgspec import UNSET

from headrace.errors import AuthenticationError, Closed, DeadlineExceeded, Disconnected, HeadraceError
from headrace.leases.channel import Channel
from headrace.leases.frames import LARGEST_PAYLOAD, ProtocolError
from headrace.leases.messages import Goodbye, Hello
from headrace.leases.tls.channel import TlsChannel
from headrace.leases.tls.session import TlsSession
from headrace.server.addresses import Address
from headrace.server.auth import NONCE_NBYTES, is_proof, new_nonce, proof
from headrace.server.client.blocks import MappedBlocks
from headrace.server.client.link import Link
from headrace.server.compression.choice import CompressedColumns
from headrace.server.compression.packing import PayloadPacker
from headrace.server.messages import answers, handshake, writing
from headrace.server.messages.handshake import Challenge, Greeting, Proof, Refusal, Welcome
from headrace.server.messages.packed import Packed
from headrace.server.socket_options import set_options
from headrace.system import has_sealed_memory

NETWORK_SECONDS = 1.0
"""A call may take so much longer than its timeout while the server does not answer."""
_TLS_HINT = " before it said a word; if this is a server with TLS, pass tls= to hr.Client"
_ERRORS: dict[str, type[HeadraceError]] = {
    "authentication": AuthenticationError,
    "closed": Closed,
    "protocol": Disconnected,
}


@dataclass(frozen=True)
class ServerAccess:
    """Reaches a server.

    Attributes:
        address: of the server.
        token: that the server must know, too.
        tls: for TCP.
        timeout: of a handshake, in seconds.
        columns: to be compressed, if the server agrees.
    """

    address: Address
    token: bytes | None = field(repr=False)
    tls: ssl.SSLContext | None
    timeout: float | None
    columns: CompressedColumns | None = None

    @property
    def offer(self) -> CompressedColumns | None:
        """The columns that the server is asked to compress; none on one machine, where large arrays are not sent."""
        return None if self.address.is_unix else self.columns


class _Welcomed(NamedTuple):
    """A connection after its handshake.

    Attributes:
        channel: to the server.
        welcome: the server's last message of the handshake.
        may_map: whether the client asked for shared memory.
        packer: of payloads to the server; None: they are not compressed.
    """

    channel: Channel
    welcome: Welcome
    may_map: bool
    packer: PayloadPacker | None


class WriterChannel(NamedTuple):
    """A connection for the operations of writers.

    Attributes:
        channel: to the server.
        shared_nbytes: memory that one writer may share with the server; 0 over TCP.
        packer: of payloads to the server; None: they are not compressed.
        payload_nbytes: bytes of the largest payload that the server takes.
    """

    channel: Channel
    shared_nbytes: int
    packer: PayloadPacker | None = None
    payload_nbytes: int = LARGEST_PAYLOAD


def connect(access: ServerAccess) -> Link:
    """Returns a connection for requests after its handshake.

    Raises:
        Disconnected: nobody listens, or the peer does not speak the protocol.
        AuthenticationError: the server does not accept the token, or cannot prove that it knows it; or a certificate is
            not accepted.
        DeadlineExceeded: the handshake took longer than `timeout` seconds.
    """
    may_map = access.address.is_unix and has_sealed_memory()
    channel, welcome, may_map, packer = _welcomed(access, may_map)
    channel.expect(answers.AnyAnswer | Packed, answers.LARGEST_NBYTES, LARGEST_PAYLOAD)
    return Link(channel, str(access.address), welcome.served, MappedBlocks(may_map=may_map), packer=packer)


def connect_writers(access: ServerAccess) -> WriterChannel:
    """Returns a connection for the operations of writers; see `connect`."""
    may_map = access.address.is_unix and has_sealed_memory()
    channel, welcome, _, packer = _welcomed(access, may_map)
    channel.expect(Hello | Goodbye | answers.Done | writing.WriterAnswer, writing.LARGEST_ANSWER_NBYTES, 0)
    shared_nbytes = writing.MOST_SHARED_NBYTES if may_map and welcome.in_place else 0
    payload_nbytes = LARGEST_PAYLOAD if welcome.payload_nbytes is UNSET else welcome.payload_nbytes
    return WriterChannel(channel, shared_nbytes, packer, payload_nbytes)


def _welcomed(access: ServerAccess, may_map: bool) -> _Welcomed:
    deadline = None if access.timeout is None else time.monotonic() + access.timeout
    channel = _channel(access)
    try:
        channel.expect(handshake.ToClient, handshake.LARGEST_WELCOME_NBYTES, 0)
        welcome = _shake_hands(channel, access, _Reader(channel, access.timeout, deadline), may_map)
        agreed = access.offer if welcome.compresses is True else None
        return _Welcomed(channel, welcome, may_map, None if agreed is None else PayloadPacker(agreed))
    except HeadraceError as error:
        channel.close()
        kind = Disconnected if isinstance(error, Disconnected) else type(error)
        may_want_tls = not (access.tls or access.address.is_unix or channel.bytes_in)
        hint = _TLS_HINT if kind is Disconnected and may_want_tls else ""
        raise kind(f"{access.address}: {error}{hint}") from error
    except BaseException:
        channel.close()
        raise


def _channel(access: ServerAccess) -> Channel:
    address = access.address
    if access.tls is None or address.is_unix:
        return Channel(_connected(address, access.timeout), handshake.ToClient)
    session = TlsSession(access.tls, address.host)
    return TlsChannel(_connected(address, access.timeout), handshake.ToClient, session)


def _connected(address: Address, timeout: float | None) -> socket.socket:
    try:
        if not address.is_unix:
            connection = socket.create_connection((address.host, address.port), timeout)
        else:
            connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
            try:
                connection.settimeout(timeout)
                connection.connect(address.path)
            except BaseException:
                connection.close()
                raise
        connection.settimeout(None)
        set_options(connection)
        return connection
    except (TimeoutError, BlockingIOError) as error:  # The second of a timeout of 0.
        raise DeadlineExceeded(f"{address}: no connection in {timeout} s") from error
    except OSError as error:
        raise Disconnected(f"{address}: nobody listens there: {error}") from error


class _Reader:
    """Receives the messages of the handshake, each within the time.

    Args:
        channel: to the server.
        timeout: of the handshake, in seconds.
        deadline: of the handshake.
    """

    def __init__(self, channel: Channel, timeout: float | None, deadline: float | None) -> None:
        self._channel, self._timeout, self._deadline = channel, timeout, deadline
        self._poll = select.poll()
        self._poll.register(channel.fileno(), select.POLLIN)

    def receive(self) -> object:
        """Returns the next message.

        Raises:
            AuthenticationError, Closed, Disconnected: the server refuses the client.
        """
        while True:
            left = None if self._deadline is None else self._deadline - time.monotonic()
            if left is not None and left <= 0:
                raise DeadlineExceeded(f"the handshake was not finished within {self._timeout:.3g} s")
            # In turns, for Ctrl-C.
            if not self._poll.poll(500 if left is None else min(left, 0.5) * 1000):
                continue
            for frame in self._channel.receive_ready():
                frame.close_descriptors()
                if isinstance(frame.message, Refusal):
                    raise _ERRORS[frame.message.kind](frame.message.reason)
                return frame.message
            if self._channel.unsent:
                # It waited for a handshake of TLS.
                self._channel.send_rest()


def _shake_hands(channel: Channel, access: ServerAccess, reader: _Reader, may_map: bool) -> Welcome:
    nonce, token, offer = new_nonce(), access.token, access.offer
    channel.send_soon(Greeting(nonce=nonce))
    challenge = reader.receive()
    if not isinstance(challenge, Challenge) or len(challenge.nonce) != NONCE_NBYTES:
        raise ProtocolError(f"expected a challenge, got {type(challenge).__name__}")
    if token is not None and not challenge.needs_token:
        raise AuthenticationError("this client has a token, and the server does not ask for one")
    has_proof = token is not None and challenge.needs_token
    mac = proof(token, "client", nonce, challenge.nonce) if token is not None and has_proof else b""
    with suppress(Disconnected):  # Receiving tells why.
        compressed = UNSET if offer is None else list(offer.paths)
        channel.send_soon(Proof(mac=mac, in_place=may_map, compressed=compressed))
    welcome = reader.receive()
    if not isinstance(welcome, Welcome):
        raise ProtocolError(f"expected a welcome, got {type(welcome).__name__}")
    if token is not None and not is_proof(welcome.mac, token, "server", nonce, challenge.nonce):
        raise AuthenticationError("the server cannot prove that it knows the token")
    return welcome
