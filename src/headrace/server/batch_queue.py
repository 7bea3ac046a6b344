"""A queue from many senders to batches of fixed size: each sample is copied once, into its place in a batch."""

from __future__ import annotations

import weakref
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import numpy as np

from headrace.checks import check_count, check_seconds
from headrace.clock import SYSTEM_CLOCK, Clock
from headrace.closing import Closing
from headrace.errors import Closed
from headrace.forking import ForkFollowers, HomeProcess
from headrace.server.queue_core import QueueCore
from headrace.server.queue_info import BatchQueueInfo
from headrace.spec import ArraySpec, Signature
from headrace.system import machine_nbytes
from headrace.trajectories.columns.leaf_reader import LeafCheck, checked_reader
from headrace.trees import Leaf, build, compile_tree

Array = np.ndarray[Any, Any]


_REMEDY = (
    "A hr.BatchQueue serves the threads of one process: send from threads of that process, or bring samples to it "
    "with a queue of multiprocessing"
)


# About what a slot takes beside its batch.
_SLOT_NBYTES = 1 << 10
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
            queue._core.refuse_places()


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

    Attributes:
        signature: of a sample.

    Raises:
        ValueError: no leaf, `batch_size < 1`, `num_buffers < 2`, or the batches need more memory than the machine has.
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
        self._batch_size = check_count("batch_size", batch_size, 1)
        slots = check_count("num_buffers", num_buffers, 2)
        self.signature = Signature.like(example)
        specs = self.signature.columns
        if not specs:
            raise ValueError(f"example: expected at least one array, got {example!r:.80}")
        _check_memory(specs.values(), self._batch_size, slots)
        self._node = compile_tree(self.signature.tree, lambda node: isinstance(node, ArraySpec))
        self._is_bare = isinstance(self._node, Leaf)
        self._checks = [LeafCheck(path, spec) for path, spec in specs.items()]
        self._read = checked_reader(self._node, self._checks)
        self._core = QueueCore(list(specs.values()), self._batch_size, slots, clock)
        self._store = self._core.store
        self._home = HomeProcess("this queue", _REMEDY)
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
            self._core.store_waiting(values, timeout)

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
        return self._core.sample(timeout, self._tree, copy=copy)

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
        return self._core.info()

    def close(self) -> None:
        """Closes the queue for senders: waiting and later `send` calls raise `Closed`. Full batches stay available."""
        if not self._home.is_elsewhere:
            self._core.close()

    def tail(self) -> Any:
        """Returns, once, the samples that filled no batch: a tree with `[m, ...]` at each leaf, or None if m = 0.

        Raises:
            ValueError: the queue is not closed.
        """
        self._home.check()
        arrays = self._core.tail()
        return None if arrays is None else self._tree(arrays)

    def __repr__(self) -> str:
        if self._home.is_elsewhere:
            return f"BatchQueue({self.signature!r}, batch_size={self._batch_size}, of another process)"
        state = "closed" if self._core.is_closed else "open"
        size = self.statistics().size
        return f"BatchQueue({self.signature!r}, batch_size={self._batch_size}, size={size}, {state})"

    def _tree(self, arrays: Sequence[Array]) -> Any:
        if self._is_bare:  # To build a tree takes as long as to copy a small batch.
            return arrays[0]
        return build(self._node, {leaf.path: array for leaf, array in zip(self._checks, arrays, strict=True)})


def core_of(queue: BatchQueue) -> QueueCore:
    """Returns the inside of a queue, for the server that shares it."""
    return queue._core


def _check_memory(specs: Iterable[ArraySpec], batch_size: int, slots: int) -> None:
    """Checks that the machine can have the memory of all batches, which is taken at once.

    Raises:
        ValueError: it cannot.
    """
    nbytes = batch_size * sum(spec.nbytes for spec in specs)
    machine = machine_nbytes()
    if slots * (nbytes + _SLOT_NBYTES) > machine:
        raise ValueError(
            f"expected batches that fit into the {machine} bytes of this machine, got num_buffers={slots} batches of "
            f"{nbytes} bytes each; choose a smaller batch_size or num_buffers"
        )
