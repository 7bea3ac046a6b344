"""Deadlines of waiting samples: one timer of the selector for each table."""

from __future__ import annotations

import time

from headrace.leases.selector import PeerSelector
from headrace.replay.local import LocalReplay
from headrace.tables.live_table import LiveTable

# A clock that does not go on, in a test, must not keep the thread busy.
_LEAST_SECONDS = 0.01


class TableDeadlines:
    """Ends the waits of tables whose deadline has come. Used in the thread of the selector.

    Args:
        selector: calls when a deadline has come.
    """

    def __init__(self, selector: PeerSelector) -> None:
        self._selector = selector
        self._armed: dict[LiveTable, float] = {}

    def arm(self, replay: LocalReplay, live: LiveTable, deadline: float) -> None:
        """Notes a deadline of a ticket of a table.

        Args:
            replay: of the table.
            live: the table.
            deadline: on the replay's clock.
        """
        armed = self._armed.get(live)
        if armed is not None and armed <= deadline:
            return
        self._armed[live] = deadline
        left = max(deadline - replay.clock.monotonic(), 0.0)
        self._selector.call_at(time.monotonic() + left, lambda: self._expire(replay, live, deadline))

    def _expire(self, replay: LocalReplay, live: LiveTable, deadline: float) -> None:
        if self._armed.get(live) != deadline:
            return  # An earlier one was armed since, and will arm the next.
        del self._armed[live]
        with replay.lock:
            following = live.expire_tickets()
        if following is not None:
            self.arm(replay, live, max(following, replay.clock.monotonic() + _LEAST_SECONDS))
