"""A queue from many senders to batches of fixed size: each sample is copied once, into its place in a batch."""

from __future__ import annotations

import functools
import operator
import threading
import weakref
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from headrace.checks import check_seconds, shown
from headrace.clock import SYSTEM_CLOCK, Clock
from headrace.closing import Closing
from headrace.errors import Closed
from headrace.forking import ForkFollowers, HomeProcess
from headrace.server.batch_buffers import BatchBuffer, BatchBuffers, Lease
from headrace.spec import ArraySpec, Signature
from headrace.system import has_gil
from headrace.trajectories.columns.leaf_reader import LeafCheck, checked_reader
from headrace.trees import build, compile_tree
from headrace.waits import Wait

Array = np.ndarray[Any, Any]
_Store = Callable[["BatchQueue", Sequence[Any]], bool]


_REMEDY = (
    "A hr.BatchQueue serves the threads of one process: send from threads of that process, or bring samples to it "
    "with a queue of multiprocessing"
)


_QUEUES = ForkFollowers()


class _Fork:
    """Leads every `send` in a forked child to its refusal, because a check in each `send` would cost 5 % of it."""

    def __init__(self, queue: BatchQueue) -> None:
        self._queue = weakref.ref(queue)

    def before_fork(self) -> None:
        """Does nothing: a child uses neither the lock nor a batch."""

    def after_fork_in_parent(self) -> None:
        """Does nothing."""

    def after_fork_in_child(self) -> None:
        """Removes all places, so that `send` takes the slow path, which refuses it."""
        queue = self._queue()
        if queue is not None:
            queue._open = queue._no_batch


def _one_at_a_time(store: _Store) -> _Store:
    """Takes the queue's lock for each sample if this Python has no interpreter lock.

    Without that lock a shared iterator may give one place to two senders, or skip a place.
    """
    if has_gil():
        return store

    @functools.wraps(store)
    def locked(queue: BatchQueue, values: Sequence[Any]) -> bool:
        with queue._lock:
            return store(queue, values)

    return locked


@dataclass(frozen=True, slots=True)
class BatchQueueInfo:
    """A queue at one instant.

    Attributes:
        index: of the batch returned with it, from 0; from `statistics`, of the next batch.
        size: samples waiting, including those of the partial batch.
        samples_received: since the queue was made, from all senders.
        samples_delivered: in batches, and in the tail.
        blocked_sends: sends that had to wait for a place.
        senders: open connections.
        buffers_replaced: batches returned with `copy=False` whose arrays were still alive when their slot was needed
            again.
    """

    index: int
    size: int
    samples_received: int
    samples_delivered: int
    blocked_sends: int
    senders: int
    buffers_replaced: int


