"""Bounds of the page's connections: they take descriptors of the training process, which needs its own."""

from __future__ import annotations

import asyncio
from typing import Any

from uvicorn.protocols.http.h11_impl import H11Protocol

MOST_CONNECTIONS = 128
"""Connections of the page at a time; a further one is closed at once."""
SILENT_SECONDS = 15.0
"""Seconds after which a connection ends that has neither completed a request nor taken any part of an answer."""


class BoundedConnection(H11Protocol):
    """A connection of the page, within the bounds above. Visitors without a token can make one."""

    _check: asyncio.TimerHandle | None = None
    # The request and the bytes left to send at the last check.
    _seen: tuple[Any, int] = (None, 0)

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Closes the connection if there are too many."""
        super().connection_made(transport)
        if len(self.connections) > MOST_CONNECTIONS:
            transport.abort()
        else:
            self._check_later()

    def connection_lost(self, exc: Exception | None) -> None:
        """Ends the checks."""
        if self._check is not None:
            self._check.cancel()
        super().connection_lost(exc)

    def _check_later(self) -> None:
        self._check = self.loop.call_later(SILENT_SECONDS, self._end_if_silent)

    def _end_if_silent(self) -> None:
        # None before the first request, against its annotation.
        request: Any = self.cycle
        left = self.transport.get_write_buffer_size()
        is_answered = request is None or request.response_complete or left > 0
        if is_answered and (request, left) == self._seen:
            self.transport.abort()
            return
        self._seen = request, left
        self._check_later()
