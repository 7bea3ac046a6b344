"""server SV5, SV7, SV8: large payloads are compressed and decompressed beside the thread that serves all clients."""

import threading
import time
from contextlib import contextmanager

import numpy as np
import pytest

import headrace as hr
from headrace.leases.frames import encoded
from headrace.server.addresses import parse_address
from headrace.server.client.connecting import ServerAccess, connect
from headrace.server.compression import zstd
from headrace.server.compression.choice import CompressedColumns
from headrace.server.compression.packing import PayloadPacker
from headrace.server.compression.payload_work import PayloadWork
from headrace.server.compression.unpacking import PayloadUnpacker
from headrace.server.limits import Limits
from headrace.server.messages.answers import Done
from headrace.server.messages.packed import Packed
from headrace.server.messages.requests import Ping, Sample, SendSamples
from headrace.server.serving import draining
from headrace.server.serving.packed_traffic import PackedTraffic
from tests.server.hostile import SESSION, said_to
from tests.server.test_stopping import until

if not zstd.is_installed():
    pytest.skip("needs headrace[zstd]", allow_module_level=True)

_SECONDS = 20.0
FRAME = np.zeros(100_000, np.uint8)


class Gate:
    """A function that waits until the test lets it go on.

    Attributes:
        entered, open: whether a call has come, and whether calls may go on.
        calls: number of calls so far.
    """

    def __init__(self, function):
        self._function = function
        self.entered, self.open = threading.Event(), threading.Event()
        self.calls = 0

    def __call__(self, *args):
        self.calls += 1
        self.entered.set()
        assert self.open.wait(_SECONDS)
        return self._function(*args)


@pytest.fixture
def compressing(monkeypatch):
    """A gate before compression."""
    gate = Gate(zstd.compressed)
    monkeypatch.setattr(zstd, "compressed", gate)
    yield gate
    gate.open.set()


@pytest.fixture
def decompressing(monkeypatch):
    """A gate before decompression."""
    gate = Gate(zstd.decompress_into)
    monkeypatch.setattr(zstd, "decompress_into", gate)
    yield gate
    gate.open.set()


@pytest.fixture
def replay():
    """Holds one large frame, which can be drawn again and again."""
    table = hr.Table("t", sampler=hr.selectors.Uniform(), remover=hr.selectors.Fifo(), max_size=9)
    with hr.Replay(hr.Signature.like({"frame": FRAME, "n": 0}), [table], capacity=99) as replay:
        with replay.writer(items=[hr.ItemRule("t", 1)]) as writer:
            writer.append({"frame": FRAME, "n": 7})
        yield replay


@contextmanager
def connected(server):
    """Yields a bare link that asks for compression."""
    link = connect(
        ServerAccess(parse_address(server.address), None, None, _SECONDS, CompressedColumns(("",)))
    )
    try:
        yield link
    finally:
        link.close()


def sample(count=1):
    return Sample(replay="r", table="t", batch_size=2, timeout=None, count=count)


def the_connection(server):
    """Returns the server's end of the only connection that compresses."""
    [found] = [each for each in server._running()._open if each._packed is not None]
    return found


# ---- answers ---------------------------------------------------------------------------------------------------------


def test_another_client_is_served_while_a_batch_is_compressed(replay, compressing):
    """SV7"""
    with hr.Server({"r": replay}) as server, connected(server) as link, hr.Client(server.address) as other:
        batch = link.begin(sample())
        assert compressing.entered.wait(_SECONDS)
        assert other.ping() < _SECONDS
        assert other.replay("r").sample("t", 1)["n"][0] == 7
        assert not batch.is_done
        compressing.open.set()
        answer, payload = link.wait(batch, _SECONDS)
        assert type(answer).__name__ == "Sampled"
        assert len(payload) >= 2 * FRAME.nbytes


def test_answers_keep_their_order(replay, compressing):
    """WI1: answers come in the order in which the server made them, small and large ones."""
    with hr.Server({"r": replay}) as server, connected(server) as link:
        replies = [link.begin(each) for each in (sample(), Ping(), sample(), Ping(), Ping(), sample())]
        assert compressing.entered.wait(_SECONDS)
        connection = the_connection(server)
        until(lambda: len(connection._packed._waiting) == len(replies))
        link.look()
        assert not any(each.is_done for each in replies)
        order = []
        for number, reply in enumerate(replies):
            link.listen(reply.number, lambda _, number=number: order.append(number))
            link._waiting.pop(reply.number)
        compressing.open.set()
        until(lambda: link.look() or len(order) == len(replies))
        assert order == [*range(len(replies))]
        assert not connection._packed.is_busy
        assert connection.unsent == 0


def test_answers_that_wait_count_as_unread(replay, compressing):
    """SV8: no further request of this client is taken, however small its answers are."""
    with (
        hr.Server({"r": replay}, limits=Limits(unread_nbytes=1 << 16)) as server,
        connected(server) as link,
    ):
        replies = [link.begin(sample()) for _ in range(50)]
        until(lambda: the_connection(server).is_full)
        assert replay.table("t").statistics().samples == 2
        assert the_connection(server)._packed.waiting_nbytes < 3 * FRAME.nbytes
        compressing.open.set()
        for reply in replies:
            link.wait(reply, _SECONDS)
        assert replay.table("t").statistics().samples == 100
        assert the_connection(server)._packed.waiting_nbytes == 0


