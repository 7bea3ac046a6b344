"""Connections of the page that hold up nobody: they need no token, and take descriptors of the training process."""

import socket
from urllib.parse import urlsplit

import pytest

import headrace as hr
from headrace.monitor import connections
from tests.server.test_stopping import until

TOKEN = "s3cret"
REQUEST = b"GET /page.js HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer s3cret\r\n"
LAST = b"Connection: close\r\n\r\n"


@pytest.fixture
def monitor():
    with hr.Replay(hr.Signature.like({"x": 0}), [hr.Table.queue("q", 9)]) as replay:
        with hr.monitor.serve(replay, token=TOKEN) as monitor:
            yield monitor


@pytest.fixture
def connect(monitor):
    made = []

    def new():
        place = urlsplit(monitor.url)
        made.append(socket.socket())
        made[-1].setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        made[-1].settimeout(30)
        made[-1].connect((place.hostname, place.port))
        return made[-1]

    yield new
    for connection in made:
        connection.close()


def ends(connection):
    """Whether the server ends a connection before it has sent anything more."""
    try:
        return connection.recv(1) == b""
    except ConnectionResetError:
        return True


def status(connection):
    connection.sendall(REQUEST + LAST)
    answer = b""
    while part := connection.recv(1 << 16):
        answer += part
    return answer.split(None, 2)[1]


def test_a_connection_beyond_the_limit_is_closed_and_the_others_work(monkeypatch, connect):
    monkeypatch.setattr(connections, "MOST_CONNECTIONS", 3)
    first = [connect() for _ in range(3)]
    assert ends(connect())
    assert status(first[0]) == b"200"
    # Its place is free again.
    assert status(connect()) == b"200"


def checks(monitor):
    """Has the only connection checked now, as its timer does; returns whether it has ended."""
    there = tuple(monitor._server.server_state.connections)
    for connection in there:
        connection.loop.call_soon_threadsafe(connection._end_if_silent)
    return not there


def test_a_connection_that_sends_nothing_is_closed(monkeypatch, connect):
    monkeypatch.setattr(connections, "SILENT_SECONDS", 0.2)
    assert ends(connect())


@pytest.mark.parametrize("begin", [b"GET / HT", REQUEST + b"X: ", b"GET /health HTTP/1.1\r\nHost: a\r\n\r\n"])
def test_a_connection_that_completes_no_request_is_closed(monitor, connect, begin):
    """Also one whose first request was answered."""
    silent = connect()
    silent.sendall(begin)
    if begin.endswith(b"\r\n\r\n"):
        answer = b""
        while not answer.endswith(b"}"):
            part = silent.recv(1 << 16)
            assert part
            answer += part
        assert answer.startswith(b"HTTP/1.1 200")
        silent.sendall(b"GET / HT")
    until(lambda: monitor._server.server_state.connections)
    until(lambda: checks(monitor))
    assert ends(silent)


def test_a_visitor_who_does_not_read_is_closed(monitor, connect):
    slow = connect()
    # The answers are more than what the system takes for a visitor who does not read.
    slow.sendall((REQUEST + b"\r\n") * 2000)
    there = monitor._server.server_state.connections
    until(lambda: any(each.transport.get_write_buffer_size() for each in tuple(there)))
    until(lambda: checks(monitor))
