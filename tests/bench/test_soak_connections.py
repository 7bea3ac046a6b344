"""Some connections of the soak test."""

from bench.soak_connections import soak
from tests.server.certificates import client_context, server_context


def test_connections_leave_nothing_behind():
    """server SV7, LP1, SS1, WI3"""
    _, seconds = soak(120, 3, (server_context(), client_context()), 100)
    assert 0 < seconds < 10
