"""server BQ1-BQ12: what one caller sees."""

import gc
import re
from typing import NamedTuple

import numpy as np
import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from headrace.errors import Closed, DeadlineExceeded, SpecError
from headrace.server import BatchQueue
from headrace.server.batch_queue import core_of
from headrace.trajectories import TrajectoryAccumulator
from headrace.waits import Wait


class Pair(NamedTuple):
    left: object
    right: object


def queue_of(values, batch_size=2, num_buffers=2):
    queue = BatchQueue(0, batch_size, num_buffers=num_buffers)
    for value in values:
        queue.send(value, timeout=0)
    return queue


def taken(queue, **options):
    return queue.sample(timeout=0, **options)[0].tolist()


def test_bq1_leaves_are_stacked_one_by_one():
    example = {"z": np.zeros((2, 3), np.float32), "a": (0, Pair(False, np.zeros((0, 4)))), "none": None}
    queue = BatchQueue(example, 3)
    for value in range(3):
        queue.send(
            {"a": (value, Pair(value == 1, np.zeros((0, 4)))), "z": np.full((2, 3), value), "none": None}
        )
    batch, _ = queue.sample(timeout=0)
    assert list(batch) == ["z", "a", "none"]
    assert type(batch["a"][1]) is Pair
    assert (batch["z"].shape, batch["z"].dtype) == ((3, 2, 3), np.float32)
    assert batch["z"][:, 0, 0].tolist() == batch["a"][0].tolist() == [0, 1, 2]
    assert batch["a"][1].left.tolist() == [False, True, False]
    assert batch["a"][1].right.shape == (3, 0, 4)


def test_bq1_the_values_of_the_example_are_not_used():
    example = np.full(2, 7.0)
    queue = BatchQueue(example, 1)
    queue.send([1, 2])
    assert taken(queue) == [[1, 2]]
    assert example.tolist() == [7, 7]


@pytest.mark.parametrize("example", [{}, None, (), {"a": []}])
def test_bq1_no_leaf(example):
    with pytest.raises(ValueError, match="^example: expected at least one array"):
        BatchQueue(example, 2)


@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        ({"batch_size": 0}, ValueError, "batch_size: expected an integer >= 1, got 0"),
        ({"batch_size": 2, "num_buffers": 1}, ValueError, "num_buffers: expected an integer >= 2, got 1"),
        ({"batch_size": 2.0}, TypeError, "batch_size: expected an integer >= 1, got 2.0"),
        ({"batch_size": True}, TypeError, "batch_size: expected an integer >= 1, got True"),
    ],
)
def test_bq1_sizes(arguments, error, message):
    with pytest.raises(error, match=f"^{re.escape(message)}$"):
        BatchQueue(0, **arguments)


@pytest.mark.parametrize(("batch_size", "num_buffers"), [(10**20, 3), (2**40, 3), (2, 10**14)])
def test_bq2_batches_that_the_machine_cannot_hold_are_refused(batch_size, num_buffers):
    """The memory is taken at once, so it is not asked for."""
    with pytest.raises(
        ValueError, match=f"num_buffers={num_buffers} batches of {8 * batch_size} bytes each; choose"
    ):
        BatchQueue(0, batch_size, num_buffers=num_buffers)


@pytest.mark.parametrize("copy", [True, False])
def test_bq2_a_batch_is_one_contiguous_buffer_a_leaf(copy):
    queue = BatchQueue({"a": np.zeros((2, 3)), "b": 0}, 4)
    for _ in range(4):
        queue.send({"a": np.zeros((2, 3)), "b": 0})
    batch, _ = queue.sample(copy=copy)
    assert all(leaf.flags.c_contiguous and leaf.flags.aligned for leaf in batch.values())


@pytest.mark.parametrize(("batch_size", "num_buffers"), [(1, 2), (2, 2), (3, 4)])
def test_bq2_capacity(batch_size, num_buffers):
    queue = queue_of(range(batch_size * num_buffers), batch_size, num_buffers)
    with pytest.raises(DeadlineExceeded):
        queue.send(99, timeout=0)


