"""The state of a collector's workers: whether they can still be used, and the waits of threads for them."""

# Rules: collectors CX2, CX4

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Collection

from headrace.clock import SYSTEM_CLOCK
from headrace.collectors.failures import collector_home
from headrace.collectors.handle.names import name_workers
from headrace.collectors.handle.status import WorkerStatus
from headrace.error_texts import message_of
from headrace.errors import Closed
from headrace.kernels.quiet_condition import QuietCondition
from headrace.leases.selector import PEERS
from headrace.waits import Wait

_log = logging.getLogger(__name__)


class _Changed(QuietCondition):
    """A condition whose waiting threads the thread that listens to the workers wakes as the last thing that it does."""

    def notify_all(self) -> None:
        """See `PeerSelector.notify_later`."""
        if PEERS.is_current_thread:
            PEERS.notify_later(self)
        else:
            super().notify_all()


class GroupStatus:
    """The state of all workers that threads wait for. Change it with `changed` held, and notify.

    Attributes:
        home: the process whose collector this is.
        changed: notified at every change, here and in what the workers have brought.
        workers: the state of each worker.
        failed: the numbers of those that have failed.
        is_closed: shut down.
        is_running: the workers collect freely into a replay.
        is_iterating: the workers collect for iteration.
        pause_wanted: number of the pause that was asked for; None: the workers go on.
    """

    def __init__(self) -> None:
        self.home = collector_home()
        self.changed = _Changed(threading.RLock())
        self.workers: list[WorkerStatus] = []
        # Replaced, never changed: threads read it without `changed`.
        self.failed: frozenset[int] = frozenset()
        self.is_closed = self.is_running = self.is_iterating = False
        self.pause_wanted: int | None = None
        self._unfinished: BaseException | None = None
        self._was_raised = False

    # ---- failures --------------------------------------------------------------------------------------------------

    @property
    def failure(self) -> BaseException | None:
        """The error that calls raise from now on; None while all workers are well."""
        return self.workers[min(self.failed)].failure if self.failed else self._unfinished

    def note_worker(self, worker: WorkerStatus) -> None:
        """Takes in whether a worker has failed."""
        number = {worker.worker_idx}
        self.failed = self.failed | number if worker.has_failed else self.failed - number

    def note_unfinished(self, error: BaseException) -> None:
        """Records an error of a shutdown."""
        self._unfinished = self._unfinished or error

    def ignore_failure(self) -> None:
        """Keeps `report` from raising: another error is being raised."""
        self._was_raised = True

    def report(self, killed: list[WorkerStatus], *, raise_on_error: bool) -> None:
        """Raises or logs, at the end of a shutdown, a failure that no call has raised.

        Args:
            killed: the workers that did not end by themselves.
            raise_on_error: False logs it.

        Raises:
            WorkerDied: one had failed, or was killed.
        """
        failure = self.failure
        if failure is None and killed:
            failure = killed[0].was_killed()
        if failure is None or self._was_raised:
            return
        self._was_raised = True
        if raise_on_error:
            raise failure
        _log.error("%s", message_of(failure))

    # ---- checks and waits ------------------------------------------------------------------------------------------

    def check(self) -> None:
        """Raises if the collector cannot be used, or if a worker has failed.

        Raises:
            Closed: after `shutdown`.
            RuntimeError: in a process that was forked from the collector's.
            WorkerDied: a worker is gone.
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

    def notify(self) -> None:
        """Lets the threads that wait look again."""
        with self.changed:
            self.changed.notify_all()

    def wait(self, there: Callable[[], bool], timeout: float | None, describe: Callable[[], str]) -> None:
        """Waits until `there` returns True.

        Args:
            there: whether the event has come.
            timeout: seconds; None for ever.
            describe: names the event in messages.

        Raises:
            WorkerDied: it will never come. Before the worker is ready: the exception that ended it.
            DeadlineExceeded: it did not come in time.
            Closed: the collector was shut down meanwhile.
        """
        with self.changed:
            self.wait_held(there, timeout, describe, lambda: True)

    def wait_for_none(self, late: Callable[[], Collection[object]], timeout: float, event: str) -> None:
        """Waits as `wait` does, until no worker is late for an event; messages name those that are."""
        self.wait(lambda: not late(), timeout, lambda: f"{name_workers(late())} {event}")

    def wait_held(
        self,
        there: Callable[[], bool],
        timeout: float | None,
        describe: Callable[[], str],
        fails: Callable[[], bool],
    ) -> None:
        """Waits as `wait` does, with `changed` held once, before and after.

        Args:
            there, timeout, describe: see `wait`.
            fails: whether a failure of a worker may be raised now.
        """
        wait = Wait(SYSTEM_CLOCK, timeout, lambda seconds: f"waited {seconds:.3g} s for {describe()}")
        while not there():
            self.check_open()
            if fails():
                self.raise_failure()
            if not wait.look(self.changed):
                wait.turn_on(self.changed)
