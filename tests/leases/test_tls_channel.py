"""Channels with TLS: pieces of any size, peers that do not read, and bytes that are not TLS."""

import itertools
import os
import select
import socket
import threading

import pytest
from interrupts import Interrupt

import headrace as hr
import headrace.leases.tls.channel as tls_channel_module
from headrace.leases.frames import encoded
from headrace.leases.messages import VERSION, Ack, Hello, LeaseMessage
from headrace.leases.tls.channel import TlsChannel
from headrace.leases.tls.session import TlsSession
from tests.server.certificates import client_context, server_context


def sessions():
    return TlsSession(server_context()), TlsSession(client_context(), "127.0.0.1")


@pytest.fixture
def pair():
    """A server and a client, whose handshake is finished."""
    server, client = channels = [
        TlsChannel(end, LeaseMessage, session)
        for end, session in zip(socket.socketpair(), sessions(), strict=True)
    ]
    try:
        client.send_soon(Ack(writer=0, sequence=0))
        while not (server.is_ready and client.is_ready):
            for each in channels:
                assert not list(ready(each))
        client.send_rest()
        assert server.receive().message.sequence == 0
        yield server, client
    finally:
        for each in channels:
            each.close()


def ready(channel):
    if select.select([channel], [], [], 0)[0]:
        yield from channel.receive_ready()


def test_frames_of_any_size_arrive(pair):
    server, client = pair
    for size in (0, 1, 16_383, 16_385, 65_535, 65_536, 300_000, 1_500_000):
        payload = os.urandom(size)
        server.send_soon(Ack(writer=1, sequence=size), payload=payload)
        server.send_soon(Ack(writer=2, sequence=size))
        found = []
        while len(found) < 2:
            found += ready(client)
            server.send_rest()
        assert [frame.message.writer for frame in found] == [1, 2]
        assert found[0].payload == payload
    assert not server.unsent
    assert client.bytes_in == server.bytes_out


def test_a_stopped_iteration_goes_on(pair):
    """Bytes that were received and not yet decrypted are no reason to wait for the socket."""
    server, client = pair
    for number in range(40):
        server.send_soon(Ack(writer=0, sequence=number), payload=bytes(1000))
    first = next(client.receive_ready())
    assert first.message.sequence == 0
    assert [frame.message.sequence for frame in client.received()] == list(range(1, 40))


def test_what_a_peer_does_not_read_is_not_encrypted(pair):
    server, _ = pair
    parts = [memoryview(bytes(1 << 20)) for _ in range(20)]
    assert not server.send_soon(Ack(writer=0, sequence=0), parts=parts)
    assert len(server._session.ciphertext) < 1 << 19
    assert server.unsent > 15 << 20
    with pytest.raises(hr.Disconnected, match="does not read"):
        server.send_soon(Ack(writer=0, sequence=1), most=1 << 20)


@pytest.mark.parametrize(
    ("call", "size"),
    [("send_soon", 0), ("send_soon", 40_000), ("send_soon", 3_000_000), ("send_rest", 3_000_000)],
)
def test_ctrl_c_at_every_moment_of_a_send(pair, call, size):
    """server AU3: no byte is encrypted twice, no ciphertext is lost or sent twice: each message comes once, whole."""
    server, client = pair
    found, begun, payload = [], [], os.urandom(size)
    for number in itertools.count(1):
        sequence = 2 * number
        if call == "send_rest":
            assert not client.send_soon(Ack(writer=1, sequence=sequence), payload=payload)
            found += ready(server)  # The system takes more of it.
        try:
            with Interrupt(number, folder="leases/tls"):
                if call == "send_rest":
                    client.send_rest()
                else:
                    client.send_soon(Ack(writer=1, sequence=sequence), payload=payload)
        except KeyboardInterrupt:
            begun.append(sequence)
        client.send_soon(Ack(writer=1, sequence=sequence + 1))
        while not found or found[-1].message.sequence < sequence + 1:
            client.send_rest()
            found += ready(server)
        if sequence not in begun:
            break
    numbers = [frame.message.sequence for frame in found]
    assert sorted(set(numbers)) == numbers
    # The call may have begun to do nothing.
    assert set(range(3, sequence + 2, 2)) <= set(numbers)
    assert set(range(2, sequence + 1, 2)) - set(numbers) <= {2, 4}
    assert all(frame.payload == payload for frame in found if frame.message.sequence % 2 == 0)
    assert not client.unsent
    assert client.bytes_out == server.bytes_in
    assert number > 4


def test_one_byte_at_a_time(pair):
    server, client = pair
    client._session.encrypt([encoded(Ack(writer=3, sequence=3), b"behind")])
    for byte in bytes(client._session.next_ciphertext()):
        client._socket.sendall(bytes([byte]))
        frames = list(server.receive_ready())
    assert [(frame.message.writer, frame.payload) for frame in frames] == [(3, b"behind")]


def test_descriptors_are_refused(pair):
    with pytest.raises(ValueError, match="no descriptors"):
        pair[0].send_soon(Ack(writer=0, sequence=0), descriptors=(0,))


@pytest.mark.parametrize("data", [encoded(Hello(version=VERSION)), b"GET / HTTP/1.1\r\n\r\n", bytes(99)])
def test_bytes_that_are_not_tls_end_the_connection(data):
    one, other = socket.socketpair()
    server = TlsChannel(one, LeaseMessage, sessions()[0])
    other.sendall(data)
    with pytest.raises(hr.Disconnected, match="TLS session failed"):
        list(server.receive_ready())
    server.close()
    other.close()


def test_a_changed_byte_ends_the_connection(pair):
    server, client = pair
    client._session.encrypt([encoded(Ack(writer=3, sequence=3))])
    data = bytearray(bytes(client._session.next_ciphertext()))
    data[-1] ^= 1
    client._socket.sendall(data)
    with pytest.raises(hr.Disconnected, match="BAD_RECORD_MAC"):
        list(server.receive_ready())


def test_calls_that_wait_do_the_handshake_too():
    server, client = (
        TlsChannel(end, LeaseMessage, session)
        for end, session in zip(socket.socketpair(), sessions(), strict=True)
    )
    found = []
    thread = threading.Thread(target=lambda: found.append(server.receive()))
    thread.start()
    client.send(Ack(writer=7, sequence=1), payload=bytes(3_000_000))
    thread.join(10)
    assert len(found[0].payload) == 3_000_000
    server.close()
    client.close()


@pytest.mark.parametrize("shakes_hands", [False, True])
def test_a_peer_that_takes_nothing_ends_a_call_that_sends(shakes_hands, monkeypatch):
    monkeypatch.setattr(tls_channel_module, "_SILENT_SECONDS", 0.05)
    server, client = (
        TlsChannel(end, LeaseMessage, session)
        for end, session in zip(socket.socketpair(), sessions(), strict=True)
    )
    if shakes_hands:
        client.send_soon(Ack(writer=0, sequence=0))
        while not (client.is_ready and server.is_ready):
            for each in (server, client):
                list(each.receive_ready())
                each.send_rest()
    with pytest.raises(hr.Disconnected, match=r"nothing for 0\.05 s"):
        client.send(Ack(writer=7, sequence=1), payload=bytes(30_000_000))
    server.close()
    client.close()
