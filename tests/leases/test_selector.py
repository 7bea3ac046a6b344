"""The thread that listens to all peers."""

import threading
from concurrent.futures import ThreadPoolExecutor

import pytest

from headrace.kernels.quiet_condition import QuietCondition
from headrace.leases.channel import Channel
from headrace.leases.messages import Ack, LeaseMessage
from headrace.leases.selector import PeerSelector

JOIN = 30


class Changing:
    """A peer whose message changes something that another thread waits for."""

    waits = is_full = is_at_work = False

    def __init__(self, selector, channel, condition):
        self.selector, self.channel, self.condition = selector, channel, condition
        self.slept = []
        self.has_ended = threading.Event()

    def take(self, frame):
        for _ in range(2):
            with self.condition:
                self.selector.notify_later(self.condition)
        self.slept.append(len(self.condition._sleepers))

    def look(self):
        pass

    def end(self, error):
        self.has_ended.set()


@pytest.fixture
def selector():
    before = set(threading.enumerate())
    yield PeerSelector()
    for thread in set(threading.enumerate()) - before:
        assert not thread.join(JOIN)
        assert not thread.is_alive()


def test_waiting_threads_are_woken_when_the_messages_that_came_are_done(selector):
    """A thread that is woken before finds the interpreter lock taken, or takes it from the thread that listens."""
    condition = QuietCondition(threading.RLock())
    ours, other = Channel.pair(LeaseMessage)
    peer = Changing(selector, ours, condition)

    def wait():
        with condition:
            other.send(*(Ack(writer=0, sequence=number) for number in range(3)))
            return condition.wait(JOIN)

    with ThreadPoolExecutor(1) as threads:
        selector.add(peer)
        assert threads.submit(wait).result(JOIN)
    assert peer.slept == [1, 1, 1]
    other.close()
    assert peer.has_ended.wait(JOIN)
    ours.close()


def test_waiting_threads_are_woken_when_the_last_peer_has_gone(selector):
    condition = QuietCondition(threading.RLock())
    ours, other = Channel.pair(LeaseMessage)
    peer = Changing(selector, ours, condition)

    def end(error):
        with condition:  # It waits.
            selector.notify_later(condition)
        peer.has_ended.set()

    def wait():
        with condition:
            other.close()
            return condition.wait(JOIN)

    peer.end = end
    with ThreadPoolExecutor(1) as threads:
        selector.add(peer)
        assert threads.submit(wait).result(JOIN)
    assert peer.has_ended.wait(JOIN)
    ours.close()


def test_a_call_is_made_in_the_thread_and_its_outcome_returned(selector):
    condition = QuietCondition(threading.RLock())
    ours, other = Channel.pair(LeaseMessage)
    peer = Changing(selector, ours, condition)
    selector.add(peer)
    assert selector.submit(threading.get_ident).result(JOIN) != threading.get_ident()
    with pytest.raises(ZeroDivisionError):
        selector.submit(lambda: 1 // 0).result(JOIN)
    assert selector.submit(lambda: selector.submit(lambda: 7).result(JOIN)).result(JOIN) == 7
    other.close()
    assert peer.has_ended.wait(JOIN)
    ours.close()


def test_a_call_without_peers_is_made_at_once(selector):
    assert selector.submit(threading.get_ident).result(0) == threading.get_ident()
    with pytest.raises(ZeroDivisionError):
        selector.submit(lambda: 1 // 0).result(0)
