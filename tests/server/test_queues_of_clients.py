"""One program over a queue in process and over a client (CL3), and the parts of a client that a queue does not have."""

import os
import subprocess
import sys
import threading
import time
from contextlib import ExitStack
from itertools import count

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import headrace as hr
from headrace.server.client.queues import sample_stream
from headrace.server.client.queues.flusher import Flusher
from headrace.server.client.queues.opened_sender import NextConfirmation
from headrace.server.compression import packing, zstd
from headrace.server.messages.requests import ConfirmSamples, OpenSender, SendSamples
from headrace.server.serving import client_queues, client_requests
from headrace.server.serving.client_queues import ClientQueues
from headrace.server.serving.queue_sender import QueueSender
from tests.server.ring_samples import confirmed

JOIN = 30.0
EXAMPLE = {"z": np.zeros((2, 3), np.float32), "a": (0, False), "empty": np.zeros((0, 4))}


def until(condition):
    deadline = time.monotonic() + 10
    while not condition():
        assert time.monotonic() < deadline, "it did not come to that"
        time.sleep(0.002)


class InProcess:
    """A queue itself, with the call that only clients have."""

    def __init__(self, queue):
        self._queue = queue

    def __getattr__(self, name):
        return getattr(self._queue, name)

    def wait(self, timeout=None):
        """Samples are in the queue as soon as they are sent."""


@pytest.fixture(
    params=[
        ("in process", None),
        ("tcp", None),
        ("unix", None),
        ("token", 3),
        ("zstd", None),
        ("tcp", 1),
        ("unix", 1),
        ("unix", 2),
        ("tcp", 1000),
        ("unix", 1000),
    ],
    ids=lambda param: " ".join(map(str, filter(None, param))),
)
def opened(request, tmp_path, monkeypatch):
    """Returns a function from a queue to the same queue as its users have it: by way and samples in flight."""
    way, in_flight = request.param
    compression = "zstd" if way == "zstd" else None
    if compression:
        if not zstd.is_installed():
            pytest.skip("needs headrace[zstd]")
        monkeypatch.setattr(packing, "_LEAST_NBYTES", 1)  # However small a column is.
    paths = (tmp_path / str(number) for number in count())
    with ExitStack() as stack:

        def open_queue(queue):
            if way == "in process":
                return InProcess(queue)
            ways = {"token": {"token": "secret"}, "unix": {"address": None, "unix": next(paths)}}
            options = ways.get(way, {})
            server = stack.enter_context(hr.Server({"q": queue}, **options))
            client = hr.Client(server.address, token=options.get("token"), compression=compression)
            stack.callback(client._session.abandon)
            return client.queue("q", max_in_flight=in_flight)

        yield open_queue


@pytest.fixture(params=["tcp", "unix"])
def address(request, tmp_path):
    return {"address": None, "unix": tmp_path / "s"} if request.param == "unix" else {}


def taken(queue, **options):
    return queue.sample(timeout=5, **options)[0].tolist()


# ---- one program over both -----------------------------------------------------------------------------------------


def test_leaves_are_stacked_one_by_one(opened):
    """BQ1"""
    queue = opened(hr.BatchQueue(EXAMPLE, 3))
    for value in range(3):
        queue.send({"a": (value, value == 1), "z": np.full((2, 3), value), "empty": np.zeros((0, 4))})
    batch, info = queue.sample(timeout=5)
    assert list(batch) == ["z", "a", "empty"]
    assert (batch["z"].shape, batch["z"].dtype) == ((3, 2, 3), np.float32)
    assert batch["z"][:, 1, 2].tolist() == batch["a"][0].tolist() == [0, 1, 2]
    assert (batch["a"][1].tolist(), batch["a"][1].dtype) == ([False, True, False], np.bool_)
    assert batch["empty"].shape == (3, 0, 4)
    batch["z"][:] = 9
    assert (info.index, info.size, info.samples_received, info.samples_delivered) == (0, 0, 3, 3)
    with pytest.raises(AttributeError):
        info.size = 1


@pytest.mark.parametrize(
    ("sample", "message"),
    [
        ({"a": [1, 2]}, "missing b"),
        ({"a": [1, 2], "b": 1, "c": 1}, "extra c"),
        ({"a": [1], "b": 1}, r"^a: expected int64\[2\], got int64\[1\]"),
        ({"a": [1.0, 2.0], "b": 1}, "^a: .*float is never stored as integer"),
        ({"a": [1, 2], "b": 256}, "^b: .*do not fit"),
        ([[1, 2], 1], "expected a container dict, got list"),
    ],
)
def test_a_sample_that_does_not_fit_is_not_stored(opened, sample, message):
    """BQ3, CL7"""
    queue = opened(hr.BatchQueue({"a": np.zeros(2, np.int64), "b": np.uint8(0)}, 2))
    queue.send({"a": [1, 2], "b": 3})
    with pytest.raises(hr.SpecError, match=message):
        queue.send(sample)
    queue.send({"a": [4, 5], "b": 6})
    queue.wait(5)
    assert queue.statistics().samples_received == 2
    batch, _ = queue.sample(timeout=5)
    assert {name: leaf.tolist() for name, leaf in batch.items()} == {"a": [[1, 2], [4, 5]], "b": [3, 6]}


def test_a_sample_is_copied(opened):
    """BQ3"""
    queue = opened(hr.BatchQueue(np.zeros(2), 1, num_buffers=9))
    value = np.ones(2)
    for number in range(5):
        value[:] = number
        queue.send(value)
    value[:] = 99
    assert [taken(queue) for _ in range(5)] == [[[number, number]] for number in range(5)]


