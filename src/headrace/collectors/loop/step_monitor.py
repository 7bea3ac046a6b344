"""The end of a worker's step: time and transitions are noted, and now and then the worker looks for messages."""

# Rules: collectors CQ1, CT, CX3, CX5

from __future__ import annotations

import time
from typing import Any

import cython

if cython.compiled:
    from cython.cimports.headrace.kernels.readiness import is_readable
else:
    from headrace.kernels.kinds import Int
    from headrace.kernels.readiness import is_readable

# To ask the system after every step of a quick environment takes as long as to record the step.
_LOOK_SECONDS = 200e-6


class StepMonitor:
    """Notes the time of each step where the collector reads it, and looks for messages once in 200 us.

    Compiled, because it is called after every step: in Python, the note and the look take 0.7 to 1.0 us beside frames
    that drive the interpreter out of the caches. A look is a call of the system; with one in 50 us the two took 0.5 us.

    Args:
        descriptor: of the connection to the collector.
        newest: float64[2], memory that takes the time of the newest step by `time.monotonic`, and the number of
            transitions.

    Attributes:
        has_arrived: whether messages had arrived at the end of the newest step, as far as it has looked.

    >>> import socket
    >>> from array import array
    >>> here, there = socket.socketpair()
    >>> newest = array("d", [0.0, 0.0])
    >>> monitor = StepMonitor(here.fileno(), memoryview(newest))
    >>> before, _ = monitor.step_taken(8), there.send(b"x")
    >>> time.sleep(1e-3)
    >>> before, monitor.step_taken(16), 0 <= time.monotonic() - newest[0] < 60, newest[1], monitor.has_arrived
    (False, True, True, 16.0, True)
    >>> here.close(), there.close()
    (None, None)
    """

    def __init__(self, descriptor: int, newest: Any) -> None:
        self._descriptor = descriptor
        self._newest = newest
        self._looked = 0.0
        self.has_arrived = False

    def step_taken(self, transitions: Int) -> bool:
        """Notes that a step was taken now; returns `has_arrived`.

        Args:
            transitions: their number since the worker was started.
        """
        now = time.monotonic()
        self._newest[0] = now
        self._newest[1] = transitions
        self.has_arrived = False
        if now - self._looked >= _LOOK_SECONDS:
            self._looked = now
            self.has_arrived = bool(is_readable(self._descriptor))
        return self.has_arrived
