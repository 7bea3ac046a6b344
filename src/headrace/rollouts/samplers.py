"""Samplers: where a worker's batches come from."""

# Rules: views-rollouts R13

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

from headrace.conditions import SignalSafeCondition
from headrace.errors import Closed

_Collected = tuple[Any, BaseException | None]


class StopFlag:
    """Tells a loop that steps environments to stop.

    Attributes:
        is_set: whether to stop.
    """

    def __init__(self) -> None:
        self.is_set = False

    def check(self) -> None:
        """Raises Closed once the flag is set."""
        if self.is_set:
            raise Closed("sample: the worker is closed")


class SyncSampler:
    """Steps the environments when a batch is asked for.

    Args:
        collect: makes the next batch.

    >>> SyncSampler(lambda: "batch").get_data()
    'batch'
    """

    def __init__(self, collect: Callable[[], Any]) -> None:
        self._collect = collect

    def get_data(self) -> Any:
        """Returns the next batch."""
        return self._collect()

    def close(self) -> None:
        """Does nothing: there is no thread."""


class AsyncSampler:
    """Steps the environments in a thread, which begins with the first call and is at most one finished batch ahead.

    Batches have the same rows in the same order as those of `SyncSampler`. An error of the thread is raised by the call
    that would have returned its batch; the thread goes on.

    Args:
        collect: makes the next batch, in the thread.
        stop: is set by `close`, so that `collect` ends.

    >>> sampler = AsyncSampler(lambda: "batch", StopFlag())
    >>> sampler.get_data()
    'batch'
    >>> sampler.close()
    """

    def __init__(self, collect: Callable[[], Any], stop: StopFlag) -> None:
        self._collect, self._stop = collect, stop
        self._changed = SignalSafeCondition()
        self._thread: threading.Thread | None = None
        # The batch that waits, or the error in its place.
        self._waiting: _Collected | None = None
        # By thread: the batch, or the error, that `get_data` has taken there and not returned yet.
        self._unreturned: dict[int, _Collected] = {}

    def get_data(self) -> Any:
        """Returns the next batch; waits until it is finished. Where Ctrl-C ends the call, the next one returns it.

        Raises:
            Closed: the sampler is closed, also by another thread during the wait.
            Exception: the error of the thread.
        """
        me = threading.get_ident()
        with self._changed:
            self._start()
            self._changed.wait_for(lambda: me in self._unreturned or self._waiting or self._stop.is_set)
            self._stop.check()
            if me not in self._unreturned:
                assert self._waiting is not None
                # No call between these: Ctrl-C leaves the batch in one of both.
                self._unreturned[me], self._waiting = self._waiting, None
            self._changed.notify_all()
        batch, error = self._unreturned[me]
        del self._unreturned[me]  # No call after this: Ctrl-C comes before it.
        if error is not None:
            raise error
        return batch

    def close(self) -> None:
        """Ends the thread, and waits until it has ended. More calls do nothing."""
        with self._changed:
            self._stop.is_set = True
            self._changed.notify_all()
        if self._thread is not None and self._thread is not threading.current_thread():
            self._thread.join()

    def _start(self) -> None:
        # Where Ctrl-C ended the start of a thread, it may not run: the first one that does is the sampler's.
        if self._thread is None and not self._stop.is_set:
            threading.Thread(target=self._run, name="headrace-sampler", daemon=True).start()

    def _run(self) -> None:
        with self._changed:
            if self._thread is not None:
                return
            self._thread = threading.current_thread()
        while True:
            with self._changed:
                self._changed.wait_for(lambda: not self._waiting or self._stop.is_set)
            if self._stop.is_set:
                return
            batch, error = None, None
            try:
                batch = self._collect()
            except BaseException as raised:
                error = raised
            with self._changed:
                self._waiting = batch, error
                self._changed.notify_all()
