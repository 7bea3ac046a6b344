"""Kernels are compiled, and loaded from disk, in a thread of their own.

The compiler frees its memory from Python, and an exception that lands between the call that frees and the note that it
did makes it free twice: the process ends with "double free detected" (tests/store/test_compiling.py). Ctrl-C lands in
the main thread, an asynchronous exception in the thread that it was sent to. Neither lands here.
"""

from __future__ import annotations

import _thread
import atexit
import gc
import os
import sys
import threading
from collections.abc import Callable
from typing import Any

# Seconds after which a thread that has not begun is given up: in Python 3.11 an asynchronous exception for the thread
# that starts another may end the other.
_PATIENCE = 0.5
_ONE_AT_A_TIME = threading.RLock()
_here = threading.local()


def compiled_apart(compile_kernel: Callable[..., Any]) -> Callable[..., Any]:
    """The same function, run in a thread of its own. An exception that ends the caller's wait does not end it.

    Args:
        compile_kernel: may call what this returned for other kernels.
    """

    def call(*arguments: Any) -> Any:
        if getattr(_here, "is_compiling", False) or sys.is_finalizing():
            return compile_kernel(*arguments)
        compilation = _Compilation(compile_kernel, arguments)
        while not compilation.has_begun:
            try:
                _thread.start_new_thread(compilation.run, ())
            except RuntimeError:
                # No more threads, or the interpreter is about to end.
                return compile_kernel(*arguments)
            compilation.wait(_PATIENCE)
        compilation.wait()
        return compilation.result()

    return call


class _Compilation:
    """One call in another thread."""

    def __init__(self, compile_kernel: Callable[..., Any], arguments: tuple[Any, ...]) -> None:
        self._compile = compile_kernel
        self._arguments = arguments
        self._compiled: Any = None
        self._error: BaseException | None = None
        self._claim = threading.Lock()
        self._finished = threading.Lock()
        self._finished.acquire()

    @property
    def has_begun(self) -> bool:
        """Whether a thread runs it, or did."""
        return self._claim.locked()

    def run(self) -> None:
        """Compile, if no other thread does."""
        if not self._claim.acquire(blocking=False):
            return
        _here.is_compiling = True
        with _ONE_AT_A_TIME:
            # No finalizer may run here: the caller may hold the lock that it takes.
            collects = gc.isenabled()
            gc.disable()
            try:
                self._compiled = self._compile(*self._arguments)
            except BaseException as error:
                self._error = error
            finally:
                self._finished.release()
                if collects:
                    gc.enable()

    def wait(self, timeout: float = -1) -> None:
        """Return when it has ended, or after so many seconds; a bare lock, so an exception that comes is only that."""
        if self._finished.acquire(timeout=timeout):
            self._finished.release()

    def result(self) -> Any:
        """What came of it."""
        try:
            if self._error is not None:
                raise self._error
            return self._compiled
        finally:
            # Its traceback leads here.
            self._error = None


@atexit.register
def _end() -> None:
    """The interpreter must not end in the middle of a compilation."""
    with _ONE_AT_A_TIME:
        pass


# Nor may a process fork there: the compiler's own lock would stay locked in the child.
os.register_at_fork(
    before=_ONE_AT_A_TIME.acquire,
    after_in_parent=_ONE_AT_A_TIME.release,
    after_in_child=_ONE_AT_A_TIME.release,
)
