"""Threads of the learner's process that copy rollouts into batches."""

# Rules: collectors CD5

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

# Below this a copy is done before a second thread has begun its share.
_LEAST_SHARE = 1 << 20


class CopyThreads:
    """Copies of large batches, shared among threads.

    Args:
        num_threads: how many take part, the caller included.

    >>> parts = []
    >>> threads = CopyThreads(2)
    >>> threads.share(5, 10 << 20, lambda first, stop: parts.append((first, stop)))
    >>> sorted(parts)
    [(0, 3), (3, 5)]
    >>> threads.close()
    """

    def __init__(self, num_threads: int) -> None:
        self._num_threads = num_threads
        self._pool: ThreadPoolExecutor | None = None

    def share(self, count: int, nbytes: int, copy: Callable[[int, int], None]) -> None:
        """Calls `copy(first, stop)` for parts of `count` rows that together are all of them; returns when all are done.

        Args:
            count: the number of rows.
            nbytes: bytes of all rows.
            copy: copies the rows from `first` to `stop`.

        Raises:
            Exception: raised by `copy`, after the other parts are done.
        """
        parts = max(1, min(self._num_threads, count, nbytes // _LEAST_SHARE))
        if parts == 1:
            copy(0, count)
            return
        size = -(-count // parts)
        bounds = [(first, min(first + size, count)) for first in range(0, count, size)]
        others = [self._started().submit(copy, *bound) for bound in bounds[1:]]
        try:
            copy(*bounds[0])
        finally:
            failures = [other.exception() for other in others]
        for failure in failures:
            if failure is not None:
                raise failure

    def _started(self) -> ThreadPoolExecutor:
        if self._pool is None:
            self._pool = ThreadPoolExecutor(self._num_threads - 1, thread_name_prefix="headrace-copy")
        return self._pool

    def close(self) -> None:
        """Ends the threads. Further calls do nothing."""
        pool, self._pool = self._pool, None
        if pool is not None:
            pool.shutdown()


ONE_THREAD = CopyThreads(1)
