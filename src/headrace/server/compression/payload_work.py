"""Threads for work on large payloads, which would hold up the thread that serves all clients."""

from __future__ import annotations

import os
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor, wait
from typing import TypeVar

Result = TypeVar("Result")

_MOST_THREADS = 4


class PayloadWork:
    """A few threads, which begin with the first work. Calls come from any thread.

    A client has at most one call in each direction at a time, so a client with much work delays another one by one
    call a thread at most.

    >>> work, found = PayloadWork(), []
    >>> call = work.begin(lambda: 7, found.append)
    >>> work.close(10.0)
    >>> found
    [7]
    """

    def __init__(self) -> None:
        self._threads = ThreadPoolExecutor(min(_MOST_THREADS, os.cpu_count() or 1), "headrace-payloads")
        self._calls: set[Future[None]] = set()

    def begin(self, work: Callable[[], Result], done: Callable[[Result | Exception], None]) -> Future[None]:
        """Makes a call in one of the threads.

        Args:
            work: the call.
            done: called there with the result or the exception of `work`; it must not raise.

        Returns:
            The call, which can be cancelled until it begins.
        """

        def run() -> None:
            result: Result | Exception
            try:
                result = work()
            except Exception as error:
                result = error
            done(result)

        call = self._threads.submit(run)
        self._calls.add(call)
        call.add_done_callback(self._calls.discard)
        return call

    def close(self, seconds: float) -> None:
        """Takes no further call, and waits at most so many seconds for those under way."""
        calls = tuple(self._calls)
        self._threads.shutdown(wait=False)
        wait(calls, seconds)
