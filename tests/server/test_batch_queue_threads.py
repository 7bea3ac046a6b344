"""server BQ4, BQ5, BQ8, BQ10, BQ12: callers that wait, and callers at the same time."""

import signal
import sys
import threading
from collections.abc import Callable

import numpy as np
import pytest

from headrace.clock import SystemClock
from headrace.errors import Closed, DeadlineExceeded
from headrace.server import BatchQueue
from headrace.testing import FakeClock, in_forked_child
from headrace.waits import Wait

JOIN = 30.0


class Caller(threading.Thread):
    """A call in a thread of its own: `result()` is what it returned, or raises what it raised."""

    def __init__(self, call: Callable[[], object]) -> None:
        super().__init__()
        self.call, self.value, self.error = call, None, None
        self.start()

    def run(self):
        try:
            self.value = self.call()
        except BaseException as error:
            self.error = error

    def result(self):
        self.join(JOIN)
        assert not self.is_alive(), "the call did not end"
        if self.error is not None:
            raise self.error
        return self.value


@pytest.fixture
def clock():
    return FakeClock()


def filled(clock, count, batch_size=2, num_buffers=2):
    queue = BatchQueue(0, batch_size, num_buffers=num_buffers, clock=clock)
    for value in range(count):
        queue.send(value, timeout=0)
    return queue


def test_the_example_of_the_page(clock):
    queue = filled(clock, 0)
    sent, progress = [], threading.Semaphore(0)

    def send_all():
        for value in range(10):
            queue.send(value)
            sent.append(value)
            progress.release()

    sender = Caller(send_all)
    for batch in range(3):
        for _ in range(2 if batch else 4):
            assert progress.acquire(timeout=JOIN)
        clock.wait_for_waiters(1)
        assert len(sent) == 4 + 2 * batch
        assert queue.sample(timeout=0)[0].tolist() == [2 * batch, 2 * batch + 1]
    sender.result()
    assert [queue.sample(timeout=0)[0].tolist() for _ in range(2)] == [[6, 7], [8, 9]]
    assert queue.statistics().blocked_sends == 3


def test_bq4_a_send_that_waited_in_vain_stores_nothing(clock):
    queue = filled(clock, 4)
    sender = Caller(lambda: queue.send(99, timeout=5))
    clock.wait_for_waiters(1)
    clock.advance(4.9)
    clock.wait_for_waiters(1)  # For the rest: a time that moves before would not end it.
    assert sender.is_alive()
    clock.advance(0.1)
    with pytest.raises(DeadlineExceeded, match="taken for 5 s; nothing was stored"):
        sender.result()
    assert queue.statistics().samples_received == 4
    assert queue.statistics().blocked_sends == 1
    assert [queue.sample(timeout=0)[0].tolist() for _ in range(2)] == [[0, 1], [2, 3]]


@pytest.mark.parametrize("copy", [True, False])
def test_bq4_bq12_a_free_slot_wakes_a_sender(clock, copy):
    queue = filled(clock, 4)
    sender = Caller(lambda: queue.send(4))
    clock.wait_for_waiters(1)
    queue.sample(copy=copy)
    if not copy:
        assert sender.is_alive()
        queue.sample(timeout=0)
    sender.result()
    assert queue.statistics().samples_received == 5


def test_bq12_a_free_slot_wakes_as_many_as_it_has_places(clock):
    queue = filled(clock, 6, batch_size=3)
    senders = [Caller(lambda value=value: queue.send(value)) for value in (10, 11, 12)]
    clock.wait_for_waiters(3)
    queue.sample()
    for sender in senders:
        sender.result()
    queue.sample()
    assert sorted(queue.sample(timeout=0)[0].tolist()) == [10, 11, 12]


def test_bq12_a_sender_that_gives_up_takes_no_wake_up_with_it(clock):
    queue = filled(clock, 2, batch_size=1)
    patient = Caller(lambda: queue.send(7))
    clock.wait_for_waiters(1)
    hasty = Caller(lambda: queue.send(8, timeout=1))
    clock.wait_for_waiters(2)
    clock.advance(1)
    queue.sample()
    # The hasty one may still find the place that is free now; then the next free one is for the other.
    try:
        hasty.result()
        queue.sample()
    except DeadlineExceeded:
        pass
    patient.result()
    assert queue.statistics().size == 2


def test_bq5_sample_waits_for_the_last_sample_of_a_batch(clock):
    queue = filled(clock, 1)
    consumer = Caller(queue.sample)
    clock.wait_for_waiters(1)
    queue.send(1)
    batch, info = consumer.result()
    assert (batch.tolist(), info.index) == ([0, 1], 0)


def test_bq5_a_deadline_of_sample(clock):
    queue = filled(clock, 1)
    consumer = Caller(lambda: queue.sample(timeout=3))
    clock.wait_for_waiters(1)
    clock.advance(3)
    with pytest.raises(DeadlineExceeded, match="within 3 s; 1 samples wait"):
        consumer.result()


