"""Samples that one compiled call sends alone are those that take the long way (server AK3, BQ3, CL9)."""

import socket
import threading
import time
from contextlib import contextmanager

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from plain_kernels import fewer

import headrace as hr
from headrace.kernels.shared_count import SharedCount
from headrace.leases.channel import Channel
from headrace.server.client.blocks import MappedBlocks
from headrace.server.client.link import Link
from headrace.server.client.queues.flusher import Flusher
from headrace.server.client.queues.lone_samples import LoneSamples
from headrace.server.messages.requests import AnyRequest, ConfirmSamples, SendSamples
from tests.server.ring_samples import EXAMPLES, SAMPLES, confirmed, needs_compiled, opened, taken

JOIN = 30.0
NAME = "q\u00ff"


def until(condition):
    deadline = time.monotonic() + 10
    while not condition():
        assert time.monotonic() < deadline, "it did not come to that"
        time.sleep(0.002)


@pytest.fixture(params=["unix", "tcp"])
def address(request, tmp_path):
    return {"address": None, "unix": tmp_path / "s"} if request.param == "unix" else {}


@contextmanager
def sending(ring, is_shared):
    """Yields a ring's rows that send samples alone, the link, and the channel at which they arrive."""
    near, far = Channel.pair(AnyRequest)
    near.send(ConfirmSamples(queue=NAME, last=0))
    far.receive()
    link = Link(near, "unix:///x", {}, MappedBlocks(may_map=False))
    message = SendSamples(number=7, queue=NAME, first=0, count=1)
    count = SharedCount(np.zeros(1, np.int64))
    ring.rows.quiet_until = 0
    ring.rows.lone = LoneSamples(link, message, count, None if is_shared else ring.samples())
    try:
        yield ring.rows, link, far, count
    finally:
        link.close()
        far.close()


def message_of(number):
    return SendSamples(number=7, queue=NAME, first=number, count=1)


@settings(max_examples=fewer(200), deadline=None)
@given(st.data(), st.booleans(), st.sampled_from([0, 60, 1 << 31, 1 << 40]))
def test_both_ways_send_the_same_samples(data, is_shared, sent):
    """One that the checked way refuses is in no message, and one that is sent is there with the same bytes."""
    example, samples = data.draw(st.sampled_from([*zip(EXAMPLES, SAMPLES, strict=True)]))
    ring, read = opened(example)
    checked, _ = opened(example)
    with sending(ring, is_shared) as (rows, _, far, count):
        rows.written = rows.sent = checked.rows.written = sent
        rows.free_until = sent + ring.places
        for sample in data.draw(samples):
            count.set(rows.sent)
            before = rows.written
            is_sent = taken(lambda sample=sample: rows.put(sample))
            values = taken(lambda sample=sample: read(sample))
            if isinstance(values, str):
                assert is_sent is False or is_sent == values
                assert rows.written == before
                continue
            checked.rows.append(values)
            if is_sent is not True:
                assert is_sent is False
                rows.append(values)
                rows.sent = rows.written
                continue
            assert rows.written == rows.sent == before + 1
            parts = checked.parts(rows.written, 1)
            frame = far.receive()
            assert frame.message == message_of(rows.written)
            assert bytes(frame.payload) == (b"" if is_shared else bytes(parts[0]))
            assert bytes(ring.parts(rows.written, 1)[0]) == bytes(parts[0])
        assert not list(far.receive_ready())


@needs_compiled
@pytest.mark.parametrize("example", EXAMPLES)
@pytest.mark.parametrize("is_shared", [False, True])
def test_samples_like_the_example_are_sent_at_once(example, is_shared):
    with sending(opened(example)[0], is_shared) as (rows, _, far, _count):
        assert rows.put(example) is True
        assert far.receive().message == message_of(1)


@needs_compiled
@pytest.mark.parametrize(
    ("is_shared", "pause", "at_once"), [(True, 0, 1), (False, 1 << 62, 1), (False, 0, 8)]
)
def test_samples_are_sent_alone_while_few_are_in_flight(is_shared, pause, at_once):
    """Over TCP a client need not know that the last one is confirmed, unless samples come fast."""
    with sending(opened(0)[0], is_shared) as (rows, _, far, count):
        rows.lone.least_pause = pause
        assert [rows.put(number) for number in range(10)] == [True] * at_once + [False] * (10 - at_once)
        count.set(at_once)
        assert rows.put(4) is True
        assert [far.receive().message.first for _ in range(at_once + 1)] == list(range(1, at_once + 2))


