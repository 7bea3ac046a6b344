"""Slow work for many clients: those who ask while it runs share the next run."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Generic, TypeVar

from headrace.conditions import SignalSafeCondition

Result = TypeVar("Result")


class SharedRuns(Generic[Result]):
    """Runs a function in a thread of its own, which lives as long as there is something to do. Thread-safe.

    Every call of `begin` is answered by a run that begins after it.

    Args:
        run: the function.
        name: of the thread.

    >>> runs = SharedRuns(lambda: 7, "headrace-example")
    >>> found = []
    >>> runs.begin(found.append)
    >>> runs.wait(10.0), found
    (True, [7])
    """

    def __init__(self, run: Callable[[], Result], name: str) -> None:
        self._run = run
        self._name = name
        self._changed = SignalSafeCondition()
        self._asked: list[Callable[[Result | Exception], None]] = []
        self._is_busy = False

    def begin(self, done: Callable[[Result | Exception], None]) -> None:
        """Asks for a run.

        Args:
            done: called in the thread with the result or the exception; it must not raise.
        """
        with self._changed:
            self._asked.append(done)
            if not self._is_busy:
                self._is_busy = True
                threading.Thread(target=self._run_all, name=self._name, daemon=True).start()

    def _run_all(self) -> None:
        while True:
            with self._changed:
                asked, self._asked = self._asked, []
                if not asked:
                    self._is_busy = False
                    self._changed.notify_all()
                    return
            result: Result | Exception
            try:
                result = self._run()
            except Exception as error:
                result = error
            for done in asked:
                done(result)

    def wait(self, seconds: float) -> bool:
        """Waits at most so many seconds; returns whether all runs are over."""
        with self._changed:
            return self._changed.wait_for(lambda: not self._is_busy, seconds)
