"""Whether a worker is well, and how it ended."""

# Rules: collectors CX2, CX4

from __future__ import annotations

import logging
import time
from dataclasses import dataclass

from headrace.collectors.handle.process import WorkerProcess, describe_exit
from headrace.errors import WorkerDied

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

    Attributes:
        is_ready: it has built its environments and policy.
        cause: the exception that it reported as its end.
        has_died: its connection has ended.
    """

    def __init__(self, worker_idx: int, process: WorkerProcess) -> None:
        self.worker_idx = worker_idx
        self.is_ready = False
        self.cause: BaseException | None = None
        self._process = process
        self._death: _Death | None = None
        self._failure: BaseException | None = None

    def __str__(self) -> str:
        return f"worker {self.worker_idx} (pid {self._process.pid})"

    @property
    def has_died(self) -> bool:
        """Whether the connection has ended, unless the collector was shut down before."""
        return self._death is not None

    def note_death(self, exitcode: int | None) -> None:
        """Records that the connection has ended."""
        self._death = _Death(exitcode, time.monotonic())
        if self.is_ready:
            self._log_end(self._died(self._death))

    def note_failure(self, error: BaseException) -> None:
        """Records that a report of the worker could not be processed."""
        self._log_end(error)
        self._failure = error

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
            return self.cause
        return None if self._death is None else self._died(self._death)

    @property
    def last_error(self) -> str | None:
        """The failure, or its cause while the worker ends, as text."""
        failure = self._failure or self.cause or self.failure
        return None if failure is None else f"{type(failure).__name__}: {failure}"

    def _died(self, death: _Death) -> WorkerDied:
        cause, exitcode = self.cause, death.exitcode
        why = describe_exit(exitcode) if cause is None else f"{type(cause).__name__}: {cause}"
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
