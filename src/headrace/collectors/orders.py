"""What a collector has told its worker, and the worker's waits for more of it."""

from __future__ import annotations

import os
import threading
import time
from collections import deque
from collections.abc import Callable
from typing import Any

import cloudpickle

from headrace.collectors.channel import Channel, Lease, Pause, Proceed, Resume, Seed, Stop, WeightsAt
from headrace.errors import Disconnected
from headrace.weights import SharedMemoryReceiver

# An orphan is to be gone two seconds after the collector's process, also in the middle of a step.
_GRACE_SECONDS = 1.0
_LOOK_SECONDS = 0.5


class Ending(Exception):
    """It is time to end."""


class Orders:
    """What the collector has said, taken in by a thread of its own.

    Attributes:
        free_slots: one entry for each rollout that may be begun.
        seed: reset everything with it before the next step; None: nothing to do.
        pause: the number of the pause that is wanted; None: go on.
        stop: the collector's last word.
        weights: where new weights are to be found.
    """

    def __init__(self, channel: Channel) -> None:
        self._channel = channel
        self._changed = threading.Condition()
        self._row_pages: deque[int] = deque()
        self._final_pages: deque[int] = deque()
        self.free_slots: deque[int] = deque()
        self.seed: Seed | None = None
        self.pause: int | None = None
        self.stop: Stop | None = None
        self.weights: SharedMemoryReceiver | None = None
        self._orphaned = False

    def listen(self) -> None:
        """Take in messages until the collector is gone."""
        try:
            while True:
                message, descriptors = self._channel.receive()
                with self._changed:
                    self._take(message, descriptors)
                    self._changed.notify_all()
        except Disconnected:
            with self._changed:
                self._orphaned = True
                self._changed.notify_all()
            # The main thread stops before its next step; a step that hangs must not keep an orphan alive.
            time.sleep(_GRACE_SECONDS)
            os._exit(1)

    def watch(self, parent: int) -> None:
        """End the connection when the collector's process is gone, whoever else has inherited its end of it."""
        while os.getppid() == parent:
            time.sleep(_LOOK_SECONDS)
        self._channel.shutdown()

    def _take(self, message: Any, descriptors: list[int]) -> None:
        match message:
            case Proceed(slot=slot):
                self.free_slots.append(slot)
            case Lease(page=page, finals=finals):
                (self._final_pages if finals else self._row_pages).append(page)
            case WeightsAt(layout=layout):
                self.weights = SharedMemoryReceiver.from_fd(descriptors[0], cloudpickle.loads(layout))
            case Seed():
                self.seed = message
            case Pause(number=number):
                self.pause = number
            case Resume():
                self.pause = None
            case Stop():
                self.stop = message

    @property
    def ends(self) -> bool:
        """Whether there is nothing more to do."""
        return self.stop is not None or self._orphaned

    def wait_until(self, there: Callable[[], bool]) -> bool:
        """Wait for something; False when it is time to end instead."""
        with self._changed:
            while not there() and not self.ends:
                self._changed.wait()
        return not self.ends

    def next_page(self, finals: bool) -> int | None:
        """The next leased page, of final rows or of others; None where a pause comes first.

        Raises:
            Ending: it is time to end instead.
        """
        pages = self._final_pages if finals else self._row_pages
        if not self.wait_until(lambda: bool(pages) or self.pause is not None) and not pages:
            raise Ending
        return pages.popleft() if pages else None