def test_bq7_two_consumers_with_views_leave_senders_room(clock):
    # Both wait, so neither gives back what the other is lent; both get a batch and keep it.
    queue = filled(clock, 0, batch_size=1)
    consumers = [Caller(lambda: queue.sample(copy=False)) for _ in range(2)]
    clock.wait_for_waiters(2)
    queue.send(0)
    queue.send(1)
    kept = sorted(consumer.result()[0].tolist() for consumer in consumers)
    assert kept == [[0], [1]]
    queue.send(2, timeout=0)
    assert queue.sample(timeout=0)[0].tolist() == [2]


def test_bq10_close_ends_every_wait(clock):
    queue = filled(clock, 4)
    senders = [Caller(lambda: queue.send(9)) for _ in range(3)]
    clock.wait_for_waiters(3)
    queue.close()
    for sender in senders:
        with pytest.raises(Closed):
            sender.result()
    empty = filled(clock, 1)
    consumers = [Caller(empty.sample) for _ in range(2)]
    clock.wait_for_waiters(2)
    empty.close()
    for consumer in consumers:
        with pytest.raises(Closed):
            consumer.result()
    assert empty.tail().tolist() == [0]


def test_bq10_batches_end_while_waiting(clock):
    queue = filled(clock, 2)
    consumer = Caller(lambda: [batch.tolist() for batch in queue.batches()])
    clock.wait_for_waiters(1)
    queue.close()
    assert consumer.result() == [[0, 1]]


class SlowColumn:
    """A column whose writes wait until the test lets them go on."""

    def __init__(self, column):
        self.column = column
        self.reached, self.go_on = threading.Event(), threading.Event()

    def __setitem__(self, row, value):
        self.reached.set()
        assert self.go_on.wait(JOIN)
        self.column[row] = value


def slow_send(queue, value):
    """A sender that has its place and is still copying."""
    columns = queue._core._open.columns
    slow = columns[0] = SlowColumn(columns[0])
    sender = Caller(lambda: queue.send(value))
    assert slow.reached.wait(JOIN)
    columns[0] = slow.column
    return sender, slow


def test_bq5_a_batch_waits_for_a_sender_that_is_still_copying(clock):
    queue = filled(clock, 1)
    columns = queue._core._open.columns
    sender, slow = slow_send(queue, 1)
    with pytest.raises(DeadlineExceeded):
        queue.sample(timeout=0)
    consumer = Caller(queue.sample)
    clock.wait_for_waiters(1)
    columns[0] = slow.column
    slow.go_on.set()
    sender.result()
    assert consumer.result()[0].tolist() == [0, 1]


@pytest.mark.parametrize("before", [0, 1])
def test_bq10_close_waits_for_a_sender_that_has_its_place(clock, before):
    queue = filled(clock, 2 + before)
    if not before:
        queue._core._open_batch(Wait(queue._core._clock, None, queue._core._full_message))
    sender, slow = slow_send(queue, 9)
    queue.close()
    last = Caller(queue.tail) if not before else Caller(lambda: (queue.sample(), queue.sample())[1][0])
    clock.wait_for_waiters(1)
    slow.go_on.set()
    sender.result()
    assert last.result().tolist() == ([9] if not before else [2, 9])


class TellingClock(SystemClock):
    """The machine's clock, which tells that somebody is about to wait."""

    def __init__(self):
        self.waiting = threading.Event()

    def wait(self, condition, timeout):
        self.waiting.set()
        return super().wait(condition, timeout)


@pytest.mark.parametrize(
    ("count", "call"),
    [(4, lambda queue: queue.send(9)), (1, lambda queue: queue.sample())],
    ids=["send", "sample"],
)
def test_bq12_ctrl_c_ends_a_wait(count, call):
    clock = TellingClock()
    queue = filled(clock, count)
    main = threading.main_thread().ident

    def interrupt():
        assert clock.waiting.wait(JOIN)
        signal.pthread_kill(main, signal.SIGINT)

    interrupter = Caller(interrupt)
    with pytest.raises(KeyboardInterrupt):
        call(queue)
    interrupter.result()
    assert Caller(queue.statistics).result().samples_received == count


class Alarm:
    """Raises KeyboardInterrupt some time after it was set, once, and only inside its `with` block."""

    def __enter__(self):
        self.before = signal.signal(signal.SIGALRM, self.ring)
        self.armed, self.rung = False, 0
        return self

    def set(self, seconds):
        self.armed = True
        signal.setitimer(signal.ITIMER_REAL, seconds)

    def ring(self, *_):
        if self.armed:
            self.armed = False
            self.rung += 1
            raise KeyboardInterrupt

    def __exit__(self, *_):
        self.armed = False
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, self.before)