@pytest.mark.parametrize("nbytes", [8, 1 << 15, 1 << 20])
def test_order_through_a_full_queue(opened, nbytes):
    """BQ4, BQ5: more samples than there are places, of all sizes of messages; none is lost."""
    queue = opened(hr.BatchQueue({"n": 0, "x": np.zeros(nbytes, np.uint8)}, 3, num_buffers=2))
    samples = 300 if nbytes < 1 << 20 else 30
    sample = np.zeros(nbytes, np.uint8)

    def send_all():
        for number in range(samples):
            sample[:] = number % 256
            queue.send({"n": number, "x": sample}, timeout=JOIN)
        queue.wait(JOIN)

    sender = threading.Thread(target=send_all)
    sender.start()
    found = []
    for _ in range(samples // 3):
        batch, _ = queue.sample(timeout=JOIN)
        assert (batch["x"] == (batch["n"] % 256)[:, None]).all()
        found += batch["n"].tolist()
    sender.join(JOIN)
    assert found == list(range(samples))


@pytest.mark.parametrize("timeout", [0, -1, 0.02])
def test_nothing_is_lost_by_a_deadline(opened, timeout):
    """BQ5"""
    queue = opened(hr.BatchQueue(0, 2))
    queue.send(1)
    queue.wait(5)
    with pytest.raises(
        hr.DeadlineExceeded, match=r"no batch of 2 was full within \d+(\.\d+)? s; 1 samples wait"
    ):
        queue.sample(timeout=timeout)
    queue.send(2)
    assert taken(queue) == [1, 2]


@pytest.mark.parametrize("timeout", ["1", True, [1], float("nan")])
def test_a_timeout_that_is_not_a_time_changes_nothing(opened, timeout):
    """BQ4, BQ5"""
    queue = opened(hr.BatchQueue(0, 2))
    queue.send(0)
    for call in (lambda: queue.send(1, timeout=timeout), lambda: queue.sample(timeout=timeout)):
        with pytest.raises((TypeError, ValueError), match="^timeout: expected seconds or None, got"):
            call()
    queue.wait(5)
    assert queue.statistics().samples_received == 1


def test_views_are_read_only_and_stay_as_they_are(opened):
    """BQ7"""
    queue = opened(hr.BatchQueue(np.zeros(1000), 2, num_buffers=2))
    kept = []
    for number in range(6):
        queue.send(np.full(1000, 2 * number))
        queue.send(np.full(1000, 2 * number + 1))
        kept.append(queue.sample(timeout=5, copy=False)[0])
    assert [batch[:, 7].tolist() for batch in kept] == [[2 * n, 2 * n + 1] for n in range(6)]
    with pytest.raises(ValueError, match="read-only"):
        kept[0][:] = 1


def test_each_batch_goes_to_one_consumer(opened):
    """BQ8, CL4: consumers that wait at the same time, also in one client."""
    queue = opened(hr.BatchQueue(0, 2, num_buffers=3))
    found, lock = [], threading.Lock()

    def take():
        for _ in range(20):
            batch = taken(queue)
            with lock:
                found.append(batch)

    consumers = [threading.Thread(target=take) for _ in range(3)]
    for consumer in consumers:
        consumer.start()
    for number in range(120):
        queue.send(number, timeout=JOIN)
    for consumer in consumers:
        consumer.join(JOIN)
    assert sorted(found) == [[n, n + 1] for n in range(0, 120, 2)]


def test_senders_at_the_same_time_keep_their_order(opened):
    """BQ5, CL4"""
    queue = opened(hr.BatchQueue((0, 0), 5, num_buffers=2))

    def send_all(sender):
        for number in range(100):
            queue.send((sender, number), timeout=JOIN)

    senders = [threading.Thread(target=send_all, args=(sender,)) for sender in range(3)]
    for sender in senders:
        sender.start()
    batches = [queue.sample(timeout=JOIN)[0] for _ in range(60)]
    for sender in senders:
        sender.join(JOIN)
    found = np.concatenate([np.stack(batch, 1) for batch in batches])
    for sender in range(3):
        assert found[found[:, 0] == sender, 1].tolist() == list(range(100))


@pytest.mark.parametrize("copy", [True, False])
def test_batches_end_with_the_queue(opened, copy):
    """BQ9, BQ10: full batches are still handed out."""
    owner = hr.BatchQueue(0, 2)
    queue = opened(owner)
    for number in range(5):
        queue.send(number)
    queue.wait(5)
    stream = queue.batches(copy=copy)
    assert next(stream).tolist() == [0, 1]
    owner.close()
    assert [batch.tolist() for batch in stream] == [[2, 3]]
    with pytest.raises(hr.Closed, match="sample: the queue is closed and every full batch was taken"):
        queue.sample()
    assert queue.tail().tolist() == [4]
    assert queue.tail() is None

    def send_and_wait():
        queue.send(5)
        queue.wait(5)

    with pytest.raises(hr.Closed, match="^send: the queue is closed"):
        send_and_wait()


@pytest.mark.parametrize("count", [0, 1, 2, 3])
def test_the_tail_is_given_once(opened, count):
    """BQ10: a tree `[m, ...]`; None for m = 0; an error before the queue is closed."""
    owner = hr.BatchQueue(EXAMPLE, 3)
    queue = opened(owner)
    for value in range(count):
        queue.send({"a": (value, value == 1), "z": np.full((2, 3), value), "empty": np.zeros((0, 4))})
    queue.wait(5)
    with pytest.raises(ValueError, match="tail: expected a closed queue; call close"):
        queue.tail()
    owner.close()
    tail = queue.tail()
    if count % 3:
        assert list(tail) == ["z", "a", "empty"]
        assert (tail["z"].shape, tail["z"][:, 0, 0].tolist()) == ((count, 2, 3), list(range(count)))
        assert [leaf.tolist() for leaf in tail["a"]] == [
            list(range(count)),
            [value == 1 for value in range(count)],
        ]
        assert tail["empty"].shape == (count, 0, 4)
    else:
        assert tail is None
    assert queue.tail() is owner.tail() is None


def test_a_tail_waits_for_a_sender_of_the_queues_process_without_holding_up_the_server(address):
    """SV7, BQ10: a sender that had its place before `close` is still copying."""
    queue = hr.BatchQueue(0, 3)
    queue.send(1)
    core = queue._core
    row = next(iter(core._open.places))  # As `QueueCore.store` takes a place.
    buffer = core._open
    queue.close()
    with hr.Server({"q": queue}, **address) as server, hr.Client(server.address) as client:
        remote = client.queue("q")
        found = []
        thread = threading.Thread(target=lambda: found.append(remote.tail()))
        thread.start()
        until(lambda: [each for each in server._connections._open if each._requests._queues._takers])
        assert client.ping() > 0
        buffer.columns[0][row] = 2
        core._finish(buffer.columns, buffer.done, row, [2])
        thread.join(JOIN)
        assert [tail.tolist() for tail in found] == [[1, 2]]


def test_closing_ends_waits(opened):
    """BQ10, BQ12"""
    owner = hr.BatchQueue(0, 1, num_buffers=2)
    queue = opened(owner)
    empty = hr.BatchQueue(0, 2)
    errors = []

    def call(waiting):
        try:
            waiting()
        except hr.Closed as error:
            errors.append(str(error))

    def send_on():
        for _ in range(3000):
            queue.send(0)

    threads = [threading.Thread(target=call, args=(each,)) for each in (send_on, opened(empty).sample)]
    for thread in threads:
        thread.start()
    until(lambda: owner.statistics().blocked_sends >= 1)
    owner.close()
    empty.close()
    for thread in threads:
        thread.join(JOIN)
    assert sorted(error[:4] for error in errors) == ["samp", "send"]


# ---- samples on their way ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("most", [None, 1, 2, 3, 1000])
def test_a_full_queue_stops_a_client_at_its_bound(address, most):
    """AK3, AK6, SV8: so many samples on their way at most; `.pending` tells how many are not confirmed."""
    queue = hr.BatchQueue(0, 2, num_buffers=2)
    with hr.Server({"q": queue}, **address) as server, hr.Client(server.address) as client:
        remote = client.queue("q", max_in_flight=most)
        most = most or 64
        assert remote.max_in_flight == most
        sent = 4 + most
        for number in range(sent):
            remote.send(number, timeout=JOIN)
        for timeout in (0, -1, 0.05):
            with pytest.raises(hr.DeadlineExceeded, match=f"send: {most} samples are in flight") as caught:
                remote.send(99, timeout=timeout)
            assert caught.value.pending == most
        with pytest.raises(hr.DeadlineExceeded, match=f"wait: {most} samples were not") as caught:
            remote.wait(0.02)
        assert caught.value.pending == most
        until(lambda: queue.statistics().blocked_sends >= 1)
        found = []
        while len(found) + 1 < sent:
            found += queue.sample(timeout=5)[0].tolist()
        assert found == list(range(sent - sent % 2))
        remote.wait(5)


def test_a_full_queue_holds_up_nothing_else(address):
    """CL4, SV7: other calls of the same client, other clients, and other queues."""
    full, free = hr.BatchQueue(0, 1, num_buffers=2), hr.BatchQueue(0, 1)
    with hr.Server({"full": full, "free": free}, **address) as server:
        with hr.Client(server.address) as client, hr.Client(server.address) as other:
            blocked = client.queue("full")
            for number in range(60):
                blocked.send(number, timeout=5)
            until(lambda: full.statistics().blocked_sends)
            assert client.ping() < 5
            for each in (client, other):
                each.queue("free").send(7)
                each.queue("free").wait(5)
                assert each.queue("free").sample(timeout=5)[0].tolist() == [7]
            assert [full.sample(timeout=5)[0][0] for _ in range(60)] == list(range(60))


def test_a_waiting_client_that_is_gone_stores_nothing_more(address):
    """LP1: its samples that found no place are dropped; those that were confirmed stay."""
    queue = hr.BatchQueue(0, 1, num_buffers=2)
    with hr.Server({"q": queue}, **address) as server:
        client = hr.Client(server.address)
        remote = client.queue("q")
        for number in range(10):
            remote.send(number)
        until(lambda: queue.statistics().blocked_sends == 1)
        assert queue.statistics().senders == 1
        client._session.abandon()
        until(lambda: queue.statistics().senders == 0)
        assert [queue.sample(timeout=0)[0].tolist() for _ in range(2)] == [[0], [1]]
        with pytest.raises(hr.DeadlineExceeded):
            queue.sample(timeout=0)
        queue.send(5, timeout=0)


def test_a_consumer_that_is_gone_takes_nothing(address):
    """LP1"""
    queue = hr.BatchQueue(0, 1)
    with hr.Server({"q": queue}, **address) as server:
        client = hr.Client(server.address)
        errors = []

        def take():
            with pytest.raises(hr.Closed) as caught:
                client.queue("q").sample()
            errors.append(caught.value)

        thread = threading.Thread(target=take)
        thread.start()
        connection = next(iter(server._connections._open))
        until(lambda: connection._requests._queues._takers)
        client.close()
        thread.join(JOIN)
        assert len(errors) == 1
        until(lambda: not server.statistics().connections)
        queue.send(1)
        assert queue.sample(timeout=0)[0].tolist() == [1]


# ---- lost connections ----------------------------------------------------------------------------------------------


def cut(client):
    client._session.link()._channel.shutdown()


@settings(max_examples=12, deadline=None)
@given(
    st.lists(st.sampled_from("ssssssswct"), min_size=20, max_size=60),
    st.booleans(),
    st.sampled_from([None, 1, 2, 3, 1000]),
    st.sampled_from([40_000, 8]),
)
def test_a_cut_connection_loses_and_doubles_nothing(tmp_path_factory, calls, is_unix, in_flight, nbytes):
    """AK3, AK4: any sequence of sends, waits and batches, with the connection cut in between."""
    queue = hr.BatchQueue({"n": 0, "x": np.zeros(nbytes, np.uint8)}, 2, num_buffers=3)
    path = tmp_path_factory.mktemp("server") / "s"
    options = {"address": None, "unix": path} if is_unix else {}
    with hr.Server({"q": queue}, **options) as server, hr.Client(server.address) as client:
        remote = client.queue("q", max_in_flight=in_flight)
        sent, found, fits = 0, [], 6 + (in_flight or 60)
        for call in calls:
            match call:
                case "s" if sent - len(found) < fits:
                    remote.send({"n": sent, "x": np.full(nbytes, sent)}, timeout=5)
                    sent += 1
                case "w" if sent - len(found) <= 6:
                    remote.wait(5)
                case "c":
                    cut(client)
                case "t" if sent - len(found) >= 2:
                    batch, _ = queue.sample(timeout=5)
                    assert (batch["x"] == batch["n"][:, None]).all()
                    found += batch["n"].tolist()
        while len(found) + 1 < sent:
            found += queue.sample(timeout=5)[0]["n"].tolist()
        remote.wait(5)
        assert found == list(range(sent - sent % 2))
        assert queue.statistics().samples_received == sent


def test_a_server_that_comes_back_gets_what_is_missing(tmp_path):
    """AK3, AK6, AK7: also what the first server had stored and handed out already is not stored again."""
    queue = hr.BatchQueue(0, 1, num_buffers=9)
    options = {"address": None, "unix": tmp_path / "s"}
    server = hr.Server({"q": queue}, **options).start()
    with hr.Client(server.address, timeout=5) as client:
        remote = client.queue("q")
        for number in range(3):
            remote.send(number)
        remote.wait(5)
        assert [queue.sample()[0][0] for _ in range(3)] == [0, 1, 2]
        server.stop()
        for number in range(3, 6):
            remote.send(number)
        with pytest.raises(hr.Disconnected) as caught:
            remote.wait(0.05)
        assert caught.value.pending == 3
        # SS2: the remedy is not that of a full queue.
        assert "queue 'q': the connection to unix://" in str(caught.value)
        assert "Take batches faster" not in str(caught.value)
        with hr.Server({"q": queue}, **options):
            remote.wait(5)
            assert [queue.sample(timeout=0)[0][0] for _ in range(3)] == [3, 4, 5]
            assert queue.statistics().samples_received == 6


def drop(monkeypatch, is_dropped):
    """Lets a server drop messages of samples, by the number of their first sample."""

    class Dropping(QueueSender):
        def take(self, request, payload):
            if not is_dropped(request.first):
                super().take(request, payload)

    monkeypatch.setattr(client_queues, "QueueSender", Dropping)


@pytest.mark.parametrize("waits", [False, True])
def test_samples_that_did_not_arrive_are_sent_again(address, monkeypatch, waits):
    """AK3: the server says what it misses, and no call of the client raises for it."""
    dropped = [2]
    drop(monkeypatch, lambda first: first in dropped and dropped.remove(first) is None)
    queue = hr.BatchQueue(0, 1, num_buffers=9)
    with hr.Server({"q": queue}, **address) as server, hr.Client(server.address) as client:
        remote = client.queue("q", max_in_flight=4)
        remote.send(0)
        remote.wait(JOIN)
        remote.send(1)
        for number in range(2, 7):
            remote.send(number, timeout=JOIN)
            if waits and number == 4:
                remote.wait(JOIN)
        remote.wait(JOIN)
        assert not dropped
        assert [taken(queue) for _ in range(7)] == [[number] for number in range(7)]
        assert queue.statistics().samples_received == 7


def test_samples_that_never_arrive_are_told(address, monkeypatch):
    """Another queue of the same client goes on."""
    drop(monkeypatch, lambda first: first == 2)
    queue, other = hr.BatchQueue(0, 1), hr.BatchQueue(0, 1)
    with hr.Server({"q": queue, "other": other}, **address) as server, hr.Client(server.address) as client:
        remote, rest = client.queue("q", max_in_flight=2), client.queue("other")
        remote.send(0)
        remote.wait(JOIN)
        rest.send(5)
        remote.send(1)
        remote.send(2)
        with pytest.raises(hr.Closed, match="missed samples twice: expected sample 2 of queue 'q', got 3"):
            remote.send(3, timeout=JOIN)
        with pytest.raises(hr.Closed, match="2 samples are not confirmed"):
            remote.wait(JOIN)
        monkeypatch.undo()
        rest.send(6)
        rest.wait(JOIN)
        assert [taken(other), taken(other)] == [[5], [6]]
        assert queue.statistics().samples_received == 1


def stop_and_notice(server, client, remote):
    """Stops a server; returns when the client's queue has taken its goodbye, which ends waits under way only."""
    link, stream = client._session.link(), remote._stream
    server.stop()
    until(lambda: link.look_for_end() or link.failure)
    assert not stream.owes_samples
    assert stream._sender is None


def test_a_new_queue_behind_the_same_address_takes_what_the_old_one_did_not_confirm(address):
    """AK3: the client goes on, and sends nothing again that the old queue confirmed."""
    old, new = (hr.BatchQueue(0, 1, num_buffers=9) for _ in range(2))
    server = hr.Server({"q": old}, **address).start()
    again = {"address": server.address, **address}
    with hr.Client(server.address, timeout=5) as client:
        remote = client.queue("q")
        for number in range(3):
            remote.send(number)
        remote.wait(5)
        stop_and_notice(server, client, remote)
        for number in range(3, 6):
            remote.send(number)
        with hr.Server({"q": new}, **again):
            remote.wait(5)
            remote.send(6)
            remote.wait(5)
            assert [new.sample(timeout=0)[0][0] for _ in range(4)] == [3, 4, 5, 6]
            assert new.statistics().samples_received == 4
    assert [old.sample(timeout=0)[0][0] for _ in range(3)] == [0, 1, 2]


def test_another_queue_behind_the_same_address_gets_no_samples_of_the_old_one(address):
    """CL8: of the same size, so that only the schema tells them apart."""
    server = hr.Server({"q": hr.BatchQueue(np.int64(0), 1)}, **address).start()
    again = {"address": server.address, **address}
    client = hr.Client(server.address, timeout=5)
    remote = client.queue("q")
    remote.send(1)
    remote.wait(5)
    stop_and_notice(server, client, remote)
    remote.send(2)
    other = hr.BatchQueue(np.float64(0), 1)
    with hr.Server({"q": other}, **again):
        with pytest.raises(hr.SpecError, match="'q' on .* is another one"):
            remote.wait(5)
        assert other.statistics().samples_received == 0
    client.close()


def test_stopping_the_server_ends_waits(address):
    """AK7"""
    queue = hr.BatchQueue(0, 1, num_buffers=2)
    server = hr.Server({"q": queue}, **address).start()
    client = hr.Client(server.address)
    remote = client.queue("q")
    errors = []

    def call(waiting):
        try:
            waiting()
        except hr.HeadraceError as error:
            errors.append(type(error))

    for number in range(10):
        remote.send(number)
    empty = threading.Thread(target=call, args=(lambda: remote.wait(20),))
    empty.start()
    until(lambda: queue.statistics().blocked_sends == 1)
    server.stop()
    empty.join(JOIN)
    assert errors == [hr.Closed]
    client._session.timeout = 0.2  # So long it waits for the samples.
    with pytest.raises(hr.HeadraceError):
        client.close()


def test_batches_do_not_end_in_silence_when_the_server_stops(address):
    queue = hr.BatchQueue(0, 1)
    server = hr.Server({"q": queue}, **address).start()
    with hr.Client(server.address) as client:
        stream = client.queue("q").batches()
        queue.send(3)
        assert next(stream).tolist() == [3]
        server.stop()
        with pytest.raises((hr.Closed, hr.Disconnected)):
            next(stream)


# ---- the client ----------------------------------------------------------------------------------------------------


def test_names_and_samples_are_checked_when_a_queue_is_asked_for():
    """CL2, CL8"""
    queue = hr.BatchQueue({"n": 0}, 2)
    with hr.Replay(hr.Signature.like({"n": 0}), [hr.Table.queue("t", 1)]) as replay:
        with hr.Server({"q": queue, "r": replay}) as server, hr.Client(server.address) as client:
            with pytest.raises(KeyError, match="'q'"):
                client.queue("x")
            with pytest.raises(TypeError, match="expected a queue, got replay"):
                client.queue("r")
            with pytest.raises(hr.SpecError, match="n: expected float64"):
                client.queue("q", example={"n": 0.0})
            assert client.queue("q", example={"n": 5}) is client.queue("q")


def test_the_first_call_for_a_queue_says_how_many_samples_may_be_in_flight():
    queue = hr.BatchQueue({"n": 0}, 2)
    with hr.Server({"q": queue, "p": queue}) as server, hr.Client(server.address) as client:
        for wrong, kind in ((0, ValueError), (-1, ValueError), (1.5, TypeError), (True, TypeError)):
            with pytest.raises(kind, match="max_in_flight: expected an integer >= 1, got"):
                client.queue("q", max_in_flight=wrong)
        with pytest.raises(hr.SpecError):
            client.queue("q", example={"n": 0.0}, max_in_flight=7)
        remote = client.queue("q", max_in_flight=np.int64(1024))
        assert remote is client.queue("q") is client.queue("q", max_in_flight=1024)
        with pytest.raises(ValueError, match="opened it with max_in_flight=1024, got 64"):
            client.queue("q", max_in_flight=64)
        assert client.queue("p").max_in_flight == 64
        assert client.queue("p", max_in_flight=64) is client.queue("p")


def test_closing_waits_for_samples(address):
    """CL6: a client that ends has sent everything, or says how much is missing."""
    queue = hr.BatchQueue(0, 4, num_buffers=2)
    with hr.Server({"q": queue}, **address) as server:
        with hr.Client(server.address) as client:
            for number in range(8):
                client.queue("q").send(number)
        assert queue.statistics().samples_received == 8
        client = hr.Client(server.address)
        client.queue("q").send(9)
        client._session.timeout = 0.05  # Of waits; a handshake may take longer.
        with pytest.raises(hr.DeadlineExceeded) as caught:
            client.close()
        assert caught.value.pending == 1
        with pytest.raises(hr.Closed):
            client.queue("q")


def test_closing_after_a_goodbye_misses_no_sample_that_is_stored(address):
    """CL6: the confirmations have come before the goodbye."""
    queue = hr.BatchQueue(0, 1, num_buffers=9)
    server = hr.Server({"q": queue}, **address).start()
    client = hr.Client(server.address)
    for number in range(5):
        client.queue("q").send(number)
    until(lambda: queue.statistics().samples_received == 5)
    server.stop()
    client.close()


SENDING = """
import headrace as hr, sys

def send():
    global samples
    samples = hr.Client(sys.argv[1]).queue("q")
    for n in range(int(sys.argv[2])):
        samples.send({"n": n})
"""
IN_A_WORKER = """
import multiprocessing
worker = multiprocessing.get_context("fork").Process(target=send)
worker.start()
worker.join()
"""


@pytest.mark.parametrize("ending", ["send()", "send()\nraise SystemExit", IN_A_WORKER])
def test_a_process_that_ends_without_close_loses_no_sample(address, ending):
    """Samples that wait for a full message, or for a confirmation, when the program has come to its end."""
    with hr.BatchQueue({"n": 0}, 40) as queue, hr.Server({"q": queue}, **address) as server:
        command = [sys.executable, "-c", SENDING + ending, server.addresses[-1], "40"]
        done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=True)
        assert done.stderr == ""
        batch, _ = queue.sample(timeout=10)
        assert batch["n"].tolist() == list(range(40))


