"""The views that a server knows over one connection."""

from __future__ import annotations

import threading
from collections.abc import Callable, Hashable
from typing import Any, TypeVar

from headrace.server.messages.requests import GetItems, Sample

_MOST_VIEWS = 256

Sent = TypeVar("Sent")


class KnownViews:
    """Numbers of views, each described to the server by the first request that has it. Thread-safe."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._numbers: dict[Hashable, int] = {}

    def send(
        self,
        request: Sample | GetItems,
        views: Hashable,
        describe: Callable[[], dict[str, Any]],
        send: Callable[[], Sent],
    ) -> Sent:
        """Sends a request with the number of its views.

        Args:
            request: whose `views` it sets, and `described` if the server does not know them.
            views: a key that stands for the views.
            describe: returns their description.
            send: sends the request without waiting for its answer.

        Returns:
            The result of `send`.
        """
        # No request of another thread with these views may overtake the one that describes them.
        with self._lock:
            number = self._numbers.get(views)
            if number is not None:
                request.views = number
                return send()
            request.described = describe()
            if len(self._numbers) >= _MOST_VIEWS:
                self._numbers.clear()
            request.views = len(self._numbers)
            sent = send()
            # Now: after an interruption the next views take this number, and are described.
            self._numbers[views] = request.views
            return sent
