"""A stream of batches from a server, with several requests on their way."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Mapping
from contextlib import suppress
from typing import NamedTuple

from headrace.errors import Closed, DeadlineExceeded, Disconnected
from headrace.replay.sampling.replay_sample import ReplaySample
from headrace.server.client.connecting import NETWORK_SECONDS
from headrace.server.client.link import Link
from headrace.server.client.reply import Reply
from headrace.server.client.sampling import RemoteSampling
from headrace.server.messages.answers import Done
from headrace.views.view import View

# Batches of one request, and bytes of a batch in it, at most: more would gain nothing.
_MOST_BATCHES = 16
_SMALL_NBYTES = 1 << 16


class _Flying(NamedTuple):
    """A batch that was asked for."""

    link: Link
    reply: Reply


class DrawsAhead:
    """Batches of one table in the order in which the server draws them; see `SamplesAhead`. One thread at a time.

    Requests for small batches ask for several, which come in one message.

    Args:
        sampling: of the replay.
        table, batch_size, views: of each batch; see `Replay.sample`.
    """

    def __init__(
        self, sampling: RemoteSampling, table: str, batch_size: int, views: Mapping[str, View] | None
    ) -> None:
        self._sampling = sampling
        self._table, self._batch_size, self._views = table, batch_size, views
        self._key = sampling.key_of(views)
        self._flying: deque[_Flying] = deque()
        # Whether the last batch was small.
        self._is_small = False

    def draw(self, timeout: float, ahead: int) -> ReplaySample:
        """See `Draws.draw`."""
        flying = self._flying
        refusal: DeadlineExceeded | None = None
        is_fresh = False
        while True:
            wanted = 1 if refusal else 1 + ahead
            if 2 * len(flying) <= wanted:
                self._ask(wanted - len(flying), timeout)
                is_fresh = True
            self._wait_for_first(timeout)
            try:
                batch = self._take_first()
            except DeadlineExceeded as error:
                refusal = error
                # Items of an earlier call may have been refused long ago.
                if is_fresh and not flying:
                    raise
            else:
                if batch is not None:
                    return batch

    def _ask(self, count: int, timeout: float) -> None:
        link = self._sampling.calls.link(timeout)
        together = _MOST_BATCHES if self._is_small else 1
        while count > 0:
            request = self._sampling.request(self._table, self._batch_size, timeout)
            request.count = min(count, together)
            replies = self._sampling.ask(request, self._key, link)
            self._flying.extend(_Flying(link, reply) for reply in replies)
            count -= request.count

    def _wait_for_first(self, timeout: float) -> None:
        """Waits for the first answer. An interrupted wait loses nothing.

        Raises:
            DeadlineExceeded: it has not come although the time of its request is over.
        """
        link, reply = self._flying[0]
        if reply.is_done:
            return
        seconds = max(timeout, 0.0) + NETWORK_SECONDS
        if not link.is_answered(reply, time.monotonic() + seconds):
            raise DeadlineExceeded(f"{self._sampling.calls.peer} did not answer in {seconds:.3g} s")

    def _take_first(self) -> ReplaySample | None:
        """Returns the first batch, whose answer has come; None: the server left it out."""
        _, reply = self._flying.popleft()
        try:
            if isinstance(reply.answer, Done):
                return None
            batch = self._sampling.batch(reply, self._views)
        except (Closed, Disconnected):
            self._flying.clear()  # The requests behind it have ended, too.
            raise
        form = reply.form
        self._is_small = form is not None and form.is_in_payload and len(reply.payload) <= _SMALL_NBYTES
        return batch

    def stop(self) -> list[ReplaySample]:
        """See `Draws.stop`."""
        for link, reply in self._flying:
            if not reply.is_done:
                link.ask_to_cancel(reply)
        found = []
        while self._flying:
            link, reply = self._flying[0]
            link.is_answered(reply, None)
            with suppress(Exception):  # The next draw fails, too.
                batch = self._take_first()
                if batch is not None:
                    found.append(batch)
        return found