@pytest.mark.parametrize(
    ("sample", "message"),
    [
        ({"a": [1, 2]}, "missing b"),
        ({"a": [1, 2], "b": 1, "c": 1}, "extra c"),
        ({"a": [1], "b": 1}, r"^a: expected int64\[2\], got int64\[1\]"),
        ({"a": [1, 2, 3], "b": 1}, r"^a: expected int64\[2\], got int64\[3\]"),
        ({"a": [[1, 2]], "b": 1}, r"^a: expected int64\[2\], got int64\[1, 2\]"),
        ({"a": [1.0, 2.0], "b": 1}, "^a: .*float is never stored as integer"),
        ({"a": [1, 2], "b": 256}, "^b: .*do not fit"),
        ({"a": [1, 2], "b": "1"}, "^b: expected an array of numbers"),
        ([[1, 2], 1], "expected a container dict, got list"),
    ],
)
def test_bq3_what_does_not_fit_is_not_stored(sample, message):
    queue = BatchQueue({"a": np.zeros(2, np.int64), "b": np.uint8(0)}, 2)
    queue.send({"a": [1, 2], "b": 3})
    with pytest.raises(SpecError, match=message):
        queue.send(sample)
    assert queue.statistics().samples_received == 1
    queue.send({"a": [4, 5], "b": 6})
    batch, _ = queue.sample(timeout=0)
    assert {name: leaf.tolist() for name, leaf in batch.items()} == {"a": [[1, 2], [4, 5]], "b": [3, 6]}


@pytest.mark.parametrize(
    ("sample", "message"),
    [
        (np.zeros(3, np.float32), r"^value: expected float32\[2\], got float32\[3\]"),
        (np.zeros((1, 2), np.float32), r"^value: expected float32\[2\]"),
        (np.zeros(2, np.complex128), "^value: "),
        ("no", "^value: expected an array of numbers"),
        ({"value": np.zeros(2)}, "^value: "),
    ],
)
def test_bq3_a_bare_sample_is_checked_as_well(sample, message):
    queue = BatchQueue(np.zeros(2, np.float32), 2)
    with pytest.raises(SpecError, match=message):
        queue.send(sample)
    assert queue.statistics().samples_received == 0
    queue.send(np.array([1, 2], np.float32))
    queue.send([3, 4.5])
    assert taken(queue) == [[1, 2], [3, 4.5]]


@pytest.mark.parametrize("value", [np.arange(12.0)[::2], np.arange(12.0).reshape(2, 6)[0][::-1]])
def test_bq3_rows_that_are_no_plain_stretch_of_memory(value):
    queue = BatchQueue(np.zeros(6), 1)
    queue.send(value)
    assert taken(queue) == [value.tolist()]


def test_bq3_send_copies():
    queue = BatchQueue(np.zeros(2), 1)
    value = np.ones(2)
    queue.send(value)
    value[:] = 9
    assert taken(queue) == [[1, 1]]


def test_bq4_a_full_queue_keeps_what_it_has():
    queue = queue_of(range(4))
    for _ in range(3):
        with pytest.raises(DeadlineExceeded, match="all 4 places were taken"):
            queue.send(99, timeout=0)
    assert taken(queue) == [0, 1]
    queue.send(4, timeout=0)
    queue.send(5, timeout=0)
    assert [taken(queue), taken(queue)] == [[2, 3], [4, 5]]


def test_bq4_no_time_is_not_waiting():
    queue = queue_of(range(4))
    for timeout in (0, -1.0):
        with pytest.raises(DeadlineExceeded):
            queue.send(99, timeout=timeout)
    assert queue.statistics().blocked_sends == 0


