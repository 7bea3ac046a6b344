"""Running a function in a forked child."""

from __future__ import annotations

import os
import pickle
import select
import signal
import traceback
import warnings
from collections.abc import Callable
from typing import Any, TypeVar

from headrace.errors import Unsupported

Result = TypeVar("Result")


def in_forked_child(function: Callable[[], Result], timeout: float = 30.0) -> Result:
    """Forks, calls `function` in the child, and returns its result in the parent, when the child has ended.

    Args:
        function: its result is pickled.
        timeout: seconds after which the child is killed.

    Raises:
        RuntimeError: `function` raised an error; the message has its traceback.
        TimeoutError: the child was killed after `timeout`.
        Unsupported: the system does not fork.

    >>> in_forked_child(lambda: os.getpid() != os.getppid())
    True
    """
    if not hasattr(os, "fork"):
        raise Unsupported("in_forked_child: expected a system that forks; skip the test on this one")
    ours, theirs = os.pipe()
    with warnings.catch_warnings():
        # Python and libraries warn of forks beside threads; to see what becomes of them is what this is for.
        warnings.simplefilter("ignore")
        child = os.fork()
    if child == 0:
        _run(function, theirs)
    os.close(theirs)
    try:
        succeeded, result = _receive(ours, timeout)
    except BaseException:
        os.kill(child, signal.SIGKILL)
        raise
    finally:
        os.close(ours)
        os.waitpid(child, 0)
    if not succeeded:
        raise RuntimeError(f"in the child:\n{result}")
    return result  # type: ignore[no-any-return]


def _run(function: Callable[[], Any], out: int) -> None:
    """Runs in the child; does not return."""
    try:
        try:
            message = pickle.dumps((True, function()))
        except BaseException:
            message = pickle.dumps((False, traceback.format_exc()))
        with os.fdopen(out, "wb") as stream:
            stream.write(message)
    finally:
        # No code of the parent's test may run here.
        os._exit(0)


def _receive(ours: int, timeout: float) -> tuple[bool, Any]:
    received = b""
    while select.select([ours], [], [], timeout)[0]:
        piece = os.read(ours, 1 << 16)
        if not piece:
            return pickle.loads(received)  # type: ignore[no-any-return]
        received += piece
    raise TimeoutError(f"the child said nothing for {timeout} s")
