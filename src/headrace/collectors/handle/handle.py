"""One worker process, seen from the collector: its start, its messages, and its end."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from functools import partial

from headrace.collectors.handle.group_status import GroupStatus
from headrace.collectors.handle.peer import WorkerPeer
from headrace.collectors.handle.process import WorkerProcess
from headrace.collectors.handle.questions import Questions
from headrace.collectors.handle.rows import WorkerRows
from headrace.collectors.handle.status import WorkerStatus
from headrace.collectors.last_step import LastStep
from headrace.collectors.messages import Progress, Question, Ready, Reset, Seed, SetHooks, Start
from headrace.errors import Disconnected, StoreFull
from headrace.leases.messages import Message
from headrace.leases.selector import PEERS

_LAST_MESSAGES_SECONDS = 5.0


class WorkerHandle:
    """Starts a worker, sends it messages, and releases it. It knows nothing of the collector, which can be forgotten.

    Args:
        worker_idx: the worker's number.
        group: the state of all workers, to which the worker's own is added.
        num_sub_threads: of the libraries in the worker's process.
        progressed: called with this handle and each `Progress` of the worker, in the thread that listens.

    Attributes:
        process: of the worker.
        status: whether the worker is well, and how it ended.
        last_step: the time of its newest step.
        peer: takes in the worker's messages.
        questions: to the worker, which wait for their answers.
    """

    def __init__(
        self,
        worker_idx: int,
        group: GroupStatus,
        progressed: Callable[[WorkerHandle, Progress, WorkerRows], None],
        *,
        num_sub_threads: int,
    ) -> None:
        self.worker_idx = worker_idx
        self._group = group
        self.process = WorkerProcess(num_sub_threads)
        self.status = WorkerStatus(worker_idx, self.process)
        group.workers.append(self.status)
        self.last_step = LastStep.new()
        self.questions = Questions(group, str(self.status), self._send_question)
        self.peer = WorkerPeer(
            self.process, self.status, group, partial(progressed, self), self.questions.take
        )

        # Resets that were asked for; and those before the report that every environment waits, None: some do not.
        self._resets = 0
        self._waits_after: int | None = None

    def __str__(self) -> str:
        return str(self.status)

    def start(self, task: bytes, seed: int | None) -> None:
        """Sends the task, and listens to the worker from here on.

        Args:
            task: cloudpickle of the `Task`.
            seed: of the collector.
        """
        with suppress(Disconnected):  # The worker's end is noted by the thread that listens.
            start = Start(worker_idx=self.worker_idx, seed=seed)
            self.peer.channel.send(start, payload=task, descriptors=(self.last_step.descriptor,))
        self.last_step.close()
        PEERS.add(self.peer)

    @property
    def ready(self) -> Ready:
        """Describes the worker, which is ready."""
        assert self.peer.ready is not None
        return self.peer.ready

    @property
    def frames(self) -> int:
        """Frames of a rollout without masked rows."""
        return self.ready.steps * self.ready.num_envs

    def send(self, *messages: Message, descriptors: tuple[int, ...] = ()) -> None:
        """Sends messages to the worker in one piece; does nothing if it is gone."""
        # The next call raises the worker's death, after the rollouts that it has completed.
        with suppress(Disconnected):
            PEERS.send(self.peer, *messages, descriptors=descriptors)

    def send_reset(self, reset: Seed | Reset) -> None:
        """Asks the worker to reset environments before its next step."""
        with self._group.changed:
            self._resets += 1
            self.send(reset)

    def send_hooks(self, pickled: bytes) -> None:
        """Asks the worker to use these hooks from its next rollout on; does nothing if it is gone."""
        with suppress(Disconnected):
            PEERS.send(self.peer, SetHooks(), payload=pickled)

    def note_progress(self, progress: Progress) -> None:
        """Notes whether every environment of the worker waits."""
        with self._group.changed:
            self._waits_after = progress.resets if progress.all_wait else None

    @property
    def stands_still(self) -> bool:
        """Whether every environment of the worker waits, and no reset was asked for since."""
        # Rules: collectors CR7
        return self._waits_after == self._resets

    def _send_question(self, question: Question, payload: bytes) -> None:
        with suppress(Disconnected):  # The wait for the answer raises the worker's death.
            PEERS.send(self.peer, question, payload=payload)

    @property
    def has_pending(self) -> bool:
        """Whether items of its rows wait for a rate limiter."""
        rows = self.peer.rows
        return rows is not None and rows.has_pending

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
        except StoreFull as error:
            self._group.note_unfinished(error)

    def disown(self) -> None:
        """Closes, in a forked child, this process's copies of socket and memory; those of the parent stay open."""
        self.process.disown()
        if self.peer.rows is not None:
            self.peer.rows.disown()
