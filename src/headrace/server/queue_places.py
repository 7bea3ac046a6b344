"""Places of samples in open batches, and the senders that fill them or wait for them."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from itertools import islice
from typing import Any

import cython
import numpy as np

from headrace.clock import Clock
from headrace.errors import Closed
from headrace.kernels.quick_lock import rlock
from headrace.kernels.quiet_condition import QuietCondition
from headrace.kernels.row_copy import put_rows
from headrace.server.adopted_batch import AdoptedBatch, BlockRows
from headrace.server.batch_buffers import BatchBuffer, BatchBuffers
from headrace.spec import ArraySpec
from headrace.system import has_gil
from headrace.waits import Wait

if not cython.compiled:
    from headrace.kernels.kinds import Bool, Int

Array = np.ndarray[Any, Any]
# Without that lock a shared iterator may give one place to two senders, or skip a place.
_HAS_GIL = has_gil()


class QueuePlaces:
    """The senders' half of a `QueueCore`: batches are opened, filled and announced. Thread-safe.

    Args:
        specs: of the leaves of a sample.
        batch_size: samples in a batch.
        slots: number of batches that fit.
        clock: time for deadlines.

    Attributes:
        batch_size: samples in a batch.
        batch_nbytes: bytes of a batch.
        has_filled: whether `store_rows` has filled a batch, of which `announce_filled` has not told.
    """

    def __init__(self, specs: Sequence[ArraySpec], batch_size: int, slots: int, clock: Clock) -> None:
        self.batch_size = batch_size
        self.batch_nbytes = batch_size * sum(spec.nbytes for spec in specs)
        self._slots = slots
        self._one_column = len(specs) == 1
        self._buffers = BatchBuffers(specs, batch_size, keep=2 * slots)
        self._buffers.provide(slots)
        self._clock = clock
        self._lock = rlock()
        self._place_free = QuietCondition(self._lock)
        self._batch_full = QuietCondition(self._lock)
        # Slots without a batch. A slot gets memory when a batch is opened in it, because a consumer may have dropped
        # an older batch by then: fewer buffers in use stay longer in the processor's cache.
        self._free = self._slots
        # Batches that have places taken, in order; only the last may have places left.
        self._pending: deque[BatchBuffer] = deque()
        # The last pending batch; before the first and after `close` one without places.
        self._open = self._no_batch = BatchBuffer([], 0)
        # The last pending batch instead, as long as a client fills it in its own memory.
        self._adopted: AdoptedBatch | None = None
        self._started = 0
        self.has_filled = False
        self._closed = False
        self._blocked_sends = 0
        self._watchers: tuple[Callable[[], None], ...] = ()

    def refuse_places(self) -> None:
        """Removes all places in a forked child, so that `store` finds none."""
        self._open = self._no_batch

    def store(self, values: Sequence[Any]) -> bool:
        """Copies the values to the next place of the open batch; returns False if none is left.

        It takes no lock, unless this Python has no interpreter lock.
        """
        if _HAS_GIL:
            return self._store(values)
        with self._lock:
            return self._store(values)

    def _store(self, values: Sequence[Any]) -> Bool:
        buffer: BatchBuffer = self._open
        row: Any = None
        try:
            # Nothing can come between the iterator's step and the row being known here: no other thread, and no
            # Ctrl-C, which would leave a hole that holds up every batch behind it.
            for row in buffer.places:
                # Only now: this batch cannot be done with as long as this place is not written.
                columns, done = buffer.columns, buffer.done
                # The place is this sender's alone, so large rows of several senders are copied at the same time.
                if self._one_column:  # a loop costs as much as the copy of a small row
                    columns[0][row] = values[0]
                else:
                    for column, value in zip(columns, values):  # noqa: B905 - equal by construction; strict is slow
                        column[row] = value
                done.append(row)
                if len(done) == self.batch_size or self._closed:
                    self._announce()
                return True
        except BaseException:
            if row is not None:
                self._finish(columns, done, row, values)
            raise
        return False

    def _finish(self, columns: Sequence[Array], done: list[int], row: int, values: Sequence[Any]) -> None:
        # The list belongs to this batch alone, so it tells for sure whether the row was written.
        if row not in done:
            for column, value in zip(columns, values, strict=True):
                column[row] = value
            done.append(row)
        self._announce()

    def store_waiting(self, values: Sequence[Any], timeout: float | None) -> None:
        """Waits for a place, and copies the values to it.

        Raises:
            DeadlineExceeded: there was none within `timeout` seconds; nothing is stored.
            Closed: the queue is closed.
        """
        wait = Wait(self._clock, timeout, self._full_message)
        while not self.store(values):
            self._open_batch(wait)

    @property
    def places_taken(self) -> int:
        """Number of places that senders took since the queue was made."""
        with self._lock:
            left = self.batch_size - len(self._adopted.done) if self._adopted else self._open.places_left
            return self._started * self.batch_size - left

    def store_rows(
        self, columns: Sequence[Array], begin: Int, count: Int, rows: BlockRows | None = None
    ) -> Int:
        """Stores samples in free places, in their order, without waiting; returns the number of those that found one.

        Call `announce_filled` afterwards.

        Samples are copied, unless they lie in a block whose first row begins a batch. Such a block becomes the batch,
        until another sender needs a place in it.

        Args:
            columns: arrays `[n, ...]`, one per leaf.
            begin, count: of the samples in these arrays.
            rows: the rows of a client's block in which the samples lie; None: they lie in no block.

        Raises:
            Closed: the queue is closed; nothing was stored.
        """
        if cython.compiled:
            self._lock.take()
            try:
                return self._store_rows(columns, begin, count, rows)
            finally:
                self._lock.give()
        else:
            with self._lock:
                return self._store_rows(columns, begin, count, rows)

    def _store_rows(self, columns: Sequence[Array], begin: Int, count: Int, rows: BlockRows | None) -> Int:
        """Does `store_rows` with the lock held."""
        if self._closed:
            raise Closed("send: the queue is closed")
        if rows is not None and self._store_in_place(columns, begin, count, rows):
            return count
        if self._adopted is not None:
            self._copy_adopted()
        stored: Int = 0
        while True:
            stored += self._store_some(columns, begin + stored, count - stored)
            if stored == count or not self._free:
                return stored
            self._start_batch()

    def announce_filled(self) -> None:
        """Wakes those who wait for the batches that `store_rows` has filled."""
        if self.has_filled:
            self.has_filled = False
            self._announce()

    def _store_some(self, columns: Sequence[Array], begin: Int, most: Int) -> Int:
        """Copies at most so many samples of `columns` into the places left in the open batch; returns their number."""
        buffer: BatchBuffer = self._open
        # One step, so that local senders, who take no lock, get other places.
        rows: list[int] = list(buffer.places if most >= self.batch_size else islice(buffer.places, most))
        count: Int = len(rows)
        if count:
            first: Int = rows[0]
            for leaf in range(len(buffer.columns)):
                column, values = buffer.columns[leaf], columns[leaf]
                if not put_rows(column, first, values, begin, count):
                    column[first : first + count] = values[begin : begin + count]
            buffer.done += rows
            self.has_filled |= len(buffer.done) == self.batch_size
        return count

    def _store_in_place(self, columns: Sequence[Array], begin: Int, count: Int, rows: BlockRows) -> Bool:
        """Adds samples to the adopted batch, or begins one with them; returns whether either is possible."""
        batch = self._adopted
        if batch is None:
            batch = self._adopt(rows)
        elif not batch.is_continued_by(rows):
            batch = None
        if batch is None:
            return False
        batch.add([column[begin : begin + count] for column in columns])
        if len(batch.done) == self.batch_size:
            self._adopted = None
            self.has_filled = True
        return True

    def _adopt(self, rows: BlockRows) -> AdoptedBatch | None:
        """Starts a batch in a client's block, if the block's first row would begin one."""
        if rows.first or not self._free or self._open.places_left:
            return None
        batch = rows.blocks.adopt(rows.block)
        if batch is not None:
            self._free -= 1
            self._started += 1
            self._pending.append(batch)
            self._open, self._adopted = self._no_batch, batch
        return batch

    def _copy_adopted(self) -> None:
        """Copies the samples of the adopted batch into a buffer, in which other senders find places."""
        batch = self._adopted
        if batch is None:
            return
        buffer = self._buffers.get()
        buffer.open()
        done = buffer.done
        done += islice(buffer.places, len(batch.done))
        for column, values in zip(buffer.columns, batch.columns, strict=True):
            column[: len(done)] = values[: len(done)]
        # No call from here on, after which Ctrl-C could come.
        self._pending[len(self._pending) - 1] = buffer
        self._open, self._adopted = buffer, None
        batch.release()

    def _open_batch(self, wait: Wait) -> None:
        """Waits until the last pending batch has a free place, which another sender may still take first."""
        with self._lock:
            while not self._open.places_left:
                if self._closed:
                    raise Closed("send: the queue is closed")
                if self._adopted is not None:
                    self._copy_adopted()
                    break
                if self._free:
                    self._start_batch()
                    break
                if wait.look(self._place_free):
                    continue
                self._blocked_sends += not wait.turns
                wait.turn(self._place_free)

    def _full_message(self, seconds: float) -> str:
        return (
            f"send: all {self.batch_size * self._slots} places were taken for {seconds:.3g} s; nothing was stored. "
            "Take batches faster, or give the queue more buffers"
        )

    def _start_batch(self) -> None:
        buffer = self._buffers.get()
        buffer.open()
        # No call from here on, after which Ctrl-C could come.
        self._free -= 1
        self._started += 1
        self._pending += (buffer,)
        self._open = buffer

    def count_blocked_send(self) -> None:
        """Counts a send of a client that waits for a place."""
        with self._lock:
            self._blocked_sends += 1

    # ---- watching --------------------------------------------------------------------------------------------------

    def watch(self, call: Callable[[], None]) -> None:
        """Makes a call whenever a batch is full, a slot is free, or the queue is closed.

        Args:
            call: made by any thread, with the queue's lock held; it must not raise.
        """
        with self._lock:
            self._watchers = (*self._watchers, call)

    def unwatch(self, call: Callable[[], None]) -> None:
        """Makes a call of `watch` no more."""
        with self._lock:
            self._watchers = tuple(each for each in self._watchers if each != call)

    def _announce(self) -> None:
        if cython.compiled:
            self._lock.take()
            try:
                self._call_watchers()
            finally:
                self._lock.give()
        else:
            with self._lock:
                self._call_watchers()
        self._batch_full.notify_all()

    def _call_watchers(self) -> None:
        for call in self._watchers:
            call()

    def _free_slot(self) -> None:
        self._free += 1
        self._place_free.notify_all()
        self._call_watchers()
