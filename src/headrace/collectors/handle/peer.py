"""Processes the messages of a worker, in the thread that listens to all peers."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from typing import NamedTuple

from headrace.clock import SYSTEM_CLOCK
from headrace.collectors.failures import rebuilt
from headrace.collectors.handle.group_status import GroupStatus
from headrace.collectors.handle.place import WorkerPlace
from headrace.collectors.handle.rows import WorkerRows
from headrace.collectors.handle.status import WorkerStatus
from headrace.collectors.handle.step_watch import StepWatch
from headrace.collectors.loop.columns import not_stored_text
from headrace.collectors.messages import (
    Answer,
    Failed,
    MoreColumns,
    NotStored,
    Paused,
    Progress,
    Ready,
    RowsHeld,
    Stepped,
)
from headrace.errors import DeadlineExceeded, Disconnected
from headrace.leases.frames import Frame, Payload
from headrace.leases.messages import Commit, Return, Unpin

_log = logging.getLogger(__name__)

# For a worker whose environment, policy or hook has raised, to close its environments and to end; as in `shutdown`.
_CLOSE_SECONDS = 10.0


class PeerCalls(NamedTuple):
    """Takes in the events of one worker, in the thread that listens.

    Attributes:
        progressed: called with each `Progress` of the worker, and its rows.
        answered: called with answers, with `changed` of the group held.
        failed: called when the worker has reported the exception that ends it.
        ended: called once, after the last message, with the reason.
        stepped: called with the number of transitions, when the worker, which shares no memory, has taken a step.
        is_collecting: returns whether the worker has begun a rollout that is not complete.
        may_step: returns whether the worker is to collect, and waits for nothing.
    """

    progressed: Callable[[Progress, WorkerRows], None]
    answered: Callable[[Answer, Payload], None]
    failed: Callable[[], None]
    ended: Callable[[BaseException], None]
    stepped: Callable[[int], None]
    is_collecting: Callable[[], bool]
    may_step: Callable[[], bool]


class WorkerPeer:
    """One worker as a peer (`headrace.leases.selector.Peer`). It knows nothing of the collector.

    Args:
        process: of the worker.
        status: of the worker.
        group: the state of all workers.
        calls: for its events.
        steps: how long it has taken no step.
        worker_timeout: seconds without a step after which the worker is killed; None: never.

    Attributes:
        channel: to the worker.
        has_task: whether the task was sent to it, so that other messages may follow.
        ready: n, T and the worker's policy; None before the worker is ready.
        not_stored: columns that the policy adds and the replay lacks, as far as is known.
        rows: the worker's rows; None before it is ready and after the end.
        takes_pages: whether the thread that listens takes in steps or a page: a `Progress` comes before the worker
            needs a page for the answer.
        paused_at: number of the pause for which the worker stands still; None: it steps.
        has_ended: set when the last message was processed.
    """

    is_at_work = False

    def __init__(
        self,
        process: WorkerPlace,
        status: WorkerStatus,
        group: GroupStatus,
        calls: PeerCalls,
        steps: StepWatch,
        worker_timeout: float | None,
    ) -> None:
        self._calls = calls
        self._process = process
        self._status = status
        self._group = group
        self._steps = steps
        self._worker_timeout = worker_timeout
        self.channel = process.channel
        self.has_task = False
        self.ready: Ready | None = None
        self.not_stored: list[str] = []
        self.rows: WorkerRows | None = None
        self.takes_pages = False
        self.paused_at: int | None = None
        self.has_ended = threading.Event()
        # When it reported the exception that ends it; None: it did not.
        self._failed_at: float | None = None

    def take(self, frame: Frame) -> None:
        """See `Peer.take`."""
        rows = self.rows
        match frame.message:
            case Commit() | Return() if rows is not None:
                self.takes_pages = True
                try:
                    rows.take(frame)
                finally:
                    self.takes_pages = False
            case Unpin() if rows is not None:
                rows.take(frame)
            case Progress() as progress if rows is not None:
                self._calls.progressed(progress, rows)
                # A worker between two rollouts reads answers to its commits with the message that lets it go on. Were
                # it woken for them, the system might move it to the processor of another worker.
                if self._calls.is_collecting():
                    self.channel.send_waiting()
            case Stepped(taken=taken):
                self._calls.stepped(taken)
            case RowsHeld():
                """The channel fetches them; see `is_full`."""
            case MoreColumns(signature=signature, is_loaded=True) if rows is not None:
                rows.reopen(signature)
            case MoreColumns(signature=signature) if rows is not None:
                rows.open(signature)
            case Failed() as failed:
                # It calls functions of the user's, so no lock is held.
                error = rebuilt(failed, frame.payload)
                with self._group.changed:
                    self._failed_at = SYSTEM_CLOCK.monotonic()
                    self._status.note_cause(error, failed.summary)
                    self._group.changed.notify_all()
                self._calls.failed()
            case _:
                with self._group.changed:
                    self._take(frame)
                    self._group.changed.notify_all()

    def _take(self, frame: Frame) -> None:
        match frame.message:
            case Ready() as ready:
                self.ready = ready
                self._status.note_ready()
            case NotStored(names=names):
                self.not_stored = names
                if self.ready is not None:  # Else the constructor warns.
                    _log.warning("%s", not_stored_text(names))
            case Answer() as answer:
                self._calls.answered(answer, frame.payload)
            case Paused(number=number) if (
                number == self._group.pause_wanted
            ):  # Else the pause was given up meanwhile.
                self.paused_at = number

    @property
    def waits(self) -> bool:
        """See `Peer.waits`: whether a full store owes the worker pages."""
        is_running = self._group.is_running and self.paused_at is None
        return is_running and self.rows is not None and self.rows.owes_pages

    @property
    def is_full(self) -> bool:
        """See `Peer.is_full`: while rows of the next message are on their way. A worker sends little meanwhile."""
        return self._process.awaits_rows

    def look(self) -> None:
        """See `Peer.look`."""
        if self.waits and self.rows is not None:
            self.rows.lease_owed()
        if not self._process.is_alive:
            # A process started by the environment may have inherited the worker's end of the connection.
            self.channel.shutdown()
        self._look_at_end()
        self._look_at_steps()

    def _look_at_end(self) -> None:
        """Ends the connection to a worker that has reported the exception that ends it, and does not end.

        Raises:
            Disconnected: it hangs.
        """
        # Rules: collectors CX3, CX5
        if self._failed_at is None or SYSTEM_CLOCK.monotonic() - self._failed_at < _CLOSE_SECONDS:
            return
        with self._group.changed:
            self._status.note_late_end(_CLOSE_SECONDS)
        raise Disconnected("its environments were not closed")

    def _look_at_steps(self) -> None:
        """Ends the connection to a worker that hangs.

        Raises:
            Disconnected: it hangs.
        """
        # Rules: collectors CX5
        limit = self._worker_timeout
        # Reports of an actor's steps wait behind its rows.
        seconds = self._steps.look(may_step=self._calls.may_step() and not self._process.awaits_rows)
        if limit is None or seconds < limit:
            return
        hang = f"no step was finished for {seconds:.3g} s while collecting (worker_timeout={limit:g})"
        with self._group.changed:
            self._status.note_hang(DeadlineExceeded(hang))
        raise Disconnected(hang)

    def end(self, error: BaseException) -> None:
        """See `Peer.end`."""
        try:
            self._calls.ended(error)
        finally:
            self.has_ended.set()
