"""One worker process, seen from the collector: its start, its pauses, and its end."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import ExitStack, suppress
from typing import Any

import cloudpickle

from headrace.collectors.batches.episode_numbering import EpisodeNumbering
from headrace.collectors.batches.view_columns import ViewColumns
from headrace.collectors.handle.admission import Admission
from headrace.collectors.handle.finished import FinishedRollouts
from headrace.collectors.handle.peer import WorkerPeer
from headrace.collectors.handle.process import WorkerProcess
from headrace.collectors.handle.questions import ANSWER_SECONDS, Questions
from headrace.collectors.handle.rows import ReplayRows, WorkerRows
from headrace.collectors.handle.status import WorkerStatus
from headrace.collectors.messages import Pause, Proceed, Question, Ready, Resume, Start, Stop
from headrace.collectors.options import CollectorOptions
from headrace.collectors.statistics import CollectorStatistics, Tally, WorkerStatistics
from headrace.errors import Disconnected, StoreFull
from headrace.forking import ForkFollowers
from headrace.leases.messages import Message
from headrace.leases.selector import PEERS
from headrace.replay.public import core_of

# Rollouts that a worker may be ahead of the learner.
_ROLLOUTS_AHEAD = 2
_LAST_MESSAGES_SECONDS = 5.0
_HANDLES = ForkFollowers()


class WorkerHandle:
    """Starts a worker, asks it to collect, and ends it. It knows nothing of the collector, which can be forgotten.

    Args:
        options: of the collector.

    Attributes:
        status: whether the worker can be used, and how it ended.
        tally: of the collector.
        rollouts: the complete rollouts that wait for the learner.
        peer: takes in the worker's messages.
    """

    def __init__(self, options: CollectorOptions) -> None:
        self._options = options
        self._replay = None if options.replay_buffer is None else core_of(options.replay_buffer)
        self.tally = Tally(options.total_frames)
        self._process = WorkerProcess()
        self.status = WorkerStatus(self._process)
        self.rollouts = FinishedRollouts(self.status, self.tally, self._describe_batch, self._rollout_done)
        self._questions = Questions(self.status, self._send_question)
        self.peer = WorkerPeer(
            self._process, self.status, self.tally, self.rollouts, self._rollout_done, self._questions.take
        )
        _HANDLES.add(self)

    # ---- starting --------------------------------------------------------------------------------------------------

    def launch(self, task: bytes, timeout: float) -> Ready:
        """Sends the task and waits until the worker is ready.

        Raises:
            Exception: raised by building the environment or the policy.
            DeadlineExceeded: the worker was not ready in time.
        """
        peer = self.peer
        with suppress(Disconnected):  # The worker's end is noted by the thread that listens.
            peer.channel.send(Start(), payload=task)
        PEERS.add(peer)
        self.status.wait(lambda: peer.ready is not None, timeout, f"{self.status} to be ready")
        ready = peer.ready
        assert ready is not None
        self._admission = Admission(
            self.tally,
            ready.steps * ready.num_envs,
            self._options.total_frames,
            lambda: peer.rows is not None and peer.rows.has_pending,
            lambda _: self._send_quietly(Proceed()),
        )
        peer.rows = self._new_rows(ready)
        peer.rows.open(ready.signature)
        return ready

    def _new_rows(self, ready: Ready) -> WorkerRows:
        numbering = EpisodeNumbering(ready.num_envs)
        views = ViewColumns(cloudpickle.loads(ready.views), ready.num_envs)
        if self._replay is None:
            return WorkerRows(ready, numbering, views, self._send_quietly)
        return ReplayRows(
            ready,
            numbering,
            views,
            self._send_quietly,
            self._replay,
            self._options.rules(),
            self._admission.settle,
            lambda: self.peer.is_running,
        )

    def begin(self, *, running: bool) -> None:
        """Begins to collect, freely or for iteration, unless it has begun."""
        with self.status.changed:
            if self.peer.is_running or self.peer.is_iterating:
                return
            self.peer.is_running, self.peer.is_iterating = running, not running
        self._admission.owe(_ROLLOUTS_AHEAD)

    def send(self, message: Message, descriptors: tuple[int, ...] = (), payload: bytes = b"") -> None:
        """Sends a message to the worker.

        Raises:
            WorkerDied: it is gone.
        """
        try:
            PEERS.send(self.peer, message, payload=payload, descriptors=descriptors)
        except Disconnected:
            self.status.wait(lambda: False, None, f"the end of {self.status}")

    def _send_question(self, question: Question, payload: bytes) -> None:
        self.send(question, payload=payload)

    def _send_quietly(self, *messages: Message, descriptors: tuple[int, ...] = ()) -> None:
        # The next call raises the worker's death, after the rollouts that it has completed.
        with suppress(Disconnected):
            PEERS.send(self.peer, *messages, descriptors=descriptors)

    def _rollout_done(self) -> None:
        """Handles a rollout that was handed out or, free-running, written."""
        self._admission.owe(1)
        rows = self.peer.rows
        if self.tally.is_complete() and rows is not None:
            # The worker has reported its last step: the open episodes get their final rows.
            with suppress(StoreFull):  # The collected rows are complete; `shutdown` tries again, and raises.
                rows.end_episodes()

    # ---- waits and pauses ----------------------------------------------------------------------------------------

    def _describe_batch(self) -> str:
        """Describes a wait: its reason, and the event that can end it."""
        rows = self.peer.rows
        waiting = "" if rows is None else rows.describe_pending()
        if not waiting:
            return f"a batch of {self.status}"
        return (
            f"a batch of {self.status}, which may begin no further rollout while items of earlier ones wait: "
            f"{waiting}. Sample from there in another thread, or raise the bound of the rate limiter"
        )

    def ask(self, path: str, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
        """Calls a method of the worker's own collector, between two of its steps; see `Questions`.

        Raises:
            Exception: raised by the call; DeadlineExceeded: no answer within 30 s; WorkerDied, Closed.
        """
        questions = self._questions
        return questions.answer(questions.pose(path, args, kwargs), path, ANSWER_SECONDS)

    @property
    def is_paused(self) -> bool:
        """Whether the worker stands still between two steps for a pause."""
        return self.peer.paused_at is not None

    def pause(self, number: int, timeout: float) -> None:
        """Asks the worker to pause. Waits until it stands still and all its steps are committed."""
        with self.status.changed:
            self.peer.pause_wanted = number
        self.send(Pause(number=number))
        event = f"{self.status} to pause; a step of its environment or policy takes long"
        self.status.wait(lambda: self.peer.paused_at == number, timeout, event)

    def resume(self) -> None:
        """Lets the worker go on. In a forked child, which may leave `pause` too, it does nothing."""
        if self.status.home.is_elsewhere:
            return
        with self.status.changed:
            self.peer.pause_wanted = self.peer.paused_at = None
        self._send_quietly(Resume())

    def statistics(self) -> CollectorStatistics:
        """Returns the present counters.

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
            restarts=0,
            policy_version=-1,
            last_error=self.status.last_error,
        )
        return self.tally.record(running=self.peer.is_running, paused=self.is_paused, worker=worker)

    @property
    def pid(self) -> int:
        """The worker's process id."""
        return self._process.pid

    # ---- ending ----------------------------------------------------------------------------------------------------

    def shutdown(self, timeout: float, *, close_env: bool, raise_on_error: bool) -> None:
        """Ends the worker and releases everything. Further calls do nothing, as does a call in a forked child.

        Raises:
            WorkerDied: the worker was killed, or failed and no call raised that. Everything is released before.
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
            if self.peer.rows is not None:
                self.peer.rows.stop_leasing()
            self._send_quietly(Stop(close_env=close_env))
            in_order = self._process.end(timeout)
        finally:
            if is_first:
                self._release()
        self.status.report(in_order=in_order, raise_on_error=raise_on_error)

    def _close(self) -> None:
        self.status.is_closed = True
        self.peer.is_running = False
        self.status.changed.notify_all()

    def _release(self) -> None:
        """Kills the worker if it still runs, and releases everything."""
        # Each step runs also where Ctrl-C ends another one. The last one comes first.
        with ExitStack() as steps:
            steps.callback(self._close_rows)
            steps.callback(self.rollouts.discard)
            steps.callback(self.peer.channel.close)
            steps.callback(PEERS.remove, self.peer)
            steps.callback(self._take_last_messages)
            steps.callback(self._process.kill)
            self.status.is_closed = True

    def _take_last_messages(self) -> None:
        """Waits until the last messages of the worker are processed."""
        self.peer.channel.shutdown()
        if not PEERS.is_current_thread:
            self.peer.has_ended.wait(_LAST_MESSAGES_SECONDS)

    def _close_rows(self) -> None:
        # The mapping of a private store goes with the last array over it.
        rows, self.peer.rows = self.peer.rows, None
        try:
            if rows is not None:
                rows.close()
        except StoreFull as error:
            self.status.note_unfinished(error)

    def abandon(self) -> None:
        """Shuts down at once, because another error is being raised."""
        self.status.ignore_failure()
        self.shutdown(1.0, close_env=True, raise_on_error=False)

    # ---- forks -----------------------------------------------------------------------------------------------------

    def before_fork(self) -> None:
        """Does nothing: the child uses no worker."""

    def after_fork_in_parent(self) -> None:
        """Does nothing."""

    def after_fork_in_child(self) -> None:
        """Closes this process's copies of socket and memory; those of the parent stay open."""
        self._process.disown()
        if self.peer.rows is not None:
            self.peer.rows.disown()
        self.rollouts.forget()
