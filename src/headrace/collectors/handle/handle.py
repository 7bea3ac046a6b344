"""One worker process, seen from the collector: its start, its messages, and its end."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from contextlib import ExitStack, suppress

from headrace.collectors.batches.batch import Batch
from headrace.collectors.batches.episode_numbering import EpisodeNumbering
from headrace.collectors.failures import rebuilt
from headrace.collectors.handle.admission import Admission
from headrace.collectors.handle.finished import FinishedRollouts
from headrace.collectors.handle.process import WorkerProcess
from headrace.collectors.handle.rows import ReplayRows, WorkerRows
from headrace.collectors.handle.status import WorkerStatus
from headrace.collectors.loop.columns import not_stored_text
from headrace.collectors.loop.step_counts import StepCounts
from headrace.collectors.messages import (
    Failed,
    MoreColumns,
    NotStored,
    Pause,
    Paused,
    Proceed,
    Progress,
    Ready,
    Resume,
    Start,
    Stop,
)
from headrace.collectors.options import CollectorOptions
from headrace.collectors.statistics import CollectorStatistics, Tally, WorkerStatistics
from headrace.errors import Disconnected, StoreFull
from headrace.forking import ForkFollowers
from headrace.leases.channel import Channel, Frame
from headrace.leases.messages import Commit, Message, Return, Unpin
from headrace.leases.selector import PEERS
from headrace.replay.public import core_of

_log = logging.getLogger(__name__)

# Rollouts that a worker may be ahead of the learner.
_ROLLOUTS_AHEAD = 2
_LAST_MESSAGES_SECONDS = 5.0
_HANDLES = ForkFollowers()


class WorkerHandle:
    """Starts a worker and takes in what it reports.

    The thread that listens to all peers calls `take`, `look` and `end` (`headrace.leases.selector`). The handle knows
    nothing of the collector, which can be forgotten meanwhile.

    Args:
        options: of the collector.

    Attributes:
        channel: to the worker.
        status: whether the worker can be used, and how it ended.
        tally: of the collector.
        ready: n, T and the worker's policy; None before the worker is ready.
        not_stored: columns that the policy adds and the replay lacks, as far as is known.
        is_running: the worker collects freely into a replay.
        is_iterating: the worker collects for iteration.
    """

    def __init__(self, options: CollectorOptions) -> None:
        self._options = options
        self._replay = None if options.replay_buffer is None else core_of(options.replay_buffer)
        self.tally = Tally(options.total_frames)
        self.ready: Ready | None = None
        self.not_stored: list[str] = []
        self.is_running = self.is_iterating = False
        self._rows: WorkerRows | None = None
        self._counts = StepCounts()
        self._pause_wanted: int | None = None
        self._paused_at: int | None = None
        # Set when the last message was taken in.
        self._ended = threading.Event()
        self._process = WorkerProcess()
        self.channel: Channel = self._process.channel
        self.status = WorkerStatus(self._process)
        self._rollouts = FinishedRollouts(self.status, self.tally, self._describe_batch, self._handed_out)
        _HANDLES.add(self)

    # ---- starting --------------------------------------------------------------------------------------------------

    def launch(self, task: bytes, timeout: float) -> Ready:
        """Sends the task and waits until the worker is ready.

        Raises:
            Exception: what building the environment or the policy raised.
            DeadlineExceeded: it was not ready in time.
        """
        with suppress(Disconnected):  # The worker's end is noted by the thread that listens.
            self.channel.send(Start(), payload=task)
        PEERS.add(self)
        self.status.wait(lambda: self.ready is not None, timeout, f"{self.status} to be ready")
        ready = self.ready
        assert ready is not None
        self._admission = Admission(
            self.tally,
            ready.steps * ready.num_envs,
            self._options.total_frames,
            lambda: self._rows is not None and self._rows.has_pending,
            lambda _: self._send_quietly(Proceed()),
        )
        self._rows = self._new_rows(ready)
        self._rows.open(ready.signature)
        if self._replay is None:
            self.is_iterating = True
            self._admission.owe(_ROLLOUTS_AHEAD)
        return ready

    def _new_rows(self, ready: Ready) -> WorkerRows:
        numbering = EpisodeNumbering(ready.num_envs)
        if self._replay is None:
            return WorkerRows(ready, numbering, self._send_quietly)
        return ReplayRows(
            ready,
            numbering,
            self._send_quietly,
            self._replay,
            self._options.rules(),
            self._admission.settle,
            lambda: self.is_running,
        )

    def begin(self, *, running: bool) -> None:
        """Begins to collect into a replay, freely or for iteration, unless it has begun."""
        with self.status.changed:
            if self.is_running or self.is_iterating:
                return
            self.is_running, self.is_iterating = running, not running
        self._admission.owe(_ROLLOUTS_AHEAD)

    def send(self, message: Message, descriptors: tuple[int, ...] = ()) -> None:
        """Sends a message to the worker.

        Raises:
            WorkerDied: it is gone.
        """
        try:
            PEERS.send(self, message, descriptors=descriptors)
        except Disconnected:
            self.status.wait(lambda: False, None, f"the end of {self.status}")

    def _send_quietly(self, *messages: Message, descriptors: tuple[int, ...] = ()) -> None:
        # The next call raises the worker's death, after the rollouts that it has completed.
        with suppress(Disconnected):
            PEERS.send(self, *messages, descriptors=descriptors)

    # ---- calls of the thread that listens --------------------------------------------------------------------------

    def take(self, frame: Frame) -> None:
        """See `Peer.take`."""
        match frame.message:
            case Commit() | Return() | Unpin():
                assert self._rows is not None
                self._rows.take(frame)
            case Progress() as progress:
                assert self._rows is not None
                self._note_progress(progress, self._rows)
            case MoreColumns(signature=signature):
                assert self._rows is not None
                self._rows.open(signature)
            case _:
                with self.status.changed:
                    self._take(frame)
                    self.status.changed.notify_all()

    def _take(self, frame: Frame) -> None:
        match frame.message:
            case Ready() as ready:
                self.ready = ready
                self.status.is_ready = True
            case NotStored(names=names):
                self.not_stored = names
                if self.ready is not None:  # Else the constructor warns.
                    _log.warning("%s", not_stored_text(names))
            case Failed() as failed:
                self.status.cause = rebuilt(failed, frame.payload)
            case Paused(number=number) if number == self._pause_wanted:  # Else it was given up meanwhile.
                self._paused_at = number

    @property
    def waits(self) -> bool:
        """See `Peer.waits`: whether a full store owes the worker pages."""
        return self.is_running and not self.is_paused and self._rows is not None and self._rows.owes_pages

    def look(self) -> None:
        """See `Peer.look`."""
        if self.waits and self._rows is not None:
            self._rows.lease_owed()
        if not self._process.is_alive:
            # A process started by the environment may have inherited the worker's end of the connection.
            self.channel.shutdown()

    def end(self, error: BaseException) -> None:
        """See `Peer.end`."""
        try:
            if not isinstance(error, Disconnected):
                self._stop_running(lambda: self.status.note_failure(error))
                self.channel.shutdown()
            elif not self.status.is_closed:
                # The process may take a moment to end, in which others are not to wait.
                threading.Thread(target=self._note_death, daemon=True, name="headrace-worker-end").start()
        finally:
            self._ended.set()

    def _note_death(self) -> None:
        """The connection has ended: in order, or because the worker is gone."""
        exitcode = self._process.wait(2.0)
        self._stop_running(lambda: self.status.note_death(exitcode))

    def _stop_running(self, note: Callable[[], None]) -> None:
        """Records a failure, and ends the waits of learners for rows that only this collector could write."""
        # Rules: collectors CF8
        with self.status.changed:
            note()
            self.is_running = False
            self.status.changed.notify_all()
            failure = self.status.failure
        if failure is not None and self._rows is not None:
            self._rows.fail(failure)

    def _note_progress(self, progress: Progress, rows: WorkerRows) -> None:
        self.tally.note_seconds(progress.seconds)
        if not self.is_iterating:
            rows.forget_batch()
            self._count(progress)
            return
        self._counts.add(progress.counts)
        if progress.closes_rollout:
            counts, self._counts = self._counts, StepCounts()
            self._rollouts.add(rows.take_batch(), counts)

    def _count(self, progress: Progress) -> None:
        """Counts steps of free running."""
        closes = progress.closes_rollout
        self.tally.add(progress.counts, int(closes))
        if closes:
            self._handed_out()
        with self.status.changed:
            if closes and self.tally.is_complete():
                self.is_running = False
            self.status.changed.notify_all()

    def _handed_out(self) -> None:
        """A rollout was handed out or, free-running, written."""
        self._admission.owe(1)
        if self.tally.is_complete() and self._rows is not None:
            # The worker has reported its last step: the open episodes get their final rows.
            with suppress(StoreFull):  # The collected rows are complete; `shutdown` tries again, and raises.
                self._rows.end_episodes()

    # ---- batches and pauses ----------------------------------------------------------------------------------------

    def next_batch(self, timeout: float | None) -> Batch | None:
        """See `FinishedRollouts.next`."""
        return self._rollouts.next(timeout)

    def _describe_batch(self) -> str:
        """Describes a wait: its reason, and the event that can end it."""
        waiting = "" if self._rows is None else self._rows.describe_pending()
        if not waiting:
            return f"a batch of {self.status}"
        return (
            f"a batch of {self.status}, which may begin no further rollout while items of earlier ones wait: "
            f"{waiting}. Sample from there in another thread, or raise the bound of the rate limiter"
        )

    @property
    def is_paused(self) -> bool:
        """Whether the worker stands still between two steps, as it was told."""
        return self._paused_at is not None

    def pause(self, number: int, timeout: float) -> None:
        """Tells the worker to pause. Waits until it has obeyed, and all that it collected is in."""
        with self.status.changed:
            self._pause_wanted = number
        self.send(Pause(number=number))
        event = f"{self.status} to pause; a step of its environment or policy takes long"
        self.status.wait(lambda: self._paused_at == number, timeout, event)

    def resume(self) -> None:
        """Lets the worker go on. In a forked child that leaves `pause` too, the worker is the parent's."""
        if self.status.home.is_elsewhere:
            return
        with self.status.changed:
            self._pause_wanted = self._paused_at = None
        self._send_quietly(Resume())

    def statistics(self) -> CollectorStatistics:
        """Returns the record of now.

        Raises:
            RuntimeError: in a process that was forked from the collector's.
        """
        self.status.home.check()
        worker = WorkerStatistics(
            worker_idx=0,
            pid=self.pid,
            alive=self._process.is_alive,
            frames=0,
            rollouts=0,
            policy_version=-1,
            last_error=self.status.last_error,
        )
        return self.tally.record(running=self.is_running, paused=self.is_paused, worker=worker)

    @property
    def pid(self) -> int:
        """The worker's process id."""
        return self._process.pid

    # ---- ending ----------------------------------------------------------------------------------------------------

    def shutdown(self, timeout: float, *, close_env: bool, raise_on_error: bool) -> None:
        """Ends the worker and releases everything. More calls do nothing, nor does one in a forked child.

        Raises:
            WorkerDied: it had failed unreported, or had to be killed; after all is released.
        """
        if self.status.home.is_elsewhere:
            return
        is_first = in_order = False
        try:
            with self.status.changed:
                if self.status.is_closed:
                    return
                is_first = True
                self._close()
            if self._rows is not None:
                self._rows.stop_leasing()
            self._send_quietly(Stop(close_env=close_env))
            in_order = self._process.end(timeout)
        finally:
            if is_first:
                self._release()
        self.status.report(in_order=in_order, raise_on_error=raise_on_error)

    def _close(self) -> None:
        self.status.is_closed = True
        self.is_running = False
        self.status.changed.notify_all()

    def _release(self) -> None:
        """Kills the worker if it still runs, and gives everything back."""
        # Each step runs also where Ctrl-C ends another one. The last one comes first.
        with ExitStack() as steps:
            steps.callback(self._close_rows)
            steps.callback(self._rollouts.discard)
            steps.callback(self.channel.close)
            steps.callback(PEERS.remove, self)
            steps.callback(self._take_last_messages)
            steps.callback(self._process.kill)
            self.status.is_closed = True

    def _take_last_messages(self) -> None:
        """Waits until what the worker sent before its end was taken in."""
        self.channel.shutdown()
        if not PEERS.is_current_thread:
            self._ended.wait(_LAST_MESSAGES_SECONDS)

    def _close_rows(self) -> None:
        # The mapping of a private store goes with the last array over it.
        rows, self._rows = self._rows, None
        try:
            if rows is not None:
                rows.close()
        except StoreFull as error:
            self.status.note_unfinished(error)

    def abandon(self) -> None:
        """Shuts down at once after a failure that is being raised."""
        self.status.ignore_failure()
        self.shutdown(1.0, close_env=True, raise_on_error=False)

    # ---- forks -----------------------------------------------------------------------------------------------------

    def before_fork(self) -> None:
        """Nothing comes to rest: the child uses none of it."""

    def after_fork_in_parent(self) -> None:
        """Nothing was halted."""

    def after_fork_in_child(self) -> None:
        """Gives back this process's copies of socket and memory; those of the parent are untouched."""
        self._process.disown()
        if self._rows is not None:
            self._rows.disown()
        self._rollouts.forget()
