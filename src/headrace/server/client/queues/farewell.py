"""At the end of a process: samples that are on their way get a moment to arrive, and those that do not are told."""

from __future__ import annotations

import atexit
import logging
import os
import sys
import time
import weakref
from typing import Protocol

from headrace.errors import Closed, DeadlineExceeded, Disconnected

# Seconds for all streams together.
_LONGEST_FAREWELL = 1.0
_LOGGER = logging.getLogger(__name__)


class Sending(Protocol):
    """A stream of samples."""

    @property
    def owes_samples(self) -> bool:
        """Whether samples are not confirmed, and no call has told that they were refused."""

    def wait(self, timeout: float | None) -> None:
        """Returns when all samples are in the queue."""


class Farewell:
    """The open streams of this process. A forked child begins without: those of its parent are not its own."""

    def __init__(self) -> None:
        self._begin()

    def _begin(self) -> None:
        self._pid = os.getpid()
        self._streams: weakref.WeakSet[Sending] = weakref.WeakSet()
        # Workers of multiprocessing end without the functions of atexit, and begin with none of its own.
        util = sys.modules.get("multiprocessing.util")
        if util is not None:
            util.Finalize(None, self.say, exitpriority=0)

    def add(self, stream: Sending) -> None:
        """Notes a stream, from its first sample on."""
        if self._pid != os.getpid():
            self._begin()
        self._streams.add(stream)

    def discard(self, stream: Sending) -> None:
        """Forgets a stream that is closed."""
        self._streams.discard(stream)

    def say(self) -> None:
        """Waits a moment for samples on their way; logs how many are lost."""
        if self._pid != os.getpid():
            return
        end = time.monotonic() + _LONGEST_FAREWELL
        for stream in list(self._streams):
            try:
                if stream.owes_samples:
                    stream.wait(max(0.0, end - time.monotonic()))
            except (DeadlineExceeded, Disconnected, Closed) as error:
                _LOGGER.warning(
                    "the process ends, and its samples that are not confirmed are lost; call wait() of the queue or "
                    "close() of the client before: %s",
                    error,
                )


FAREWELL = Farewell()
atexit.register(FAREWELL.say)
