"""Bytes of any kind end at worst their own connection."""

import gc
import logging
import socket
import struct
import threading
import time
import weakref
from functools import partial

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import headrace as hr
from headrace.leases.frames import encoded
from headrace.leases.messages import VERSION, Hello
from headrace.server.auth import NONCE_NBYTES
from headrace.server.messages.handshake import Greeting, Proof
from headrace.server.messages.operations import AppendSteps
from headrace.server.messages.requests import Delete, GetItems, Ping, Sample, UpdatePriorities
from headrace.server.messages.writing import OpenWriter, RuleDescription
from tests.server.hostile import SESSION, connected, frames, said_to

GREETING = encoded(Hello(version=VERSION)) + encoded(Greeting(nonce=bytes(NONCE_NBYTES)))


@pytest.fixture(scope="module")
def server():
    table = hr.Table("t", sampler=hr.selectors.Uniform(), remover=hr.selectors.Fifo(), max_size=99)
    with hr.Replay(hr.Signature.like({"n": 0}), [hr.Table.queue("q", 9), table], capacity=9999) as replay:
        with replay.writer(items=[hr.ItemRule("t", 1)]) as writer:
            writer.append({"n": 1})
        with hr.Server({"r": replay, "b": hr.BatchQueue({"n": 0}, 2)}) as server:
            yield server


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
    deadline = time.monotonic() + 20
    while server.statistics().protocol_errors == before:
        assert time.monotonic() < deadline
        time.sleep(0.002)


def test_a_frame_that_is_cut_is_counted(server):
    """LP2"""
    before = server.statistics().truncated_frames
    said_to(server, SESSION[:-3])
    deadline = time.monotonic() + 20
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


# ---- well-formed messages with hostile contents --------------------------------------------------------------------


def opening(**changes):
    fields = {"writer": 0, "replay": "r", "lanes": 1, "rules": [], "history": None, "session": bytes(16)}
    return OpenWriter(**{**fields, **changes})


STEP = encoded(AppendSteps(writer=0, sequence=1, steps=1, version=0), bytes(8))
BEGINNINGS = [b"", encoded(opening()) + STEP, encoded(opening(lanes=2, history=3))]


@settings(max_examples=60)
@given(st.sampled_from(BEGINNINGS), frames(most=6))
def test_any_messages_end_at_worst_their_own_connection(server, beginning, data):
    """WI3: and no traceback is printed."""
    errors = []
    handler = logging.Handler(logging.ERROR)
    handler.emit = errors.append
    logging.getLogger("headrace").addHandler(handler)
    try:
        said_to(server, SESSION + beginning + data)
        with hr.Client(server.address) as client:
            assert client.ping() < 10
    finally:
        logging.getLogger("headrace").removeHandler(handler)
    assert not [each.getMessage() for each in errors if each.exc_info]


def sample(batch_size):
    return Sample(number=1, replay="r", table="t", batch_size=batch_size, timeout=0)


def rule(**changes):
    return RuleDescription(**{"kind": "item", "table": "t", "length": 1, "priority": 1.0, **changes})


@pytest.mark.parametrize("number", [10**8, 10**12, 2**62])
@pytest.mark.parametrize(
    "message",
    [
        sample,
        lambda number: opening(lanes=number),
        lambda number: opening(rules=[rule(length=max(number, 2**31))]),
        lambda number: opening(rules=[rule(lookahead=max(number, 2**31))]),
    ],
)
def test_no_memory_is_taken_for_a_number(server, message, number):
    """WI3: the request is refused at once."""
    with connected(server) as peer:
        peer.sendall(SESSION + encoded(message(number)))
        found = b""
        while b"expected" not in found:
            found += peer.recv(1 << 16)
        assert b"ValueError" in found


def test_two_hundred_at_once(server):
    """SV7: half of them wait, and all vanish together."""
    before = threading.active_count()
    wait = encoded(Sample(number=1, replay="r", table="q", batch_size=1, timeout=None))
    peers = [connected(server) for _ in range(200)]
    try:
        for number, peer in enumerate(peers):
            peer.sendall(SESSION + (wait if number % 2 else b""))
        until(lambda: server.statistics().connections >= 200)
        until(lambda: server.statistics().served["r"].tables["q"].waiting_samples == 100)
        assert threading.active_count() == before
        with hr.Client(server.address) as client:
            assert client.ping() < 5
    finally:
        for peer in peers:
            peer.close()
    until(lambda: server.statistics().connections == 0)
    assert server.statistics().served["r"].tables["q"].waiting_samples == 0


def test_an_ended_connection_is_not_kept_until_its_handshake_would_be_late(server):
    """WI4: many in a row would fill the memory meanwhile."""
    with connected(server):
        until(lambda: len(server._running()._open) == 1)
        (served,) = (weakref.ref(each) for each in server._running()._open)
    until(lambda: gc.collect() >= 0 and served() is None)


def until(condition):
    deadline = time.monotonic() + 10
    while not condition():
        assert time.monotonic() < deadline, "it did not come to that"
        time.sleep(0.002)


@pytest.mark.parametrize(
    ("request_of", "payload", "told"),
    [
        (Delete, bytes(7), b"keys: expected numbers of 8 bytes each, got 7 bytes"),
        (GetItems, bytes(9), b"keys: expected numbers of 8 bytes each, got 9 bytes"),
        (
            partial(UpdatePriorities, keys=1),
            bytes(15),
            b"priorities: expected numbers of 8 bytes each, got 7",
        ),
    ],
)
def test_a_payload_of_another_length_is_told(server, request_of, payload, told):
    """SS2, CL7"""
    request = encoded(request_of(number=1, replay="r", table="t"), payload)
    assert told in said_to(server, SESSION + request)
