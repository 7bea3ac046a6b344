"""Batches of several shards."""

# Rules: collectors CY4; replay L5, L9, L10, L11

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from functools import partial
from operator import methodcaller

import numpy as np

from headrace.clock import Clock
from headrace.errors import DeadlineExceeded
from headrace.replay.interface import ReplayLike
from headrace.replay.sampling.replay_sample import ReplaySample
from headrace.replay.shards.merging import Merging, Request
from headrace.replay.shards.partial_batch import PartialBatch
from headrace.replay.shards.shard import Shard, ShardDown
from headrace.replay.shards.split import Records, largest_batch, split
from headrace.replay.shards.together import Together
from headrace.statistics import TableStatistics
from headrace.waits import Wait, wait_on

_FIRST_PAUSE_SECONDS = 0.001
_LONGEST_PAUSE_SECONDS = 0.02
# Incomplete batches; the draws of an older one are given up.
_MOST_KEPT = 64


class ShardSampler:
    """Draws batches whose distribution is that of one replay with the items of all shards.

    A batch that is not complete when its call ends by an error keeps its shards, and the draws that they have made. The
    next call with the same table, size and views completes it, so no draw is lost; of 64 such batches the oldest is
    given up for the next.

    Args:
        shards: of the replay.
        merging: puts the parts of a batch together.
        random: chooses the shards.
        clock: for deadlines.
        together: makes calls to several shards.
        check_open: raises if the replay is closed.
    """

    def __init__(
        self,
        shards: Sequence[Shard],
        merging: Merging,
        random: np.random.Generator,
        clock: Clock,
        together: Together,
        check_open: Callable[[], None],
    ) -> None:
        self._shards = shards
        self._merging = merging
        self._random = random
        self._clock = clock
        self._together = together
        self._check_open = check_open
        self._lock = threading.RLock()
        # A bare one is right: no `with` statement takes it, and `waits` takes the lock again after Ctrl-C.
        self._changed = threading.Condition(self._lock)
        self._kept: list[PartialBatch] = []
        self._turns: dict[str, int] = {}
        # By table: the calls that wait for items, in the order in which they came.
        self._lines: dict[str, deque[object]] = {}

    def waiting(self, table: str) -> int:
        """Returns the number of calls that wait for items of any shard."""
        return len(self._lines.get(table, ()))

    def sample(self, request: Request, timeout: float | None) -> ReplaySample:
        """See `Replay.sample`."""
        wait = Wait(self._clock, timeout, lambda seconds: self._message(request, seconds))
        batch = self._resumed(request)
        try:
            while not batch.is_complete:
                with self._in_line(request.table, wait, timeout):
                    if batch.missing:
                        self._assign(batch, wait, timeout)
                    if batch.is_in_turn:
                        # Where items have an order, so have the calls that take them.
                        self._draw(batch, wait, timeout)
                self._draw(batch, wait, timeout)
        except BaseException:
            # Its shards stay, too: chosen anew after each deadline, they would be those that keep no batch waiting.
            if batch.missing < request.batch_size:
                with self._lock:
                    self._kept.append(batch)
                    del self._kept[:-_MOST_KEPT]
            raise
        return self._merging.merge(batch.parts, batch.sizes, request)

    def _resumed(self, request: Request) -> PartialBatch:
        with self._lock:
            for batch in self._kept:
                if batch.request == request:
                    self._kept.remove(batch)
                    return batch
        return PartialBatch(request, len(self._shards))

    def forget(self, table: str) -> None:
        """Drops incomplete batches of a table."""
        with self._lock:
            self._kept = [batch for batch in self._kept if batch.request.table != table]

    def end_waits(self) -> None:
        """Makes the calls that wait look whether the replay is closed."""
        with self._lock:
            self._changed.notify_all()

    # ---- choosing shards -------------------------------------------------------------------------------------------

    def _assign(self, batch: PartialBatch, wait: Wait, timeout: float | None) -> None:
        """Gives a shard to each draw of a batch; waits while the shards have too few items. The line is the caller's.

        Raises:
            DeadlineExceeded: they had too few for too long.
            ValueError: they can never have enough.
        """
        table = batch.request.table
        pause = _FIRST_PAUSE_SECONDS
        while True:
            self._check_open()
            records = self.records(table)
            found = split(records, batch.missing, self._random, self._turns.get(table, 0))
            if found is not None:
                batch.assign(found, records)
                self._turns[table] = int(found.owners[-1] + 1) % len(self._shards)
                return
            self._refuse_impossible(batch.request, records)
            with self._lock:
                self._pause(wait, timeout, pause)
            pause = min(2 * pause, _LONGEST_PAUSE_SECONDS)

    @contextmanager
    def _in_line(self, table: str, wait: Wait, timeout: float | None) -> Iterator[None]:
        """Waits until the calls that came before have their shards."""
        me = object()
        with self._lock:
            line = self._lines.setdefault(table, deque())
            line.append(me)
        try:
            with self._lock:
                while line[0] is not me:
                    self._check_open()
                    self._pause(wait, timeout, None)
            yield
        finally:
            with self._lock:
                line.remove(me)
                self._changed.notify_all()

    def _pause(self, wait: Wait, timeout: float | None, seconds: float | None) -> None:
        """Waits for a change, or for so many seconds. The lock is held once.

        Raises:
            DeadlineExceeded: the time of the call is over.
        """
        if not wait.look(self._changed):
            left = _seconds_left(wait, timeout)
            given = [each for each in (left, seconds) if each is not None]
            wait_on(self._changed, self._clock, min(given, default=None))

    def records(self, table: str) -> Records:
        """Returns the statistics of a table in every shard; None for a shard that is down.

        Raises:
            ShardDown: all are.
        """

        def ask(replay: ReplayLike) -> TableStatistics:
            return replay.table(table).statistics()

        for shard in self._shards:
            shard.try_again()
        answers = self._together([partial(shard.attempt, ask) for shard in self._shards])
        self._check_open()
        found = [answer if isinstance(answer, TableStatistics) else None for answer in answers]
        if not any(found):
            raise answers[0]
        return found

    def _refuse_impossible(self, request: Request, records: Records) -> None:
        """Raises ValueError if a batch could never be served."""
        present = [record for record in records if record is not None]
        largest = sum(map(largest_batch, present))
        if len(present) == len(records) and request.batch_size > largest:
            raise ValueError(
                f"table {request.table!r}: a batch of {request.batch_size} could never be served: at most {largest:g} "
                f"samples are allowed at once by {len(records)} shards together"
            )

    # ---- drawing ---------------------------------------------------------------------------------------------------

    def _draw(self, batch: PartialBatch, wait: Wait, timeout: float | None) -> None:
        """Draws what shards were assigned; a shard that does not serve its draws leaves them to the others."""
        table, _, views = batch.request
        if len(ready := batch.ready_draws()) > 1:
            self._draw_together(batch, ready)
        while (wanted := batch.next_draws()) is not None:
            number, count = wanted
            left = 0.0 if batch.is_in_turn else _seconds_left(wait, timeout)
            try:
                draw = methodcaller("sample", table, count, views=views, timeout=left)
                sample: ReplaySample = self._shards[number].use(draw)
            except ShardDown:
                self._check_open()
                batch.release(number)
            except DeadlineExceeded as error:
                if not batch.is_in_turn:
                    raise DeadlineExceeded(f"shard {number} of {len(self._shards)}: {error}") from error
                batch.release(number)
                with self._lock:
                    self._pause(wait, timeout, _FIRST_PAUSE_SECONDS)
            else:
                batch.add(number, sample)

    def _draw_together(self, batch: PartialBatch, ready: Sequence[tuple[int, int]]) -> None:
        """Draws from shards that do not have to be waited for."""
        table, _, views = batch.request
        answers = self._together(
            [
                partial(
                    self._shards[number].attempt,
                    methodcaller("sample", table, count, views=views, timeout=0.0),
                )
                for number, count in ready
            ]
        )
        for (number, _), answer in zip(ready, answers, strict=True):
            if isinstance(answer, ReplaySample):
                batch.add(number, answer)
            else:
                batch.has_to_wait(number)

    def _message(self, request: Request, seconds: float) -> str:
        sizes = "unknown"
        with suppress(ShardDown):
            found = self.records(request.table)
            sizes = ", ".join("down" if record is None else str(record.size) for record in found)
        return (
            f"table {request.table!r}: a sample of {request.batch_size} waited {seconds:.3g} s; sizes of the shards: "
            f"{sizes}. Insert more, ask for less, or wait longer"
        )


def _seconds_left(wait: Wait, timeout: float | None) -> float | None:
    return None if timeout is None else max(0.0, timeout - wait.seconds)
