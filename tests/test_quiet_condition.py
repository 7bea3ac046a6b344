"""Threads that hand work to each other by a condition, which is notified with or without its lock."""

import signal
import threading
from concurrent.futures import ThreadPoolExecutor

import pytest

from headrace.kernels.quick_lock import QuickLock
from headrace.kernels.quiet_condition import QuietCondition

JOIN = 30
LOCKS = [threading.Lock, threading.RLock, QuickLock]


@pytest.fixture(params=LOCKS)
def condition(request):
    return QuietCondition(request.param())


def is_held(condition):
    """Whether another thread finds the lock taken."""
    with ThreadPoolExecutor(1) as threads:
        return not threads.submit(condition.acquire, False).result(JOIN)


def waits(condition, count):
    """Returns when so many threads wait."""
    while True:
        with condition:  # A thread that waits has given the lock up.
            if len(condition._sleepers) == count:
                return


@pytest.mark.parametrize("holds", [True, False], ids=["with the lock", "without it"])
def test_all_waiting_threads_are_woken_and_hold_the_lock(condition, holds):
    def wait():
        with condition:
            return condition.wait(JOIN), is_held(condition)

    with ThreadPoolExecutor(3) as threads:
        waiting = [threads.submit(wait) for _ in range(3)]
        waits(condition, 3)
        if holds:
            with condition:
                condition.notify_all()
        else:
            condition.notify_all()
        assert [each.result(JOIN) for each in waiting] == [(True, True)] * 3
    assert not condition._sleepers


def test_a_wait_gives_up_a_lock_that_is_held_twice():
    condition, is_there = QuietCondition(threading.RLock()), []

    def bring():
        with condition:
            is_there.append(1)
            condition.notify_all()

    with ThreadPoolExecutor(1) as threads:
        with condition:
            bringing = threads.submit(bring)
            with condition:
                while not is_there:
                    assert condition.wait(JOIN)
            assert is_held(condition)
        assert not is_held(condition)
        bringing.result(JOIN)


def test_one_thread_is_woken(condition):
    def wait():
        with condition:
            return condition.wait(JOIN)

    with ThreadPoolExecutor(2) as threads:
        waiting = [threads.submit(wait) for _ in range(2)]
        waits(condition, 2)
        with condition:
            condition.notify()
        waits(condition, 1)
        condition.notify_all()
        assert all(each.result(JOIN) for each in waiting)


def test_no_wake_up_is_lost_where_the_lock_is_free_at_the_notification(condition):
    turns = []

    def take_turns(mine):
        for number in range(mine, 2000, 2):
            with condition:
                while len(turns) < number:
                    assert condition.wait(JOIN)
                turns.append(number)
            condition.notify_all()

    with ThreadPoolExecutor(2) as threads:
        for each in [threads.submit(take_turns, mine) for mine in (0, 1)]:
            each.result(JOIN)
    assert turns == list(range(2000))


@pytest.mark.parametrize("timeout", [-1.0, 0.0, 0.01])
def test_a_wait_ends_with_its_time(condition, timeout):
    with condition:
        assert not condition.wait(timeout)
        assert is_held(condition)
    assert not condition._sleepers


@pytest.mark.parametrize("ends", ["raises", "notifies"])
def test_a_handler_of_a_signal_ends_a_wait(condition, ends):
    is_over, raised = threading.Event(), []

    def handle(*_):
        if ends == "raises" and not raised:
            raised.append(1)
            raise KeyboardInterrupt
        condition.notify_all()

    def interrupt():
        # A signal that comes before the thread sleeps does not wake it.
        while not is_over.wait(0.01):
            signal.pthread_kill(threading.main_thread().ident, signal.SIGUSR1)

    before = signal.signal(signal.SIGUSR1, handle)
    try:
        with ThreadPoolExecutor(1) as threads:
            interrupter = threads.submit(interrupt)
            with condition:
                try:
                    found = condition.wait(JOIN)
                except KeyboardInterrupt:
                    found = "raised"
                is_over.set()
                assert is_held(condition)
            interrupter.result(JOIN)
    finally:
        signal.signal(signal.SIGUSR1, before)
    assert found == ("raised" if ends == "raises" else True)
    assert not condition._sleepers