def test_samples_that_are_lost_at_the_end_are_told(address):
    with hr.BatchQueue({"n": 0}, 2, num_buffers=2) as queue, hr.Server({"q": queue}, **address) as server:
        command = [sys.executable, "-c", SENDING + "send()", server.addresses[-1], "6"]
        done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=True)
        assert "its samples that are not confirmed are lost" in done.stderr
        assert "wait: 2 samples were not in queue 'q'" in done.stderr


def test_a_forked_child_is_refused(address):
    """CL9"""
    queue = hr.BatchQueue(0, 4)
    with hr.Server({"q": queue}, **address) as server, hr.Client(server.address) as client:
        remote = client.queue("q")
        remote.send(0)
        remote.wait(5)
        remote._stream._ring.rows.quiet_until = 1 << 40  # As after many samples.
        with remote._stream._lock, remote._stream._opening:  # As another thread may hold them.
            child = os.fork()
            if child == 0:
                for call in (lambda: remote.send(1), remote.wait, remote.sample, remote.statistics):
                    try:
                        call()
                        os._exit(1)
                    except hr.Closed as error:
                        if "forked" not in str(error):
                            os._exit(2)
                    except BaseException:
                        os._exit(3)
                os._exit(0)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
        remote.send(2)
        remote.wait(5)
        assert queue.statistics().samples_received == 2


