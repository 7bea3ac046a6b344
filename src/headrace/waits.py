"""One wait of a call: its deadline, what the log is told of it when it lasts, and whether anything could end it."""

from __future__ import annotations

import contextlib
import logging
import signal
import sys
import threading
from collections.abc import Callable, Iterator

from headrace.clock import Clock, SystemClock
from headrace.errors import DeadlineExceeded

_LOGGER = logging.getLogger(__name__)

TOLD_AFTER = 10.0
"""Seconds after which a wait is logged as a warning."""
TOLD_AGAIN = 60.0
"""Seconds between further warnings."""
# Seconds. A Ctrl-C between Python's last look for signals and the moment the thread sleeps does not wake it.
_LONGEST_TURN = 0.5
# Turns in which the caller has to be the only thread before a wait is refused. A thread that C code or `_thread` has
# just started cannot be seen before it runs for the first time, which it can do while the caller sleeps.
_TURNS_ALONE = 3


def wait_on(condition: threading.Condition, clock: Clock, left: float | None) -> None:
    """Wait until the condition is notified, `left` seconds are over, or a moment has passed: then look, and wait again.

    Ctrl-C ends it within a second, and the condition's lock, an RLock that is held once, is held again.
    """
    with _held_after_errors(condition):
        clock.wait(condition, _LONGEST_TURN if left is None else min(left, _LONGEST_TURN))


@contextlib.contextmanager
def _held_after_errors(condition: threading.Condition) -> Iterator[None]:
    """Takes the lock again after Ctrl-C, which may come where the lock was given up and would stay so."""
    try:
        yield
    except BaseException:
        with contextlib.suppress(RuntimeError):
            condition.release()
        condition.acquire()
        raise


class Wait:
    """A wait, in turns, for something that another thread brings.

    Args:
        clock: tells the time.
        timeout: in seconds; None waits for ever, 0 and less not at all.
        message: who waits for what and what could end it, given the seconds so far: of the error and of warnings.
        pending: what the error says of items (`DeadlineExceeded.pending`).

    Attributes:
        turns: how many there were.
    """

    def __init__(
        self,
        clock: Clock,
        timeout: float | None,
        message: Callable[[float], str],
        pending: Callable[[], int] = lambda: 0,
    ) -> None:
        self._clock = clock
        self._timeout = timeout
        self._message = message
        self._pending = pending
        self._begin = clock.monotonic()
        self._told_at = TOLD_AFTER
        self._turns_alone = 0
        self.turns = 0

    @property
    def seconds(self) -> float:
        """How long it has lasted."""
        return self._clock.monotonic() - self._begin

    def turn(self, condition: threading.Condition) -> None:
        """Wait for one turn for what only another thread of this process can bring.

        Args:
            condition: its lock, an RLock, is held once.

        Raises:
            DeadlineExceeded: the time is over; or there is no timeout, and for a second there has been no other thread
                in this process that could end the wait.
        """
        if self.look(condition):
            return
        if self._timeout is None:
            self._refuse_if_alone()
        self.turn_on(condition)

    def _refuse_if_alone(self) -> None:
        if not _is_alone(self._clock):
            self._turns_alone = 0
            return
        self._turns_alone += 1
        if self._turns_alone == _TURNS_ALONE:
            raise DeadlineExceeded(
                f"{self._message(round(self.seconds, 3))}. Waiting longer cannot help: this is the only thread of the "
                "process, and there is no timeout",
                pending=self._pending(),
            )

    def turn_on(self, condition: threading.Condition) -> None:
        """Wait for one turn for what may come from anywhere, another process included; without a look at the time."""
        self.turns += 1
        wait_on(condition, self._clock, None if self._timeout is None else self._timeout - self.seconds)

    def look(self, condition: threading.Condition | None) -> bool:
        """Warns if the wait has lasted long.

        Args:
            condition: its lock, an RLock that is held once, is given up meanwhile: a handler of the log has a lock of
                its own, and a thread that holds that one may wait for this one. None: no lock is given up.

        Returns:
            Whether the lock was given up, so that the wait may be over.

        Raises:
            DeadlineExceeded: the time is over.
        """
        seconds = self.seconds
        if self._timeout is not None and seconds >= self._timeout:
            raise DeadlineExceeded(self._message(round(seconds, 3)), pending=self._pending())
        if seconds < self._told_at:
            return False
        self._told_at = seconds + TOLD_AGAIN
        message = self._message(seconds)
        if condition is None:
            _warn(seconds, message)
            return False
        with _held_after_errors(condition):
            condition.release()
            try:
                _warn(seconds, message)
            finally:
                condition.acquire()
        return True


def _warn(seconds: float, message: str) -> None:
    _LOGGER.warning("still waiting after %.0f s: %s", seconds, message)


def _is_alone(clock: Clock) -> bool:
    """Whether no other thread of this process runs Python, and nothing can run in the caller's while it waits.

    A handler of signals runs in the thread that waits, libraries of green threads run others in it, and a clock that is
    not the system's may do anything.
    """
    return (
        threading.active_count() == 1
        and len(sys._current_frames()) == 1
        and type(clock) is SystemClock
        and not any(name in sys.modules for name in ("gevent", "eventlet"))
        and not any(_handles(number) for number in signal.valid_signals())
    )


def _handles(number: int) -> bool:
    handler = signal.getsignal(number)
    # None: a handler that is not Python's.
    return handler is None or (callable(handler) and handler is not signal.default_int_handler)
