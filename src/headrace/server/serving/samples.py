"""Samples for one client: those that can be drawn at once, and those that wait as tickets."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial

import numpy as np

from headrace.checks import check_count, check_seconds
from headrace.errors import Closed
from headrace.leases.selector import PeerSelector
from headrace.replay.local import LocalReplay
from headrace.replay.public import Replay
from headrace.replay.sampling.replay_sample import ReplaySample
from headrace.replay.sampling.sampler import Sampling
from headrace.server.messages.answers import Failed
from headrace.server.messages.failures import failure_of
from headrace.server.messages.requests import Peek, Sample
from headrace.server.messages.views import views_of
from headrace.server.serving.batches.batch_answers import batch_answer
from headrace.server.serving.batches.batch_forms import BatchForms
from headrace.server.serving.batches.batch_sender import BatchSender
from headrace.server.serving.batches.batch_sizes import check_batch
from headrace.server.serving.deadlines import TableDeadlines
from headrace.tables.live_table import LiveTable
from headrace.tables.ticket import Ticket
from headrace.views.view import View

_MOST_VIEWS = 256
_MOST_WAITING = 1024


class _WaitingSample:
    """A request that waits for the rate limiter."""

    def __init__(
        self, request: Sample, replay: LocalReplay, live: LiveTable, views: Mapping[str, View] | None
    ) -> None:
        self.request, self.replay, self.live, self.views = request, replay, live, views
        self.ticket: Ticket | None = None

    def is_served(self) -> bool:
        """Whether it can be drawn now; then its ticket leaves. The replay's lock must be held.

        Raises:
            Exception: it can never be drawn.
        """
        assert self.ticket is not None
        if not self.live.is_turn_of(self.ticket):
            return False
        self.live.leave(self.ticket)
        return True


class ClientSamples:
    """Draws batches for one client. Used in the thread of the selector.

    Args:
        selector: calls when a waiting sample can be drawn.
        deadlines: of waiting samples.
        sender: of batches, to the client.
        most_nbytes: of a batch.
    """

    def __init__(
        self, selector: PeerSelector, deadlines: TableDeadlines, sender: BatchSender, most_nbytes: int
    ) -> None:
        self._selector = selector
        self._deadlines = deadlines
        self._sender = sender
        self._most_nbytes = most_nbytes
        self._warning = self._refusal = ""
        self._forms = BatchForms()
        self._views: dict[int, Mapping[str, View]] = {}
        self._samplings: dict[str, Sampling] = {}
        self._waiting: dict[int, _WaitingSample] = {}

    @property
    def waiting(self) -> int:
        """Number of samples that wait."""
        return len(self._waiting)

    # ---- requests --------------------------------------------------------------------------------------------------

    def sample(self, request: Sample, replay: LocalReplay) -> None:
        """Answers a request, now or when its batch can be drawn.

        Raises:
            Exception: it cannot be drawn, for the client.
        """
        views = self._views_of(request)
        live = replay.live_table(request.table)
        batch_size = check_count("batch_size", request.batch_size, 1)
        check_batch(batch_size, replay.signature, views, self._most_nbytes)
        batch = self._sample_now(request, replay, live, views, lambda: live.can_sample(batch_size))
        if batch is not None:
            self._answer(request, replay, views, batch)
            return
        if self._refusal:
            raise Closed(self._refusal)
        if len(self._waiting) >= _MOST_WAITING:
            raise RuntimeError(
                f"expected at most {_MOST_WAITING} waiting samples of one client, got one more"
            )
        self._wait(_WaitingSample(request, replay, live, views))

    def peek(self, request: Peek, replay: Replay) -> None:
        """Answers with a random item.

        Raises:
            Exception: there is none, for the client.
        """
        random = None if request.seed is None else np.random.default_rng(request.seed)
        item = replay.table(request.table).peek(max_rows=request.max_rows, random=random)
        answer = batch_answer(request.number, item, replay.signature, None, None)
        self._sender.send(answer.message, parts=answer.arrays.parts)

    def _views_of(self, request: Sample) -> Mapping[str, View] | None:
        if request.views is None:
            return None
        if request.described is not None:
            if len(self._views) >= _MOST_VIEWS and request.views not in self._views:
                raise ValueError(f"views: expected at most {_MOST_VIEWS} at a time, got one more")
            self._views[request.views] = views_of(request.described)
        if request.views not in self._views:
            raise ValueError(f"views: expected the number of views that were described, got {request.views}")
        return self._views[request.views]

    def _sample_now(
        self,
        request: Sample,
        replay: LocalReplay,
        live: LiveTable,
        views: Mapping[str, View] | None,
        may_draw: Callable[[], bool],
    ) -> ReplaySample | None:
        sampling = self._samplings.get(request.replay)
        if sampling is None:
            sampling = replay.sampling.with_pool(self._sender.pool, self._warn)
            self._samplings[request.replay] = sampling
        sampling.keep_up(replay.sampling)
        self._warning = ""
        return sampling.sample_now(live, request.batch_size, views, may_draw)

    def _warn(self, text: str) -> None:
        self._warning = text

    def _answer(
        self, request: Sample, replay: LocalReplay, views: Mapping[str, View] | None, batch: ReplaySample
    ) -> None:
        small = self._forms.answer(request.number, batch, replay.signature, views, self._warning)
        if small is not None:
            self._sender.send(small.message, parts=small.parts)
            return
        answer = batch_answer(request.number, batch, replay.signature, views, self._sender.arena)
        answer.message.warning = self._warning
        self._sender.send_batch(answer.message, answer.arrays)

    # ---- waiting ---------------------------------------------------------------------------------------------------

    def _wait(self, waiting: _WaitingSample) -> None:
        request, replay, live = waiting.request, waiting.replay, waiting.live
        timeout = check_seconds(request.timeout)
        self._waiting[request.number] = waiting
        # The call may come from any thread, with the lock held.
        called = partial(self._selector.call_soon, partial(self._serve, waiting))
        with replay.lock:
            now = replay.clock.monotonic()
            deadline = None if timeout is None else now + max(timeout, 0.0)
            waiting.ticket = live.ask(request.batch_size, lambda _: called(), deadline)
        if deadline is not None:
            self._deadlines.arm(replay, live, deadline)

    def _serve(self, waiting: _WaitingSample) -> None:
        """Draws the batch of a ticket that was called, if its turn has come."""
        request, replay = waiting.request, waiting.replay
        if self._waiting.get(request.number) is not waiting:
            return
        try:
            batch = self._sample_now(request, replay, waiting.live, waiting.views, waiting.is_served)
        except Exception as error:
            self._leave(waiting)
            self._send_failure(request.number, error)
            return
        if batch is not None:
            del self._waiting[request.number]
            try:
                self._answer(request, replay, waiting.views, batch)
            except Exception as error:
                self._send_failure(request.number, error)

    def _send_failure(self, number: int, error: Exception) -> None:
        self._sender.send(Failed(number=number, failure=failure_of(error)))

    def _leave(self, waiting: _WaitingSample) -> None:
        del self._waiting[waiting.request.number]
        with waiting.replay.lock:
            if waiting.ticket is not None:
                waiting.live.leave(waiting.ticket)

    def cancel(self, number: int) -> bool:
        """Ends a wait without an answer; returns whether there was one."""
        waiting = self._waiting.get(number)
        if waiting is None:
            return False
        self._leave(waiting)
        return True

    def refuse_waiting(self, reason: str) -> None:
        """Ends all waits with `Closed`, and refuses further ones."""
        self._refusal = reason
        for waiting in tuple(self._waiting.values()):
            self._leave(waiting)
            self._send_failure(waiting.request.number, Closed(reason))

    def close(self) -> None:
        """Ends all waits, whose client is gone."""
        for waiting in tuple(self._waiting.values()):
            self._leave(waiting)
