"""Turns of threads that use the loop of this process: one collects, and others come between two of its steps."""

# Rules: collectors CB10, CQ1, CQ7

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from headrace.clock import SYSTEM_CLOCK
from headrace.conditions import SignalSafeCondition
from headrace.errors import Closed
from headrace.waits import Wait

# For which a call that ends by an exception waits for a visitor.
_LAST_SECONDS = 0.25


class StepTurns:
    """Gives the loop to one thread at a time. The one that collects a batch gives way to visitors between two steps.

    Attributes:
        is_asked: whether visitors wait; the thread that collects reads it before each step.
        is_closed: whether nobody may use the loop any more.

    >>> turns = StepTurns()
    >>> with turns.collect(None, "next"), turns.visit(1.0, "state_dict"):  # In the thread that collects: in its step.
    ...     turns.is_in_step
    True
    """

    def __init__(self) -> None:
        self._changed = SignalSafeCondition()
        # Threads by number: the one that collects, and whether it stands between two steps; the visitor, and the number
        # of its nested visits.
        self._collector: int | None = None
        self._stands = False
        self._visitor: int | None = None
        self._visits = self._waiting = 0
        self.is_asked = self.is_closed = False

    @property
    def is_in_step(self) -> bool:
        """Whether the caller is the thread that collects: it was called by its policy, an environment or a hook."""
        return self._collector == threading.get_ident()

    @contextmanager
    def collect(self, timeout: float | None, caller: str) -> Iterator[None]:
        """Waits until no other thread uses the loop, and takes steps for the time of a `with` block.

        Args:
            timeout: seconds; None waits for ever.
            caller: the name of the public method, for messages.

        Raises:
            DeadlineExceeded: another thread collects for longer.
            Closed: after `close`.
        """
        me = threading.get_ident()
        is_mine = False
        try:
            with self._changed:
                self._wait(
                    lambda: self.is_closed or (self._collector is None and self._visitor in (None, me)),
                    timeout,
                    lambda seconds: (
                        f"{caller}: waited {seconds:g} s for another thread that collects a batch"
                    ),
                )
                self._check_open()
                self._collector, self._stands, is_mine = me, False, True
            yield
        finally:
            if is_mine:
                with self._changed:
                    self._collector = None
                    self._changed.notify_all()

    def give_way(self) -> None:
        """Stands between two steps of the caller, which collects, until the visitors that wait now are gone.

        Raises:
            Closed: one of them has closed the collector.
        """
        with self._changed:
            if self._visitor == self._collector:  # A visitor that collects: it was called by itself.
                return
            self._stands = True
            self._changed.notify_all()
            try:
                self._wait(lambda: self.is_closed or not (self._waiting or self._visitor), None, _of_visitors)
                self._check_open()
            finally:
                # Ctrl-C has ended the wait, or a visitor closes the collector.
                self._changed.wait_for(lambda: self._visitor is None, _LAST_SECONDS)
                self._stands = False

    @contextmanager
    def visit(self, timeout: float, caller: str) -> Iterator[None]:
        """Waits until the loop stands between two steps, and keeps it there for the time of a `with` block.

        In the thread that collects it does not wait: the caller is in a step.

        Args:
            timeout: seconds.
            caller: the name of the public method, for messages.

        Raises:
            DeadlineExceeded: a step, or another visitor, takes longer.
        """
        me = threading.get_ident()
        if self._collector == me:
            yield
            return
        is_mine = False
        try:
            with self._changed:
                if self._visitor != me:
                    self._enter(me, timeout, caller)
                self._visits, is_mine = self._visits + 1, True
            yield
        finally:
            if is_mine:
                with self._changed:
                    self._visits -= 1
                    if not self._visits:
                        self._visitor = None
                    self._changed.notify_all()

    def _enter(self, me: int, timeout: float, caller: str) -> None:
        self._waiting, self.is_asked = self._waiting + 1, True
        try:
            self._wait(
                lambda: self._visitor is None and (self._collector is None or self._stands),
                timeout,
                lambda seconds: (
                    f"{caller}: waited {seconds:g} s for the end of a step; its environment or policy takes long"
                ),
            )
            self._visitor = me
        finally:
            self._waiting -= 1
            self.is_asked = self._waiting > 0
            self._changed.notify_all()

    def close(self) -> bool:
        """Ends all waits and the batch under way with `Closed`; called by a visitor. Returns False if it was closed."""
        with self._changed:
            was_closed, self.is_closed = self.is_closed, True
            self._changed.notify_all()
        return not was_closed

    def _wait(
        self, there: Callable[[], bool], timeout: float | None, message: Callable[[float], str]
    ) -> None:
        if not there():
            wait = Wait(SYSTEM_CLOCK, timeout, message)
            while not there():
                if not wait.look(self._changed):
                    wait.turn_on(self._changed)

    def _check_open(self) -> None:
        if self.is_closed:
            raise Closed("the collector is shut down")


def _of_visitors(seconds: float) -> str:
    return f"next: waited {seconds:g} s between two steps for another thread that uses the collector"