def test_a_sample_that_is_sent_alone_arrives_at_once(address):
    """The background sends samples whose sender turns to other work."""
    queue = hr.BatchQueue(0, 1, num_buffers=9)
    with hr.Server({"q": queue}, **address) as server, hr.Client(server.address) as client:
        remote = client.queue("q")
        for number in range(5):
            remote.send(number)
        assert [queue.sample(timeout=5)[0][0] for _ in range(5)] == list(range(5))


@pytest.mark.parametrize(
    "requests",
    [
        [SendSamples(queue="q", first=1, count=1)],
        [ConfirmSamples(queue="q", last=0)],
        [OpenSender(queue="q", session=bytes(16)), ConfirmSamples(queue="q", last=1)],
        [OpenSender(queue="q", session=b"x")],
        [OpenSender(queue="q", session=bytes(16), stored=-1)],
        [OpenSender(queue="q", session=bytes(16), stored=1 << 62)],
        [OpenSender(queue="q", session=bytes(16), places=0)],
        [OpenSender(queue="q", session=bytes(16), places=-(1 << 60))],
        [OpenSender(queue="q", session=bytes(16), places=(1 << 19) + 1)],
        [OpenSender(queue="q", session=bytes(16), places=2), SendSamples(queue="q", first=1, count=3)],
        [OpenSender(queue="q", session=bytes(16)), SendSamples(queue="q", first=2, count=1)],
        [OpenSender(queue="q", session=bytes(16)), SendSamples(queue="q", first=1, count=2)],
        [OpenSender(queue="q", session=bytes(16)), SendSamples(queue="q", first=0, count=1)],
        [OpenSender(queue="q", session=bytes(16)), SendSamples(queue="q", first=1, count=0)],
        [OpenSender(queue="q", session=bytes(16)), SendSamples(queue="q", first=1, count=1 << 60)],
        [OpenSender(queue="q", session=bytes(16)), SendSamples(queue="q", first=1, count=(1 << 63) - 1)],
        [OpenSender(queue="q", session=bytes(16)), SendSamples(queue="q", first=-(1 << 63), count=1)],
        [OpenSender(queue="q", session=bytes(16)), SendSamples(queue="q", first=-(1 << 60), count=1)],
    ],
)
def test_a_client_that_breaks_the_protocol_ends_its_connection(address, requests):
    """WI3: nothing is stored, and others go on."""
    queue = hr.BatchQueue(0, 1)
    with hr.Server({"q": queue}, **address) as server:
        client = hr.Client(server.address)
        link = client._session.link()
        for request in requests:
            payload = bytes(24 if request.count == 3 else 8) if isinstance(request, SendSamples) else b""
            link.begin(request, payload)
        until(lambda: server.statistics().protocol_errors == 1)
        client._session.abandon()
        assert queue.statistics().samples_received == 0
        with hr.Client(server.address) as other:
            other.queue("q").send(1)
            other.queue("q").wait(5)


