"""Limits of the clients of a server: slow readers, floods of requests, and too many connections."""

import resource
import socket
import threading
import time

import numpy as np
import pytest

import headrace as hr
from headrace.leases.frames import encoded
from headrace.leases.messages import VERSION, Hello
from headrace.server.auth import NONCE_NBYTES
from headrace.server.limits import Limits
from headrace.server.messages.handshake import Greeting, Proof
from headrace.server.messages.operations import AppendSteps
from headrace.server.messages.requests import Ping, Sample, TakeBatch
from headrace.server.messages.writing import OpenWriter, Sync
from tests.server.hostile import said_to

SESSION = encoded(Hello(version=VERSION)) + encoded(Greeting(nonce=bytes(NONCE_NBYTES))) + encoded(Proof())
FRAME = np.arange(100_000, dtype=np.uint8)


def until(condition):
    deadline = time.monotonic() + 10
    while not condition():
        assert time.monotonic() < deadline, "it did not come to that"
        time.sleep(0.002)


def connected(server):
    host, port = server.address.removeprefix("tcp://").split(":")
    return socket.create_connection((host, int(port)), timeout=10)


@pytest.fixture
def replay():
    table = hr.Table("t", sampler=hr.selectors.Uniform(), remover=hr.selectors.Fifo(), max_size=99)
    with hr.Replay(
        hr.Signature.like({"frame": FRAME}), [table, hr.Table.queue("q", 1)], capacity=99
    ) as replay:
        with replay.writer(items=[hr.ItemRule("t", 1)]) as writer:
            writer.append({"frame": FRAME})
        yield replay


def the_connection(server):
    (found,) = server._running()._open
    return found


def test_a_client_that_does_not_read_is_not_served_further(replay):
    """SV8: bounded memory. SV7: others are served meanwhile."""
    sample = encoded(Sample(number=1, replay="r", table="t", batch_size=10, timeout=None))
    with hr.Server({"r": replay}, limits=Limits(unread_nbytes=1 << 20)) as server, connected(server) as peer:
        peer.sendall(SESSION + sample * 200)
        until(lambda: server.statistics().connections == 1 and the_connection(server).is_full)
        drawn = replay.table("t").statistics().samples
        with hr.Client(server.address) as client:
            for _ in range(20):
                assert client.ping() < 5
        assert replay.table("t").statistics().samples == drawn < 200 * 10
        peer.settimeout(10)
        received = 0
        while received < 200 * 10 * FRAME.nbytes:
            received += len(peer.recv(1 << 20))
        until(lambda: replay.table("t").statistics().samples == 200 * 10)


def test_steps_that_find_no_page_are_bounded(replay):
    """SV8: the server stops reading the connection, and goes on when there is room."""
    opening = OpenWriter(writer=0, replay="r", lanes=1, rules=[], history=200, session=bytes(16))
    with hr.Server({"r": replay}, limits=Limits(queued_nbytes=1 << 20)) as server, connected(server) as peer:
        peer.sendall(SESSION + encoded(opening))
        sent = 0

        def send():
            nonlocal sent
            try:
                while sent < 1000:
                    step = AppendSteps(writer=0, sequence=sent + 1, steps=1, version=0)
                    peer.sendall(encoded(step, FRAME.tobytes()))
                    sent += 1
            except OSError:
                pass

        thread = threading.Thread(target=send)
        thread.start()
        until(lambda: server.statistics().connections == 1 and the_connection(server).is_full)
        queued = the_connection(server)._requests.queued_nbytes
        assert queued < (1 << 20) + 2 * FRAME.nbytes
        with hr.Client(server.address) as client:
            assert client.ping() < 5
        assert sent < 1000
        # It is not read, and its end is noticed all the same.
        peer.shutdown(socket.SHUT_RDWR)
        thread.join(10)
        until(lambda: server.statistics().connections == 0)


def test_many_requests_for_durability_take_one_thread(replay):
    opening = OpenWriter(writer=0, replay="r", lanes=1, rules=[], history=1, session=bytes(16))
    syncs = b"".join(encoded(Sync(writer=0, ticket=number)) for number in range(2000))
    with hr.Server({"r": replay}) as server, connected(server) as peer:
        before = threading.active_count()
        peer.sendall(SESSION + encoded(opening) + syncs + encoded(Ping(number=5)))
        found, most = b"", 0
        while found.count(b"Waited") < 2000:
            found += peer.recv(1 << 20)
            most = max(most, threading.active_count())
        assert most <= before + 2


def test_no_more_connections_than_the_limit(replay):
    with hr.Server({"r": replay}, limits=Limits(connections=2)) as server:
        with hr.Client(server.address) as client, hr.Client(server.address):
            with pytest.raises(hr.Disconnected, match="has 2 connections"):
                hr.Client(server.address)
            assert client.ping() > 0
            assert server.statistics().rejected_handshakes == 1
        until(lambda: server.statistics().connections == 0)
        with hr.Client(server.address) as client:
            assert client.ping() > 0


def test_a_process_without_descriptors_keeps_its_clients_and_its_processor(replay):
    """SV7: a connection that cannot be accepted is not tried again without end."""
    with hr.Server({"r": replay}) as server, hr.Client(server.address) as client:
        soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
        waiting = [socket.socket() for _ in range(3)]
        held = socket.socket()
        highest = held.fileno()
        resource.setrlimit(resource.RLIMIT_NOFILE, (highest, hard))
        try:
            host, port = server.address.removeprefix("tcp://").split(":")
            for each in waiting:
                each.connect((host, int(port)))
            began = time.thread_time()
            before = time.process_time()
            time.sleep(0.3)
            assert time.process_time() - before - (time.thread_time() - began) < 0.2
            assert client.ping() < 5
        finally:
            resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
            for each in (*waiting, held):
                each.close()
        with hr.Client(server.address) as other:
            assert other.ping() > 0