class BatchQueue(Closing):
    """First-in, first-out queue of batches: many threads send samples, and each sample is delivered once.

    A batch stacks samples leaf by leaf into `[batch_size, ...]`. The order of each sender is kept; senders are
    interleaved in any order. Any thread may call any method. Leaving its `with` block closes the queue; full batches
    can still be taken.

    Args:
        example: the tree of one sample, arrays or scalars; its values are not used.
        batch_size: samples in a batch.
        num_buffers: number of batches that fit, 2 or more: the queue holds `batch_size * num_buffers` samples.
        clock: time for deadlines.

    Raises:
        ValueError: no leaf, `batch_size < 1`, `num_buffers < 2`.
        SpecError: a leaf that is not an array of numbers.
        TypeError: a number that is not an integer.

    >>> with BatchQueue({"obs": np.zeros(3, np.float32), "reward": 0.0}, batch_size=2) as queue:
    ...     for reward in (1.0, 2.0, 3.0):
    ...         queue.send({"obs": [reward, 0, 0], "reward": reward})
    ...     batch, info = queue.sample()
    >>> batch["obs"].shape, batch["reward"].tolist(), info.size
    ((2, 3), [1.0, 2.0], 1)
    >>> queue.tail()["reward"].tolist()
    [3.0]
    """

    def __init__(
        self, example: Any, batch_size: int, *, num_buffers: int = 3, clock: Clock = SYSTEM_CLOCK
    ) -> None:
        self._batch_size = _integer("batch_size", batch_size, 1)
        self._slots = _integer("num_buffers", num_buffers, 2)
        self.signature = Signature.like(example)
        specs = self.signature.columns
        if not specs:
            raise ValueError(f"example: expected at least one array, got {example!r:.80}")
        self._node = compile_tree(self.signature.tree, lambda node: isinstance(node, ArraySpec))
        self._checks = [LeafCheck(path, spec) for path, spec in specs.items()]
        self._read = checked_reader(self._node, self._checks)
        self._one_column = len(specs) == 1
        self._buffers = BatchBuffers(list(specs.values()), self._batch_size, keep=2 * self._slots)
        self._buffers.provide(self._slots)
        self._clock = clock
        self._lock = threading.RLock()
        self._place_free = threading.Condition(self._lock)
        self._batch_full = threading.Condition(self._lock)
        # Slots without a batch. A slot gets memory when a batch is opened in it, because a consumer may have dropped
        # an older batch by then: fewer buffers in use stay longer in the processor's cache.
        self._free = self._slots
        # Batches that have places taken, in order; only the last may have places left.
        self._pending: deque[BatchBuffer] = deque()
        # The last pending batch; before the first and after `close` one without places.
        self._open = self._no_batch = BatchBuffer([], 0)
        self._lent: Lease | None = None
        self._closed = False
        self._batches = 0
        # The partial batch that `close` found, and its places taken.
        self._tail: tuple[BatchBuffer, int] | None = None
        self._delivered = 0
        self._blocked_sends = 0
        self._home = HomeProcess("this queue", _REMEDY)
        self._senders = 0
        self._buffers_replaced = 0
        self._fork = _Fork(self)
        _QUEUES.add(self._fork)

    def send(self, sample: Any, timeout: float | None = None) -> None:
        """Copies a sample into its place in a batch; on return the sample is in the queue.

        Args:
            sample: a tree like the example.
            timeout: seconds to wait for a free place; None waits without limit, 0 does not wait.

        Raises:
            SpecError: structure, shape, dtype or a value does not fit; the message has the path. Nothing is stored.
            DeadlineExceeded: the queue was full for all of the timeout; nothing is stored.
            TypeError, ValueError: `timeout` is not a number; nothing is stored.
            Closed: the queue is closed.
            RuntimeError: this process was forked from the queue's process. Every other method raises it too.
        """
        # Most calls give no timeout, and the check costs a tenth of a small sample's time.
        timeout = None if timeout is None else check_seconds(timeout)
        values = self._read(sample)
        if not self._store(values):
            self._home.check()
            wait = Wait(self._clock, timeout, self._full_message)
            while not self._store(values):
                self._open_batch(wait)

    def sample(self, timeout: float | None = None, *, copy: bool = True) -> tuple[Any, BatchQueueInfo]:
        """Waits for the next full batch.

        Args:
            timeout: in seconds; None waits without limit, 0 does not wait.
            copy: True returns arrays that belong to the caller. False returns read-only arrays over the queue's memory,
                whose slot is released at the next call of `sample`. Arrays that are still alive then keep their data,
                and the queue uses other memory.

        Returns:
            The batch, a tree like the example with `[batch_size, ...]` at each leaf, and the queue's state.

        Raises:
            DeadlineExceeded: no batch was full within the timeout; no sample is lost.
            TypeError, ValueError: `timeout` is not a number.
            Closed: the queue is closed and all full batches are taken.
        """
        timeout = check_seconds(timeout)
        self._home.check()
        with self._lock:
            head = self._wait_for_batch(timeout)
            # The batch is taken after every call that can fail, so an error or Ctrl-C loses no batch.
            arrays = head.writable() if copy else head.read_only()
            lease = self._buffers.lend(head, arrays)
            batch = self._tree(arrays)
            if copy:
                self._buffers.provide(self._free + 1)
            self._pending.popleft()
            self._delivered += self._batch_size
            info = self._info(self._batches)
            self._batches += 1
            if copy:
                # The caller keeps the memory that the senders filled, which is cheaper than copying it.
                self._buffers.abandon(lease)
                self._free_slot()
            else:
                self._lent = lease
            return batch, info

    def batches(self, copy: bool = True) -> Iterator[Any]:
        """Iterates over the batches until the queue is closed and no full batch is left.

        Args:
            copy: as for `sample`; with False each batch's slot is released when the next batch is requested.
        """
        while True:
            try:
                batch = [self.sample(copy=copy)[0]]
            except Closed:
                return
            # The generator must not keep the arrays alive while it waits for the next.
            yield batch.pop()

    def statistics(self) -> BatchQueueInfo:
        """The queue's state, without taking a batch."""
        self._home.check()
        with self._lock:
            return self._info(self._batches)

    def close(self) -> None:
        """Closes the queue for senders: waiting and later `send` calls raise `Closed`. Full batches stay available."""
        if self._home.is_elsewhere:
            return
        with self._lock:
            if self._closed:
                return
            self._closed = True
            buffer, self._open = self._open, self._no_batch
            rows = self._batch_size - buffer.close()
            if rows < self._batch_size:
                self._pending.pop()
                if rows:
                    self._tail = buffer, rows
            self._place_free.notify_all()
            self._batch_full.notify_all()

    def tail(self) -> Any:
        """Returns, once, the samples that filled no batch: a tree with `[m, ...]` at each leaf, or None if m = 0.

        Raises:
            ValueError: the queue is not closed.
        """
        self._home.check()
        with self._lock:
            if not self._closed:
                raise ValueError("tail: expected a closed queue; call close() first")
            wait = Wait(self._clock, None, lambda _: "tail: samples that were sent before close are copied")
            while self._tail is not None:
                buffer, rows = self._tail
                if len(buffer.done) < rows:
                    # Senders that had their places before `close` are still copying.
                    wait.turn(self._batch_full)
                    continue
                arrays = [column[:rows].copy() for column in buffer.columns]
                self._tail = None
                self._delivered += rows
                return self._tree(arrays)
            return None

    def count_senders(self, change: int) -> None:
        """Adds to the number of open connections that `info.senders` shows. It is informative, not a limit."""
        with self._lock:
            self._senders += change

    def __repr__(self) -> str:
        if self._home.is_elsewhere:
            return f"BatchQueue({self.signature!r}, batch_size={self._batch_size}, of another process)"
        state = "closed" if self._closed else "open"
        size = self.statistics().size
        return f"BatchQueue({self.signature!r}, batch_size={self._batch_size}, size={size}, {state})"

    def _tree(self, arrays: Sequence[Array]) -> Any:
        return build(self._node, {leaf.path: array for leaf, array in zip(self._checks, arrays, strict=True)})

    @_one_at_a_time
    def _store(self, values: Sequence[Any]) -> bool:
        """Copies the values to the next place of the open batch, if one is left. Needs no lock."""
        buffer, row = self._open, None
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
                if len(done) == self._batch_size or self._closed:
                    self._announce()
                return True
        except BaseException:
            if row is not None:
                self._finish(columns, done, row, values)
            raise
        return False

    def _open_batch(self, wait: Wait) -> None:
        """Waits until the last pending batch has a free place, which another sender may still take first."""
        with self._lock:
            while not self._open.places_left:
                if self._closed:
                    raise Closed("send: the queue is closed")
                if self._free:
                    self._start_batch()
                    break
                if wait.look(self._place_free):
                    continue
                self._blocked_sends += not wait.turns
                wait.turn(self._place_free)

    def _full_message(self, seconds: float) -> str:
        return (
            f"send: all {self._batch_size * self._slots} places were taken for {seconds:.3g} s; nothing was stored. "
            "Take batches faster, or give the queue more buffers"
        )

    def _start_batch(self) -> None:
        buffer = self._buffers.get()
        buffer.open()
        # No call from here on, after which Ctrl-C could come.
        self._free -= 1
        self._pending += (buffer,)
        self._open = buffer

    def _wait_for_batch(self, timeout: float | None) -> BatchBuffer:
        """Waits, with the lock held, until the first pending batch is full."""
        wait: Wait | None = None
        while True:
            # Also after a wait: what another consumer was lent meanwhile must not keep all the memory from
            # senders.
            self._give_back()
            if self._pending and len(self._pending[0].done) == self._batch_size:
                return self._pending[0]
            if self._closed and not self._pending:
                raise Closed(
                    "sample: the queue is closed and every full batch was taken; tail() has the rest"
                )
            wait = wait or Wait(self._clock, timeout, self._empty_message)
            wait.turn(self._batch_full)

    def _empty_message(self, seconds: float) -> str:
        return (
            f"sample: no batch of {self._batch_size} was full within {seconds:.3g} s; "
            f"{self._info(self._batches).size} samples wait"
        )

    def _give_back(self) -> None:
        if self._lent is None:
            return
        self._buffers.provide(self._free + (not self._lent.over))
        lease, self._lent = self._lent, None
        self._buffers_replaced += not lease.over
        self._buffers.abandon(lease)
        self._free_slot()

    def _free_slot(self) -> None:
        self._free += 1
        self._place_free.notify_all()

    def _announce(self) -> None:
        with self._lock:
            self._batch_full.notify_all()

    def _finish(self, columns: Sequence[Array], done: list[int], row: int, values: Sequence[Any]) -> None:
        # The list belongs to this batch alone, so it tells for sure whether the row was written.
        if row not in done:
            for column, value in zip(columns, values, strict=True):
                column[row] = value
            done.append(row)
        self._announce()

    def _info(self, index: int) -> BatchQueueInfo:
        size = sum(len(buffer.done) for buffer in self._pending)
        size += len(self._tail[0].done) if self._tail is not None else 0
        return BatchQueueInfo(
            index=index,
            size=size,
            samples_received=self._delivered + size,
            samples_delivered=self._delivered,
            blocked_sends=self._blocked_sends,
            senders=self._senders,
            buffers_replaced=self._buffers_replaced,
        )


def _integer(name: str, value: object, least: int) -> int:
    if isinstance(value, bool) or not hasattr(value, "__index__"):
        raise TypeError(f"{name}: expected an integer >= {least}, got {shown(value)}")
    number = operator.index(value)
    if number < least:
        raise ValueError(f"{name}: expected an integer >= {least}, got {number}")
    return number
