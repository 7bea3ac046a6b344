"""Items that the server has made for a writer."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from typing import NamedTuple

from headrace.replay.intake.later_made import LaterMade
from headrace.replay.intake.writer_like import Made
from headrace.server.messages.writing import WriterState


class _Taker(NamedTuple):
    """Items that were asked for: of the operations up to a number, after those of the taker before."""

    until: int
    made: LaterMade


class MadeItems:
    """Gives the items of each operation to whoever asked for them, as the server tells.

    >>> items = MadeItems()
    >>> made = items.take(1, 0, lambda made: None)
    >>> items.add(WriterState(writer=0, sequence=1, pending=0, room=0, finals=0, completes=False, made=[(1, 0, 7, 2)]))
    >>> made
    [(0, range(7, 9))]
    """

    def __init__(self) -> None:
        # Keys that nobody has asked for yet.
        self._left: list[Made] = []
        self._takers: deque[_Taker] = deque()

    def add(self, state: WriterState) -> None:
        """Notes a report of the server."""
        takers = self._takers
        for sequence, rule, first, count in state.made:
            self._complete(sequence - 1)
            items = takers[0].made.found if takers else self._left
            items.append((rule, range(first, first + count)))
        self._complete(state.sequence)

    def _complete(self, sequence: int) -> None:
        while self._takers and self._takers[0].until <= sequence:
            self._takers.popleft().made.is_known = True

    def take(self, until: int, told: int, wait: Callable[[LaterMade], None]) -> Sequence[Made]:
        """Returns the items of all operations up to `until` that were not taken yet.

        Args:
            until: number of the last operation so far.
            told: number of the last operation of which the server has told.
            wait: see `LaterMade`.
        """
        left, self._left = self._left, []
        if told >= until:
            return left
        made = LaterMade(wait)
        made.found = left
        self._takers.append(_Taker(until, made))
        return made
