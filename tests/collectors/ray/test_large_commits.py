"""Rows that travel beside the connection: in order with its messages, and lost with their actor only."""

# Rules: collectors CY2, CX6

import socket
from concurrent.futures import Future

import numpy as np
import pytest

from headrace.collectors.messages import AnyMessage, RowsHeld, Stepped
from headrace.collectors.ray.channels import CollectorEnd
from headrace.errors import Disconnected
from headrace.leases.channel import Channel
from headrace.leases.messages import Commit, Goodbye

COMMIT = Commit(writer=0, sequence=1, page=0, steps=1, versions=b"")
ROWS = np.arange(5, dtype=np.uint8)


@pytest.fixture
def ends():
    """The actor's end, the collector's end, and what it fetches."""
    one, other = socket.socketpair()
    fetched = {}
    actor = Channel(one, AnyMessage)
    collector = CollectorEnd(other, lambda number: fetched.setdefault(number, Future()))
    yield actor, collector, fetched
    actor.close()
    collector.close()


def taken(frames, collector):
    """Takes frames as the thread that listens does: until rows are awaited."""
    found = []
    for frame in frames:
        found.append(frame)
        if collector.awaits_rows:
            break
    return found


def test_messages_wait_for_the_rows_before_them(ends):
    actor, collector, fetched = ends
    actor.send(Stepped(taken=1), RowsHeld(number=7), COMMIT, Goodbye())
    seen = taken(collector.receive_ready(), collector)
    assert [frame.message for frame in seen] == [Stepped(taken=1), RowsHeld(number=7)]
    fetched[7].set_result(ROWS)
    seen = taken(collector.received(), collector)
    assert [frame.message for frame in seen] == [COMMIT, Goodbye()]
    assert bytes(seen[0].payload) == bytes(ROWS)
    assert np.shares_memory(np.frombuffer(seen[0].payload, np.uint8), ROWS)
    actor.send(COMMIT, payload=b"behind")
    assert [bytes(frame.payload) for frame in taken(collector.receive_ready(), collector)] == [b"behind"]


def test_rows_that_are_there_at_once_delay_nothing(ends):
    actor, collector, fetched = ends
    fetched[1] = Future()
    fetched[1].set_result(ROWS)
    actor.send(RowsHeld(number=1), COMMIT)
    assert [bytes(f.payload) for f in taken(collector.receive_ready(), collector)] == [b"", bytes(ROWS)]


def test_an_actor_that_has_ended_is_read_to_its_end(ends):
    actor, collector, fetched = ends
    actor.send(RowsHeld(number=1), COMMIT, Goodbye())
    actor.close()
    taken(collector.receive_ready(), collector)
    assert not collector.has_hung_up
    fetched[1].set_result(ROWS)
    assert collector.has_hung_up
    assert [f.message for f in taken(collector.received(), collector)] == [COMMIT, Goodbye()]
    assert not collector.has_ended.is_set()
    with pytest.raises(Disconnected):
        collector.receive_ready()
    assert collector.has_ended.is_set()


def test_a_machine_that_is_gone_is_not_waited_for():
    listening = socket.create_server(("127.0.0.1", 0))
    other = socket.create_connection(listening.getsockname())
    one, _ = listening.accept()
    actor, collector = Channel(one, AnyMessage), CollectorEnd(other, lambda number: Future())
    actor.send(RowsHeld(number=1), COMMIT)
    taken(collector.receive_ready(), collector)
    collector.send(Stepped(taken=1))
    actor.close()  # With unread data: a reset, as at the end of a machine that is not there any more.
    assert collector.awaits_rows
    assert collector.has_hung_up
    collector.close()
    listening.close()


def test_rows_that_do_not_arrive_end_the_connection(ends):
    actor, collector, fetched = ends
    actor.send(RowsHeld(number=1), COMMIT)
    taken(collector.receive_ready(), collector)
    fetched[1].set_exception(ValueError("the actor died"))
    with pytest.raises(Disconnected, match="the actor died"):
        taken(collector.received(), collector)