def test_a_client_that_ends_leaves_nothing_behind(replay, compressing):
    """SS1, LP1: also while its batch is compressed; the server goes on."""
    with hr.Server({"r": replay}) as server:
        with connected(server) as link:
            link.begin(sample())
            link.begin(Ping())
            assert compressing.entered.wait(_SECONDS)
            connection = the_connection(server)
        until(lambda: server.statistics().connections == 0)
        assert connection._packed.waiting_nbytes == 0
        compressing.open.set()
        with hr.Client(server.address, compression="zstd") as client:
            assert client.replay("r").sample("t", 1)["n"][0] == 7
        assert server.statistics().protocol_errors == 0


def test_a_batch_that_cannot_be_compressed_ends_its_own_connection(replay, monkeypatch, caplog):
    """SV7"""

    def broken(_):
        raise MemoryError("no memory for this batch")

    monkeypatch.setattr(zstd, "compressed", broken)
    with hr.Server({"r": replay}) as server, hr.Client(server.address) as other:
        with connected(server) as link, pytest.raises(hr.Disconnected):
            link.wait(link.begin(sample()), _SECONDS)
        assert "no memory for this batch" in caplog.text
        assert other.ping() < _SECONDS


# ---- requests --------------------------------------------------------------------------------------------------------


def test_another_client_is_served_while_samples_are_decompressed(decompressing):
    """SV7; the client's own requests are taken in their order."""
    with hr.BatchQueue({"frame": FRAME}, 2) as queue, hr.Server({"q": queue}) as server:
        with hr.Client(server.address, compression="zstd") as client, hr.Client(server.address) as other:
            remote = client.queue("q")
            remote.send({"frame": FRAME})
            assert decompressing.entered.wait(_SECONDS)
            assert other.ping() < _SECONDS
            assert other.queue("q").statistics().samples_received == 0
            before = client.statistics
            found = []
            thread = threading.Thread(target=lambda: found.append(before().served["q"].samples_received))
            thread.start()
            decompressing.open.set()
            thread.join(_SECONDS)
            assert found == [1]
            remote.wait(_SECONDS)


def test_nothing_of_a_client_is_read_while_its_samples_are_decompressed(decompressing):
    """SV8"""
    data = memoryview(bytes(FRAME.nbytes))
    before, parts = PayloadPacker(CompressedColumns(("",))).packed([data], ["frame"])
    samples = b"".join(
        encoded(before[0]) + encoded(SendSamples(number=1, queue="q", first=n, count=1), bytes(parts[0]))
        for n in (1, 2)
    )
    with hr.BatchQueue({"frame": FRAME}, 2) as queue, hr.Server({"q": queue}) as server:
        with connected(server) as link:
            link._channel._socket.sendall(samples)
            assert decompressing.entered.wait(_SECONDS)
            assert the_connection(server).is_full
            link._channel._socket.sendall(encoded(Ping(number=5)))
            with hr.Client(server.address) as other:
                other.ping()
            assert decompressing.calls == 1
            decompressing.open.set()
            # No sender was opened, which the server sees when the first message is decompressed.
            until(lambda: server.statistics().protocol_errors == 1)
        assert queue.statistics().samples_received == 0


def test_requests_that_have_arrived_are_taken_when_their_client_has_gone(decompressing):
    """WI2: here it is told that its payload is none, though it has ended its side meanwhile."""
    packed = zstd.compressed(memoryview(bytes(1 << 20)))
    announced = encoded(Packed(buffers=[((1 << 20) + 1, len(packed))]))
    samples = encoded(SendSamples(number=1, queue="q", first=1, count=1), packed)
    with hr.BatchQueue({"frame": FRAME}, 2) as queue, hr.Server({"q": queue}) as server:
        found = []
        thread = threading.Thread(target=lambda: found.append(said_to(server, SESSION + announced + samples)))
        thread.start()
        assert decompressing.entered.wait(_SECONDS)
        connection = the_connection(server)
        until(lambda: connection.channel.has_hung_up)
        looks, look = [], connection._packed.look
        connection._packed.look = lambda: looks.append(look())
        until(lambda: len(looks) > 2)
        decompressing.open.set()
        thread.join(_SECONDS)
        assert b"expected compressed data of 1048577 bytes" in found[0]
        assert server.statistics().protocol_errors == 1


def test_a_large_payload_that_is_none_ends_its_own_connection():
    """WI3: it is refused as a small one is."""
    packed = zstd.compressed(memoryview(bytes(1 << 20)))
    announced = encoded(Packed(buffers=[((1 << 20) + 1, len(packed))]))
    samples = encoded(SendSamples(number=1, queue="q", first=1, count=1), packed)
    with hr.BatchQueue({"frame": FRAME}, 2) as queue, hr.Server({"q": queue}) as server:
        assert b"expected compressed data of 1048577 bytes" in said_to(server, SESSION + announced + samples)
        with hr.Client(server.address) as client:
            assert client.statistics().protocol_errors == 1


