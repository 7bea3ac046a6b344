"""The rows of a worker on their way to a replay that is elsewhere: a client's, shards, or a wrapper around one."""

# Rules: collectors CF1, CF2, CF4 to CF7

from __future__ import annotations

import logging
import threading
from collections import deque
from collections.abc import Callable, Iterable
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from numpy.typing import NDArray

from headrace.clock import SYSTEM_CLOCK
from headrace.collectors.step_appender import StepAppender
from headrace.conditions import SignalSafeCondition
from headrace.errors import Closed, DeadlineExceeded, StoreFull
from headrace.leases.destination import Destination
from headrace.leases.forwarding import Steps
from headrace.leases.page_views import Columns
from headrace.store.block import WrittenSteps
from headrace.store.layout import USED
from headrace.store.store import Store

if TYPE_CHECKING:
    from headrace.replay.intake.writer_like import WriterLike

_log = logging.getLogger(__name__)

# Until a full replay, or a rate limiter, is looked at again.
_LOOK_SECONDS = 0.05
# After the workers were asked to stop.
_FINISH_SECONDS = 8.0
# After a collector was closed, for a call of the replay that is under way.
_LAST_CALL_SECONDS = 3.0
# Between two words about a wait.
_WORD_SECONDS = 30.0


class ForwardedCalls(NamedTuple):
    """Takes in what becomes of the rows, in the thread that sends them.

    Attributes:
        may_wait: returns whether a full replay is waited for; else that is a failure.
        is_closed: returns whether the collector is closed.
        stored: called when all rows so far are in the replay.
        all_applied: called when no item waits for a rate limiter any more either.
        failed: called once, with the error after which no more rows are sent.
    """

    may_wait: Callable[[], bool]
    is_closed: Callable[[], bool]
    stored: Callable[[], None]
    all_applied: Callable[[], None]
    failed: Callable[[BaseException], None]


