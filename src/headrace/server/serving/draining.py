"""The end of a server's connections: requests that have arrived are answered first."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable

from headrace.leases.selector import PeerSelector
from headrace.server.serving.connection import ServedConnection

# A client that sent nothing for this long has sent everything that it had to send.
_QUIET_SECONDS = 0.01
# A client that never stops sending is not waited for any longer.
_BUSY_SECONDS = 0.5


class Draining:
    """Says goodbye to each client when its requests are answered. Calls that wait are refused at once.

    Args:
        selector: of the server.
        clients: returns the connections that are open.
        reason: for the clients.
    """

    def __init__(
        self, selector: PeerSelector, clients: Callable[[], Iterable[ServedConnection]], reason: str
    ) -> None:
        self._selector = selector
        self._clients = clients
        self._reason = reason
        self._received: dict[ServedConnection, int] = {}
        self._busy_until = 0.0
        self._done = threading.Event()

    def run(self, seconds: float) -> None:
        """Returns when every client has been told, `seconds` from now at the latest."""
        self._busy_until = time.monotonic() + min(seconds, _BUSY_SECONDS)
        self._selector.call_soon(self._refuse_waiting)
        if not self._done.wait(seconds):
            self._selector.call_soon(self._say_goodbye_to_all)
            self._done.wait(_BUSY_SECONDS)

    # ---- in the thread of the selector -----------------------------------------------------------------------------

    def _refuse_waiting(self) -> None:
        for each in self._clients():
            each.refuse_waiting(self._reason)
        self._look()

    def _look(self) -> None:
        now = time.monotonic()
        is_over, left = now >= self._busy_until, False
        for each in self._clients():
            before, self._received[each] = self._received.get(each), each.channel.bytes_in
            is_at_work = before != each.channel.bytes_in or each.is_packing
            if each.is_saving or (is_at_work and not is_over):
                left = True
            else:
                each.say_goodbye(self._reason)
        if left:
            self._selector.call_at(now + _QUIET_SECONDS, self._look)
        else:
            self._done.set()

    def _say_goodbye_to_all(self) -> None:
        for each in self._clients():
            each.say_goodbye(self._reason)
        self._done.set()
