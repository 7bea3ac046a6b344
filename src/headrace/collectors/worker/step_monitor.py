"""The end of a worker's step: its time is noted, and now and then the worker looks for messages."""

# Rules: collectors CQ1, CT, CX5

from __future__ import annotations

import time
from typing import Any

import cython

if cython.compiled:
    from cython.cimports.headrace.kernels.readiness import is_readable
else:
    from headrace.kernels.readiness import is_readable

# To ask the system after every step of a quick environment takes as long as to record the step.
_LOOK_SECONDS = 50e-6


class StepMonitor:
    """Notes the time of each step where the collector reads it, and looks for messages once in 50 us.

    Compiled, because it is called after every step: in Python, the note and the look take 0.7 to 1.0 us beside frames
    that drive the interpreter out of the caches.

    Args:
        descriptor: of the connection to the collector.
        newest: float64[1], memory that takes the time of the newest step by `time.monotonic`.

    >>> import socket
    >>> from array import array
    >>> here, there = socket.socketpair()
    >>> newest = array("d", [0.0])
    >>> monitor = StepMonitor(here.fileno(), memoryview(newest))
    >>> before, _ = monitor.step_taken(), there.send(b"x")
    >>> time.sleep(1e-4)
    >>> before, monitor.step_taken(), 0 <= time.monotonic() - newest[0] < 60
    (False, True, True)
    >>> here.close(), there.close()
    (None, None)
    """

    def __init__(self, descriptor: int, newest: Any) -> None:
        self._descriptor = descriptor
        self._newest = newest
        self._looked = 0.0

    def step_taken(self) -> bool:
        """Notes that a step was taken now; returns whether messages have arrived, as far as it has looked."""
        now = time.monotonic()
        self._newest[0] = now
        if now - self._looked < _LOOK_SECONDS:
            return False
        self._looked = now
        return bool(is_readable(self._descriptor))