def test_a_payload_beyond_the_limit_ends_the_connection(replay):
    """WI2"""
    with hr.Server({"r": replay}, limits=Limits(payload_nbytes=1000)) as server, connected(server) as peer:
        peer.sendall(SESSION + encoded(Ping(number=1), bytes(1001)))
        found = b""
        while piece := peer.recv(1 << 16):
            found += piece
        assert b"at most" in found
        assert server.statistics().protocol_errors == 1


def test_a_writer_whose_steps_fit_into_no_message_is_refused(replay, tmp_path):
    """A bad request fails alone: the first step would end the connection. Over a Unix socket steps lie in memory."""
    limits, socket_path = Limits(payload_nbytes=2 * FRAME.nbytes), tmp_path / "socket"
    with (
        hr.Server({"r": replay}, limits=limits, unix=socket_path) as server,
        hr.Client(server.address) as client,
        hr.Client(f"unix://{socket_path}") as local,
    ):
        with pytest.raises(ValueError, match="steps of 3 lanes have 300000 bytes.* larger payload_nbytes"):
            client.replay("r").writer(lanes=3)
        for each, lanes in ((client, 2), (local, 3)):
            rules = [hr.ItemRule("t", 1)]
            with each.replay("r").writer(lanes=lanes, items=rules, history=1) as writer:
                writer.append({"frame": np.stack([FRAME] * lanes)})
        assert replay.table("t").statistics().inserts == 6
        assert server.statistics().protocol_errors == 0


@pytest.mark.parametrize("way", ["tcp", "unix"])
def test_a_writer_sends_no_more_steps_together_than_a_message_may_have(way, tmp_path):
    """WI2: it collects up to 1 MiB, which may be more than the limit of the server; the server tells it."""
    limits, place = Limits(payload_nbytes=1 << 14), {"unix": tmp_path / "socket", "address": None}
    table = hr.Table.queue("t", 10_000)
    with (
        hr.Replay(hr.Signature.like({"n": 0, "x": np.zeros(1000, np.uint8)}), [table]) as replay,
        hr.Server({"r": replay}, limits=limits, **(place if way == "unix" else {})) as server,
        hr.Client(server.addresses[0], timeout=10) as client,
        client.replay("r").writer(items=[hr.ItemRule("t", 1)]) as writer,
    ):
        for n in range(1000):
            writer.append({"n": n, "x": np.zeros(1000, np.uint8)})
        writer.flush(10)
        assert replay.sample("t", 1000, timeout=0).data["n"].tolist() == list(range(1000))
        assert server.statistics().protocol_errors == 0


def test_an_operation_that_fits_into_no_message_is_refused(replay):
    """SS2: a step of two lanes fits, but not with their final rows. Nothing is stored, and the writer goes on."""
    with (
        hr.Server({"r": replay}, limits=Limits(payload_nbytes=3 * FRAME.nbytes)) as server,
        hr.Client(server.address, timeout=10) as client,
    ):
        writer = client.replay("r").row_writer(lanes=2, items=[hr.ItemRule("t", 1)], history=1)
        step = {"frame": np.stack([FRAME, FRAME])}
        none, both = np.zeros(2, np.bool_), np.arange(2)
        with pytest.raises(ValueError, match="at most 300000 bytes a message.* got 400000 .* payload_nbytes"):
            writer.append_ends(step, none, both, step)
        writer.append_ends(step, none, both[:1], {"frame": step["frame"][:1]})
        writer.append(step)
        writer.flush(10)
        assert replay.table("t").statistics().inserts == 5
        assert server.statistics().protocol_errors == 0
        writer.close(10)


def test_limits_are_checked(replay):
    for bad in ({"connections": 0}, {"payload_nbytes": -1}, {"handshake_timeout": 0}):
        with pytest.raises(ValueError, match=next(iter(bad))):
            Limits(**bad)
    with pytest.raises(TypeError, match="limits"):
        hr.Server({"r": replay}, limits=5)
    assert hr.server.Limits().handshake_timeout == 10.0


def test_steps_that_are_stored_do_not_count_as_waiting(replay):
    """SV8: a client may send any number of them in turn."""
    limits = Limits(queued_nbytes=4 * FRAME.nbytes)
    with hr.Server({"r": replay}, limits=limits) as server, hr.Client(server.address, timeout=20) as client:
        with client.replay("r").writer(items=[hr.ItemRule("t", 1)]) as writer:
            for _ in range(20):
                writer.append({"frame": FRAME})
                writer.flush(20)
            [connection] = [each for each in server._running()._open if each._requests.are_open]
            assert connection._requests.queued_nbytes == 0
        assert len(replay.table("t")) == 21


def test_waits_for_batches_are_bounded():
    """SV8: those of one client."""
    waits = b"".join(encoded(TakeBatch(number=n, queue="q", timeout=None)) for n in range(1, 1026))
    with hr.BatchQueue({"n": 0}, 2) as queue, hr.Server({"q": queue}) as server:
        said = said_to(server, SESSION + waits)
        assert said.count(b"expected at most 1024 waiting requests of one client for batches") == 1
        assert said.count(b"Failed") == 1
