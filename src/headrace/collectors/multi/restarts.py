"""Starts workers again that have died."""

# Rules: collectors CX2, CX3, CF8

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial

from headrace.clock import SYSTEM_CLOCK
from headrace.collectors.failures import FAILURE_EXITCODE
from headrace.collectors.handle.group_status import GroupStatus
from headrace.collectors.handle.handle import WorkerHandle
from headrace.errors import DeadlineExceeded, Disconnected

_log = logging.getLogger(__name__)

# Seconds before the first restart; each further one waits twice as long, up to the longest.
_FIRST_PAUSE, _LONGEST_PAUSE = 0.1, 1.6
_EXIT_SECONDS = 2.0
_JOIN_SECONDS = 5.0
# Between two looks whether a machine has resources for a process.
_PLACE_SECONDS = 0.2


def pause_before(attempt: int) -> float:
    """Returns the seconds before the restart of a worker that was started `attempt` times since its last rollout.

    >>> [pause_before(attempt) for attempt in (0, 1, 2, 5, 5000)]
    [0.1, 0.2, 0.4, 1.6, 1.6]
    """
    pause = _FIRST_PAUSE
    while attempt > 0 and pause < _LONGEST_PAUSE:
        pause, attempt = 2 * pause, attempt - 1
    return pause


