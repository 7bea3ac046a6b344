"""The end of a server: what has arrived is answered, what waits is refused, and it takes bounded time."""

import socket
import threading
import time
from contextlib import suppress
from types import SimpleNamespace

import pytest

import headrace as hr
from headrace.leases.frames import encoded
from headrace.server.addresses import parse_address
from headrace.server.client.connecting import ServerAccess, connect
from headrace.server.messages.operations import AppendSteps
from headrace.server.messages.requests import CanSample, Sample
from headrace.server.messages.rules import described_rule
from headrace.server.messages.writing import OpenWriter
from headrace.server.serving import draining
from tests.server.hostile import SESSION, connected
from tests.server.test_checkpoints import SlowDisk, in_thread


@pytest.fixture
def replay():
    with hr.Replay(hr.Signature.like({"n": 0}), [hr.Table.queue("q", 5000)]) as replay:
        yield replay


def until(condition):
    deadline = time.monotonic() + 10
    while not condition():
        assert time.monotonic() < deadline, "it did not come to that"
        time.sleep(0.002)


def test_requests_that_have_arrived_are_answered(replay):
    """SV5"""
    server = hr.Server({"r": replay}).start()
    link = connect(ServerAccess(parse_address(server.address), None, None, 10.0))
    waiting = link.begin(Sample(replay="r", table="q", batch_size=1, timeout=None))
    until(lambda: replay.table("q").statistics().waiting_samples == 1)
    replies = [link.begin(CanSample(replay="r", table="q", n=1)) for _ in range(500)]
    late = link.begin(Sample(replay="r", table="q", batch_size=1, timeout=None))
    thread = threading.Thread(target=server.stop)
    thread.start()
    assert [link.wait(each, 10.0)[0].value for each in replies] == [False] * 500
    for each in (waiting, late):
        with pytest.raises(hr.Closed, match="stops"):
            link.wait(each, 10.0)
    thread.join(10)
    link.close()


def test_steps_that_have_arrived_are_applied(replay):
    """SV5"""
    rules = [described_rule(hr.ItemRule("q", 1))]
    opening = OpenWriter(writer=0, replay="r", lanes=1, rules=rules, history=None, session=bytes(16))
    server = hr.Server({"r": replay}).start()
    with connected(server) as peer:
        peer.sendall(SESSION + encoded(opening))
        until(lambda: server.statistics().connections == 1)
        # They are in the system's buffer before the server is told to stop.
        peer.sendall(
            b"".join(
                encoded(AppendSteps(writer=0, sequence=n, steps=1, version=0), bytes(8))
                for n in range(1, 301)
            )
        )
        server.stop(drain_timeout=20)
        assert len(replay.table("q")) == 300


def test_a_flush_beside_the_end_confirms_what_is_there(replay):
    """SV5, AK1: and no more is there than was appended, each once. A slow client may get the goodbye first."""
    server = hr.Server({"r": replay}).start()
    client = hr.Client(server.address, timeout=5.0)
    writer = client.replay("r").writer(items=[hr.ItemRule("q", 1)])
    for n in range(3000):
        writer.append({"n": n})
    thread = threading.Thread(target=server.stop)
    thread.start()
    confirmed = 0
    with suppress(hr.Closed):
        writer.flush(timeout=5.0)
        confirmed = 3000
    thread.join(10)
    found = len(replay.table("q"))
    assert confirmed <= found <= 3000
    if found:
        assert replay.sample("q", found, timeout=0)["n"].tolist() == list(range(found))
    until(lambda: not writer._rows._stream.is_connected)
    if confirmed:
        writer.close()
        client.close()
    client._session.abandon()


def test_a_client_that_never_stops_does_not_hold_up_the_end(replay):
    """SV5"""
    server = hr.Server({"r": replay}).start()
    with hr.Client(server.address) as client:
        begun, ended = threading.Event(), []

        def ask():
            try:
                while True:
                    client.ping()
                    begun.set()
            except (hr.Closed, hr.Disconnected) as error:
                ended.append(error)

        threads = [threading.Thread(target=ask) for _ in range(3)]
        for thread in threads:
            thread.start()
        assert begun.wait(20)
        before = time.monotonic()
        server.stop(drain_timeout=60)
        assert time.monotonic() - before < 30
        client.close()  # Whoever lost the connection would try to reach the server for the client's timeout.
        for thread in threads:
            thread.join(20)
        assert len(ended) == 3


