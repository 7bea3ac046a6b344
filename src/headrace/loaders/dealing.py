"""Splitting one stream among forked workers.

Every worker draws the whole stream from its own copy of the replay, and keeps its share. So all workers see the same
draws with every sampler, and together they deliver each batch once.
"""

# Rules: loaders LP4, LP5

from __future__ import annotations

from collections import deque
from typing import Any

from headrace.forking import reading_copies
from headrace.loaders.draws import Draws
from headrace.loaders.stream import Drawn, Stream

# Seconds that a fork waits for the draw in progress. A turn ends sooner, unless `sample` ignores its timeout.
_LONGEST_DRAW = 10.0


class DealtStream(Stream):
    """A stream whose forked copies can deliver only a share of it.

    A fork waits for the draw in progress, because its batch would be missing in the copy.
    """

    _worker, _workers = 0, 1
    _next = 0
    _unfinished = _torn = False

    def deal(self, worker: int, workers: int) -> None:
        """Delivers only batches worker, worker + workers, ... from here on, including those that are ready."""
        self._worker, self._workers, self._next = worker, workers, 0
        self._is_direct = False
        ready, self._ready = self._ready, deque()
        for drawn in ready:
            self._accept(drawn)

    def is_next_kept(self) -> bool:
        """Whether the next batch belongs to this worker."""
        return self._next % self._workers == self._worker

    def _accept(self, drawn: Drawn) -> None:
        if self.is_next_kept():
            self._ready.append(drawn)
        self._next += 1

    def before_fork(self) -> None:
        """Waits for the draw in progress, and starts no other."""
        self._unfinished = not self.hold(_LONGEST_DRAW)

    def after_fork_in_parent(self) -> None:
        """Continues drawing."""
        self.release()

    def after_fork_in_child(self) -> None:
        """Starts again, without the thread."""
        super().after_fork_in_child()
        self._torn = self._torn or self._unfinished
        self._draws = _CopyDraws(self._draws)

    def take(self, timeout: float | None) -> Any:
        """Returns the next batch of this worker.

        Raises:
            RuntimeError: the process was forked in the middle of a draw.
        """
        if self._torn:
            raise RuntimeError(
                f"this process was forked while a call of `sample` had not returned for {_LONGEST_DRAW:g} s, so its "
                "copy of the stream is not whole; fork before the first batch, or when batches come"
            )
        return super().take(timeout)


class _CopyDraws:
    """Draws from a forked child's copy of a replay, which serves only this stream.

    Args:
        draws: of the replay.
    """

    def __init__(self, draws: Draws) -> None:
        self._draws = draws

    def draw(self, timeout: float, ahead: int) -> Any:
        """See `Draws.draw`; it is allowed for this stream."""
        with reading_copies():
            return self._draws.draw(timeout, ahead)

    def stop(self) -> list[Any]:
        """See `Draws.stop`."""
        return self._draws.stop()