def test_consumers_are_woken_when_the_client_knows_of_its_sample(address):
    """A consumer that asks for more at once would meet a client that lets the next sample wait for others."""
    queue = hr.BatchQueue(0, 1)
    known, is_over = [], threading.Event()
    with hr.Server({"q": queue}, **address) as server, hr.Client(server.address) as client:
        remote = client.queue("q")

        def look():
            # The server's thread stands still here, so what it has not sent does not come.
            sender = remote._stream._sender
            deadline = time.monotonic() + 5
            known.append(sender.link.is_answered(NextConfirmation(sender, 0), deadline))
            is_over.set()

        queue._core.watch(look)
        remote.send(7)
        assert is_over.wait(JOIN)
        queue._core.unwatch(look)
        assert taken(queue) == [7]
    assert known == [True]


def test_samples_of_a_client_that_is_gone_are_delivered(address, monkeypatch):
    """AK1: its connection ends when the server tells it of the sample, and another client waits for the batch."""
    ends = []

    class Ending(QueueSender):
        def _note_stored(self, number, last):
            self._stored = last
            if not ends:
                ends.append(last)
                raise hr.Disconnected("the client is gone")

    monkeypatch.setattr(client_queues, "QueueSender", Ending)
    queue, found = hr.BatchQueue(0, 1), []
    with hr.Server({"q": queue}, **address) as server, hr.Client(server.address) as learner:
        thread = threading.Thread(target=lambda: found.append(taken(learner.queue("q"))))
        thread.start()
        until(lambda: [each for each in server._connections._open if each._requests._queues._takers])
        with hr.Client(server.address) as client:
            client.queue("q").send(7)
            thread.join(JOIN)
        assert ends == [1]
    assert found == [[7]]


