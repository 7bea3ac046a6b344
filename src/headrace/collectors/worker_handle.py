"""One worker process, seen from the collector: what it reports, what it may begin, and how it ended."""

from __future__ import annotations

import logging
import threading
import time
from collections import deque
from collections.abc import Callable
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from typing import Any, NamedTuple

from headrace.clock import SYSTEM_CLOCK
from headrace.collectors.admission import Admission
from headrace.collectors.batch import Batch
from headrace.collectors.blocks import EpisodeNumbering
from headrace.collectors.failures import collector_home, rebuilt
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
from headrace.collectors.process import WorkerProcess, describe_exit
from headrace.collectors.replay_columns import not_stored_text
from headrace.collectors.statistics import CollectorStatistics, Tally, WorkerStatistics
from headrace.collectors.worker_rows import WorkerRows, rollout_store
from headrace.errors import Closed, Disconnected, StoreFull, WorkerDied
from headrace.forking import ForkFollowers
from headrace.leases.channel import Channel, Frame
from headrace.leases.destination import ReplayItems, StoreAlone
from headrace.leases.messages import Commit, Message, Return, Unpin
from headrace.leases.selector import PEERS
from headrace.replay.public import core_of
from headrace.spec import Signature
from headrace.store.memory.arena import Arena
from headrace.waits import Wait

_log = logging.getLogger(__name__)

# Rollouts that a worker may be ahead of the learner.
_ROLLOUTS_AHEAD = 2
_LAST_MESSAGES_SECONDS = 5.0
_HANDLES = ForkFollowers()


@dataclass(frozen=True)
class _Death:
    exitcode: int | None
    at: float


class Collected(NamedTuple):
    """A complete rollout that was not handed out yet, and return and length of the episodes that ended in it."""

    batch: Batch
    episodes: list[tuple[float, int]]


