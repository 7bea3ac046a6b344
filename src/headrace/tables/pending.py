"""Items of a writer that wait for a table to take them."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from headrace.tables.ticket import Ticket, TicketQueue


def pending_message(by_table: Mapping[str, int], seconds: float, *, lacks_memory: bool) -> str:
    """Returns the message of a wait for items of a writer.

    Args:
        by_table: number of items that wait for each table.
        seconds: for which the wait has lasted.
        lacks_memory: whether they wait for memory or disk space.
    """
    waiting = ", ".join(f"{count} for table {name!r}" for name, count in by_table.items() if count)
    remedy = "sample from the table, raise its rate limiter's bound, or wait longer"
    if lacks_memory:
        remedy = "there is no memory or disk space for them: free some, or let items leave, and flush again"
    return (
        f"{sum(by_table.values())} items of this writer are still pending after {seconds:.3g} s: {waiting}. They stay "
        f"queued; {remedy}"
    )


class Pending:
    """Counts of a writer's pending items in all tables, and the tickets of calls that wait for them.

    Args:
        now: returns the time in seconds.

    Attributes:
        count: number of items that wait.
        by_table: number of items that wait for each table.
        refused: number of items that will never be inserted, since the replay was closed.
        without_memory: the tables that found no memory or disk space for these items at the last attempt.
        failures: by table, the error of a selector or rate limiter of the user's own at the last attempt to insert.
    """

    def __init__(self, now: Callable[[], float]) -> None:
        self.count = 0
        self.by_table: dict[str, int] = {}
        self.refused = 0
        self.without_memory: set[str] = set()
        self.failures: dict[str, BaseException] = {}
        self._tickets = TicketQueue(now)

    def ask(
        self,
        most: int,
        call: Callable[[Ticket], None],
        deadline: float | None = None,
        thread: int | None = None,
    ) -> Ticket:
        """Makes a ticket that waits until at most `most` items are pending; see `LiveTable.ask`."""
        ticket = self._tickets.append(most, call, deadline, thread)
        if self.failures and self.count > most:
            self._tickets.fail_all(lambda each: self.failure if each is ticket else None)
        self.left()
        return ticket

    def is_turn_of(self, ticket: Ticket) -> bool:
        """Returns whether at most as many items are pending as the ticket wants.

        Raises:
            RuntimeError: a table failed to insert items of this writer.
        """
        ticket.is_called = self.count <= ticket.wanted
        if not ticket.is_called and ticket.failure is not None:
            raise ticket.failure
        return ticket.is_called

    def leave(self, ticket: Ticket) -> None:
        """Takes back a ticket that is no longer wanted."""
        self._tickets.leave(ticket)

    def leave_of(self, thread: int) -> None:
        """Takes back the ticket of a thread, if there is one."""
        self._tickets.leave_of(thread)

    def waiting_message(self, _most: int, seconds: float) -> str:
        """Returns the message of a wait for these items that has lasted `seconds`."""
        return pending_message(self.by_table, seconds, lacks_memory=bool(self.without_memory))

    def left(self) -> None:
        """Calls the tickets that can be served with the present number of pending items."""
        if self._tickets:
            self._tickets.call_all(lambda most: self.count <= most)

    def fail(self, table: str, failure: BaseException) -> None:
        """Notes why the items cannot be inserted, and ends the tickets."""
        self.failures[table] = failure
        self._tickets.fail_all(lambda _: self.failure)

    @property
    def failure(self) -> RuntimeError | None:
        """The error of a table that failed to insert items; None: there is none."""
        for table, failure in self.failures.items():
            error = RuntimeError(
                f"table {table!r} failed while it took in items of this writer, {self.by_table.get(table, 0)} of which "
                f"are still pending: {failure!r}. `reset` empties the table and lets them in"
            )
            error.__cause__ = failure
            return error
        return None

    def raise_failure(self) -> None:
        """Raises `RuntimeError` if a table failed to insert items."""
        failure = self.failure
        if failure is not None:
            raise failure