class Restarts:
    """Handles the ends of worker processes: another process takes their place, or the collector has failed.

    Args:
        status: of the workers.
        limit: restarts of one worker without a complete rollout in between.
        start_timeout: seconds for a process to be ready.
        count_lost: called when a worker takes no more steps, to count those that it did not report.
        lose: called when the process of a worker is gone, to drop what it has not completed.
        start: sends a new process its task.
        resume: lets a new process, which is ready, collect.
        patience: seconds for which a worker whose machine is gone may find no other place; None: any.
        leave_out: called, from then on again and again, for a worker that has none.
    """

    def __init__(
        self,
        status: GroupStatus,
        limit: int,
        start_timeout: float,
        *,
        count_lost: Callable[[WorkerHandle], None],
        lose: Callable[[WorkerHandle], None],
        start: Callable[[WorkerHandle], None],
        resume: Callable[[WorkerHandle], None],
        patience: float | None,
        leave_out: Callable[[WorkerHandle], None],
    ) -> None:
        self._status = status
        self._limit = limit
        self._start_timeout = start_timeout
        self._count_lost = count_lost
        self._lose, self._start, self._resume = lose, start, resume
        self._patience, self._leave_out = patience, leave_out
        # When the process of each worker ended that is not back yet.
        self._gone_since: dict[int, float] = {}
        # Restarts of each worker since its last complete rollout.
        self._attempts: dict[int, int] = {}
        self._threads: set[threading.Thread] = set()
        # Held while a thread begins. Re-entrant: a finalizer may run `join` there.
        self._beginning = threading.RLock()

    def delivered(self, worker_idx: int) -> None:
        """Notes that a worker has completed a rollout."""
        self._attempts.pop(worker_idx, None)

    def worker_failed(self, handle: WorkerHandle) -> None:
        """Handles the report of an exception, the last message of a worker, for the thread that listens.

        Where no other process follows, calls raise at once: the end of a Python with large libraries takes long.
        """
        # Rules: collectors CX2
        with self._status.changed:
            is_last = handle.status.is_ready and self._attempts.get(handle.worker_idx, 0) >= self._limit
        if is_last:
            self._count_lost(handle)
            self._fail(handle, partial(handle.status.note_death, FAILURE_EXITCODE))

    def worker_ended(self, handle: WorkerHandle, error: BaseException) -> None:
        """Handles the end of a connection, for the thread that listens: it does not wait.

        Args:
            handle: of the worker.
            error: `Disconnected`, or the error of a report that could not be processed.
        """
        if not isinstance(error, Disconnected) and not self._status.is_closed:
            self.fail(handle, error)
            handle.peer.channel.shutdown()
            return
        with self._beginning:  # `join`, which comes after the collector is closed, misses no thread.
            if self._status.is_closed:
                return
            # The process may take a moment to end; other peers do not wait for it.
            thread = threading.Thread(
                target=self._follow_end, args=(handle,), daemon=True, name="headrace-worker-end"
            )
            self._threads.add(thread)
            thread.start()

    def fail(self, handle: WorkerHandle, error: BaseException) -> None:
        """Records that what a worker has collected cannot be taken in."""
        self._fail(handle, partial(handle.status.note_failure, error))

    def join(self) -> None:
        """Waits for the threads of restarts, which end soon after the collector is closed."""
        with self._beginning:
            threads = [thread for thread in self._threads if thread.is_alive()]
        for thread in threads:
            if thread is not threading.current_thread():  # A finalizer may run anywhere.
                thread.join(_JOIN_SECONDS)

    # ---- in a thread of its own --------------------------------------------------------------------------------------

    def _follow_end(self, handle: WorkerHandle) -> None:
        try:
            if handle.status.is_hung:
                handle.process.kill()
            exitcode = handle.process.wait(_EXIT_SECONDS)
            handle.process.kill()
            self._count_lost(handle)
            self._gone_since.setdefault(handle.worker_idx, SYSTEM_CLOCK.monotonic())
            attempt = self._note_end(handle, exitcode)
            if attempt is not None:
                self._restart(handle, pause_before(attempt))
        except Exception as error:  # No memory for a process or for its rows, for example.
            self._fail(handle, partial(handle.status.note_failure, error))
        finally:
            self._threads.discard(threading.current_thread())

    def _note_end(self, handle: WorkerHandle, exitcode: int | None) -> int | None:
        """Returns how often the worker was started again since its last rollout; None: it is not started again."""
        worker_idx, status = handle.worker_idx, self._status
        with status.changed:
            if status.is_closed or handle.status.has_died:  # In the second case it has said so.
                return None
            attempt = self._attempts.get(worker_idx, 0)
            died = None
            # A process that never ran says nothing of the worker: another machine may take it.
            counts = not handle.process.never_ran
            if handle.status.is_ready and (attempt < self._limit or not counts):
                self._attempts[worker_idx] = attempt + counts
                died = handle.status.note_restart(exitcode)
                handle.questions.lose(died)
                status.changed.notify_all()
        if died is None:
            self._fail(handle, partial(handle.status.note_death, exitcode))
            return None
        # As text: a stored log record must not keep the error alive, and with it what its frames hold.
        _log.warning("%s; it is started again", str(died), exc_info=died.__cause__)
        return attempt

    def _restart(self, handle: WorkerHandle, pause: float) -> None:
        status = self._status
        self._wait(lambda: False, pause)
        with self._unpaused(handle):  # The end of the rows before writes final rows.
            self._lose(handle)
        with status.changed:
            if status.is_closed:
                return
            handle.renew()
        self._start(handle)
        peer = handle.peer
        while handle.process.is_waiting and not status.is_closed:
            self._look_for_patience(handle)
            self._wait(peer.has_ended.is_set, _PLACE_SECONDS)
        self._wait(lambda: peer.ready is not None or peer.has_ended.is_set(), self._start_timeout)
        if peer.ready is None:
            late = f"the process was not ready within {self._start_timeout:g} s (start_timeout)"
            with status.changed:
                if not (peer.has_ended.is_set() or status.is_closed):
                    handle.status.note_hang(DeadlineExceeded(late))
            handle.process.kill()  # Its end is handled as that of the process before.
            return
        with self._unpaused(handle):
            if not (peer.has_ended.is_set() or status.is_closed):
                self._gone_since.pop(handle.worker_idx, None)
                self._resume(handle)

    def _look_for_patience(self, handle: WorkerHandle) -> None:
        """Lets batches come without a worker that has found no place for too long."""
        # Rules: collectors CY3
        seconds = SYSTEM_CLOCK.monotonic() - self._gone_since[handle.worker_idx]
        if self._patience is not None and seconds >= self._patience:
            self._leave_out(handle)

    @contextmanager
    def _unpaused(self, handle: WorkerHandle) -> Iterator[None]:
        """Waits for the end of a pause; one that is asked for within the block begins after it."""
        status = self._status
        with status.changed:
            self._wait(lambda: status.pause_wanted is None, None)
            handle.status.delays_pause = True
        try:
            yield
        finally:
            with status.changed:
                handle.status.delays_pause = False
                status.changed.notify_all()

    def _wait(self, there: Callable[[], bool], seconds: float | None) -> None:
        """Waits until `there` returns True or the collector is closed, at most so many seconds."""
        status, begin = self._status, SYSTEM_CLOCK.monotonic()
        with status.changed:
            while not (status.is_closed or there()):
                left = None if seconds is None else begin + seconds - SYSTEM_CLOCK.monotonic()
                if left is not None and left <= 0:
                    return
                SYSTEM_CLOCK.wait(status.changed, left)

    def _fail(self, handle: WorkerHandle, note: Callable[[], None]) -> None:
        """Records a failure, and ends the waits of learners for rows that only this collector could write."""
        status = self._status
        with status.changed:
            if not status.is_closed:
                note()
                status.is_running = status.is_running and len(status.failed) < len(status.workers)
            status.changed.notify_all()
            failure = handle.status.failure
        if failure is not None and handle.peer.rows is not None:
            handle.peer.rows.fail(failure)
