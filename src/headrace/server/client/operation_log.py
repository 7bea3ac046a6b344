"""The operations of a writer that the server has not confirmed: in flight, or to be sent again."""

from __future__ import annotations

from collections import deque
from typing import NamedTuple

from headrace.leases.frames import Payload
from headrace.server.messages.writing import Operation


class Use(NamedTuple):
    """Upper bounds of what an operation takes at the server.

    Attributes:
        steps: vector steps.
        finals: final rows beside the lanes.
        items: items that it makes.
    """

    steps: int = 0
    finals: int = 0
    items: int = 0


NO_USE = Use()


class Logged(NamedTuple):
    """An operation with its payload."""

    operation: Operation
    payload: Payload
    use: Use


class OperationLog:
    """Operations in their order, and the sum of what those take that are in flight.

    Attributes:
        flying: operations that the server has not reported to be applied.
        steps, finals, items, nbytes: sums over these.

    >>> from headrace.server.messages.writing import Report
    >>> log = OperationLog()
    >>> log.add(Report(writer=0, sequence=1), b"", Use(steps=3))
    >>> log.confirm(1)
    >>> len(log.flying), log.steps
    (0, 0)
    """

    def __init__(self) -> None:
        self.flying: deque[Logged] = deque()
        self.steps = self.finals = self.items = self.nbytes = 0

    def add(self, operation: Operation, payload: Payload, use: Use) -> None:
        """Adds the newest operation."""
        self.flying.append(Logged(operation, payload, use))
        self.steps += use.steps
        self.finals += use.finals
        self.items += use.items
        self.nbytes += len(payload)

    def confirm(self, sequence: int) -> None:
        """Notes that the operations up to this one are applied."""
        while self.flying and self.flying[0].operation.sequence <= sequence:
            _, payload, use = self.flying.popleft()
            self.steps -= use.steps
            self.finals -= use.finals
            self.items -= use.items
            self.nbytes -= len(payload)
