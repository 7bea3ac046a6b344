"""One worker process, seen from the collector: what it reports, what it may begin, and how it ended."""

from __future__ import annotations

import logging
import threading
import time
from collections import deque
from collections.abc import Callable
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from typing import Any

from headrace.clock import SYSTEM_CLOCK
from headrace.collectors.batch import Batch
from headrace.collectors.channel import (
    Failed,
    Message,
    NotStored,
    Pause,
    Paused,
    Proceed,
    Ready,
    Resume,
    Rollout,
    Rows,
    Slots,
    Start,
    Stop,
)
from headrace.collectors.failures import collector_home, rebuilt
from headrace.collectors.grants import Grants
from headrace.collectors.landlord import Landlord
from headrace.collectors.options import CollectorOptions
from headrace.collectors.process import WorkerProcess, describe_exit
from headrace.collectors.replay_columns import not_stored_text
from headrace.collectors.rollout import EpisodeLedger, RolloutBuffer
from headrace.collectors.rollouts import CopiedOut, InSlot
from headrace.collectors.statistics import CollectorStatistics, Tally, WorkerStatistics
from headrace.collectors.worker import SLOTS
from headrace.errors import Closed, Disconnected, StoreFull, WorkerDied
from headrace.forking import ForkFollowers
from headrace.replay.public import core_of
from headrace.replay.replay import ReplayCore
from headrace.spec import Signature
from headrace.store.arena import Arena
from headrace.waits import Wait

_log = logging.getLogger(__name__)

_LOOK_SECONDS = 0.05
_SESSIONS = ForkFollowers()


@dataclass(frozen=True)
class _Death:
    exitcode: int | None
    at: float