def test_a_checkpoint_under_way_is_answered(replay, tmp_path, monkeypatch):
    """SV5, SV6"""
    disk = SlowDisk(monkeypatch)
    server = hr.Server({"r": replay}, checkpoint=tmp_path).start()
    with hr.Client(server.address) as client:
        saving, folders = in_thread(client.checkpoint)
        assert disk.began.wait(20)
        stopping, _ = in_thread(server.stop)
        stopping.join(0.1)
        assert stopping.is_alive()
        disk.finish.set()
        saving.join(20)
        stopping.join(20)
        assert list(folders[0]) == ["r"]


@pytest.mark.parametrize("seconds", [0, 0.3])
def test_the_end_comes_in_time(replay, tmp_path, monkeypatch, seconds):
    """SV5: within `drain_timeout` and a second, beside the last checkpoint."""
    waits = []

    class NotedEvent(threading.Event):
        """Passes the first wait, which ends with its time, at once; notes the seconds of all."""

        def wait(self, timeout):
            waits.append(timeout)
            return super().wait(0 if len(waits) == 1 else 40)

    monkeypatch.setattr(draining, "threading", SimpleNamespace(Event=NotedEvent))
    disk = SlowDisk(monkeypatch)
    server = hr.Server({"r": replay}, checkpoint=tmp_path).start()
    with hr.Client(server.address) as client:
        saving, found = in_thread(client.checkpoint)
        assert disk.began.wait(20)
        stopping, _ = in_thread(lambda: server.stop(drain_timeout=seconds))
        saving.join(15)
        assert isinstance(found[0], hr.Closed)
        assert waits[0] == seconds
        assert sum(waits) <= seconds + 1
        disk.finish.set()
        stopping.join(20)


def test_a_server_that_vanishes_ends_a_wait_within_a_second(replay):
    """AK7: no goodbye, only the end of the connection. A busy machine may take longer; looking would take 13 s."""
    with hr.Server({"r": replay}) as server, hr.Client(server.address) as client:
        waiting, found = in_thread(lambda: client.replay("r").sample("q", 1))
        until(lambda: replay.table("q").statistics().waiting_samples == 1)
        (connection,) = server._running()._open
        connection.channel.shutdown()
        began = time.monotonic()
        waiting.join(10)
        assert time.monotonic() - began < 10
        assert isinstance(found[0], hr.Disconnected)
        until(lambda: replay.table("q").statistics().waiting_samples == 0)
        assert time.monotonic() - began < 10


def test_stopping_with_clients_halfway_in_the_handshake(replay):
    server = hr.Server({"r": replay}).start()
    host, port = server.address.removeprefix("tcp://").split(":")
    with socket.create_connection((host, int(port))) as silent:
        until(lambda: len(server._running()._open) == 1)
        before = time.monotonic()
        server.stop(drain_timeout=60)
        assert time.monotonic() - before < 8  # Its handshake would be late after 10 s.
        assert b"stops" in silent.recv(1000)


def test_served_objects_stay_usable_before_and_after_serving():
    """SV4: local and remote callers see one state, and stopping closes nothing."""
    with hr.Replay(hr.Signature.like({"n": 0}), [hr.Table.queue("q", 9)]) as replay:
        with hr.BatchQueue(0, 2) as queue, replay.writer(items=[hr.ItemRule("q", 1)]) as local:
            local.append({"n": 1})
            queue.send(1)
            server = hr.Server({"r": replay, "b": queue})
            with server, hr.Client(server.address) as client:
                with client.replay("r").writer(items=[hr.ItemRule("q", 1)]) as writer:
                    writer.append({"n": 2})
                client.queue("b").send(2)
                client.queue("b").wait(10)
                local.append({"n": 3})
                assert len(client.replay("r").table("q")) == len(replay.table("q")) == 3
            local.append({"n": 4})
            queue.send(3)
            assert replay.sample("q", 4, timeout=0).data["n"].tolist() == [1, 2, 3, 4]
            assert queue.sample(timeout=0)[0].tolist() == [1, 2]
            assert queue.statistics().size == 1
