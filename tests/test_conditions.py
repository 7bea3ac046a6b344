"""A condition whose `with` statement Ctrl-C does not part."""

import sys
import threading

import pytest

import headrace as hr
from headrace.collectors.handle.forwarded_rows import ForwardedRows
from headrace.collectors.inline.step_turns import StepTurns
from headrace.conditions import SignalSafeCondition
from headrace.kernels.quiet_condition import QuietCondition
from headrace.rollouts.samplers import AsyncSampler, StopFlag
from headrace.server.serving.shared_runs import SharedRuns
from headrace.testing import CounterEnv, FakeClock


@pytest.mark.parametrize("kind", [SignalSafeCondition, QuietCondition])
@pytest.mark.parametrize("new_lock", [threading.Lock, threading.RLock])
def test_no_function_of_python_stands_between_the_statement_and_the_lock(kind, new_lock):
    """collectors CX7, server CL5: Python looks for signals where a function begins, and behind a call within one."""
    lock, functions = new_lock(), []
    condition = kind(lock)
    sys.setprofile(lambda frame, event, _: functions.append(frame.f_code) if event == "call" else None)
    try:
        with condition:
            pass
    finally:
        sys.setprofile(None)
    assert not functions
    with condition:
        assert not condition.wait(0.0)
    assert lock.acquire(blocking=False)
    lock.release()


def test_the_lock_is_held_after_ctrl_c_in_a_wait():
    """collectors CX7: else the end of the `with` statement would raise RuntimeError in place of KeyboardInterrupt."""
    condition = SignalSafeCondition()
    release = condition._release_save

    def interrupted():
        release()
        raise KeyboardInterrupt

    condition._release_save = interrupted
    with pytest.raises(KeyboardInterrupt), condition:
        condition.wait(10.0)
    assert not condition._is_owned()


def interrupt(frame, event, _):
    """Ctrl-C where `threading.Condition` has taken its lock for a `with` statement, and returns."""
    if event == "return":
        sys.settrace(None)
        raise KeyboardInterrupt
    if frame.f_code is threading.Condition.__enter__.__code__:
        frame.f_trace_lines = False
        return interrupt
    return None


def ended_in_time(call):
    thread = threading.Thread(target=call, daemon=True)
    thread.start()
    thread.join(20.0)
    return not thread.is_alive()


def check_interrupted(call):
    """Another thread can make a call after the main thread's was interrupted."""
    before = sys.gettrace()
    sys.settrace(interrupt)
    try:
        call()
    except KeyboardInterrupt:
        """A condition of `threading` was taken."""
    finally:
        sys.settrace(before)
    assert ended_in_time(call)


def collecting():
    turns = StepTurns()

    def call():
        with turns.collect(10.0, "next"):
            turns.give_way()

    return call


def visiting():
    turns = StepTurns()

    def call():
        with turns.visit(10.0, "state_dict"):
            """Between two steps."""

    return call


def sampling():
    return AsyncSampler(lambda: "batch", StopFlag()).close


def running_slow_work():
    runs = SharedRuns(lambda: 7, "headrace-example")
    runs.begin(lambda result: None)
    return lambda: runs.wait(10.0)


def fake_time():
    return FakeClock().monotonic


@pytest.mark.parametrize("make", [collecting, visiting, sampling, running_slow_work, fake_time])
def test_ctrl_c_leaves_no_lock_taken(make):
    """collectors CX7, server CL5, views-rollouts R13: other threads go on."""
    check_interrupted(make())


def test_ctrl_c_in_a_pause_leaves_no_lock_taken():
    """collectors CF6, CX7: the collecting thread goes on."""
    table = hr.Table("t", sampler=hr.selectors.Uniform(), remover=hr.selectors.Fifo(), max_size=100)
    signature = hr.collectors.signature(lambda: CounterEnv(3))
    with (
        hr.Replay(signature, [table]) as replay,
        hr.Collector(lambda: CounterEnv(3), frames_per_batch=4, replay_buffer=replay) as collector,
    ):
        collector.start()

        def pause():
            with collector.pause():
                """Nothing is collected."""

        check_interrupted(pause)


def test_ctrl_c_leaves_no_lock_of_forwarded_rows_taken(monkeypatch):
    """collectors CX7: the thread that sends rows goes on."""
    monkeypatch.setattr(ForwardedRows, "_main", lambda rows: None)
    check_interrupted(ForwardedRows(None, 1, None, None).hurry)