def counted_messages(monkeypatch, before=lambda first: None):
    """Returns a list that gets the number of samples of each message; `before` is called with that of its first."""
    found = []

    class Counting(ClientQueues):
        def take(self, request, frame):
            if isinstance(request, SendSamples):
                found.append(request.count)
                before(request.first)
            super().take(request, frame)

    monkeypatch.setattr(client_requests, "ClientQueues", Counting)
    return found


def test_samples_that_wait_for_places_keep_their_values():
    """Each comes in a message of its own, whose payload the server copies into the same memory if it need not wait."""
    queue = hr.BatchQueue(0, 1, num_buffers=2)
    with hr.Server({"q": queue}) as server, hr.Client(server.address) as client:
        remote = client.queue("q")
        remote.send(0)
        remote.wait()
        if remote._stream._lone is not None:  # Where kernels are compiled.
            remote._stream._lone.least_pause = 0
        for number in range(1, 6):
            remote.send(number)
        # The server answers when it has taken what came before.
        assert remote.statistics().size == 2
        taken = [queue.sample(timeout=JOIN)[0].tolist() for _ in range(6)]
    assert taken == [[number] for number in range(6)]


def test_a_lone_sample_is_not_delayed_and_a_flood_fills_messages(address, monkeypatch):
    """Without the thread in the background: the sender alone sends the first sample at once, then full messages."""
    monkeypatch.setattr(Flusher, "flush", lambda *_: None)
    monkeypatch.setattr(Flusher, "watch", lambda *_: None)
    is_flooded = threading.Event()
    # The server is slower than the sender.
    counts = counted_messages(monkeypatch, lambda first: first == 3 and is_flooded.wait(JOIN))
    queue = hr.BatchQueue(0, 10, num_buffers=40)
    with hr.Server({"q": queue}, **address) as server, hr.Client(server.address) as client:
        remote = client.queue("q")
        remote.send(0)
        if remote._stream._lone is not None:
            remote._stream._lone.least_pause = 1 << 62
        until(lambda: queue.statistics().samples_received == 1)
        remote.wait(5)
        remote.send(1)
        until(lambda: queue.statistics().samples_received == 2)
        remote.wait(5)
        for number in range(2, 2 + 5 * 32):
            if number == 40:
                is_flooded.set()
            remote.send(number)
        remote.wait(5)
    assert counts == [1, 1, 1, 32, 32, 32, 32, 31]


