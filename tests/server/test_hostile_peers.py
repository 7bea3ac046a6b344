"""Bytes of any kind end at worst their own connection."""

import socket
import struct
import time

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import headrace as hr
from headrace.leases.frames import encoded
from headrace.leases.messages import VERSION, Hello
from headrace.server.auth import NONCE_NBYTES
from headrace.server.messages.handshake import Greeting, Proof
from headrace.server.messages.requests import Ping, Sample

GREETING = encoded(Hello(version=VERSION)) + encoded(Greeting(nonce=bytes(NONCE_NBYTES)))
SESSION = GREETING + encoded(Proof())


@pytest.fixture(scope="module")
def server():
    with hr.Replay(hr.Signature.like({"n": 0}), [hr.Table.queue("q", 9)]) as replay:
        with hr.Server({"r": replay}) as server:
            yield server


def connected(server):
    host, port = server.address.removeprefix("tcp://").split(":")
    return socket.create_connection((host, int(port)), timeout=10)


def said_to(server, data):
    """Sends bytes, and returns what comes until the server ends the connection."""
    found = b""
    with connected(server) as peer:
        try:
            peer.sendall(data)
            peer.shutdown(socket.SHUT_WR)
            while piece := peer.recv(1 << 16):
                found += piece
        except ConnectionError:
            pass
    return found


@settings(max_examples=60)
@given(st.binary(max_size=200), st.sampled_from([b"", GREETING, SESSION]))
def test_any_bytes_end_their_own_connection(server, data, before):
    """WI3"""
    said_to(server, before + data)
    with hr.Client(server.address) as client:
        assert client.ping() < 10


@settings(max_examples=40)
@given(st.integers(0, len(SESSION)), st.integers(0, 255))
def test_a_changed_byte_ends_its_own_connection(server, place, value):
    """WI3"""
    session = SESSION + encoded(Ping(number=1))
    said_to(server, session[:place] + bytes([value]) + session[place + 1 :])
    with hr.Client(server.address) as client:
        assert client.ping() < 10


@pytest.mark.parametrize(
    ("data", "told"),
    [
        (b"GET / HTTP/1.1\r\n\r\nxxxxxx", b"does not speak"),
        (encoded(Hello(version=99)), b"version"),
        (encoded(Hello(version=VERSION)) + struct.pack("<4sIIQ", b"hrl1", 1 << 17, 0, 0), b"announced"),
        (GREETING + struct.pack("<4sIIQ", b"hrl1", 9, 0, 1), b"announced"),
        (SESSION + struct.pack("<4sIIQ", b"hrl1", 1 << 21, 0, 0), b"announced"),
        (SESSION + struct.pack("<4sIIQ", b"hrl1", 9, 0, 1 << 40), b"announced"),
        (encoded(Hello(version=VERSION)) + encoded(Proof()), b"expected a greeting"),
        (SESSION + encoded(Proof()), b"no message"),
    ],
)
def test_a_broken_protocol_is_told_and_counted(server, data, told):
    """WI2, WI3"""
    before = server.statistics().protocol_errors
    assert told in said_to(server, data)
    deadline = time.monotonic() + 5
    while server.statistics().protocol_errors == before:
        assert time.monotonic() < deadline
        time.sleep(0.002)


def test_a_frame_that_is_cut_is_counted(server):
    """LP2"""
    before = server.statistics().truncated_frames
    said_to(server, SESSION[:-3])
    deadline = time.monotonic() + 5
    while server.statistics().truncated_frames == before:
        assert time.monotonic() < deadline
        time.sleep(0.002)


def test_frames_may_come_one_byte_at_a_time(server):
    """WI4"""
    with connected(server) as peer:
        peer.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        for byte in SESSION + encoded(Ping(number=77)):
            peer.sendall(bytes([byte]))
        found = b""
        while b"Done" not in found:
            found += peer.recv(1 << 16)


def test_a_bad_request_fails_alone(server):
    """CL7: the connection goes on."""
    bad = Sample(number=1, replay="none", table="q", batch_size=1, timeout=0)
    with connected(server) as peer:
        peer.sendall(SESSION + encoded(bad) + encoded(Ping(number=2)))
        found = b""
        while b"Done" not in found:
            found += peer.recv(1 << 16)
    assert b"no replay" in found
