"""One worker process, seen from the collector: its start, its messages, and its end."""

from __future__ import annotations

import logging
from collections.abc import Callable
from contextlib import suppress
from dataclasses import asdict
from functools import partial

from headrace.collectors.handle.group_status import GroupStatus
from headrace.collectors.handle.peer import PeerCalls, WorkerPeer
from headrace.collectors.handle.place import WorkerPlace
from headrace.collectors.handle.questions import Questions
from headrace.collectors.handle.rows import WorkerRows
from headrace.collectors.handle.status import WorkerStatus
from headrace.collectors.handle.step_watch import StepWatch
from headrace.collectors.last_step import LastStep
from headrace.collectors.messages import Progress, Ready, Reset, Seed, SetHooks, Start
from headrace.collectors.statistics import WorkerStatistics, WorkerTally
from headrace.errors import DeadlineExceeded, Disconnected, StoreFull
from headrace.leases.frames import LARGEST_PAYLOAD
from headrace.leases.messages import Message
from headrace.leases.selector import PEERS

_log = logging.getLogger(__name__)

_LAST_MESSAGES_SECONDS = 5.0
# The largest payload and other messages may wait for a worker that does not read; with more, it is lost.
_MOST_UNSENT_NBYTES = LARGEST_PAYLOAD + (1 << 26)