def test_samples_one_by_one_leave_at_once(address, monkeypatch):
    """Without the thread in the background, and with confirmations that no call has waited for."""
    monkeypatch.setattr(Flusher, "flush", lambda *_: None)
    monkeypatch.setattr(Flusher, "watch", lambda *_: None)
    counts = counted_messages(monkeypatch)
    queue = hr.BatchQueue(0, 1, num_buffers=9)
    with hr.Server({"q": queue}, **address) as server, hr.Client(server.address) as client:
        remote = client.queue("q")
        stream = remote._stream
        for number in range(5):
            if number:
                until(lambda number=number: confirmed(stream) == number)
            remote.send(number)
        remote.wait(5)
    assert counts == [1] * 5


def test_many_samples_in_flight_travel_in_large_messages(address, monkeypatch):
    """AK3: several times around the ring, in order. Without the thread in the background messages become full."""
    monkeypatch.setattr(Flusher, "flush", lambda *_: None)
    monkeypatch.setattr(Flusher, "watch", lambda *_: None)
    counts = counted_messages(monkeypatch)
    queue = hr.BatchQueue(0, 100, num_buffers=5)
    found = []
    taking = threading.Thread(
        target=lambda: found.extend(
            each for _ in range(50) for each in queue.sample(timeout=JOIN)[0].tolist()
        )
    )
    taking.start()
    with hr.Server({"q": queue}, **address) as server, hr.Client(server.address) as client:
        remote = client.queue("q", max_in_flight=1000)
        for number in range(5000):
            remote.send(number, timeout=JOIN)
        remote.wait(JOIN)
        taking.join(JOIN)
    assert found == list(range(5000))
    assert set(counts[counts.index(500) : -1]) == {500}
    assert max(counts) == 500


@pytest.fixture
def gathering(tmp_path, monkeypatch):
    """Returns a client's queue without the thread in the background, and the sizes of its messages.

    Four samples were collected while a message was on its way.
    """
    monkeypatch.setattr(Flusher, "flush", lambda *_: None)
    monkeypatch.setattr(Flusher, "watch", lambda *_: None)
    are_collected = threading.Event()
    counts = counted_messages(monkeypatch, lambda first: first == 2 and are_collected.wait(JOIN))
    queue = hr.BatchQueue(0, 10, num_buffers=40)
    server = hr.Server({"q": queue}, address=None, unix=tmp_path / "s")
    with server, hr.Client(server.address) as client:
        remote = client.queue("q")
        remote.send(0)
        remote.wait(5)
        for number in range(1, 5):
            remote.send(number)
        are_collected.set()
        until(lambda: remote._stream._count.get() == 2)
        assert counts == [1, 1]
        remote.send(5)
        until(lambda: queue.statistics().samples_received == 6)
        yield remote, counts
        remote.wait(5)


def test_samples_that_come_fast_wait_for_a_full_message_until_no_more_come(gathering):
    """Streams of many clients in one process take turns, so their messages fill slowly."""
    remote, counts = gathering
    looks = []
    for number in range(6, 9):
        remote.send(number)
        looks.append(remote._stream.flush_soon())
    assert (looks, counts) == ([True] * 3, [1, 1, 4])
    assert not remote._stream.flush_soon()
    remote.wait(5)
    remote.send(9)
    remote.wait(5)
    assert counts == [1, 1, 4, 3, 1]


def test_samples_that_come_fast_fill_messages(gathering):
    """Each message but the last is full, however often the thread in the background looks."""
    remote, counts = gathering
    for number in range(6, 6 + 3 * 32):
        remote.send(number)
        assert number % 8 or remote._stream.flush_soon()
    remote.wait(5)
    assert counts == [1, 1, 4, 32, 32, 32]


def test_no_sample_waits_long_for_a_full_message(gathering):
    """Samples that come slowly again are sent, though more of them come."""
    remote, counts = gathering
    looks = 0
    while len(counts) == 3 and looks < 30:
        remote.send(looks)
        looks += 1
        if not remote._stream.flush_soon():
            break
    remote.wait(5)
    assert counts == [1, 1, 4, looks]
    assert looks == 1 + sample_stream._MOST_LOOKS


@pytest.mark.parametrize(
    ("nbytes", "together", "in_flight"),
    [(1 << 20, 1, 4), ((1 << 20) + 8, 1, 3), (1 << 19, 2, 8), (1 << 16, 16, 64), (1 << 23, 1, 2)],
)
@pytest.mark.parametrize("most", [None, 1000])
def test_large_samples_stay_few_and_travel_in_short_messages(
    address, monkeypatch, nbytes, together, in_flight, most
):
    """The server copies one message from the processor's cache while the client writes the next one."""
    monkeypatch.setattr(sample_stream, "_SPIN_NANOSECONDS", 0)
    counts = counted_messages(monkeypatch)
    queue = hr.BatchQueue(np.zeros(nbytes, np.uint8), 1, num_buffers=2)
    with hr.Server({"q": queue}, **address) as server:
        client = hr.Client(server.address)
        remote, sample = client.queue("q", max_in_flight=most), np.ones(nbytes, np.uint8)
        for _ in range(2 + in_flight):
            remote.send(sample, timeout=JOIN)
        with pytest.raises(hr.DeadlineExceeded):
            remote.send(sample, timeout=0)
        client._session.abandon()
    assert max(counts) <= together