@needs_compiled
@pytest.mark.parametrize("why", ["written", "full", "ended", "held", "taken over"])
def test_samples_are_not_sent_alone_where_more_is_to_do(why):
    with sending(opened(0)[0], True) as (rows, link, _far, _count):
        if why == "written":
            rows.append([0])
        elif why == "full":
            rows.free_until = 0
        elif why == "ended":
            link.fail(hr.Disconnected("the server is gone"))
        elif why == "held":
            link._channel.hold()
        elif why == "taken over":
            rows.take_over()
        written = rows.written
        assert rows.put(1) is False
        assert (rows.written, rows.sent) == (written, 0)


@needs_compiled
def test_the_channel_keeps_what_the_system_does_not_take():
    ring, _ = opened(np.zeros(1000, np.int64))
    with sending(ring, False) as (rows, link, far, count):
        link._channel._socket.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 1)
        sent = 0
        while not link._channel.unsent:
            count.set(sent)
            rows.free_until = sent + 1
            assert rows.put(np.full(1000, sent)) is True
            sent += 1
        count.set(sent)
        rows.free_until = sent + 1
        assert rows.put(np.zeros(1000, np.int64)) is False
        found = []
        while len(found) < sent:
            found += [
                (each.message.first, np.frombuffer(each.payload, np.int64)) for each in far.receive_ready()
            ]
            link.look()
        assert [number for number, _ in found] == list(range(1, sent + 1))
        assert all((values == number - 1).all() for number, values in found)
        assert not link._channel.unsent


@needs_compiled
def test_a_sample_sent_alone_on_a_connection_that_has_ended_is_sent_over_the_next(address):
    queue = hr.BatchQueue(0, 1, num_buffers=9)
    with hr.Server({"q": queue}, **address) as server, hr.Client(server.address) as client:
        remote = client.queue("q")
        for number in range(3):
            client._session.link()._channel.shutdown()
            remote.send(number)
            remote.wait(JOIN)
        assert [queue.sample(timeout=0)[0][0] for _ in range(3)] == [0, 1, 2]
        assert queue.statistics().samples_received == 3


@needs_compiled
def test_samples_one_by_one_take_the_compiled_way(address, monkeypatch):
    """Without the thread in the background, which looks after the stream from time to time."""
    monkeypatch.setattr(Flusher, "flush", lambda *_: None)
    monkeypatch.setattr(Flusher, "watch", lambda *_: None)
    queue = hr.BatchQueue(np.zeros(3), 1, num_buffers=9)
    with hr.Server({"q": queue}, **address) as server, hr.Client(server.address) as client:
        remote = client.queue("q")
        stream = remote._stream
        remote.send(np.zeros(3))
        stream._lone.least_pause = 0
        monkeypatch.setattr(stream, "put", lambda *_: pytest.fail("it took the long way"))
        for number in range(1, 6):
            until(lambda number=number: confirmed(stream) == number)
            remote.send(np.full(3, float(number)))
        until(lambda: queue.statistics().samples_received == 6)
        assert [queue.sample(timeout=0)[0][0, 0] for _ in range(6)] == list(range(6))


def test_threads_send_each_sample_once_and_in_the_order_of_each(address):
    """One by one and all at once, while another thread waits for what is on its way."""
    queue = hr.BatchQueue(np.zeros(2, np.int64), 1, num_buffers=1000)
    with hr.Server({"q": queue}, **address) as server, hr.Client(server.address) as client:
        remote = client.queue("q")

        def send(thread):
            for number in range(100):
                remote.send(np.array([thread, number]))
                if number % 10 < thread:
                    remote.wait(JOIN)

        threads = [threading.Thread(target=send, args=(number,)) for number in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(JOIN)
        remote.wait(JOIN)
        found = [queue.sample(timeout=0)[0][0].tolist() for _ in range(400)]
    for thread in range(4):
        assert [number for each, number in found if each == thread] == list(range(100))
