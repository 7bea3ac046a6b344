"""A lock that compiled code takes without a call of Python."""

import signal
import threading
from concurrent.futures import ThreadPoolExecutor

import pytest

from headrace.kernels.quick_lock import QuickLock

JOIN = 30


def test_one_thread_has_it_at_a_time():
    lock, inside, most = QuickLock(), [], []

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