@pytest.mark.parametrize("timeout", ["1", True, [1], float("nan")])
@pytest.mark.parametrize("waiting", [False, True])
def test_bq4_bq5_a_timeout_that_is_no_time_changes_nothing(timeout, waiting):
    queue = queue_of(range(4) if waiting else range(2))
    with pytest.raises((TypeError, ValueError), match="^timeout: expected seconds or None, got"):
        queue.send(99, timeout=timeout)
    with pytest.raises((TypeError, ValueError), match="^timeout: expected seconds or None, got"):
        queue.sample(timeout=timeout)
    assert queue.statistics().samples_received == (4 if waiting else 2)
    assert taken(queue) == [0, 1]


def test_bq5_first_in_first_out():
    queue = BatchQueue(0, 3, num_buffers=2)
    found = []
    for value in range(60):
        queue.send(value, timeout=0)
        if value % 6 == 5:
            found += taken(queue) + taken(queue)
    assert found == list(range(60))


def test_bq5_nothing_is_lost_by_a_deadline():
    queue = queue_of([1])
    with pytest.raises(DeadlineExceeded, match="no batch of 2 was full within 0 s; 1 samples wait"):
        queue.sample(timeout=0)
    queue.send(2)
    assert taken(queue) == [1, 2]


def test_bq6_a_copy_is_the_callers_own():
    queue = queue_of(range(4))
    first, _ = queue.sample()
    queue.send(4, timeout=0)
    queue.send(5, timeout=0)
    first[:] = 99
    assert [taken(queue), taken(queue)] == [[2, 3], [4, 5]]
    assert first.tolist() == [99, 99]


def test_bq6_copies_that_are_kept_stay_as_they_are():
    queue, kept = BatchQueue(0, 2, num_buffers=2), []
    for value in range(0, 40, 2):
        queue.send(value)
        queue.send(value + 1)
        kept.append(queue.sample()[0])
    assert [batch.tolist() for batch in kept] == [[value, value + 1] for value in range(0, 40, 2)]
    assert queue.statistics().buffers_replaced == 0


def test_bq6_memory_of_batches_that_are_gone_is_used_again():
    queue, addresses = BatchQueue(np.zeros(1000), 2, num_buffers=2), set()
    for _ in range(50):
        queue.send(np.zeros(1000))
        queue.send(np.zeros(1000))
        addresses.add(queue.sample()[0].ctypes.data)
    # Two slots, and what the caller had in hand while the next was filled.
    assert len(addresses) <= 4


def test_bq6_a_queue_that_is_filled_and_emptied_takes_no_more_memory():
    # The slots, and the batch that the caller still has when it asks for the next.
    queue, addresses = BatchQueue(np.zeros(1000), 2, num_buffers=3), set()
    for _ in range(20):
        for _ in range(6):
            queue.send(np.zeros(1000), timeout=0)
        for _ in range(3):
            batch, _ = queue.sample()
            addresses.add(batch.ctypes.data)
    assert len(addresses) <= 5


def test_bq7_views_are_read_only_and_on_the_queues_memory():
    queue = queue_of(range(4))
    addresses = {buffer.columns[0].ctypes.data for buffer in queue._core._pending}
    view, _ = queue.sample(copy=False)
    assert view.ctypes.data in addresses
    with pytest.raises(ValueError, match="read-only"):
        view[0] = 9


def test_bq7_the_slot_comes_back_at_the_next_sample():
    queue = queue_of(range(4))
    view, _ = queue.sample(copy=False)
    with pytest.raises(DeadlineExceeded):
        queue.send(4, timeout=0)
    del view
    with pytest.raises(DeadlineExceeded):
        queue.send(4, timeout=0)
    assert taken(queue) == [2, 3]
    queue_size = [queue.send(value, timeout=0) for value in (4, 5, 6, 7)]
    assert len(queue_size) == 4
    assert queue.statistics().buffers_replaced == 0


def test_bq7_a_sample_that_finds_no_batch_gives_the_slot_back_too():
    queue = queue_of(range(2))
    queue.sample(copy=False)
    with pytest.raises(DeadlineExceeded):
        queue.sample(timeout=0)
    for value in range(4):
        queue.send(value, timeout=0)


