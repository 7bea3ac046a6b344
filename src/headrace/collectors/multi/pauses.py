"""Pauses of workers: all stand still between two steps, and what they have collected is stored."""

# Rules: collectors CF6

from __future__ import annotations

import itertools
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from headrace.collectors.handle.group_status import GroupStatus
from headrace.collectors.handle.handle import WorkerHandle
from headrace.collectors.messages import Pause, Resume
from headrace.conditions import SignalSafeCondition
from headrace.errors import DeadlineExceeded
from headrace.leases.selector import PEERS

# In place of a thread's identifier.
ANY_THREAD = 0


class Pauses:
    """Lets workers stand still and go on.

    Args:
        status: of the workers.
        handles: of the workers; they may come later.
    """

    def __init__(self, status: GroupStatus, handles: Sequence[WorkerHandle]) -> None:
        self._status = status
        self._handles = handles
        self._numbers = itertools.count()
        # The thread that pauses workers or lets them go on.
        self._turns, self._turn_of = SignalSafeCondition(), ANY_THREAD
        # Of the `pause` that is under way; None: there is none.
        self._pause: object | None = None

    @contextmanager
    def pause(self, timeout: float) -> Iterator[None]:
        """Pauses a free run for the time of a `with` block, at a user's request.

        Args:
            timeout: in seconds, for the pause to begin.

        Raises:
            RuntimeError: the workers do not run freely, or are paused already.
            DeadlineExceeded: a step did not end in time.
        """
        own = object()
        try:
            with self._status.changed:
                if not self._status.is_running or self._pause is not None:
                    raise RuntimeError("pause: expected a collector that runs freely and is not paused")
                self._pause = own
            with self.alone(timeout):
                self.begin(timeout)
            yield
        finally:
            if self._pause is own:
                self._end_pause(timeout)

    def _end_pause(self, timeout: float) -> None:
        try:
            with self.alone(timeout):  # A state that another thread takes needs them still.
                self.end()
        except BaseException:
            self.end()
            raise
        finally:
            self._pause = None

    @contextmanager
    def alone(self, timeout: float) -> Iterator[None]:
        """Keeps other threads, for the time of a `with` block, from pausing workers or letting them go on.

        Raises:
            DeadlineExceeded: another thread does so for longer than `timeout` seconds.
        """
        if self._status.home.is_elsewhere:  # A lock that a thread of the parent held is never released here.
            yield
            return
        try:
            with self._turns:
                if not self._turns.wait_for(self._may_take_turn, max(0.0, timeout)):
                    raise DeadlineExceeded(
                        f"waited {timeout:.3g} s for another thread that saves or loads the state, or pauses the "
                        "workers"
                    )
                self._turn_of = threading.get_ident()
            yield
        finally:
            with self._turns:
                if self._turn_of == threading.get_ident():
                    self._turn_of = ANY_THREAD
                    self._turns.notify()

    def _may_take_turn(self) -> bool:
        # Ctrl-C may have ended this thread's own block before it could give its turn back.
        return self._turn_of in (ANY_THREAD, threading.get_ident())

    def end_forgotten(self) -> None:
        """Lets workers go on that stand still for a call of this thread, if Ctrl-C ended it before they could.

        Called while the workers do not run freely: then nothing else lets them stand still for longer than a call.
        """
        if self._status.pause_wanted is not None and self._may_take_turn():
            self.end()

    def begin(self, timeout: float) -> None:
        """Asks the workers to pause. Waits until they stand still and all their steps are committed."""
        number = next(self._numbers)
        with self._status.changed:
            self._status.pause_wanted = number
            self._status.changed.notify_all()
        for handle in self._handles:
            handle.send(Pause(number=number))
        event = "to pause; a step of its environment or policy takes long"
        self._status.wait_for_none(lambda: self._stepping(number), timeout, event)

    def end(self) -> None:
        """Lets the workers go on. In a forked child, which may leave `pause` too, it does nothing."""
        if not self._status.home.is_elsewhere:
            PEERS.submit(self._end).result()

    def _end(self) -> None:
        """Does what `end` says; the thread that listens to the workers calls it."""
        with self._status.changed:
            self._status.pause_wanted = None
            for handle in self._handles:
                handle.peer.paused_at = None
        for handle in self._handles:
            handle.send(Resume())

    @property
    def are_complete(self) -> bool:
        """Whether all workers stand still between two steps for a pause."""
        number = self._status.pause_wanted
        return number is not None and not self._stepping(number)

    def _stepping(self, number: int) -> list[WorkerHandle]:
        return [
            handle
            for handle in self._handles
            if handle.status.delays_pause
            or handle.is_forwarding
            or (handle.peer.paused_at != number and not handle.status.is_restarting)
        ]