# ---- the end of a server ---------------------------------------------------------------------------------------------


def test_a_server_that_stops_sends_the_batch_that_is_compressed(replay, compressing):
    """SV5: the answer comes, and the goodbye behind it."""
    server = hr.Server({"r": replay}).start()
    with connected(server) as link:
        batch = link.begin(sample())
        assert compressing.entered.wait(_SECONDS)
        connection = the_connection(server)
        thread = threading.Thread(target=lambda: server.stop(_SECONDS))
        thread.start()
        until(lambda: connection._is_ending)
        compressing.open.set()
        assert len(link.wait(batch, _SECONDS)[1]) >= 2 * FRAME.nbytes
        with pytest.raises(hr.Closed, match="stops"):
            link.wait(link.begin(Ping()), _SECONDS)
        thread.join(_SECONDS)
        assert not thread.is_alive()


def test_samples_that_are_decompressed_within_the_time_are_stored(decompressing, monkeypatch):
    """SV5: their request had arrived when the server was told to stop."""
    looks, look = [], draining.Draining._look
    monkeypatch.setattr(draining, "_BUSY_SECONDS", _SECONDS)
    monkeypatch.setattr(draining.Draining, "_look", lambda self: looks.append(0) or look(self))
    with hr.BatchQueue({"frame": FRAME}, 2) as queue:
        server = hr.Server({"q": queue}).start()
        with hr.Client(server.address, compression="zstd", timeout=_SECONDS) as client:
            remote = client.queue("q")
            remote.send({"frame": FRAME})
            assert decompressing.entered.wait(_SECONDS)
            thread = threading.Thread(target=lambda: server.stop(_SECONDS))
            thread.start()
            until(lambda: len(looks) > 2)
            decompressing.open.set()
            remote.wait(_SECONDS)
            thread.join(_SECONDS)
            assert not thread.is_alive()
        assert queue.statistics().samples_received == 1


@pytest.mark.parametrize("drain_timeout", [0.0, 0.3])
def test_a_server_stops_in_time_whatever_compression_takes(replay, compressing, drain_timeout):
    """SV5: within the time and 1 s, some of which this machine is given beside."""
    server = hr.Server({"r": replay}).start()
    with connected(server) as link:
        link.begin(sample())
        assert compressing.entered.wait(_SECONDS)
        began = time.monotonic()
        server.stop(drain_timeout)
        assert time.monotonic() - began < drain_timeout + 5
        assert not compressing.open.is_set()


def test_samples_that_are_decompressed_when_the_server_stops_are_not_stored(decompressing):
    """SV5: they are refused, since nothing was acknowledged."""
    with hr.BatchQueue({"frame": FRAME}, 2) as queue:
        server = hr.Server({"q": queue}).start()
        client = hr.Client(server.address, compression="zstd", timeout=_SECONDS)
        remote = client.queue("q")
        remote.send({"frame": FRAME})
        assert decompressing.entered.wait(_SECONDS)
        server.stop(0.0)
        decompressing.open.set()
        with pytest.raises((hr.Closed, hr.Disconnected)):
            remote.wait(0.5)
        assert queue.statistics().samples_received == 0
        client._session.abandon()


# ---- the parts -------------------------------------------------------------------------------------------------------


def test_work_that_has_not_begun_is_given_up_with_its_client():
    """SV8: clients that come and go leave nothing in the queue of the threads."""
    work, found, open_ = PayloadWork(), [], threading.Event()
    busy = [work.begin(lambda: open_.wait(_SECONDS), found.append) for _ in range(4)]
    sent = []
    traffic = PackedTraffic(
        PayloadPacker(CompressedColumns(("",))),
        PayloadUnpacker(1 << 20),
        work,
        lambda *messages, **_: sent.append(messages),
        found.append,
        lambda: found.append("look"),
    )
    traffic.send_columns(Done(number=1), [memoryview(FRAME)], ["frame"])
    traffic.send(Done(number=2))
    traffic.close()
    open_.set()
    for each in busy:
        each.result(_SECONDS)
    work.close(_SECONDS)
    assert found == [True] * 4
    assert sent == []
    assert traffic.waiting_nbytes == 0


def test_many_small_answers_behind_a_large_one_count(compressing):
    """SV8"""
    work = PayloadWork()
    traffic = PackedTraffic(
        PayloadPacker(CompressedColumns(("",))),
        PayloadUnpacker(1 << 20),
        work,
        lambda *_, **__: None,
        lambda _: None,
        lambda: None,
    )
    traffic.send_columns(Done(number=1), [memoryview(FRAME)], ["frame"])
    before = traffic.waiting_nbytes
    for number in range(1000):
        traffic.send(Done(number=number))
    assert traffic.waiting_nbytes >= before + 100_000
    compressing.open.set()
    until(lambda: traffic.look() or not traffic.is_busy)
    assert traffic.waiting_nbytes == 0
    work.close(_SECONDS)
