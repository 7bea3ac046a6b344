"""Numbers of views over one connection: the server must know each of them when it is used."""

import threading
from concurrent.futures import ThreadPoolExecutor
from functools import partial

import pytest
from hypothesis import given
from hypothesis import strategies as st

import headrace as hr
from headrace.server.client.known_views import KnownViews
from headrace.server.messages.requests import Sample

JOIN = 20.0


def request():
    return Sample(replay="r", table="t", batch_size=1, timeout=None)


class Received:
    """The requests as a server gets them, which must understand each."""

    def __init__(self):
        self.views = {}
        self.found = []

    def take(self, request):
        if request.described is not None:
            self.views[request.views] = request.described
        self.found.append(self.views[request.views])


@given(st.lists(st.integers(0, 300), max_size=700))
def test_each_request_is_answered_with_its_own_views(wanted):
    """Also with more views than a server keeps: their numbers are used again."""
    known, server = KnownViews(), Received()
    for views in wanted:
        sample = request()
        known.send(sample, views, partial(dict, number=views), partial(server.take, sample))
    assert server.found == [{"number": views} for views in wanted]
    assert all(number < 256 for number in server.views)


def test_a_request_does_not_overtake_the_one_that_describes_its_views():
    known, server = KnownViews(), Received()
    is_describing, may_go_on = threading.Event(), threading.Event()

    def describe():
        is_describing.set()
        assert may_go_on.wait(JOIN)
        return {"is": "here"}

    def send(describe):
        sample = request()
        known.send(sample, "views", describe, lambda: server.take(sample))

    with ThreadPoolExecutor(2) as pool:
        first = pool.submit(send, describe)
        assert is_describing.wait(JOIN)
        second = pool.submit(send, lambda: pytest.fail("they were described twice"))
        may_go_on.set()
        first.result(JOIN)
        second.result(JOIN)
    assert server.found == [{"is": "here"}] * 2


def test_views_of_a_request_that_was_not_sent_are_described_again():
    known, server = KnownViews(), Received()

    def fail():
        raise hr.Disconnected("gone")

    with pytest.raises(hr.Disconnected):
        known.send(request(), "views", lambda: {"is": "lost"}, fail)
    sample = request()
    known.send(sample, "views", lambda: {"is": "here"}, lambda: server.take(sample))
    assert server.found == [{"is": "here"}]