class ForwardedRows(Destination):
    """Committed steps of a worker: they stay in a store of its own for batches, and a thread sends them to a replay.

    The worker begins no further rollout while rows of earlier ones are on their way (`has_pending`), so at most the
    rollouts that it has credit for wait here. They were copied: what becomes of the worker does not matter to them.

    Args:
        store: of the worker's rows.
        lanes: of the worker.
        writer: of the replay; it belongs to this object from here on.
        calls: for what becomes of the rows.
    """

    def __init__(self, store: Store, lanes: int, writer: WriterLike, calls: ForwardedCalls) -> None:
        super().__init__(store)
        self._lanes = lanes
        self._writer = writer
        self._calls = calls
        self._observed: list[str] = []
        self._changed = SignalSafeCondition()
        # The first one is under way.
        self._waiting: deque[Callable[[], None]] = deque()
        # Items that wait for a rate limiter.
        self._pending = 0
        self._is_ending = False
        self._deadline: float | None = None
        self._failure: BaseException | None = None
        self._thread = threading.Thread(target=self._main, daemon=True, name="headrace-forward")
        self._thread.start()

    # ---- what the grantor calls ------------------------------------------------------------------------------------

    def open(self, observed: Iterable[str]) -> None:
        """See `Destination.open`."""
        self._observed = list(observed)
        self._put(partial(self._writer.declare_final_columns, tuple(self._observed)))

    def commit(self, written: WrittenSteps) -> None:
        """See `Destination.commit`; copies the steps."""
        pages = self.store.arrays
        first = written.page * pages.page_rows + int(pages.pages[written.page, USED]) * self._lanes
        super().commit(written)
        rows = slice(first, first + written.steps * self._lanes)
        steps = Steps(
            {
                name: column[rows].reshape(written.steps, self._lanes, *column.shape[1:]).copy()
                for name, column in self.store.columns.items()
            },
            np.array(written.versions).reshape(
                (written.steps,) if len(written.versions) == written.steps else (written.steps, self._lanes)
            ),
            np.array(written.final),
            np.array(written.idle),
            np.array(written.ended),
            self._finals(written.final_rows),
        )
        appender = StepAppender(self._writer, self._lanes, self._observed, self._make_room)
        self._put(partial(appender.append, steps))

    def _finals(self, rows: NDArray[np.int64]) -> Columns:
        return {name: self.store.columns[name][rows] for name in self._observed}

    def end(self, lanes: NDArray[np.int64], final_rows: NDArray[np.int64]) -> None:
        """See `Destination.end`."""
        super().end(lanes, final_rows)
        self._put(partial(self._end_lanes, np.array(lanes), self._finals(final_rows)))

    def _end_lanes(self, lanes: NDArray[np.int64], finals: Columns) -> None:
        self._make_room()
        self._writer.end_lanes(lanes, finals)

    def drop(self, lanes: NDArray[np.int64]) -> None:
        """See `Destination.drop`."""
        super().drop(lanes)
        self._put(partial(self._writer.drop_open_lanes, np.array(lanes)))

    def _put(self, operation: Callable[[], None]) -> None:
        with self._changed:
            if self._failure is None:
                self._waiting.append(operation)
                self._changed.notify_all()

    # ---- what has become of them -----------------------------------------------------------------------------------

    @property
    def is_forwarding(self) -> bool:
        """Whether rows are on their way."""
        return bool(self._waiting) and self._failure is None

    @property
    def has_pending(self) -> bool:
        """Whether rows are on their way, or items wait for a rate limiter."""
        return bool(self._waiting) or self._pending > 0

    def describe_pending(self) -> str:
        """Describes what the worker waits for; empty if it does not."""
        if self._waiting:
            return "rows on their way to the replay"
        return f"{self._pending} items that wait for their rate limiters" if self._pending else ""

    def fail(self, failure: BaseException) -> None:
        """Does nothing: the learners that wait are elsewhere, and others may write for them."""

    # ---- the thread ------------------------------------------------------------------------------------------------

    def _main(self) -> None:
        try:
            while self._wait():
                self._advance()
            self._close_writer()
        except BaseException as error:
            self._failure = error
            self._calls.failed(error)
            with suppress(Exception):
                self._writer.abandon()

    def _wait(self) -> bool:
        """Waits until there is something to do; returns whether there is."""
        with self._changed:
            if self._pending and not (self._waiting or self._is_ending):
                self._changed.wait(_LOOK_SECONDS)
                return True
            while not (self._waiting or self._is_ending):
                self._changed.wait()
            return bool(self._waiting)

    def _advance(self) -> None:
        """Sends the rows that have waited longest; finds out what waits then."""
        # Rows that come meanwhile are sent by the next call.
        done = len(self._waiting) > 0
        if done:
            self._waiting[0]()
        if done and len(self._waiting) > 1:
            self._waiting.popleft()
            return
        # A client sends without waiting; the number of pending items is known when all rows are stored.
        self._pending = self._writer.pending
        if done:
            self._waiting.popleft()
        if not self._waiting:
            self._calls.stored()
            if not self._pending:
                self._calls.all_applied()

    def _make_room(self) -> None:
        """Returns when a step fits into the replay, with the final rows of all lanes."""
        while True:
            try:
                self._writer.make_room(2)
            except StoreFull:
                if not self._may_wait():
                    raise
                with self._changed:
                    self._changed.wait(_LOOK_SECONDS)
            else:
                return

    def _may_wait(self) -> bool:
        if self._deadline is not None:
            return SYSTEM_CLOCK.monotonic() < self._deadline
        return self._calls.may_wait()

    def _close_writer(self) -> None:
        if self._pending:
            self._writer.abandon()
        else:
            self._writer.close()

    # ---- the end ---------------------------------------------------------------------------------------------------

    def hurry(self) -> None:
        """Notes that the worker is about to stop: the rows so far, and its last ones, have 8 s to be stored."""
        with self._changed:
            self._deadline = SYSTEM_CLOCK.monotonic() + _FINISH_SECONDS
            self._changed.notify_all()

    def finish(self) -> None:
        """Returns when all rows are stored, and releases the writer. While the collector collects there is no limit,
        because rows of a worker that died wait for a full replay like any others; every 30 s the log says so.

        Raises:
            StoreFull: the replay has no room for the last rows.
            DeadlineExceeded: the replay's server does not take them in time.
            Exception: the error after which rows were not sent.
        """
        with self._changed:
            self._is_ending = True
            self._changed.notify_all()
        if threading.current_thread() is self._thread:
            return
        begin = SYSTEM_CLOCK.monotonic()
        if not self._join(begin):
            raise DeadlineExceeded(
                f"shutdown: {len(self._waiting)} blocks of rows were not stored within "
                f"{SYSTEM_CLOCK.monotonic() - begin:.1f} s"
            )
        # Closed: the replay was closed before its collector.
        if self._failure is not None and not isinstance(self._failure, Closed):
            raise self._failure

    def _join(self, begin: float) -> bool:
        """Waits for the thread; returns whether it has ended."""
        deadline = None if self._deadline is None else self._deadline + 1
        said = begin
        while self._thread.is_alive():
            now = SYSTEM_CLOCK.monotonic()
            if deadline is None and self._calls.is_closed():
                deadline = now + _LAST_CALL_SECONDS
            if deadline is not None and now >= deadline:
                return False
            if now - said >= _WORD_SECONDS:
                said = now
                _log.warning(
                    "waited %.0f s for %s", now - begin, self.describe_pending() or "the writer to close"
                )
            self._thread.join(_LOOK_SECONDS)
        return True
