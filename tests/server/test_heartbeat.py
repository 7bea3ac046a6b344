"""Peers that are silent while something is expected of them."""

import socket
import threading
import time
from pathlib import Path

import pytest

import headrace as hr
from headrace.leases.channel import Channel
from headrace.leases.selector import PEERS, PeerSelector
from headrace.server.addresses import parse_address
from headrace.server.client import link as link_module
from headrace.server.client.blocks import MappedBlocks
from headrace.server.client.connecting import ServerAccess, WriterChannel, connect
from headrace.server.client.link import Link
from headrace.server.client.writers.writer_connection import WriterConnection
from headrace.server.heartbeat import ANSWER_SECONDS, ASK_SECONDS, Heartbeat, Pulse
from headrace.server.limits import Limits
from headrace.server.messages.answers import AnyAnswer, Done, Flag
from headrace.server.messages.requests import AnyRequest, CanSample, Ping, Sample
from headrace.server.serving.connections import Connections
from headrace.server.serving.served import ServedObjects
from headrace.server.socket_options import set_options
from headrace.testing import FakeClock


@pytest.fixture
def replay():
    with hr.Replay(hr.Signature.like({"n": 0}), [hr.Table.queue("q", 9)]) as replay:
        yield replay


def until(condition):
    deadline = time.monotonic() + 10
    while not condition():
        assert time.monotonic() < deadline, "it did not come to that"
        time.sleep(0.002)


def test_a_silent_peer_is_gone_within_15_seconds():
    """AK7"""
    assert ASK_SECONDS + ANSWER_SECONDS + 2 * 0.5 < 15


def test_a_look_that_comes_late_blames_nobody():
    """The looker itself was stopped: the answer has come meanwhile, and is read before the next look."""
    heartbeat = Heartbeat()
    assert heartbeat.look(0.0, 5) is Pulse.FINE
    assert heartbeat.look(100.0, 5) is Pulse.ASK
    assert heartbeat.look(300.0, 5) is Pulse.FINE
    assert heartbeat.look(300.5, 6) is Pulse.FINE
    assert heartbeat.look(304.5, 6) is Pulse.ASK
    heartbeat.restart()
    assert heartbeat.look(900.0, 6) is Pulse.FINE


# ---- clients -------------------------------------------------------------------------------------------------------


@pytest.fixture
def ends(monkeypatch):
    """A client's link with a clock of the test, and the server's end of it."""
    monkeypatch.setattr(link_module, "_TURN_SECONDS", 0.01)
    one, other = socket.socketpair()
    clock = FakeClock()
    link = Link(Channel(one, AnyAnswer), "the server", {}, MappedBlocks(may_map=False), clock)
    server = Channel(other, AnyRequest)
    yield link, server, clock
    link.close()
    server.close()


def waiting(link):
    """Waits for the answer to a request in a thread; returns the thread, and the list that gets what comes."""
    found = []

    def wait():
        try:
            found.append(link.wait(link.begin(CanSample(replay="r", table="q", n=1)), None)[0])
        except hr.HeadraceError as error:
            found.append(error)

    thread = threading.Thread(target=wait)
    thread.start()
    return thread, found


def test_a_wait_at_a_silent_server_ends(ends):
    """AK7: no FIN, and no timeout of the call either."""
    link, server, clock = ends
    thread, found = waiting(link)
    assert isinstance(server.receive().message, CanSample)
    until(lambda: link._heartbeat._nbytes >= 0)
    clock.advance(ASK_SECONDS)
    assert isinstance(server.receive().message, Ping)
    clock.advance(ANSWER_SECONDS)
    thread.join(10)
    assert isinstance(found[0], hr.Disconnected)
    assert "no sign of life in 13 s" in str(found[0])


def test_a_server_that_answers_may_take_as_long_as_it_wants(ends):
    """CL5: a waiting call is kept alive."""
    link, server, clock = ends
    thread, found = waiting(link)
    request = server.receive().message
    until(lambda: link._heartbeat._nbytes >= 0)
    for _ in range(5):
        before = link._channel.bytes_in
        clock.advance(ASK_SECONDS)
        ping = server.receive().message
        assert isinstance(ping, Ping)
        server.send(Done(number=ping.number))
        until(lambda before=before: before < link._channel.bytes_in == link._heartbeat._nbytes)
    server.send(Flag(number=request.number, value=True))
    thread.join(10)
    assert found[0].value is True


def test_the_silence_before_a_request_does_not_count(ends):
    link, server, clock = ends
    for _ in range(2):
        clock.advance(1000)
        thread, found = waiting(link)
        request = server.receive().message
        assert isinstance(request, CanSample)
        until(lambda: link._heartbeat._nbytes >= 0)
        server.send(Flag(number=request.number, value=True))
        thread.join(10)
        assert found[0].value is True


