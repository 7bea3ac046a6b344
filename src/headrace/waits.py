"""One wait of a call: its deadline, warnings in the log, and an error for a wait that cannot end."""

from __future__ import annotations

import contextlib
import logging
import signal
import sys
import threading
from collections.abc import Callable

from headrace.clock import Clock, SystemClock
from headrace.errors import DeadlineExceeded

_LOGGER = logging.getLogger(__name__)

TOLD_AFTER = 10.0
"""Seconds after which a warning of a wait is logged."""
TOLD_AGAIN = 60.0
"""Seconds between further warnings."""
# Seconds. A Ctrl-C between Python's last check for signals and the moment the thread sleeps does not wake it.
_LONGEST_TURN = 0.5
# Turns in which the caller must be the only thread before a wait is refused. A thread that C code or `_thread` has just
# started is not visible before it first runs, which may happen while the caller sleeps.
_TURNS_ALONE = 3


def wait_on(condition: threading.Condition, clock: Clock, left: float | None) -> None:
    """Waits until the condition is notified, or for `left` seconds, but at most half a second: callers wait in a loop.

    Ctrl-C ends it within a second, and the condition's lock, an RLock that is held once, is held again.
    """
    try:
        clock.wait(condition, _LONGEST_TURN if left is None else min(left, _LONGEST_TURN))
    except BaseException:
        hold_again(condition)
        raise


def hold_again(lock: threading.Condition | threading.RLock) -> None:
    """Takes an RLock again after Ctrl-C, which may come while the lock is released and would leave it so."""
    with contextlib.suppress(RuntimeError):
        lock.release()
    lock.acquire()


class Wait:
    """A wait, in turns, for something that another thread brings.

    Args:
        clock: of the deadline.
        timeout: in seconds; None waits without limit, 0 or less does not wait.
        message: text of the error and of warnings for the seconds so far: the caller, the reason, the remedy.
        pending: number of items for `DeadlineExceeded.pending`.

    Attributes:
        turns: number of turns so far.
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
        """Seconds that the wait has lasted."""
        return self._clock.monotonic() - self._begin

    def turn(self, condition: threading.Condition) -> None:
        """Waits for one turn for a change that only another thread of this process can make.

        Args:
            condition: its lock, an RLock, is held once.

        Raises:
            DeadlineExceeded: the time is over; or there is no timeout, and for a second no other thread of this process
                could have ended the wait.
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
        """Waits for one turn for a change that another process may make, too; does not check the deadline."""
        self.turns += 1
        wait_on(condition, self._clock, None if self._timeout is None else self._timeout - self.seconds)

    def look(self, condition: threading.Condition | None) -> bool:
        """Logs a warning if the wait has lasted long.

        Args:
            condition: its lock, an RLock that is held once, is released meanwhile: a log handler has a lock, and a
                thread that holds it may wait for this one. None: no lock is released.

        Returns:
            Whether the lock was released, so that the wait may be over.

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
        try:
            condition.release()
            try:
                _warn(seconds, message)
            finally:
                condition.acquire()
        except BaseException:
            hold_again(condition)
            raise
        return True


def _warn(seconds: float, message: str) -> None:
    _LOGGER.warning("still waiting after %.0f s: %s", seconds, message)


def _is_alone(clock: Clock) -> bool:
    """Whether no other thread of this process runs Python, and nothing can run in the caller's while it waits.

    A signal handler runs in the waiting thread, green threads run in it, and a custom clock may do anything.
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
