"""A condition whose `with` statement Ctrl-C does not part."""

import sys
import threading

import pytest

from headrace.conditions import SignalSafeCondition
from headrace.kernels.quiet_condition import QuietCondition


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