def test_bq12_ctrl_c_at_any_moment_of_send_leaves_no_hole():
    queue = BatchQueue({"a": 0, "b": np.zeros(3)}, 3, num_buffers=2)
    delivered, turn, sample = 0, 0, {"a": 1, "b": np.ones(3)}
    with Alarm() as alarm:
        # However quick the machine is.
        while alarm.rung < 300 or delivered < 300:
            turn += 1
            try:
                alarm.set(1e-6 * (1 + turn % 60))
                for _ in range(6):
                    queue.send(sample, timeout=0)
                alarm.armed = False
            except (KeyboardInterrupt, DeadlineExceeded):
                alarm.armed = False
            while queue.statistics().size >= 3:
                batch, _ = queue.sample(timeout=0)  # behind a hole it would find none
                assert (batch["a"].tolist(), batch["b"].tolist()) == ([1] * 3, [[1.0] * 3] * 3)
                delivered += 3
    assert queue.statistics().samples_delivered == delivered


class LosingClock(FakeClock):
    """Ctrl-C in the middle of `Condition.wait`: the lock is given up and not taken again."""

    def wait(self, condition, timeout):
        condition.release()
        raise KeyboardInterrupt


def test_bq12_ctrl_c_between_giving_the_lock_up_and_taking_it_again():
    queue = filled(LosingClock(), 4)
    with pytest.raises(KeyboardInterrupt):
        queue.send(9)
    assert [queue.sample()[0].tolist() for _ in range(2)] == [[0, 1], [2, 3]]
    with pytest.raises(KeyboardInterrupt):
        queue.sample()
    # Nobody holds the lock: another thread gets through.
    Caller(lambda: queue.send(4)).result()
    assert queue.statistics().samples_received == 5


@pytest.fixture
def eager_threads():
    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-5)
    yield
    sys.setswitchinterval(interval)


@pytest.mark.parametrize(
    ("batch_size", "num_buffers", "consumers", "copy"),
    [(1, 2, 1, False), (1, 2, 3, True), (7, 2, 2, False), (16, 3, 2, True)],
)
@pytest.mark.usefixtures("eager_threads")
def test_bq5_bq8_bq12_each_sample_once_and_in_its_senders_order(batch_size, num_buffers, consumers, copy):
    senders, each = 4, 300
    queue = BatchQueue({"sender": 0, "count": 0, "row": np.zeros(5)}, batch_size, num_buffers=num_buffers)
    found = {}

    def send_all(sender):
        for count in range(each):
            queue.send({"sender": sender, "count": count, "row": np.full(5, sender * each + count)})

    def take_all():
        while True:
            try:
                batch, info = queue.sample(copy=copy)
            except Closed:
                return
            assert (batch["row"] == (batch["sender"] * each + batch["count"])[:, None]).all()
            found[info.index] = list(zip(batch["sender"].tolist(), batch["count"].tolist(), strict=True))

    taking = [Caller(take_all) for _ in range(consumers)]
    sending = [Caller(lambda sender=sender: send_all(sender)) for sender in range(senders)]
    for caller in sending:
        caller.result()
    queue.close()
    for caller in taking:
        caller.result()
    tail = queue.tail()
    stream = [pair for index in sorted(found) for pair in found[index]]
    stream += [] if tail is None else list(zip(tail["sender"].tolist(), tail["count"].tolist(), strict=True))
    assert len(stream) == senders * each
    for sender in range(senders):
        assert [count for who, count in stream if who == sender] == list(range(each))
    info = queue.statistics()
    assert info.samples_received == info.samples_delivered == senders * each


@pytest.mark.usefixtures("eager_threads")
def test_bq12_waits_with_deadlines_among_waits_without():
    # Senders that give up early and at once must not leave others asleep: everything that was sent arrives.
    queue = BatchQueue(0, 1, num_buffers=2)
    stored = [0] * 4

    def send_some(sender):
        for count in range(300):
            try:
                queue.send(sender, timeout=None if sender < 2 else (0, 1e-5)[count % 2])
                stored[sender] += 1
            except DeadlineExceeded:
                pass

    received = []
    consumer = Caller(lambda: received.extend(batch[0] for batch in queue.batches()))
    senders = [Caller(lambda sender=sender: send_some(sender)) for sender in range(4)]
    for sender in senders:
        sender.result()
    queue.close()
    consumer.result()
    assert stored[:2] == [300, 300]
    assert [received.count(sender) for sender in range(4)] == stored


def test_every_use_in_a_forked_child_is_refused():
    """A child has a copy of the queue, from which nobody would take its samples."""
    queue = BatchQueue(0, 2)
    queue.send(1)

    def use():
        refused = []
        for call in (
            lambda: queue.send(2),
            queue.sample,
            queue.statistics,
            queue.tail,
            lambda: next(queue.batches()),
        ):
            with pytest.raises(
                RuntimeError, match="this queue belongs to process .* queue of multiprocessing"
            ):
                call()
            refused.append(True)
        with queue:
            pass
        return len(refused), "of another process" in repr(queue)

    with queue._core._lock:  # Another thread may hold it.
        assert in_forked_child(use) == (5, True)
    queue.send(2)
    assert queue.sample(timeout=0)[0].tolist() == [1, 2]