class WorkerHandle:
    """Starts a worker, sends it messages, and releases it. It knows nothing of the collector, which can be forgotten.

    Args:
        worker_idx: the worker's number.
        group: the state of all workers, to which the worker's own is added.
        new_place: starts a process for the worker.
        is_collecting: returns whether this handle's worker has begun a rollout that is not complete.
        worker_timeout: see `MultiCollector`.
        progressed: called with this handle and each `Progress` of the worker, in the thread that listens.
        failed: called there with this handle, when its process has reported the exception that ends it.
        ended: called there with this handle and the reason, when the connection to its process has ended.

    Attributes:
        process: of the worker.
        status: whether the worker is well, and how it ended.
        last_step: the time of its newest step, and the number of its transitions.
        peer: takes in the worker's messages.
        questions: to the worker, which wait for their answers.
    """

    def __init__(
        self,
        worker_idx: int,
        group: GroupStatus,
        progressed: Callable[[WorkerHandle, Progress, WorkerRows], None],
        failed: Callable[[WorkerHandle], None],
        ended: Callable[[WorkerHandle, BaseException], None],
        new_place: Callable[[], WorkerPlace],
        is_collecting: Callable[[WorkerHandle], bool],
        worker_timeout: float | None,
    ) -> None:
        self.worker_idx = worker_idx
        self._group = group
        self._progressed, self._failed, self._ended = progressed, failed, ended
        self._new_place = new_place
        self._is_collecting = is_collecting
        self._worker_timeout = worker_timeout
        # Made before the process, since it may fail: no process is left without a handle.
        self.last_step = LastStep.new()
        # Transitions of the process that were reported, or counted as lost.
        self._reported = 0
        self.process = new_place()
        self.status = WorkerStatus(worker_idx, self.process, group.note_worker)
        group.workers.append(self.status)
        self.questions = Questions(group, self.status, self.send)
        self.peer = self._new_peer()
        self._was_ready: Ready | None = None
        # Resets that were asked for; and those before the report that every environment waits, None: some do not.
        self._resets = 0
        self._waits_after: int | None = None

    def _new_peer(self) -> WorkerPeer:
        calls = PeerCalls(
            partial(self._progressed, self),
            self.questions.take,
            partial(self._failed, self),
            partial(self._ended, self),
            self._note_step,
            partial(self._is_collecting, self),
            self._may_step,
        )
        return WorkerPeer(
            self.process,
            self.status,
            self._group,
            calls,
            StepWatch(self.status.__str__, self.last_step),
            self._worker_timeout,
        )

    def _may_step(self) -> bool:
        """Whether the worker is to collect, and waits neither for this process nor for the replay."""
        group, rows = self._group, self.peer.rows
        if rows is None or rows.owes_pages or group.is_closed or group.pause_wanted is not None:
            return False
        return self._is_collecting(self) and not (self.stands_still or self.questions.are_open)

    def __str__(self) -> str:
        return str(self.status)

    def start(self, task: bytes, seed: int | None, restarts: int = 0) -> None:
        """Sends the task, and listens to the worker from here on.

        Args:
            task: cloudpickle of the `Task`.
            seed: of the collector.
            restarts: how often the worker was started before.
        """
        start = Start(worker_idx=self.worker_idx, seed=seed, restarts=restarts)
        peer, last_step = self.peer, self.last_step

        def send_task() -> None:
            with suppress(Disconnected):  # The worker's end is noted by the thread that listens.
                # A process that is stopped, or slow to start, reads later; the wait for it to be ready has a limit.
                peer.channel.send_soon(
                    start,
                    parts=[memoryview(task)],
                    descriptors=(last_step.descriptor,),
                    most=_MOST_UNSENT_NBYTES,
                )
                peer.has_task = True
            last_step.close()
            PEERS.add(peer)

        self.process.begin(send_task, rows_arrived=partial(PEERS.look, peer))

    def renew(self) -> None:
        """Starts another process in place of one that is gone; `start` follows."""
        self._was_ready = self.ready
        self.peer.channel.close()
        self.process = self._new_place()
        self.last_step.release()
        self.last_step = LastStep.new()
        self._reported = 0
        self.status.begin(self.process)
        self.peer = self._new_peer()
        self._resets, self._waits_after = 0, None

    def come_back(self) -> None:
        """Notes that the worker, if it was started again, is ready for rollouts and questions."""
        with self._group.changed:
            self.status.is_restarting = False
            self.questions.send_held()
            self._group.changed.notify_all()

    @property
    def ready(self) -> Ready:
        """Describes the worker, which is ready; while it is started again, as it was before."""
        ready = self.peer.ready or self._was_ready
        assert ready is not None
        return ready

    @property
    def frames(self) -> int:
        """Frames of a rollout without masked rows."""
        return self.ready.steps * self.ready.num_envs

    def send(self, *messages: Message, payload: bytes = b"", descriptors: tuple[int, ...] = ()) -> None:
        """Sends messages to the worker in one piece; does nothing if it is gone."""
        peer = self.peer
        if not peer.has_task:  # The task is the first message to a process.
            return
        # The next call raises the worker's death, after the rollouts that it has completed.
        with suppress(Disconnected):
            parts = [memoryview(payload)] if payload else []
            PEERS.send(peer, *messages, parts=parts, descriptors=descriptors, most=_MOST_UNSENT_NBYTES)

    def answer(self, *messages: Message, descriptors: tuple[int, ...] = ()) -> None:
        """Sends messages of the lease protocol; answers to steps and pages wait for the next `Progress`."""
        if self.peer.takes_pages and not descriptors:
            self.peer.channel.send_later(*messages)
        else:
            self.send(*messages, descriptors=descriptors)

    def send_reset(self, reset: Seed | Reset) -> None:
        """Asks the worker to reset environments before its next step."""
        # Ctrl-C between the two would leave another number here than in the worker, for ever.
        PEERS.submit(partial(self._send_reset, reset)).result()

    def _send_reset(self, reset: Seed | Reset) -> None:
        with self._group.changed:
            if self.peer.has_task:  # Else a new process is about to begin with resets of its own.
                self._resets += 1
                self.send(reset)

    def send_hooks(self, pickled: bytes) -> None:
        """Asks the worker to use these hooks from its next rollout on; does nothing if it is gone."""
        self.send(SetHooks(), payload=pickled)

    def _note_step(self, taken: int) -> None:
        """Notes a step of a worker that shares no memory."""
        self.last_step.note()
        self.last_step.taken = taken

    def note_reported(self, transitions: int) -> None:
        """Notes that this number of transitions has arrived."""
        self._reported += transitions

    def lose_unreported(self) -> int:
        """Returns how many transitions of a process that has ended never arrived. Each counts once.

        An actor tells its number once a second: of one that is killed, the newest ones are unknown.
        """
        # Rules: collectors CX3
        lost = max(0, self.last_step.taken - self._reported)
        self._reported += lost
        return lost

    def note_progress(self, progress: Progress) -> None:
        """Notes whether every environment of the worker waits."""
        self.last_step.note()  # An actor shares no memory: its reports tell of its steps.
        with self._group.changed:
            self._waits_after = progress.resets if progress.all_wait else None

    def note_loaded(self, *, stands_still: bool) -> None:
        """Notes whether every environment of the worker waits in a state that it has loaded."""
        with self._group.changed:
            self._waits_after = self._resets if stands_still else None

    @property
    def stands_still(self) -> bool:
        """Whether every environment of the worker waits, and no reset was asked for since."""
        # Rules: collectors CR7
        return self._waits_after == self._resets

    @property
    def may_begin(self) -> bool:
        """Whether the worker is there, and neither its rows nor items of them wait to go into the replay."""
        rows = self.peer.rows
        return not self.status.is_restarting and rows is not None and not rows.has_pending

    @property
    def is_forwarding(self) -> bool:
        """Whether rows of the worker are on their way to a replay that is elsewhere."""
        rows = self.peer.rows
        return rows is not None and rows.is_forwarding

    def describe_pending(self) -> str:
        """Names the items of its rows that wait for a rate limiter; empty where none do."""
        rows = self.peer.rows
        return "" if rows is None else rows.describe_pending()

    def end_episodes(self) -> None:
        """Gives the open episodes their final rows: the worker has reported its last step."""
        rows = self.peer.rows
        if rows is not None:
            with suppress(
                StoreFull
            ):  # The collected rows are complete; the end of the collector tries again, and raises.
                rows.end_episodes()

    def statistics(self, tally: WorkerTally) -> WorkerStatistics:
        """Returns the present counters of the worker."""
        return WorkerStatistics(
            worker_idx=self.worker_idx,
            pid=self.process.pid,
            alive=self.process.is_alive and not self.status.has_died,
            last_step_age=self.last_step.age,
            last_error=self.status.last_error,
            **asdict(tally),
        )

    # ---- the end ---------------------------------------------------------------------------------------------------

    def stop_leasing(self) -> None:
        """See `WorkerRows.stop_leasing`."""
        if self.peer.rows is not None:
            self.peer.rows.stop_leasing()

    def take_last_messages(self) -> None:
        """Waits until the last messages of the worker, which has ended, are processed."""
        self.peer.channel.shutdown()
        if not PEERS.is_current_thread:
            self.peer.has_ended.wait(_LAST_MESSAGES_SECONDS)

    def disconnect(self) -> None:
        """Closes the connection, and releases the memory of the newest step."""
        try:
            PEERS.remove(self.peer)
        finally:
            self.peer.channel.close()
            self.last_step.release()

    def close_rows(self) -> None:
        """Releases the worker's rows."""
        # The mapping of a private store goes with the last array over it.
        rows, self.peer.rows = self.peer.rows, None
        try:
            if rows is not None:
                rows.close()
        except (StoreFull, DeadlineExceeded, Disconnected) as error:
            self._group.note_unfinished(error)

    def lose_rows(self) -> None:
        """Releases the rows of a process that is gone; another one will have its own."""
        rows, self.peer.rows = self.peer.rows, None
        try:
            if rows is not None:
                rows.close()
        except (StoreFull, DeadlineExceeded, Disconnected) as error:
            _log.warning("%s: the final rows of its open trajectories are missing: %s", self, error)

    def disown(self) -> None:
        """Closes, in a forked child, this process's copies of socket and memory; those of the parent stay open."""
        self.process.disown()
        if self.peer.rows is not None:
            self.peer.rows.disown()
