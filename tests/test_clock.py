import threading

import pytest

from headrace.clock import SYSTEM_CLOCK
from headrace.testing import FakeClock


def test_the_system_clock_times_out_and_is_notified():
    condition = threading.Condition()
    with condition:
        before = SYSTEM_CLOCK.monotonic()
        assert SYSTEM_CLOCK.wait(condition, 0.001) is False
        assert SYSTEM_CLOCK.monotonic() > before
        waker = threading.Thread(target=notify, args=(condition,))
        waker.start()
        assert SYSTEM_CLOCK.wait(condition, None) is True
    waker.join()


def notify(condition):
    with condition:
        condition.notify_all()


class Waiting:
    """A thread that waits once on a clock and keeps what the clock answered."""

    def __init__(self, clock, timeout, condition=None):
        self.clock, self.timeout = clock, timeout
        self.condition = condition or threading.Condition()
        self.answer = None
        self.thread = threading.Thread(target=self._run)
        self.thread.start()

    def _run(self):
        with self.condition:
            self.answer = self.clock.wait(self.condition, self.timeout)

    def result(self):
        self.thread.join(timeout=10.0)
        assert not self.thread.is_alive()
        return self.answer


def test_time_moves_only_by_advance():
    clock = FakeClock(start=5.0)
    assert clock.monotonic() == clock.monotonic() == 5.0
    clock.advance(0)
    clock.advance(1.5)
    assert clock.monotonic() == 6.5


@pytest.mark.parametrize("seconds", [-1, float("nan")])
def test_time_never_goes_back(seconds):
    clock = FakeClock()
    with pytest.raises(ValueError, match="expected 0 or more"):
        clock.advance(seconds)
    assert clock.monotonic() == 0.0


def test_only_waiters_whose_time_is_up_wake():
    clock = FakeClock()
    short, long, endless = Waiting(clock, 1.0), Waiting(clock, 2.0), Waiting(clock, None)
    clock.wait_for_waiters(3)
    clock.advance(0.999)
    assert clock.waiters == 3
    clock.advance(0.001)
    assert short.result() is False
    assert clock.waiters == 2
    clock.advance(1000.0)
    assert long.result() is False
    assert clock.waiters == 1
    assert endless.thread.is_alive()
    notify(endless.condition)
    assert endless.result() is True
    assert clock.waiters == 0


def test_a_notified_waiter_is_told_so():
    clock = FakeClock()
    waiting = Waiting(clock, 1.0)
    clock.wait_for_waiters(1)
    notify(waiting.condition)
    assert waiting.result() is True
    clock.advance(5.0)  # Nobody is left to wake.


def test_two_waiters_on_one_condition_get_their_own_answers():
    clock = FakeClock()
    condition = threading.Condition()
    due, later = Waiting(clock, 1.0, condition), Waiting(clock, 9.0, condition)
    clock.wait_for_waiters(2)
    clock.advance(1.0)
    assert due.result() is False
    assert later.result() is True  # Woken for the other's sake: it would look again.


@pytest.mark.parametrize("timeout", [0, -1.0])
def test_no_time_to_wait_is_a_timeout_at_once(timeout):
    clock = FakeClock()
    condition = threading.Condition()
    with condition:
        assert clock.wait(condition, timeout) is False
    assert clock.waiters == 0


def test_waiting_for_waiters_that_never_come_is_an_error():
    with pytest.raises(TimeoutError, match="expected 1 waiters within 0.001 s, got 0"):
        FakeClock().wait_for_waiters(1, timeout=0.001)
