"""Waits of the threads of this process: each blocks on a ticket."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Protocol

from headrace.clock import Clock
from headrace.tables.pending import Pending
from headrace.tables.ticket import Ticket
from headrace.waits import Wait


class Waitable(Protocol):
    """A `LiveTable`, whose batches are waited for, or the `Pending` items of a writer."""

    def ask(self, wanted: int, call: Callable[[Ticket], None], *, thread: int) -> Ticket:
        """Makes a ticket of a thread."""

    def is_turn_of(self, ticket: Ticket) -> bool:
        """Returns whether the ticket can be served now; raises its failure."""

    def leave_of(self, thread: int) -> None:
        """Takes the ticket of a thread back, if there is one."""

    def waiting_message(self, wanted: int, seconds: float) -> str:
        """Returns who waits for what and what could end it."""


@contextmanager
def turn(
    of: Waitable,
    wanted: int,
    *,
    lock: threading.RLock,
    clock: Clock,
    timeout: float | None,
    pending: Callable[[], int] = lambda: 0,
) -> Iterator[None]:
    """Sleeps until the caller's turn has come, then runs the block with the lock held. The lock is held once on entry.

    Args:
        of: gives the ticket.
        wanted: see `Ticket.wanted`.
        lock: of the replay.
        clock: of the replay.
        timeout: in seconds; None waits for ever, 0 and less do not wait.
        pending: see `Wait`.

    Raises:
        DeadlineExceeded: not within `timeout` seconds, or never (`Wait.turn`); nothing was taken.
        Exception: the failure of the ticket.
    """
    # A bare one is right: no `with` statement takes it, and `waits` takes the lock again after Ctrl-C.
    condition = threading.Condition(lock)
    wait = Wait(clock, timeout, lambda seconds: of.waiting_message(wanted, seconds), pending)
    me = threading.get_ident()
    try:  # Ctrl-C may end `ask` when the ticket is there already (tests/replay/test_interrupts.py).
        ticket = of.ask(wanted, lambda _: condition.notify(), thread=me)
        while not of.is_turn_of(ticket):
            wait.turn(condition)
        yield
    finally:
        of.leave_of(me)


def wait_until_pending(
    pending: Pending, most: int, lock: threading.RLock, clock: Clock, timeout: float | None
) -> None:
    """Returns when at most `most` items of a writer are pending.

    Raises:
        DeadlineExceeded: more are pending after `timeout` seconds; they stay pending.
        RuntimeError: a table failed to insert them.
    """
    with lock:
        if pending.count > most:
            with turn(pending, most, lock=lock, clock=clock, timeout=timeout, pending=lambda: pending.count):
                pass