class Session:
    """Starts a worker and listens to it.

    A thread takes in what the worker says. It knows nothing of the collector, which can be forgotten meanwhile.

    Args:
        options: what was asked for.

    Attributes:
        tally: what was collected.
        ready: n, T and what the worker's policy is; None before the worker is ready.
        newest: the version of weights published last.
        not_stored: columns that the policy adds and the replay has no place for, as far as is known.
        ledger: numbers the trajectories.
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
        self._rollouts: deque[InSlot | CopiedOut] = deque()
        self._buffers: list[RolloutBuffer] = []
        self._landlord: Landlord | None = None
        self._pause_wanted: int | None = None
        self._paused_at: int | None = None
        self._cause: BaseException | None = None
        self._death: _Death | None = None
        self._failure: BaseException | None = None
        self._failure_told = False
        self._process = WorkerProcess()
        self._listener = threading.Thread(target=self._listen, daemon=True, name="headrace-collector")
        _SESSIONS.add(self)

    # ---- starting --------------------------------------------------------------------------------------------------

    def launch(self, task: bytes, timeout: float) -> Ready:
        """Send the task and wait until the worker is ready.

        Raises:
            Exception: what building the environment or the policy raised.
            DeadlineExceeded: it was not ready in time.
        """
        descriptors = () if self._replay is None else (self._replay.store.share(),)
        self._listener.start()
        with suppress(Disconnected):  # The listener tells why.
            self._process.channel.send(Start(payload=task), descriptors)
        self.wait(lambda: self.ready is not None, timeout, f"worker 0 (pid {self._process.pid}) to be ready")
        ready = self.ready
        assert ready is not None
        self._grants = Grants(
            self.tally,
            ready.steps * ready.num_envs,
            self._options.total_frames,
            lambda: self._landlord is not None and self._landlord.has_pending,
            lambda number: self._send_quietly(Proceed(slot=number % SLOTS)),
        )
        if self._replay is None:
            self.is_iterating = True
            self._grants.owe(SLOTS)
        else:
            self._begin_leasing(self._replay, ready)
        return ready

    def _begin_leasing(self, replay: ReplayCore, ready: Ready) -> None:
        self._landlord = Landlord(
            replay,
            self._options.rules(),
            ready.num_envs,
            self._send_quietly,
            self._grants.settle,
            lambda: self.is_running,
        )
        self._landlord.begin(ready.observed)

    def begin(self, *, running: bool) -> None:
        """Begin to collect into a replay, freely or for iteration, unless it has begun."""
        with self._changed:
            if self.is_running or self.is_iterating:
                return
            self.is_running, self.is_iterating = running, not running
        self._grants.owe(SLOTS)

    def send(self, message: Message, descriptors: tuple[int, ...] = ()) -> None:
        """Send something to the worker.

        Raises:
            WorkerDied: it is gone.
        """
        try:
            self._process.channel.send(message, descriptors)
        except Disconnected:
            self.wait(lambda: False, None, f"the end of worker 0 (pid {self._process.pid})")

    def _send_quietly(self, message: Message) -> None:
        with suppress(
            Disconnected
        ):  # The next call tells of the worker's death, after what it has completed.
            self._process.channel.send(message)

    # ---- the listening thread --------------------------------------------------------------------------------------

    def _listen(self) -> None:
        try:
            while True:
                self._lease_owed_pages()
                message, descriptors = self._process.channel.receive()
                if isinstance(message, Rows):
                    self._take_rows(message)
                else:
                    with self._changed:
                        self._take(message, descriptors)
                        self._changed.notify_all()
        except Disconnected:
            self._note_end()
        except BaseException as error:
            self._note_failure(error)

    def _lease_owed_pages(self) -> None:
        """Until there is a message: look whether the worker can have the pages that a full store owes it."""
        landlord, channel = self._landlord, self._process.channel
        while landlord is not None and landlord.owes_pages and not channel.has_message(_LOOK_SECONDS):
            if not self.is_paused:
                landlord.lease_owed()

    def _take(self, message: Any, descriptors: list[int]) -> None:
        match message:
            case Ready():
                self.ledger = EpisodeLedger(message.num_envs)
                self.observed = frozenset(message.observed)
                self.ready = message
            case NotStored(names=names):
                self._note_not_stored(names)
            case Slots():
                self._take_slots(message, descriptors[0])
            case Rollout(slot=slot, finals=finals):
                self.tally.note_seconds(message.seconds)
                self._rollouts.append(InSlot(self._buffers[slot], finals))
            case Failed():
                self._cause = rebuilt(message)
            case Paused(number=number) if number == self._pause_wanted:  # Else it was given up meanwhile.
                self._paused_at = number

    def _note_not_stored(self, names: list[str]) -> None:
        self.not_stored = names
        if self.ready is not None:  # Else the constructor warns.
            _log.warning("%s", not_stored_text(names))

    def _take_slots(self, slots: Slots, descriptor: int) -> None:
        arena = Arena.attach(descriptor, slots.nbytes)
        signature = Signature.from_json(slots.signature)
        size = slots.nbytes // SLOTS
        self._buffers = [
            RolloutBuffer(
                arena, signature, frozenset(slots.observed), slots.steps, slots.num_envs, slot * size
            )
            for slot in range(SLOTS)
        ]

    def _take_rows(self, rows: Rows) -> None:
        landlord = self._landlord
        assert landlord is not None
        landlord.commit(rows)
        self.tally.note_seconds(rows.seconds)
        if not self.is_iterating:
            landlord.forget_batch()
            self._count_rows(rows)
        elif rows.closes_rollout:
            batch = landlord.take_batch(self.observed, self.ledger)
            with self._changed:
                self._rollouts.append(CopiedOut(batch, self.ledger.take_finished()))
                self._changed.notify_all()

    def _count_rows(self, rows: Rows) -> None:
        closes = int(rows.closes_rollout)
        self.tally.add(rows.frames, rows.episodes, rows.stamps.items(), self.newest, batches=closes)
        if rows.closes_rollout:
            self._grants.owe(1)
        ends = rows.closes_rollout and self.is_complete
        if ends:
            self._end_trajectories()
        with self._changed:
            if ends:
                self.is_running = False
            self._changed.notify_all()

    @property
    def is_complete(self) -> bool:
        """Whether `total_frames` were handed out (free-running: written)."""
        return 0 < self._options.total_frames <= self.tally.frames

    def _end_trajectories(self) -> None:
        """Store the final rows of the open trajectories, as the worker has reported its last step."""
        if self._landlord is not None:
            with suppress(StoreFull):  # What was collected is complete; `shutdown` tries again, and raises.
                self._landlord.end_trajectories()

    def _note_end(self) -> None:
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
        """What the worker reported could not be taken in."""
        with self._changed:
            if not self.is_closed:
                _log_end(error)
                self._failure = error
            self.is_running = False
            self._changed.notify_all()
        self._process.channel.shutdown()
        self._end_waits(error)

    def _end_waits(self, failure: BaseException) -> None:
        """End the waits of learners for rows that only this collector could write."""
        # Rules: collectors CF8
        if self._landlord is not None and self._replay is not None:
            self._replay.writer_failed(self._landlord, failure)

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
            if not self._hands_out:  # What is complete comes before the failure.
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

    def _hand_out(self, rollout: InSlot | CopiedOut) -> Batch:
        """Copies a rollout out and frees its slot. Where Ctrl-C ends the copying, the next call begins it anew."""
        try:
            with rollout.taken(self.ledger) as (batch, episodes):
                self.tally.add_batch(batch, episodes, self.newest)
        except BaseException:
            with self._changed:
                self._rollouts.appendleft(rollout)
            raise
        self._grants.owe(1)
        if self.is_complete:
            self._end_trajectories()
        return batch

    def _can_hand_out(self) -> bool:
        return not self._hands_out and (bool(self._rollouts) or self.is_complete)

    def _describe_batch(self) -> str:
        """What a call waits for, and who can end the wait."""
        batch = f"a batch of worker 0 (pid {self._process.pid})"
        waiting = "" if self._landlord is None else self._landlord.describe_pending()
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
            if self._landlord is not None:
                self._landlord.stop_leasing()
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
            steps.callback(self._close_landlord)
            steps.callback(self._discard_rollouts)
            steps.callback(self._process.channel.close)
            steps.callback(self._join_listener)
            steps.callback(self._process.kill)
            self.is_closed = True

    def _join_listener(self) -> None:
        if self._listener is not threading.current_thread() and self._listener.ident is not None:
            self._listener.join(5.0)

    def _discard_rollouts(self) -> None:
        with self._changed:
            self.tally.frames_discarded += sum(rollout.frames for rollout in self._rollouts)
            self._rollouts.clear()
            self._buffers = []

    def _close_landlord(self) -> None:
        if self._landlord is None:
            return
        try:
            self._landlord.end_trajectories()
        except StoreFull as error:
            self._failure = self._failure or error
        finally:
            self._landlord.close()

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
        self._buffers = []
        self._rollouts.clear()

    def abandon(self) -> None:
        """Shut down at once after a failure that is being raised."""
        self._failure_told = True
        self.shutdown(1.0, close_env=True, raise_on_error=False)


def _log_end(failure: BaseException) -> None:
    # As text: a record that is kept must not keep the failure, and with it all that waited for the worker.
    _log.error("collecting has ended: %s", str(failure), exc_info=failure.__cause__)