@pytest.mark.parametrize(
    "look",
    [
        lambda view: view,
        lambda view: view[1:],
        lambda view: view.reshape(1, -1)[:, ::2],
        lambda view: view.view(np.uint8),
        memoryview,
        lambda view: np.broadcast_to(view, (3, *view.shape)),
        iter,
    ],
)
def test_bq7_whatever_still_looks_keeps_its_data(look):
    queue = queue_of(range(4))
    kept = look(queue.sample(copy=False)[0])
    then = look(np.array([0, 1]))
    for value in range(4, 40, 2):
        taken(queue)
        queue.send(value)
        queue.send(value + 1)
    assert queue.statistics().buffers_replaced == 1
    np.testing.assert_array_equal(list(kept), list(then))


def test_bq7_one_leaf_of_many_is_enough():
    queue = BatchQueue({"a": 0, "b": 0}, 1, num_buffers=2)
    queue.send({"a": 1, "b": 2})
    kept = queue.sample(copy=False)[0]["b"]
    for value in range(9):
        queue.send({"a": value, "b": value})
        queue.sample(copy=False)
    assert kept.tolist() == [2]
    assert queue.statistics().buffers_replaced == 1


def test_bq7_views_outlive_the_queue():
    queue = queue_of(range(4))
    first, _ = queue.sample(copy=False)
    second, _ = queue.sample(copy=False)
    queue.close()
    assert (first.tolist(), second.tolist()) == ([0, 1], [2, 3])
    del queue
    gc.collect()
    filler = [bytearray(b"\xff") * 16 for _ in range(1000)]
    assert (first.tolist(), second.tolist(), len(filler)) == ([0, 1], [2, 3], 1000)


def test_bq7_memory_that_was_replaced_is_used_again_once_it_is_free():
    queue, addresses, view = BatchQueue(np.zeros(1000), 1, num_buffers=2), set(), None
    for _ in range(50):
        queue.send(np.zeros(1000))
        view, _ = queue.sample(copy=False)  # the one before is alive during this call
        addresses.add(view.ctypes.data)
    assert queue.statistics().buffers_replaced == 49
    assert len(addresses) <= 4


def test_bq9_batches_end_with_the_queue():
    queue = queue_of(range(4))
    queue.close()
    assert [batch.tolist() for batch in queue.batches()] == [[0, 1], [2, 3]]
    assert list(queue.batches(copy=False)) == []


def test_bq9_batches_do_not_hold_the_last_one():
    queue = queue_of(range(4))
    queue.close()
    stream = queue.batches(copy=False)
    for _ in range(2):
        next(stream)
    assert list(stream) == []
    assert queue.statistics().buffers_replaced == 0


def test_bq10_a_with_block_closes_and_loses_nothing():
    with queue_of(range(3)) as queue:
        queue.send(3)
        assert taken(queue) == [0, 1]
        queue.send(4)
    with pytest.raises(Closed):
        queue.send(9)
    assert (taken(queue), queue.tail().tolist()) == ([2, 3], [4])


def test_bq10_a_with_block_closes_after_an_error():
    with pytest.raises(RuntimeError, match="^mine$"), queue_of(range(2)) as queue:
        raise RuntimeError("mine")
    with pytest.raises(Closed):
        queue.send(9)


def test_bq10_after_close():
    queue = queue_of(range(3))
    with pytest.raises(ValueError, match="call close"):
        queue.tail()
    queue.close()
    queue.close()
    with pytest.raises(Closed, match="send: the queue is closed"):
        queue.send(9)
    assert queue.tail().tolist() == [2]
    assert queue.tail() is None
    assert taken(queue) == [0, 1]
    with pytest.raises(Closed, match="every full batch was taken"):
        queue.sample()
    assert queue.statistics().size == 0
    assert queue.statistics().samples_delivered == 3


@pytest.mark.parametrize("count", [0, 2, 4])
def test_bq10_no_tail_where_batches_hold_all(count):
    queue = queue_of(range(count))
    queue.close()
    assert queue.tail() is None
    assert len(list(queue.batches())) == count // 2


