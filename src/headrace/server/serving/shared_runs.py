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
        # Names the thread that runs; None: there is none.
        self._runner: object = None

    def begin(self, done: Callable[[Result | Exception], None]) -> None:
        """Asks for a run.

        Args:
            done: called in the thread with the result or the exception; it must not raise.
        """
        with self._changed:
            self._asked.append(done)
            if self._runner is None:
                self._start()

    def _start(self) -> None:
        runner = self._runner = object()
        try:
            threading.Thread(target=self._run_all, args=(runner,), name=self._name, daemon=True).start()
        except BaseException:
            # Ctrl-C may come before or after the thread has begun; one that has begun ends as it sees this.
            self._runner = None
            self._asked.pop()
            raise

    def _run_all(self, runner: object) -> None:
        while True:
            with self._changed:
                if self._runner is not runner:
                    return
                asked, self._asked = self._asked, []
                if not asked:
                    self._runner = None
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
            return self._changed.wait_for(lambda: self._runner is None, seconds)