def test_writers_notice_a_silent_server():
    one, other = socket.socketpair()
    clock, made = FakeClock(), []

    def reconnect():
        made.append(1)
        if len(made) > 1:
            raise hr.AuthenticationError("the test ends here")
        return WriterChannel(Channel(one, Done), 0)

    connection = WriterConnection(reconnect, "the server", 1.0, clock)
    server = Channel(other, AnyRequest)
    connection._streams[0] = NoStream()
    PEERS.look(connection)
    until(lambda: connection._heartbeat._nbytes >= 0)
    clock.advance(ASK_SECONDS)
    PEERS.look(connection)
    assert isinstance(server.receive().message, Ping)
    clock.advance(ANSWER_SECONDS)
    PEERS.look(connection)
    PEERS.look(connection)
    until(lambda: len(made) == 2)
    until(lambda: connection.has_ended)
    connection.close()
    server.close()


class NoStream:
    """A writer, as its connection calls it."""

    def lose(self, goodbye):
        """Nothing."""

    def give_up(self, error):
        """Nothing."""


# ---- servers -------------------------------------------------------------------------------------------------------


@pytest.fixture
def served(replay):
    """The connections of a server with a clock of the test, and a client's link."""
    clock = FakeClock()
    connections = Connections(
        ServedObjects({"r": replay}),
        [parse_address("tcp://127.0.0.1:0")],
        None,
        None,
        None,
        Limits(),
        PeerSelector(),
        clock,
    )
    link = connect(ServerAccess(connections.addresses[0], None, None, 10.0))
    yield connections, link, clock
    link.close()
    connections.close(1.0)


def look(connections):
    (peer,) = connections._open
    before = peer._heartbeat.look
    looked = threading.Event()

    def noting(*arguments):
        looked.set()
        return before(*arguments)

    peer._heartbeat.look = noting
    connections.selector.look(peer)
    assert looked.wait(10)
    peer._heartbeat.look = before


def test_a_client_that_waits_in_silence_ends(served, replay):
    """AK7, LP1: its wait would take an item that nobody gets."""
    connections, link, clock = served
    link.begin(Sample(replay="r", table="q", batch_size=1, timeout=None))
    until(lambda: replay.table("q").statistics().waiting_samples == 1)
    look(connections)
    clock.advance(ASK_SECONDS)
    look(connections)
    clock.advance(ANSWER_SECONDS)
    look(connections)
    assert replay.table("q").statistics().waiting_samples == 1
    look(connections)
    until(lambda: connections.statistics().connections == 0)
    assert replay.table("q").statistics().waiting_samples == 0


def test_a_server_that_reads_no_further_steps_shows_that_it_lives(served, replay):
    """SV8, AK7: else the client would take back-pressure for the end of the server."""
    connections, link, clock = served
    reply = link.begin(Sample(replay="r", table="q", batch_size=1, timeout=None))
    until(lambda: replay.table("q").statistics().waiting_samples == 1)
    (peer,) = connections._open
    most, peer._most_unread = peer._most_unread, -1
    for _ in range(5):
        before = connections.statistics().bytes_out
        look(connections)
        clock.advance(ASK_SECONDS)
        look(connections)
        until(lambda before=before: connections.statistics().bytes_out > before)
    peer._most_unread = most
    with replay.writer(items=[hr.ItemRule("q", 1)]) as writer:
        writer.append({"n": 1})
    assert link.wait(reply, 10.0)[0].number == reply.number


def test_a_client_that_asks_goes_on_waiting(served, replay):
    connections, link, clock = served
    link.begin(Sample(replay="r", table="q", batch_size=1, timeout=None))
    until(lambda: replay.table("q").statistics().waiting_samples == 1)
    for _ in range(10):
        look(connections)
        clock.advance(ASK_SECONDS + 1)
        before = connections.statistics().bytes_in
        link.begin(Ping())
        until(lambda before=before: connections.statistics().bytes_in > before)
    assert connections.statistics().connections == 1


def test_an_idle_client_may_be_silent(served):
    connections, _, clock = served
    (peer,) = connections._open
    for _ in range(5):
        clock.advance(1000)
        looked = threading.Event()
        connections.selector.look(peer)
        connections.selector.call_soon(looked.set)
        assert looked.wait(10)
    assert connections.statistics().connections == 1


# ---- systems -------------------------------------------------------------------------------------------------------


def test_the_system_probes_an_idle_connection_within_15_seconds_and_ends_none_that_is_not_read():
    with socket.create_server(("127.0.0.1", 0)) as listening:
        with socket.create_connection(listening.getsockname()) as connection:
            set_options(connection)

            def option(name):
                return connection.getsockopt(socket.IPPROTO_TCP, getattr(socket, name))

            assert connection.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE)
            assert option("TCP_KEEPIDLE") + option("TCP_KEEPINTVL") * option("TCP_KEEPCNT") < 15
            assert option("TCP_USER_TIMEOUT") == 0


def test_a_unix_socket_takes_a_message_of_several_small_batches_without_a_reader():
    one, other = socket.socketpair(socket.AF_UNIX, socket.SOCK_STREAM)
    with one, other:
        set_options(one)
        limit = min(1 << 20, int(Path("/proc/sys/net/core/wmem_max").read_text()))
        assert one.send(bytes(limit // 2), socket.MSG_DONTWAIT) == limit // 2
        larger = one.getsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF)
        set_options(one)
        assert one.getsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF) == larger
