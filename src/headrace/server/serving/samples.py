"""Samples for one client: those that can be drawn at once, and those that wait as tickets."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from functools import partial

import numpy as np

from headrace.checks import check_seconds
from headrace.errors import Closed
from headrace.leases.frames import Payload
from headrace.leases.selector import PeerSelector
from headrace.replay.items_by_key import all_keys, remaining_items, wanted_keys
from headrace.replay.local import LocalReplay
from headrace.replay.public import Replay
from headrace.replay.sampling.replay_sample import ReplaySample
from headrace.server.messages.answers import Count, Done, Failed
from headrace.server.messages.columns import unpacked_numbers
from headrace.server.messages.failures import failure_of
from headrace.server.messages.requests import (
    MOST_BATCHES,
    GetItems,
    GetRemaining,
    ListKeys,
    Peek,
    Sample,
)
from headrace.server.serving.batches.batch_answers import batch_answer
from headrace.server.serving.batches.batch_forms import BatchForms, SmallAnswer
from headrace.server.serving.batches.batch_sender import BatchSender
from headrace.server.serving.batches.batch_sizes import check_batch, item_nbytes
from headrace.server.serving.batches.sample_sources import SampleSource, SampleSources
from headrace.server.serving.deadlines import TableDeadlines
from headrace.server.serving.requests.replay_requests import KEYS
from headrace.server.serving.requests.request_numbers import check_unused
from headrace.tables.ticket import Ticket

_MOST_WAITING = 1024
# A message that has so many takes no further batch.
_ENOUGH_NBYTES = 1 << 20


class _WaitingSample:
    """A batch that waits for the rate limiter.

    Args:
        number: of its answer.
        source: of the batch.
    """

    def __init__(self, number: int, source: SampleSource) -> None:
        self.number, self.source = number, source
        self.ticket: Ticket | None = None

    def is_served(self) -> bool:
        """Whether it can be drawn now; then its ticket leaves. The replay's lock must be held.

        Raises:
            Exception: it can never be drawn.
        """
        assert self.ticket is not None
        live = self.source.live
        if not live.is_turn_of(self.ticket):
            return False
        live.leave(self.ticket)
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
        self._forms = BatchForms(sender.packer)
        self._sources = SampleSources(sender.pool, most_nbytes, self._warn)
        self._waiting: dict[int, _WaitingSample] = {}

    @property
    def waiting(self) -> int:
        """Number of samples that wait."""
        return len(self._waiting)

    # ---- requests --------------------------------------------------------------------------------------------------

    def sample(self, request: Sample, replay: LocalReplay) -> None:
        """Answers a request: each of its batches now, or when it can be drawn.

        Raises:
            LeaseError: a sample that waits has one of its numbers.
            Exception: it cannot be served, for the client.
        """
        if not 1 <= request.count <= MOST_BATCHES:
            raise ValueError(f"count: expected 1 to {MOST_BATCHES} batches, got {request.count}")
        numbers = deque(range(request.number, request.number + request.count))
        if self._waiting:
            check_unused(numbers, self._waiting)
        try:
            source = self._sources.source_of(request, replay)
            self._draw_ready(numbers, source)
            while numbers:
                self._wait(numbers[0], source, request.timeout)
                numbers.popleft()
        except Exception as error:
            self._send_failure(numbers.popleft(), error)
            self._leave_out(numbers)

    def _draw_ready(self, numbers: deque[int], source: SampleSource) -> None:
        """Answers the batches that can be drawn at once, and takes their numbers out; small ones in one message."""
        answers: list[SmallAnswer] = []
        large: ReplaySample | None = None
        nbytes = 0
        try:
            while numbers and nbytes < _ENOUGH_NBYTES:
                batch = self._draw(source)
                if batch is None:
                    return
                answer = self._small_answer(numbers[0], source, batch, answers[-1] if answers else None)
                if answer is None:
                    large = batch
                    break
                if not answers or answer is not answers[-1]:
                    answers.append(answer)
                numbers.popleft()
                nbytes += answer.batch_nbytes
        finally:
            for answer in answers:
                self._sender.send_columns(answer.message, answer.parts, answer.paths)
        if large is not None:
            self._answer_large(numbers[0], source, large)
            numbers.popleft()
        self._leave_out(numbers)

    def _leave_out(self, numbers: deque[int]) -> None:
        """Answers that the rest of a request is not drawn."""
        while numbers:
            self._sender.send(Done(number=numbers.popleft()))

    def peek(self, request: Peek, replay: Replay) -> None:
        """Answers with a random item.

        Raises:
            Exception: there is none, for the client.
        """
        random = None if request.seed is None else np.random.default_rng(request.seed)
        item = replay.table(request.table).peek(max_rows=request.max_rows, random=random)
        answer = batch_answer(request.number, item, replay.signature, None, None)
        self._sender.send_batch(answer.message, answer.arrays)

    def list_keys(self, request: ListKeys, replay: LocalReplay) -> None:
        """Answers with the keys of a table.

        Raises:
            Exception: there is no such table, or its keys are too many, for the client.
        """
        live = replay.live_table(request.table)
        keys = all_keys(replay, live).astype(KEYS, copy=False)
        if keys.nbytes > self._most_nbytes:
            raise ValueError(
                f"items: the {len(keys)} keys of {request.table!r} have {keys.nbytes} bytes, more than the "
                f"{self._most_nbytes} of a message; give the server a larger payload_nbytes in its limits"
            )
        parts = [keys.view(np.uint8).data] if len(keys) else []
        self._sender.send(Count(number=request.number, value=len(keys)), parts=parts)

    def get(self, request: GetItems, replay: LocalReplay, payload: Payload) -> None:
        """Answers with items by their keys.

        Raises:
            Exception: some are not there, or are too large together, for the client.
        """
        views = self._sources.views_of(request)
        live = replay.live_table(request.table)
        keys = wanted_keys(unpacked_numbers("keys", payload, KEYS))
        check_batch(len(keys), item_nbytes(replay.signature, views), self._most_nbytes)
        if isinstance(request, GetRemaining):
            found = remaining_items(replay, live, keys, views)
        else:
            found = replay.sampling.get(live, keys, views)
        if found is None:
            self._sender.send(Done(number=request.number))
            return
        answer = batch_answer(request.number, found, replay.signature, views, None)
        self._sender.send_batch(answer.message, answer.arrays)

    def _draw(self, source: SampleSource, may_draw: Callable[[], bool] | None = None) -> ReplaySample | None:
        """Returns a batch; see `SampleSource.draw`."""
        self._warning = ""
        return source.draw(may_draw)

    def _warn(self, text: str) -> None:
        self._warning = text

    def _small_answer(
        self, number: int, source: SampleSource, batch: ReplaySample, latest: SmallAnswer | None
    ) -> SmallAnswer | None:
        """Returns the answer to which a small batch belongs, `latest` or a new one; None if it is not small."""
        return self._forms.answer(number, batch, source.replay.signature, source.views, self._warning, latest)

    def _answer(self, number: int, source: SampleSource, batch: ReplaySample) -> None:
        small = self._small_answer(number, source, batch, None)
        if small is None:
            self._answer_large(number, source, batch)
        else:
            self._sender.send_columns(small.message, small.parts, small.paths)

    def _answer_large(self, number: int, source: SampleSource, batch: ReplaySample) -> None:
        arena, signature, views = self._sender.arena, source.replay.signature, source.views
        answer = None
        if arena is not None:
            answer = self._forms.answer_in_place(number, batch, signature, views, self._warning, arena)
        if answer is None:
            answer = batch_answer(number, batch, signature, views, arena)
            answer.message.warning = self._warning
        self._sender.send_batch(answer.message, answer.arrays)

    # ---- waiting ---------------------------------------------------------------------------------------------------

    def _wait(self, number: int, source: SampleSource, seconds: float | None) -> None:
        """Begins to wait for a batch that cannot be drawn now.

        Raises:
            Closed, RuntimeError: no batch may wait.
        """
        if self._refusal:
            raise Closed(self._refusal)
        if len(self._waiting) >= _MOST_WAITING:
            raise RuntimeError(
                f"expected at most {_MOST_WAITING} waiting samples of one client, got one more"
            )
        replay, live, timeout = source.replay, source.live, check_seconds(seconds)
        waiting = self._waiting[number] = _WaitingSample(number, source)
        # The call may come from any thread, with the lock held.
        called = partial(self._selector.call_soon, partial(self._serve, waiting))
        with replay.lock:
            now = replay.clock.monotonic()
            deadline = None if timeout is None else now + max(timeout, 0.0)
            waiting.ticket = live.ask(source.batch_size, lambda _: called(), deadline)
        if deadline is not None:
            self._deadlines.arm(replay, live, deadline)

    def _serve(self, waiting: _WaitingSample) -> None:
        """Draws the batch of a ticket that was called, if its turn has come."""
        number = waiting.number
        if self._waiting.get(number) is not waiting:
            return
        try:
            batch = self._draw(waiting.source, waiting.is_served)
        except Exception as error:
            self._leave(waiting)
            self._send_failure(number, error)
            return
        if batch is not None:
            del self._waiting[number]
            try:
                self._answer(number, waiting.source, batch)
            except Exception as error:
                self._send_failure(number, error)

    def _send_failure(self, number: int, error: Exception) -> None:
        self._sender.send(Failed(number=number, failure=failure_of(error)))

    def _leave(self, waiting: _WaitingSample) -> None:
        del self._waiting[waiting.number]
        with waiting.source.replay.lock:
            if waiting.ticket is not None:
                waiting.source.live.leave(waiting.ticket)

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
            self._send_failure(waiting.number, Closed(reason))

    def close(self) -> None:
        """Ends all waits, whose client is gone."""
        for waiting in tuple(self._waiting.values()):
            self._leave(waiting)
