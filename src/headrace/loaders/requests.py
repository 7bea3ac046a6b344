"""Calls that wait for a batch, turns of drawing that ended without one, and the seconds of the next turn."""

from __future__ import annotations

import math

from headrace.clock import Clock
from headrace.errors import DeadlineExceeded
from headrace.waits import Wait

TURN = 0.25
"""Seconds of one turn of drawing.

A draw that waits for data waits in short turns, because nothing but its timeout ends a wait in `sample`; closing,
saving a state and forking wait for the end of the turn. A turn that ends takes nothing.
"""
# Seconds that a learner whose time is over still waits for the draw in progress, to report the table's reason.
_GRACE = 1.0


class Request:
    """A call that waits for a batch.

    Args:
        timeout: of the call; None: it waits as long as it takes.
        deadline: the time of the clock at which its own time is over.
        refusals: `Requests.refusals` when the call began.
        wait: notices Ctrl-C, and warns of a long wait. It has no end of its own: a learner whose time is over waits for
            the reason of the draw in progress.
    """

    __slots__ = ("deadline", "refusals", "timeout", "wait")

    def __init__(self, timeout: float | None, deadline: float, refusals: int, wait: Wait) -> None:
        self.timeout = timeout
        self.deadline = deadline
        self.refusals = refusals
        self.wait = wait


class Requests:
    """The calls that wait. The lock of the stream is held, except for reads of `refusals` and `are_open`.

    Args:
        clock: for deadlines.

    Attributes:
        refusals: number of turns that ended without a batch.

    >>> from headrace.testing import FakeClock
    >>> clock = FakeClock()
    >>> requests = Requests(clock)
    >>> request = requests.new(0.1, clock.monotonic() + 0.1, requests.refusals)
    >>> requests.begin(request)
    >>> requests.turn()
    0.1
    >>> clock.advance(0.1)
    >>> requests.refuse(DeadlineExceeded("the table is empty"))
    >>> requests.time_left(request)
    Traceback (most recent call last):
    headrace.errors.DeadlineExceeded: no batch within 0.1 s: the table is empty
    """

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._open: set[Request] = set()
        self.refusals = 0
        self._refused_at = -math.inf
        self._refusal: DeadlineExceeded | None = None

    @property
    def are_open(self) -> bool:
        """Whether a call waits."""
        return bool(self._open)

    def new(self, timeout: float | None, deadline: float, refusals: int) -> Request:
        """Returns a call, which `begin` adds; the arguments are those of `Request`."""
        return Request(timeout, deadline, refusals, Wait(self._clock, None, self._late_message))

    def begin(self, request: Request) -> None:
        """Adds a call."""
        self._open.add(request)

    def end(self, request: Request) -> None:
        """Removes a call."""
        self._open.discard(request)

    def refuse(self, refusal: DeadlineExceeded) -> None:
        """Records that a turn of drawing has ended without a batch."""
        self.refusals += 1
        self._refused_at = self._clock.monotonic()
        self._refusal = refusal.with_traceback(None)

    def turn(self) -> float:
        """Returns the seconds of the next turn: at most the remaining time of the waiting calls."""
        now = self._clock.monotonic()
        times = [request.deadline - now for request in self._open if not self._was_refused(request)]
        return max(0.0, min([TURN, *times]))

    def time_left(self, request: Request) -> float | None:
        """Returns the seconds that a call may still wait; None: any.

        Raises:
            DeadlineExceeded: its time is over, and the reason is known or has not come within a second.
        """
        timeout = request.timeout
        if timeout is None:
            return None
        left = request.deadline - self._clock.monotonic()
        if left > 0:
            return left
        if self._was_refused(request):
            raise DeadlineExceeded(f"no batch within {timeout:g} s: {self._refusal}") from self._refusal
        if left <= -_GRACE:
            raise DeadlineExceeded(f"no batch within {timeout:g} s: `sample` has not returned yet")
        return left + _GRACE

    def _was_refused(self, request: Request) -> bool:
        """Whether a turn of drawing ended without a batch since this call began."""
        return self.refusals > request.refusals and self._refused_at >= request.deadline

    def _late_message(self, seconds: float) -> str:
        return f"no batch within {seconds:.3g} s: {self._refusal or '`sample` has not returned yet'}"
