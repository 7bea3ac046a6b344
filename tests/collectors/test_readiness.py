"""Whether a descriptor can be read, without a wait."""

import socket

import pytest

from headrace.kernels.readiness import is_readable


@pytest.fixture
def ends():
    here, there = socket.socketpair()
    with here, there:
        yield here, there


def test_bytes_are_seen_until_they_are_read(ends):
    here, there = ends
    seen = [is_readable(here.fileno())]
    there.send(b"ab")
    seen.append(is_readable(here.fileno()))
    here.recv(1)
    seen.append(is_readable(here.fileno()))
    here.recv(1)
    assert [*seen, is_readable(here.fileno())] == [False, True, True, False]


@pytest.mark.parametrize("is_closed", [True, False])
def test_the_end_of_the_peer_is_seen(ends, is_closed):
    here, there = ends
    there.close() if is_closed else there.shutdown(socket.SHUT_WR)
    assert is_readable(here.fileno())
    assert here.recv(1) == b""
