"""A wait as a value: the batch wanted, the deadline, and the function to call. It costs no thread.

A thread of this process sleeps until its ticket calls it; a server answers its client in the call. The tables serve the
tickets and know of neither. The replay's lock is held throughout.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass

from headrace.errors import DeadlineExceeded


@dataclass(eq=False)
class Ticket:
    """One wait.

    Attributes:
        wanted: samples of a table, or how many items of a writer may still be pending.
        call: called with the ticket, once: when it can be served, or when `failure` is set. It may be served
            in the call, and must not raise. An owner that comes later looks first (`is_turn_of`); if the gate
            has closed since, the ticket waits on and is called again.
        since: when the wait began, in seconds.
        deadline: when `TicketQueue.expire` ends it; None: never.
        thread: the thread that sleeps meanwhile, which has no other ticket; None: none does.
        is_called: whether it can be served.
        failure: why it will never be served.
    """

    wanted: int
    call: Callable[[Ticket], None]
    since: float
    deadline: float | None = None
    thread: int | None = None
    is_called: bool = False
    failure: BaseException | None = None


class TicketQueue:
    """Tickets in the order in which they came. One that is called stays until it leaves.

    Args:
        now: returns the time in seconds.

    Attributes:
        queue: the tickets; only to be looked at. A look costs an append nothing, where a call would take 5 % of it.
        seconds: how long the tickets that left had waited, summed.
    """

    def __init__(self, now: Callable[[], float]) -> None:
        self._now = now
        self.queue: deque[Ticket] = deque()
        self._is_calling = False
        self.seconds = 0.0

    def __len__(self) -> int:
        return len(self.queue)

    @property
    def longest(self) -> float:
        """Seconds for which the first has waited; 0 if there is none."""
        return self._now() - self.queue[0].since if self.queue else 0.0

    def append(
        self,
        wanted: int,
        call: Callable[[Ticket], None],
        deadline: float | None = None,
        thread: int | None = None,
    ) -> Ticket:
        """Makes a ticket behind the others."""
        if self.queue and thread is not None:
            self.leave_of(thread)  # Ctrl-C has ended its last wait before it could take that one back.
        ticket = Ticket(wanted, call, self._now(), deadline, thread)
        self.queue.append(ticket)
        return ticket

    def is_first(self, ticket: Ticket) -> bool:
        """Returns whether the ticket is there and none came before it."""
        return bool(self.queue) and self.queue[0] is ticket

    def leave(self, ticket: Ticket) -> None:
        """Takes a ticket out, if it is there."""
        if ticket in self.queue:
            self.queue.remove(ticket)
            self.seconds += self._now() - ticket.since

    def leave_of(self, thread: int) -> None:
        """Takes out the ticket of a thread, if there is one."""
        for ticket in tuple(self.queue):
            if ticket.thread == thread:
                self.leave(ticket)

    def clear(self) -> None:
        """Forgets all tickets and calls none."""
        self.queue.clear()

    # ---- serving ---------------------------------------------------------------------------------------------------

    def call_in_order(self, may_go: Callable[[int], bool]) -> None:
        """Calls the first ticket if it may go, and each next one when the one before it has left.

        Args:
            may_go: whether the number that a ticket wants can be had. If it raises, the ticket fails with its error.
        """
        if self._is_calling:
            return  # A ticket is served in its call: the loop below looks at the next one afterwards.
        self._is_calling = True
        try:
            while self.queue and not self.queue[0].is_called:
                if not self._call(self.queue[0], may_go):
                    break
        finally:
            self._is_calling = False

    def call_all(self, may_go: Callable[[int], bool]) -> None:
        """Calls every ticket that may go; see `call_in_order`."""
        for ticket in tuple(self.queue):
            if not ticket.is_called:
                self._call(ticket, may_go)

    def _call(self, ticket: Ticket, may_go: Callable[[int], bool]) -> bool:
        """Returns whether the ticket was called."""
        try:
            ticket.is_called = may_go(ticket.wanted)
        except Exception as error:
            self.fail(error, ticket)
            return True
        if ticket.is_called:
            ticket.call(ticket)
        return ticket.is_called

    # ---- failing ---------------------------------------------------------------------------------------------------

    def fail(self, failure: BaseException, ticket: Ticket) -> None:
        """Ends a ticket."""
        self.leave(ticket)
        ticket.failure = failure
        ticket.call(ticket)

    def fail_all(self, failure_of: Callable[[Ticket], BaseException | None]) -> None:
        """Ends the tickets for which `failure_of` returns an error."""
        for ticket in tuple(self.queue):
            failure = failure_of(ticket)
            if failure is not None:
                self.fail(failure, ticket)

    def expire(self, message: Callable[[Ticket, float], str]) -> float | None:
        """Ends the tickets whose deadline has come with `DeadlineExceeded`.

        Args:
            message: of the error, given the ticket and the seconds that it has waited.

        Returns:
            The next deadline; None if there is none.
        """
        now = self._now()

        def expired(ticket: Ticket) -> BaseException | None:
            if ticket.deadline is None or now < ticket.deadline:
                return None
            return DeadlineExceeded(message(ticket, now - ticket.since))

        self.fail_all(expired)
        return min((ticket.deadline for ticket in self.queue if ticket.deadline is not None), default=None)