def test_a_flood_through_shared_memory_needs_no_answers(tmp_path, monkeypatch):
    """A sender whose ring is full looks at the server's count for a moment before it asks for a message."""
    monkeypatch.setattr(sample_stream, "_SPIN_NANOSECONDS", int(JOIN * 1e9))
    queue = hr.BatchQueue(0, 10, num_buffers=100)
    with hr.Server({"q": queue}, address=None, unix=tmp_path / "s") as server:
        with hr.Client(server.address) as client:
            remote = client.queue("q")
            remote.send(0)
            until(lambda: queue.statistics().samples_received == 1)
            answered = server.statistics().bytes_out
            for number in range(1, 1000):
                remote.send(number)
            until(lambda: queue.statistics().samples_received == 1000)
            assert server.statistics().bytes_out == answered


def test_a_full_ring_without_time_to_wait_does_not_look_for_confirmations(tmp_path, monkeypatch):
    """BQ4: `timeout=0` never waits."""
    monkeypatch.setattr(sample_stream, "_SPIN_NANOSECONDS", int(JOIN * 1e9))
    queue = hr.BatchQueue(0, 1, num_buffers=2)
    with hr.Server({"q": queue}, address=None, unix=tmp_path / "s") as server:
        client = hr.Client(server.address)
        remote = client.queue("q")
        for number in range(2 + 64):
            remote.send(number)
        with pytest.raises(hr.DeadlineExceeded):
            remote.send(66, timeout=0)
        client._session.abandon()


def test_shared_memory_confirms_without_messages(tmp_path, monkeypatch):
    """AK1 on one machine: the server writes the number of stored samples; a client that waits asks for a message."""
    monkeypatch.setattr(sample_stream, "_SPIN_NANOSECONDS", 0)
    queue = hr.BatchQueue(0, 10, num_buffers=2)
    with hr.Server({"q": queue}, address=None, unix=tmp_path / "s") as server:
        with hr.Client(server.address) as client:
            remote = client.queue("q")
            remote.send(0)
            until(lambda: queue.statistics().samples_received == 1)
            answered = server.statistics().bytes_out
            for number in range(1, 20):
                remote.send(number)
            until(lambda: queue.statistics().samples_received == 20)
            remote.wait(0)
            assert server.statistics().bytes_out == answered
            for number in range(20, 84):  # As many as may be in flight beyond a full queue.
                remote.send(number, timeout=5)
            waiting = threading.Thread(target=lambda: remote.send(84, timeout=JOIN))
            waiting.start()
            [connection] = server._connections._open
            [sender] = connection._requests._queues._senders.values()
            until(lambda: sender._awaited is not None)
            assert server.statistics().bytes_out == answered
            found = []
            while len(found) < 40:  # More than a message.
                found += queue.sample(timeout=5)[0].tolist()
            waiting.join(JOIN)
            until(lambda: server.statistics().bytes_out > answered)
            while len(found) < 80:
                found += queue.sample(timeout=5)[0].tolist()
            assert found == list(range(80))
            remote.wait(5)


def test_a_stream_that_fails_holds_up_no_other(caplog):
    """The thread in the background goes on with the other streams."""
    calls = []

    class Stream:
        def __init__(self, name):
            self.name = name

        def flush_soon(self):
            calls.append(self.name)
            if self.name == "broken":
                raise RuntimeError("broken")
            return False

        def look_after(self):
            return "fine" not in calls

    flusher = Flusher()
    for name in ("broken", "fine"):
        stream = Stream(name)
        flusher.watch(stream)
        flusher.flush(stream)
    until(lambda: "fine" in calls and not flusher.streams)
    assert "broken" in calls
    assert "samples are sent only by further calls" in caplog.text
    until(lambda: flusher._thread is None)  # It ends when it has been idle for a second.


def test_streams_share_one_thread(address, monkeypatch):
    """SV7: many clients of one process cost one thread, and samples that they send in turn share messages."""
    # A sample that finds nothing in flight is sent at once. So behind the first ones the server takes none before all
    # are written: how many share a message must not depend on which side is faster.
    may_take = threading.Event()
    may_take.set()
    counts = counted_messages(monkeypatch, lambda first: may_take.wait(JOIN))
    queue = hr.BatchQueue(0, 100, num_buffers=40)
    with hr.Server({"q": queue}, **address) as server, ExitStack() as stack:
        clients = [stack.enter_context(hr.Client(server.address)) for _ in range(16)]
        remotes = [client.queue("q") for client in clients]
        for remote in remotes:
            remote.send(0)
            remote.wait(5)
        may_take.clear()
        for number in range(1, 60):  # As many as may be in flight.
            for remote in remotes:
                remote.send(number)
        names = [thread.name for thread in threading.enumerate()]
        may_take.set()
        for remote in remotes:
            remote.wait(5)
        assert queue.statistics().samples_received == 960
    assert names.count("headrace-samples") == 1
    assert len(counts) < 480


def test_what_no_message_can_hold_is_refused_before_anything_is_lost(address):
    """WI2: samples, and batches, which stay in the queue."""
    small, large = hr.BatchQueue(np.zeros(100, np.uint8), 20), hr.BatchQueue(np.zeros(2000, np.uint8), 1)
    limits = hr.server.Limits(payload_nbytes=1000)
    with hr.Server({"s": small, "l": large}, limits=limits, **address) as server:
        with hr.Client(server.address) as client:
            with pytest.raises(ValueError, match="a sample of this queue has 2000 bytes"):
                client.queue("l").send(np.zeros(2000, np.uint8))
            for number in range(20):
                client.queue("s").send(np.full(100, number, np.uint8))
            client.queue("s").wait(5)
            with pytest.raises(ValueError, match="a batch of this queue has 2000 bytes, more than the 1000"):
                client.queue("s").sample(timeout=0)
            assert client.ping() > 0
        assert small.sample(timeout=0)[0][:, 0].tolist() == list(range(20))
