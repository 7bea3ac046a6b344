"""Samples that wait for a table: a batch that the rate limiter does not admit becomes a ticket."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from headrace.errors import Closed
from headrace.tables.description.table import Table
from headrace.tables.gated_ring import GatedRing
from headrace.tables.insert_queue import InsertQueue
from headrace.tables.item_ring import ItemRing
from headrace.tables.ticket import Ticket, TicketQueue


class SampleQueue(GatedRing):
    """A `GatedRing` with queues of the inserts and of the samples that its rate limiter does not admit yet.

    Args:
        table, ring, counts: see `GatedRing`.
        now: returns the time in seconds.

    Attributes:
        failure: the error with which every wait to sample ends; None: there is none.
    """

    def __init__(
        self, table: Table, ring: ItemRing, now: Callable[[], float], counts: Mapping[str, int] | None = None
    ) -> None:
        super().__init__(table, ring, counts)
        self._pending = InsertQueue(table.name, ring, self._insertable, now)
        self._tickets = TicketQueue(now)
        self._waiting = self._tickets.queue
        self.failure: BaseException | None = None

    def can_sample(self, n: int) -> bool:
        """Returns whether a batch of n would be served now, behind those that wait."""
        # Rules: replay L7
        return not self._waiting and self._admits(n)

    @property
    def has_waiting(self) -> bool:
        """Whether a sample waits that cannot be served now; one that was called is about to be drawn."""
        return bool(self._waiting) and not self._waiting[0].is_called

    def ask(
        self,
        n: int,
        call: Callable[[Ticket], None],
        deadline: float | None = None,
        thread: int | None = None,
    ) -> Ticket:
        """Makes a ticket for a batch of n, behind those that wait already.

        Args:
            n: samples of one batch.
            call: see `Ticket.call`. It is called before this returns if the batch can be served now or never. It may
                draw in the call, and then leaves (`leave`).
            deadline: see `expire_tickets`.
            thread: see `Ticket.thread`.
        """
        # Rules: replay L10, L11
        ticket = self._tickets.append(n, call, deadline, thread)
        self._call_tickets()
        if not ticket.is_called and ticket.failure is None:
            failure = self._failure_of(ticket)
            if failure is not None:
                self._tickets.fail(failure, ticket)
        return ticket

    def is_turn_of(self, ticket: Ticket) -> bool:
        """Returns whether the ticket's batch can be drawn now; it waits on if the gate has closed since the call.

        Raises:
            Exception: the ticket's failure.
        """
        if ticket.failure is None:
            ticket.is_called = self._tickets.is_first(ticket) and self._admits(ticket.wanted)
            if ticket.is_called:
                return True
        failure = ticket.failure or self._failure_of(ticket)
        if failure is not None:
            raise failure
        return False

    def leave(self, ticket: Ticket) -> None:
        """Takes back a ticket, whose batch was drawn or is no longer wanted."""
        self._tickets.leave(ticket)
        if self._waiting:
            self._call_tickets()

    def leave_of(self, thread: int) -> None:
        """Takes back the ticket of a thread, if there is one; see `leave`."""
        self._tickets.leave_of(thread)
        if self._waiting:
            self._call_tickets()

    def expire_tickets(self) -> float | None:
        """Ends the tickets whose deadline has come with `DeadlineExceeded`; returns the next deadline."""
        next_deadline = self._tickets.expire(
            lambda ticket, seconds: self.waiting_message(ticket.wanted, seconds)
        )
        self._call_tickets()
        return next_deadline

    def _call_tickets(self) -> None:
        self._tickets.call_in_order(self._may_go)

    def _may_go(self, n: int) -> bool:
        self.ring.check()
        if self._admits(n):
            return True
        # A batch that could be served when it was asked for, before earlier ones were drawn.
        self._refuse_impossible(n)
        return False

    def forget_tickets(self) -> None:
        """Drops all tickets in a forked child, which has none of the threads that wait."""
        self._tickets.clear()

    def fail(self, failure: BaseException) -> None:
        """Ends every wait to sample with this error, now and later.

        Unless it is `Closed`, batches that can be drawn are still drawn.
        """
        self.failure = failure
        is_closed = isinstance(failure, Closed)
        self._tickets.fail_all(
            lambda ticket: self._failure_of(ticket) if is_closed or not ticket.is_called else None
        )

    def _fail_impossible(self) -> None:
        """Ends the tickets that cannot be served under the present settings, now and later."""
        self._tickets.fail_all(
            lambda ticket: None if self._admits(ticket.wanted) else self._failure_of(ticket)
        )

    def _failure_of(self, ticket: Ticket) -> BaseException | None:
        """Returns the reason for which the ticket cannot be served, now and later; None if it can."""
        try:
            self.ring.check()
            self._refuse_impossible(ticket.wanted)
        except Exception as error:
            return error
        if isinstance(self.failure, Closed):
            return Closed(str(self.failure))
        return self.failure

    def waiting_message(self, n: int, seconds: float) -> str:
        """Returns the message of a wait for n samples that has lasted `seconds`."""
        return (
            f"table {self.name!r}: a sample of {n} waited {round(seconds, 3):.3g} s: size {len(self.ring)}, "
            f"inserts {self.inserts}, samples {self.samples}, deletes {self.deletes}, "
            f"{self._pending.count} inserts pending ({self.limiter}). Insert more, ask for less, or wait longer"
        )
