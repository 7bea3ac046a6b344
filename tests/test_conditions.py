"""A condition whose `with` statement Ctrl-C does not part."""

import sys
import threading

import pytest

from headrace.conditions import SignalSafeCondition


@pytest.mark.parametrize("lock", [None, threading.Lock(), threading.RLock()], ids=["own", "lock", "rlock"])
def test_no_function_of_python_stands_between_the_statement_and_the_lock(lock):
    """collectors CX7, server CL5: Python looks for signals where a function begins, and behind a call within one."""
    condition, functions = SignalSafeCondition(lock), []
    sys.setprofile(lambda frame, event, _: functions.append(frame.f_code) if event == "call" else None)
    try:
        with condition:
            pass
    finally:
        sys.setprofile(None)
    assert not functions
    with condition:
        assert not condition.wait(0.0)
    if lock is not None:
        assert lock.acquire(blocking=False)
        lock.release()