class WorkerHandle:
    """Starts a worker and takes in what it reports.

    The thread that listens to all peers calls `take`, `look` and `end` (`headrace.leases.selector`). The handle knows
    nothing of the collector, which can be forgotten meanwhile.

    Args:
        options: what was asked for.

    Attributes:
        channel: to the worker.
        tally: what was collected.
        ready: n, T and what the worker's policy is; None before the worker is ready.
        newest: the version of weights published last.
        not_stored: columns that the policy adds and the replay has no place for, as far as is known.
        is_running: collecting freely into a replay.
        is_paused: the worker stands still between two steps.
        is_closed: shut down, or never started.
        home: the process whose collector this is.
    """

    def __init__(self, options: CollectorOptions) -> None:
        self.home = collector_home()
        self._options = options
        self._replay = None if options.replay_buffer is None else core_of(options.replay_buffer)
        self.tally = Tally()
        self.ready: Ready | None = None
        self.newest = 0
        self.not_stored: list[str] = []
        self.is_running = self.is_iterating = self.is_closed = False
        # Whether a thread is about to hand out a rollout.
        self._hands_out = False
        self._changed = threading.Condition()
        self._rollouts: deque[Collected] = deque()
        # Of the rollout that is not complete.
        self._episodes: list[tuple[float, int]] = []
        self._rows: WorkerRows | None = None
        self._items: ReplayItems | None = None
        self._pause_wanted: int | None = None
        self._paused_at: int | None = None
        self._cause: BaseException | None = None
        self._death: _Death | None = None
        self._failure: BaseException | None = None
        self._failure_told = False
        # Set when the last message was taken in.
        self._ended = threading.Event()
        self._process = WorkerProcess()
        self.channel: Channel = self._process.channel
        _HANDLES.add(self)

    # ---- starting --------------------------------------------------------------------------------------------------

    def launch(self, task: bytes, timeout: float) -> Ready:
        """Send the task and wait until the worker is ready.

        Raises:
            Exception: what building the environment or the policy raised.
            DeadlineExceeded: it was not ready in time.
        """
        with suppress(Disconnected):  # The worker's end is noted by the thread that listens.
            self.channel.send(Start(), payload=task)
        PEERS.add(self)
        self.wait(lambda: self.ready is not None, timeout, f"worker 0 (pid {self._process.pid}) to be ready")
        ready = self.ready
        assert ready is not None
        self._numbering = EpisodeNumbering(ready.num_envs)
        self._admission = Admission(
            self.tally,
            ready.steps * ready.num_envs,
            self._options.total_frames,
            lambda: self._items is not None and self._items.pending.count > 0,
            lambda _: self._send_quietly(Proceed()),
        )
        self._open_rows(ready.signature)
        if self._replay is None:
            self.is_iterating = True
            self._admission.owe(_ROLLOUTS_AHEAD)
        return ready

    def _open_rows(self, signature: dict[str, Any]) -> None:
        """Let the worker write its rows into the replay, or into a store of this handle's own."""
        ready, replay = self.ready, self._replay
        assert ready is not None
        if replay is None:
            store = rollout_store(Signature.from_json(signature), ready.steps, ready.num_envs, Arena.shared)
            self._rows = WorkerRows(
                StoreAlone(store), ready, self._numbering, self._send_quietly, before=self._rows
            )
        else:
            page_rows = replay.store.arrays.page_rows
            if ready.num_envs > page_rows:
                raise ValueError(
                    f"replay_buffer: a step of the {ready.num_envs} environments of the worker must fit into "
                    f"{page_rows} rows, 1/32 of the capacity or 16 MiB; give the replay a larger capacity or the "
                    "worker fewer environments"
                )
            self._items = ReplayItems(replay, self._options.rules(), self._admission.settle)
            self._rows = WorkerRows(
                self._items,
                ready,
                self._numbering,
                self._send_quietly,
                lambda: self.is_running and replay.items_may_leave(),
            )
        self._rows.begin()

    def begin(self, *, running: bool) -> None:
        """Begin to collect into a replay, freely or for iteration, unless it has begun."""
        with self._changed:
            if self.is_running or self.is_iterating:
                return
            self.is_running, self.is_iterating = running, not running
        self._admission.owe(_ROLLOUTS_AHEAD)

    def send(self, message: Message, descriptors: tuple[int, ...] = ()) -> None:
        """Send something to the worker.

        Raises:
            WorkerDied: it is gone.
        """
        try:
            PEERS.send(self, message, descriptors=descriptors)
        except Disconnected:
            self.wait(lambda: False, None, f"the end of worker 0 (pid {self._process.pid})")

    def _send_quietly(self, *messages: Message, descriptors: tuple[int, ...] = ()) -> None:
        with suppress(
            Disconnected
        ):  # The next call tells of the worker's death, after what it has completed.
            PEERS.send(self, *messages, descriptors=descriptors)

    # ---- what the thread that listens calls ------------------------------------------------------------------------

    def take(self, frame: Frame) -> None:
        """See `Peer.take`."""
        match frame.message:
            case Commit() | Return() | Unpin():
                assert self._rows is not None
                self._rows.take(frame)
            case Progress() as progress:
                self._note_progress(progress)
            case MoreColumns(signature=signature):
                self._open_rows(signature)
            case _:
                with self._changed:
                    self._take(frame)
                    self._changed.notify_all()

    def _take(self, frame: Frame) -> None:
        match frame.message:
            case Ready() as ready:
                self.ready = ready
            case NotStored(names=names):
                self._note_not_stored(names)
            case Failed() as failed:
                self._cause = rebuilt(failed, frame.payload)
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
                self._note_failure(error)
            elif not self.is_closed:
                # The process may take a moment to end, in which others are not to wait.
                threading.Thread(target=self._note_death, daemon=True, name="headrace-worker-end").start()
        finally:
            self._ended.set()

    def _note_not_stored(self, names: list[str]) -> None:
        self.not_stored = names
        if self.ready is not None:  # Else the constructor warns.
            _log.warning("%s", not_stored_text(names))

    def _note_progress(self, progress: Progress) -> None:
        rows = self._rows
        assert rows is not None
        self.tally.note_seconds(progress.seconds)
        if not self.is_iterating:
            rows.forget_batch()
            self._count(progress)
            return
        self._episodes += progress.episodes
        if progress.closes_rollout:
            collected, self._episodes = Collected(rows.take_batch(), self._episodes), []
            with self._changed:
                self._rollouts.append(collected)
                self._changed.notify_all()

    def _count(self, progress: Progress) -> None:
        closes = progress.closes_rollout
        self.tally.add(
            progress.frames, progress.episodes, progress.stamps.items(), self.newest, batches=int(closes)
        )
        if closes:
            self._admission.owe(1)
        ends = closes and self.is_complete
        if ends:
            self._end_episodes()
        with self._changed:
            if ends:
                self.is_running = False
            self._changed.notify_all()

    @property
    def is_complete(self) -> bool:
        """Whether `total_frames` were handed out (free-running: written)."""
        return 0 < self._options.total_frames <= self.tally.frames

    def _end_episodes(self) -> None:
        """Store the final rows of the open episodes, as the worker has reported its last step."""
        if self._items is not None and self._rows is not None:
            with suppress(StoreFull):  # The collected rows are complete; `shutdown` tries again, and raises.
                self._rows.end_episodes()

    def _note_death(self) -> None:
        """The connection has ended: in order, or because the worker is gone."""
        exitcode = self._process.wait(2.0)
        with self._changed:
            if not self.is_closed:
                self._death = _Death(exitcode, time.monotonic())
                self.is_running = False
                if self.ready is not None:
                    _log_end(self._died())
            self._changed.notify_all()
        if self._death is not None:
            self._end_waits(self._died())

    def _note_failure(self, error: BaseException) -> None:
        """Records that the worker's report could not be processed."""
        with self._changed:
            if not self.is_closed:
                _log_end(error)
                self._failure = error
            self.is_running = False
            self._changed.notify_all()
        self.channel.shutdown()
        self._end_waits(error)

    def _end_waits(self, failure: BaseException) -> None:
        """End the waits of learners for rows that only this collector could write."""
        # Rules: collectors CF8
        if self._items is not None:
            self._items.fail(failure)

    def _died(self) -> WorkerDied:
        assert self._death is not None
        cause, exitcode = self._cause, self._death.exitcode
        why = describe_exit(exitcode) if cause is None else f"{type(cause).__name__}: {cause}"
        ago = time.monotonic() - self._death.at
        died = WorkerDied(
            f"worker 0 (pid {self._process.pid}) died {ago:.1f} s ago: {why}", worker_idx=0, exitcode=exitcode
        )
        died.__cause__ = cause
        return died

    # ---- waiting ---------------------------------------------------------------------------------------------------

    def wait(self, there: Callable[[], bool], timeout: float | None, what: str) -> None:
        """Wait until something is there.

        Raises:
            WorkerDied: it will never be. Before the worker is ready: the exception that ended it.
            DeadlineExceeded: not in time.
            Closed: the session was shut down meanwhile.
        """
        with self._changed:
            self._wait(there, timeout, lambda: what)

    def _wait(self, there: Callable[[], bool], timeout: float | None, what: Callable[[], str]) -> None:
        """See `wait`; the lock is held once."""
        wait = Wait(SYSTEM_CLOCK, timeout, lambda seconds: f"waited {seconds:.3g} s for {what()}")
        while not there():
            self.check_open()
            if not self._hands_out:  # Complete batches come before the failure.
                self.raise_failure()
            if not wait.look(self._changed):
                wait.turn_on(self._changed)

    def check_open(self) -> None:
        """Raise if the collector cannot be used.

        Raises:
            Closed: after `shutdown`.
            RuntimeError: in a process that was forked from the collector's.
        """
        self.home.check()
        if self.is_closed:
            raise Closed("the collector is shut down")

    def raise_failure(self) -> None:
        """Raise what ended the collection, if anything did."""
        with self._changed:
            failure = self._failure
            if failure is None and self._cause is not None and self.ready is None:
                failure = self._cause
            if failure is None and self._death is not None:
                failure = self._died()
            if failure is not None:
                self._failure_told = True
                raise failure

    def next_batch(self, timeout: float | None) -> Batch | None:
        """The complete rollout that waits longest, as soon as there is one; its slot is free then.

        None when `total_frames` were handed out. Any thread may ask; rollouts are handed out one after the other,
        because trajectories are numbered in their order.
        """
        rollout = None
        try:
            begin = time.perf_counter()
            with self._changed:
                self._wait(self._can_hand_out, timeout, self._describe_batch)
                if self.is_complete:
                    return None
                rollout = self._rollouts.popleft()
                self._hands_out = True
            self.tally.wait_seconds += time.perf_counter() - begin
            return self._hand_out(rollout)
        finally:
            if rollout is not None:
                with self._changed:
                    self._hands_out = False
                    self._changed.notify_all()

    def _hand_out(self, rollout: Collected) -> Batch:
        """Counts a rollout. Where Ctrl-C ends the call, the next one hands the rollout out."""
        try:
            self.tally.add_batch(rollout.batch, rollout.episodes, self.newest)
        except BaseException:
            with self._changed:
                self._rollouts.appendleft(rollout)
            raise
        self._admission.owe(1)
        if self.is_complete:
            self._end_episodes()
        return rollout.batch

    def _can_hand_out(self) -> bool:
        return not self._hands_out and (bool(self._rollouts) or self.is_complete)

    def _describe_batch(self) -> str:
        """Describes a wait: its reason, and the event that can end it."""
        batch = f"a batch of worker 0 (pid {self._process.pid})"
        waiting = "" if self._items is None else self._items.describe_pending()
        if not waiting:
            return batch
        return (
            f"{batch}, which may begin no further rollout while items of earlier ones wait: {waiting}. Sample from "
            "there in another thread, or raise the bound of the rate limiter"
        )

    @property
    def is_paused(self) -> bool:
        """Whether the worker stands still between two steps, as it was told."""
        return self._paused_at is not None

    def pause(self, number: int, timeout: float) -> None:
        """Tell the worker to pause. Wait until it has obeyed, and all that it collected is in."""
        with self._changed:
            self._pause_wanted = number
        self.send(Pause(number=number))
        what = f"worker 0 (pid {self._process.pid}) to pause; a step of its environment or policy takes long"
        self.wait(lambda: self._paused_at == number, timeout, what)

    def resume(self) -> None:
        """Let the worker go on. In a forked child that leaves `pause` too, the worker is the parent's."""
        if self.home.is_elsewhere:
            return
        with self._changed:
            self._pause_wanted = self._paused_at = None
        self._send_quietly(Resume())

    def statistics(self) -> CollectorStatistics:
        """The record of now.

        Raises:
            RuntimeError: in a process that was forked from the collector's.
        """
        self.home.check()
        failure = self._failure or self._cause or (self._died() if self._death is not None else None)
        worker = WorkerStatistics(
            worker_idx=0,
            pid=self._process.pid,
            alive=self._process.is_alive,
            frames=0,
            rollouts=0,
            policy_version=-1,
            last_error=None if failure is None else f"{type(failure).__name__}: {failure}",
        )
        return self.tally.record(running=self.is_running, paused=self.is_paused, worker=worker)

    @property
    def pid(self) -> int:
        """The worker's process id."""
        return self._process.pid

    # ---- ending ----------------------------------------------------------------------------------------------------

    def shutdown(self, timeout: float, *, close_env: bool, raise_on_error: bool) -> None:
        """End the worker and release everything. More calls do nothing, nor does one in a forked child.

        Raises:
            WorkerDied: it had failed unreported, or had to be killed; after all is released.
        """
        if self.home.is_elsewhere:
            return
        is_first = in_order = False
        try:
            with self._changed:
                if self.is_closed:
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
        self._report(in_order, raise_on_error)

    def _close(self) -> None:
        self.is_closed = True
        self.is_running = False
        self._changed.notify_all()

    def _release(self) -> None:
        """Kill the worker if it still runs, and give everything back."""
        # Each step runs also where Ctrl-C ends another one. The last one comes first.
        with ExitStack() as steps:
            steps.callback(self._close_rows)
            steps.callback(self._discard_rollouts)
            steps.callback(self.channel.close)
            steps.callback(PEERS.remove, self)
            steps.callback(self._take_last_messages)
            steps.callback(self._process.kill)
            self.is_closed = True

    def _take_last_messages(self) -> None:
        """Wait until what the worker sent before its end was taken in."""
        self.channel.shutdown()
        if not PEERS.is_current_thread:
            self._ended.wait(_LAST_MESSAGES_SECONDS)

    def _discard_rollouts(self) -> None:
        with self._changed:
            self.tally.frames_discarded += sum(rollout.batch.frames for rollout in self._rollouts)
            self._rollouts.clear()

    def _close_rows(self) -> None:
        rows = self._rows
        if rows is None:
            return
        try:
            if self._items is not None:
                rows.end_episodes()
        except StoreFull as error:
            self._failure = self._failure or error
        finally:
            # The mapping of a private store goes with the last array over it.
            self._rows = None
            rows.close()

    def _report(self, in_order: bool, raise_on_error: bool) -> None:
        failure = self._failure
        if failure is None and self._death is not None:
            failure = self._died()
        if failure is None and not in_order:
            exitcode = self._process.exitcode
            failure = WorkerDied(
                "worker 0 did not stop in time and was killed", worker_idx=0, exitcode=exitcode
            )
        if failure is None or self._failure_told:
            return
        self._failure_told = True
        if raise_on_error:
            raise failure
        _log.error("%s", str(failure))

    # ---- forks -----------------------------------------------------------------------------------------------------

    def before_fork(self) -> None:
        """Nothing comes to rest: the child uses none of it."""

    def after_fork_in_parent(self) -> None:
        """Nothing was halted."""

    def after_fork_in_child(self) -> None:
        """Give back this process's copies of socket and memory; those of the parent are untouched."""
        self._process.disown()
        if self._rows is not None and self._items is None:
            self._rows.disown()
        self._rollouts.clear()

    def abandon(self) -> None:
        """Shut down at once after a failure that is being raised."""
        self._failure_told = True
        self.shutdown(1.0, close_env=True, raise_on_error=False)


def _log_end(failure: BaseException) -> None:
    # Logged as text: a stored log record must not keep the failure alive, and with it all objects that waited for the
    # worker.
    _log.error("collecting has ended: %s", str(failure), exc_info=failure.__cause__)
