"""Locks that compiled code takes without a call of Python."""

import signal
import threading
from concurrent.futures import ThreadPoolExecutor

import pytest

from headrace.kernels.quick_lock import QuickLock, QuickRLock

JOIN = 30


@pytest.mark.parametrize("kind", [QuickLock, QuickRLock])
def test_one_thread_has_it_at_a_time(kind):
    lock, inside, most = kind(), [], []

    def take_turns():
        for _ in range(300):
            with lock:
                inside.append(1)
                most.append(len(inside))
                inside.pop()

    with ThreadPoolExecutor(4) as threads:
        for done in [threads.submit(take_turns) for _ in range(4)]:
            done.result(JOIN)
    assert set(most) == {1}
    assert len(most) == 1200


def test_a_thread_waits_until_it_is_given():
    lock, has_begun = QuickLock(), threading.Event()

    def wait():
        has_begun.set()
        lock.take()
        return "taken"

    with ThreadPoolExecutor(1) as threads:
        lock.take()
        waiting = threads.submit(wait)
        assert has_begun.wait(JOIN)
        assert not lock.take_now()
        assert not waiting.done()
        lock.give()
        assert waiting.result(JOIN) == "taken"
    assert not lock.acquire(blocking=False)
    lock.release()
    assert lock.acquire()


def test_a_signal_ends_a_wait():
    lock, raised = QuickLock(), []

    def end(*_):
        if not raised:
            raised.append(1)
            raise KeyboardInterrupt

    before = signal.signal(signal.SIGALRM, end)
    try:
        lock.take()
        signal.setitimer(signal.ITIMER_REAL, 0.05, 0.05)
        with pytest.raises(KeyboardInterrupt):
            lock.take()
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
    lock.give()
    assert lock.take_now()


def test_its_owner_takes_it_again_and_others_wait_until_it_is_given_as_often():
    lock, has_begun = QuickRLock(), threading.Event()

    def wait():
        with pytest.raises(RuntimeError, match="does not hold"):
            lock.release()
        has_begun.set()
        with lock:
            return "taken"

    with ThreadPoolExecutor(1) as threads:
        with lock:
            assert lock.acquire()
            waiting = threads.submit(wait)
            assert has_begun.wait(JOIN)
            lock.give()
            assert not waiting.done()
        assert waiting.result(JOIN) == "taken"
    with pytest.raises(RuntimeError, match="does not hold"):
        lock.give()