def test_bq10_a_full_queue_can_be_closed():
    queue = queue_of(range(4))
    queue.close()
    with pytest.raises(Closed):
        queue.send(1, timeout=0)
    assert queue.tail() is None


def test_bq10_the_tail_has_the_tree():
    queue = BatchQueue({"a": np.zeros(2), "b": (0,)}, 3)
    queue.send({"a": [1, 2], "b": (3,)})
    queue.send({"a": [4, 5], "b": (6,)})
    queue.close()
    tail = queue.tail()
    assert (tail["a"].tolist(), tail["b"][0].tolist()) == ([[1, 2], [4, 5]], [3, 6])


def test_bq10_a_batch_that_was_opened_for_nobody_holds_nothing_up():
    # A sender that was interrupted after it had opened a batch and before it had a place.
    queue = queue_of(range(2))
    queue._core._open_batch(Wait(queue._core._clock, None, queue._core._full_message))
    queue.close()
    assert queue.tail() is None
    assert [batch.tolist() for batch in queue.batches()] == [[0, 1]]


def test_bq11_info():
    queue = queue_of(range(5), num_buffers=3)
    _, info = queue.sample(copy=False)
    assert (info.index, info.size, info.samples_received, info.samples_delivered) == (0, 3, 5, 2)
    assert (info.blocked_sends, info.senders, info.buffers_replaced) == (0, 0, 0)
    _, info = queue.sample()
    assert (info.index, info.size, info.samples_received, info.samples_delivered) == (1, 1, 5, 4)
    with pytest.raises(AttributeError):
        info.size = 0
    assert queue.statistics().samples_received == 5


def test_bq11_open_connections():
    queue = queue_of([])
    core_of(queue).count_senders(2)
    core_of(queue).count_senders(-1)
    assert queue.statistics().senders == 1


def test_a31_what_an_accumulator_builds_is_a_sample():
    example = {"step": {"obs": np.zeros((3, 2), np.float32)}, "episode": {"return": 0.0}}
    acc, queue = TrajectoryAccumulator(example), BatchQueue(example, 2)
    for value in (1, 2):
        acc.add("step", {"obs": [value, value]})
        acc.add("episode", {"return": value})
        queue.send(acc.build())
    batch, _ = queue.sample()
    assert batch["step"]["obs"][:, :, 0].tolist() == [[1, 0, 0], [2, 0, 0]]
    assert batch["episode"]["return"].tolist() == [1, 2]


def test_the_memory_is_written_after_all_where_ctrl_c_comes_between_two_leaves():
    class Interrupting:
        """A column that is interrupted at its first write."""

        def __init__(self, column):
            self.column = column
            self.interrupted = False

        def __setitem__(self, row, value):
            if not self.interrupted:
                self.interrupted = True
                raise KeyboardInterrupt
            self.column[row] = value

        def copy(self):
            return self.column.copy()

    queue = BatchQueue((0, 0), 2)
    queue.send((1, 1))
    columns = queue._core._open.columns
    columns[1] = Interrupting(columns[1])
    with pytest.raises(KeyboardInterrupt):
        queue.send((2, 2))
    # No hole: the batch is whole and those behind it are not held up.
    batch, info = queue.sample(timeout=0)
    assert [leaf.tolist() for leaf in batch] == [[1, 2], [1, 2]]
    assert info.samples_received == 2


@pytest.mark.parametrize(("nbytes", "is_copied"), [(1, True), (1 << 13, True), ((1 << 13) + 1, False)])
def test_a_small_batch_is_a_copy_and_leaves_its_buffer_to_the_queue(nbytes, is_copied):
    """BQ6: either way the arrays are the caller's own."""
    queue = BatchQueue({"x": np.zeros(nbytes, np.uint8)}, 2, num_buffers=2)
    kept = []
    for number in range(9):
        queue.send({"x": np.full(nbytes, 2 * number, np.uint8)})
        queue.send({"x": np.full(nbytes, 2 * number + 1, np.uint8)})
        column = queue._core._pending[0].columns[0]
        batch, _ = queue.sample(timeout=0)
        assert np.shares_memory(batch["x"], column) is not is_copied
        batch["x"][0] += 100
        kept.append(batch["x"])
    assert [each[:, -1].tolist() for each in kept] == [[2 * n + 100, 2 * n + 1] for n in range(9)]
    assert len(queue._core._buffers._leases) == (0 if is_copied else 9)


