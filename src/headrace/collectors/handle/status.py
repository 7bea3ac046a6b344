"""Whether a worker is well, and how it ended."""

# Rules: collectors CX2, CX4

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from dataclasses import dataclass

from headrace.collectors.failures import FAILURE_EXITCODE
from headrace.collectors.handle.place import WorkerPlace
from headrace.error_texts import text_of
from headrace.errors import DeadlineExceeded, WorkerDied

_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class _Death:
    exitcode: int | None
    at: float


class WorkerStatus:
    """The state of one worker. It is changed with `GroupStatus.changed` held.

    Args:
        worker_idx: its number.
        process: its process.
        changed: called with this status when the worker may have failed, or is well again.

    Attributes:
        is_ready: it has built its environments and policy.
        is_restarting: its process is gone, and another one does not collect yet.
        delays_pause: its rows are about to change, although it takes no step; a pause begins afterwards.
        is_hung: its process does nothing any more, and is to be killed.
        cause: the exception that its process reported as its end, or that says how it hangs.
    """

    def __init__(
        self, worker_idx: int, process: WorkerPlace, changed: Callable[[WorkerStatus], None]
    ) -> None:
        self.worker_idx = worker_idx
        self._changed = changed
        self.is_ready = self.is_restarting = self.is_hung = self.delays_pause = False
        self.cause: BaseException | None = None
        self._cause_text = ""
        self._process = process
        self._death: _Death | None = None
        self._failure: BaseException | None = None
        self._last_error: str | None = None

    def __str__(self) -> str:
        return f"worker {self.worker_idx} ({self._process})"

    @property
    def has_died(self) -> bool:
        """Whether the process is gone and none takes its place."""
        return self._death is not None

    @property
    def has_failed(self) -> bool:
        """Whether `failure` is an error."""
        never_began = self.cause is not None and not self.is_ready
        return never_began or self.has_died or self._failure is not None

    def note_ready(self) -> None:
        """Records that the worker has built its environments and policy."""
        self.is_ready = True
        self._changed(self)

    def note_cause(self, error: BaseException, text: str) -> None:
        """Records the exception that the worker reports as its end, and its text, which the worker has made."""
        self.cause, self._cause_text = error, text
        self._changed(self)

    def note_death(self, exitcode: int | None) -> None:
        """Records that the process is gone and none takes its place."""
        self.is_restarting = False
        self._death = _Death(exitcode, time.monotonic())
        self._changed(self)
        if self.is_ready:
            self._log_end(self._died(self._death))

    def note_restart(self, exitcode: int | None) -> WorkerDied:
        """Records that the process is gone and another one will take its place; returns the error of its end."""
        died = self._died(_Death(exitcode, time.monotonic()))
        self.is_restarting = True
        self._last_error = text_of(died) if self.cause is None else self._cause_text
        return died

    def begin(self, process: WorkerPlace) -> None:
        """Records the process that takes the place of one that is gone."""
        self._process = process
        self.cause, self.is_hung = None, False
        self._changed(self)

    def note_hang(self, error: DeadlineExceeded) -> None:
        """Records that the process does nothing any more."""
        self.cause, self._cause_text, self.is_hung = error, text_of(error), True
        self._changed(self)

    def note_late_end(self, seconds: float) -> None:
        """Records that the process has reported its end and does not come to it."""
        _log.warning(
            "%s is killed: it has ended by %s, and its environments were not closed within %g s",
            str(self),
            self._cause_text if self.cause is not None else "an exception",
            seconds,
        )
        self.is_hung = True

    def note_failure(self, error: BaseException) -> None:
        """Records that a report of the worker could not be processed."""
        self._log_end(error)
        self._failure = error
        self._changed(self)

    @staticmethod
    def _log_end(failure: BaseException) -> None:
        # Logged as text: a stored log record must not keep the failure alive, and with it all objects that waited for
        # the worker.
        _log.error("collecting has ended: %s", str(failure), exc_info=failure.__cause__)

    @property
    def failure(self) -> BaseException | None:
        """The error that calls raise from now on; None while the worker is well."""
        if self._failure is not None:
            return self._failure
        if self.cause is not None and not self.is_ready:
            if isinstance(self.cause, Exception):
                return self.cause
            # SystemExit or KeyboardInterrupt of a worker must not end the learner's program, which would say nothing.
            return self._died(self._death or _Death(FAILURE_EXITCODE, time.monotonic()))
        return None if self._death is None else self._died(self._death)

    @property
    def last_error(self) -> str | None:
        """The failure, or its cause while the worker ends, as text; after a restart that of the process before."""
        if self._failure is None and self.cause is not None:
            return self._cause_text
        failure = self.failure
        return self._last_error if failure is None else text_of(failure)

    def _died(self, death: _Death) -> WorkerDied:
        cause, exitcode = self.cause, death.exitcode
        why = self._process.describe_exit(exitcode) if cause is None else self._cause_text
        ago = time.monotonic() - death.at
        died = WorkerDied(
            f"{self} died {ago:.1f} s ago: {why}", worker_idx=self.worker_idx, exitcode=exitcode
        )
        died.__cause__ = cause
        return died

    def was_killed(self) -> WorkerDied:
        """Returns the error of a worker that a shutdown had to kill."""
        return WorkerDied(
            f"worker {self.worker_idx} did not stop in time and was killed",
            worker_idx=self.worker_idx,
            exitcode=self._process.exitcode,
        )
