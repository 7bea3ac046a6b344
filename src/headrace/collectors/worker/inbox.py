"""Messages of a collector to its worker, and the worker's waits for them."""

from __future__ import annotations

import os
import select
import time
from collections import deque
from collections.abc import Callable

from headrace.collectors.messages import (
    Pause,
    Preempt,
    Proceed,
    Question,
    Reset,
    Resume,
    RowsAt,
    Seed,
    SetHooks,
    Stop,
    WeightsAt,
)
from headrace.collectors.worker.asked_resets import AskedResets
from headrace.errors import Disconnected
from headrace.kernels.readiness import is_readable
from headrace.leases.channel import Channel
from headrace.leases.frames import Frame, Payload
from headrace.leases.messages import Ack, Lease
from headrace.leases.writing.page_writer import Purpose

# An orphan is to be gone two seconds after the collector's process, also in the middle of a step.
_GRACE_SECONDS = 1.0
_LOOK_SECONDS = 0.5


class Ending(Exception):
    """The collector has said stop, or is gone."""


class Loaded(Exception):
    """A state was loaded: the rollout under way is dropped."""


class WorkerInbox:
    """Messages of the collector. The main thread receives them: before each step, and where it waits.

    Attributes:
        interrupts: whether a message must be processed before the next step.
        rollouts: one message for each rollout that may be begun.
        is_preempted: whether the next step of the rollout that was asked for last is its last one.
        rows: the next place to write rows, with the descriptor of its arena; None: the present one.
        acked: the sequence number of the newest commit that is part of the store.
        resets: to be done before the next step.
        hooks: pickled hooks to be used from the next rollout on; None: the present ones.
        questions: with their payloads, the oldest first.
        pause: the number of the pause that is asked for; None: go on.
        stop: the collector's last message.
        weights: the memory with new weights, and its descriptor; None: no other than before.
    """

    def __init__(self, channel: Channel) -> None:
        self._channel = channel
        self._descriptor = channel.fileno()
        self._arrived = select.poll()
        self._arrived.register(channel.fileno(), select.POLLIN)
        self._pages: dict[Purpose, deque[int]] = {"rows": deque(), "finals": deque()}
        self.interrupts = False
        self.rollouts: deque[Proceed] = deque()
        self.is_preempted = False
        self.acked = 0
        self.rows: tuple[RowsAt, int] | None = None
        self.resets = AskedResets()
        self.hooks: Payload | None = None
        self.questions: deque[tuple[Question, Payload]] = deque()
        self.pause: int | None = None
        self.stop: Stop | None = None
        self.weights: tuple[WeightsAt, int] | None = None
        self._orphaned = False

    def look(self) -> None:
        """Takes in the messages that have arrived, if there are any."""
        # One call of the system: a thread that receives would interrupt the steps for longer.
        if is_readable(self._descriptor):
            self.take_arrived()

    def watch(self, parent: int) -> None:
        """Ends this process when the collector's is gone, even if another one has inherited its end of the connection.

        The main thread stops before its next step; a step that hangs must not keep an orphan alive.
        """
        self.wait_until_orphaned(lambda: os.getppid() == parent)
        time.sleep(_GRACE_SECONDS)
        os._exit(1)

    def wait_until_orphaned(self, has_parent: Callable[[], bool]) -> None:
        """Waits until the collector is gone, and lets the main thread stop before its next step.

        Args:
            has_parent: called twice a second; whether the collector's process is there, as far as is known.
        """
        ended = select.poll()
        ended.register(self._channel.fileno(), select.POLLRDHUP)
        while has_parent() and not ended.poll(_LOOK_SECONDS * 1000):
            pass
        self._channel.shutdown()

    def take_arrived(self) -> None:
        """Takes in the messages that have arrived; without any, it takes longer than `look`."""
        try:
            for frame in self._channel.receive_ready():
                self._take(frame)
        except Disconnected:
            self._orphaned = self.interrupts = True

    def _take(self, frame: Frame) -> None:
        match frame.message:
            case Proceed() as proceed:
                self.rollouts.append(proceed)
                self.is_preempted = False  # It was meant for the rollout before, which was complete already.
            case Preempt():
                self.is_preempted = True
            case RowsAt() as rows:
                self.rows = rows, frame.descriptors[0]
                self.acked = 0
                for pages in self._pages.values():
                    pages.clear()
            case Lease(page=page, purpose=purpose):
                self._pages[purpose].append(page)
            case Ack(sequence=sequence):
                self.acked = sequence
            case WeightsAt() as weights:
                self.weights = weights, frame.descriptors[0]
            case Seed() | Reset() as reset:
                self.resets.add(reset)
                self.interrupts = True
            case SetHooks():
                self.hooks = frame.payload
            case Question() as question:
                self.questions.append((question, frame.payload))
                self.interrupts = True
            case Pause(number=number):
                self.pause = number
                self.interrupts = True
            case Resume():
                self.pause = None
            case Stop() as stop:
                self.stop = stop
                self.interrupts = True

    @property
    def ends(self) -> bool:
        """Whether the worker is to end."""
        return self.stop is not None or self._orphaned

    def wait_for(self, there: Callable[[], bool]) -> None:
        """Waits until `there` returns True.

        Raises:
            Ending: it is time to end instead.
        """
        self.take_arrived()
        while not there() and not self.ends:
            self._arrived.poll()
            self.take_arrived()
        if self.ends:
            raise Ending

    @property
    def has_page(self) -> bool:
        """Whether a page for rows has come."""
        return bool(self._pages["rows"])

    def next_page(self, purpose: Purpose) -> int | None:
        """Returns the next leased page; None if a pause or a question comes first.

        Raises:
            Ending: it is time to end instead.
        """
        pages = self._pages[purpose]
        if not pages:
            self.wait_for(lambda: bool(pages) or self.pause is not None or bool(self.questions))
        return pages.popleft() if pages else None
