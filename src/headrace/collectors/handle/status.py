"""Whether a worker can still be used, how it ended, and the waits of other threads for it."""

# Rules: collectors CX2, CX4

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass

from headrace.clock import SYSTEM_CLOCK
from headrace.collectors.failures import collector_home
from headrace.collectors.handle.process import WorkerProcess, describe_exit
from headrace.errors import Closed, WorkerDied
from headrace.waits import Wait

_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class _Death:
    exitcode: int | None
    at: float


class WorkerStatus:
    """The state of a worker that threads wait for. Change it with `changed` held, and notify.

    Args:
        process: of the worker.

    Attributes:
        home: the process whose collector this is.
        changed: notified at every change, here and in what the worker has brought.
        is_ready: the worker has built its environments and policy.
        is_closed: shut down.
        cause: the exception that the worker reported as its end.
    """

    def __init__(self, process: WorkerProcess) -> None:
        self.home = collector_home()
        self.changed = threading.Condition()
        self.is_ready = self.is_closed = False
        self.cause: BaseException | None = None
        self.death: _Death | None = None
        self._process = process
        self._failure: BaseException | None = None
        self._was_raised = False

    def __str__(self) -> str:
        return f"worker 0 (pid {self._process.pid})"

    # ---- how it ended ----------------------------------------------------------------------------------------------

    def note_death(self, exitcode: int | None) -> None:
        """Records that the connection has ended, unless that is the end of a shutdown. `changed` must be held."""
        if not self.is_closed:
            self.death = _Death(exitcode, time.monotonic())
            if self.is_ready:
                self._log_end(self._died())

    def note_failure(self, error: BaseException) -> None:
        """Records that a report of the worker could not be processed. `changed` must be held."""
        if not self.is_closed:
            self._log_end(error)
            self._failure = error

    def note_unfinished(self, error: BaseException) -> None:
        """Records an error of a shutdown, unless there was a failure before it."""
        self._failure = self._failure or error

    @staticmethod
    def _log_end(failure: BaseException) -> None:
        # Logged as text: a stored log record must not keep the failure alive, and with it all objects that waited for
        # the worker.
        _log.error("collecting has ended: %s", str(failure), exc_info=failure.__cause__)

    @property
    def failure(self) -> BaseException | None:
        """The error that every call raises from now on; None while the worker is well."""
        if self._failure is not None:
            return self._failure
        if self.cause is not None and not self.is_ready:
            return self.cause
        return None if self.death is None else self._died()

    @property
    def last_error(self) -> str | None:
        """The failure, or its cause while the worker ends, as text."""
        failure = self._failure or self.cause or self.failure
        return None if failure is None else f"{type(failure).__name__}: {failure}"

    def _died(self) -> WorkerDied:
        assert self.death is not None
        cause, exitcode = self.cause, self.death.exitcode
        why = describe_exit(exitcode) if cause is None else f"{type(cause).__name__}: {cause}"
        ago = time.monotonic() - self.death.at
        died = WorkerDied(f"{self} died {ago:.1f} s ago: {why}", worker_idx=0, exitcode=exitcode)
        died.__cause__ = cause
        return died

    def ignore_failure(self) -> None:
        """Keeps `report` from raising: another error is being raised."""
        self._was_raised = True

    def report(self, *, in_order: bool, raise_on_error: bool) -> None:
        """Raises or logs, at the end of a shutdown, a failure that no call has raised.

        Args:
            in_order: the worker ended by itself.
            raise_on_error: False logs it.

        Raises:
            WorkerDied: it had failed, or was killed.
        """
        failure = self.failure
        if failure is None and not in_order:
            failure = WorkerDied(
                "worker 0 did not stop in time and was killed", worker_idx=0, exitcode=self._process.exitcode
            )
        if failure is None or self._was_raised:
            return
        self._was_raised = True
        if raise_on_error:
            raise failure
        _log.error("%s", str(failure))

    # ---- checks and waits ------------------------------------------------------------------------------------------

    def check(self) -> None:
        """Raises if the collector cannot be used, or if its worker has failed.

        Raises:
            Closed: after `shutdown`.
            RuntimeError: in a process that was forked from the collector's.
            WorkerDied: the worker is gone.
        """
        self.check_open()
        self.raise_failure()

    def check_open(self) -> None:
        """Raises if the collector cannot be used; see `check`."""
        self.home.check()
        if self.is_closed:
            raise Closed("the collector is shut down")

    def raise_failure(self) -> None:
        """Raises the failure, if there is one."""
        with self.changed:
            failure = self.failure
            if failure is not None:
                self._was_raised = True
                raise failure

    def wait(self, there: Callable[[], bool], timeout: float | None, event: str) -> None:
        """Waits until `there` returns True.

        Args:
            there: whether the event has come.
            timeout: seconds; None for ever.
            event: its name in messages.

        Raises:
            WorkerDied: it will never come. Before the worker is ready: the exception that ended it.
            DeadlineExceeded: it did not come in time.
            Closed: the collector was shut down meanwhile.
        """
        with self.changed:
            self.wait_held(there, timeout, lambda: event, lambda: True)

    def wait_held(
        self,
        there: Callable[[], bool],
        timeout: float | None,
        describe: Callable[[], str],
        fails: Callable[[], bool],
    ) -> None:
        """Waits as `wait` does, with `changed` held once, before and after.

        Args:
            there, timeout: see `wait`.
            describe: names the event in messages.
            fails: whether a failure of the worker may be raised now.
        """
        wait = Wait(SYSTEM_CLOCK, timeout, lambda seconds: f"waited {seconds:.3g} s for {describe()}")
        while not there():
            self.check_open()
            if fails():
                self.raise_failure()
            if not wait.look(self.changed):
                wait.turn_on(self.changed)