def test_repr():
    queue = queue_of(range(3))
    assert repr(queue) == "BatchQueue(Signature(int64[]), batch_size=2, size=3, open)"
    queue.close()
    assert repr(queue).endswith("size=3, closed)")


class QueueMachine(RuleBasedStateMachine):
    """Any history of one caller against a list (BQ4-BQ11)."""

    @initialize(batch_size=st.integers(1, 4), num_buffers=st.integers(2, 4))
    def start(self, batch_size, num_buffers):
        self.queue = BatchQueue({"a": np.zeros(2, np.int64), "b": 0}, batch_size, num_buffers=num_buffers)
        self.batch_size, self.num_buffers = batch_size, num_buffers
        self.waiting, self.sent, self.delivered, self.index = [], 0, 0, 0
        self.lent = self.closed = self.tail_taken = False
        self.held = []

    def places(self):
        """How many samples fit now: a slot is free, is being filled, is full, or is lent."""
        return (self.num_buffers - self.lent) * self.batch_size

    @rule()
    def send(self):
        value = self.sent
        if self.closed:
            with pytest.raises(Closed):
                self.queue.send({"a": [value, value], "b": value}, timeout=0)
        elif len(self.waiting) >= self.places():
            with pytest.raises(DeadlineExceeded):
                self.queue.send({"a": [value, value], "b": value}, timeout=0)
        else:
            self.queue.send({"a": [value, value], "b": value}, timeout=0)
            self.waiting.append(value)
            self.sent += 1

    @rule(copy=st.booleans(), hold=st.booleans())
    def sample(self, copy, hold):
        self.lent = False
        expected = self.waiting[: self.batch_size]
        if len(expected) < self.batch_size or (self.closed and self.index >= self.full_at_close):
            with pytest.raises(Closed if self.closed else DeadlineExceeded):
                self.queue.sample(timeout=0, copy=copy)
            return
        batch, info = self.queue.sample(timeout=0, copy=copy)
        del self.waiting[: self.batch_size]
        self.delivered += self.batch_size
        self.lent = not copy
        assert batch["a"].tolist() == [[value, value] for value in expected]
        assert batch["b"].tolist() == expected
        assert (info.index, info.size) == (self.index, len(self.waiting))
        self.index += 1
        if hold:
            self.held.append((batch["a"][:, 1], expected))

    @precondition(lambda self: self.held)
    @rule()
    def let_go(self):
        self.held.pop(0)

    @rule()
    def close(self):
        self.queue.close()
        if not self.closed:
            self.full_at_close = self.index + len(self.waiting) // self.batch_size
        self.closed = True

    @precondition(lambda self: self.closed)
    @rule()
    def tail(self):
        tail = self.queue.tail()
        rest = [] if self.tail_taken else self.waiting[(self.full_at_close - self.index) * self.batch_size :]
        assert ([] if tail is None else tail["b"].tolist()) == rest
        del self.waiting[len(self.waiting) - len(rest) :]
        self.delivered += len(rest)
        self.tail_taken = True

    @invariant()
    def counts_and_what_is_held(self):
        if not hasattr(self, "queue"):
            return
        info = self.queue.statistics()
        assert (info.samples_received, info.samples_delivered, info.size) == (
            self.sent,
            self.delivered,
            len(self.waiting),
        )
        for column, expected in self.held:
            assert column.tolist() == expected


QueueMachine.TestCase.settings = settings(max_examples=60, stateful_step_count=40, deadline=None)
TestQueue = QueueMachine.TestCase
