"""Who waits for what, in which order, and how every wait ends (replay I3 to I6, L9 to L12, B5, part 12)."""

import gc
import os
import signal
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

import headrace as hr
import headrace.replay.sampling.sampler as sampling_module
from headrace.replay.public import core_of
from headrace.tables.description.rate_limiters import MinSize, Queue
from headrace.tables.description.selectors import Fifo, Lifo, Prioritized, Uniform
from headrace.testing import FakeClock

SIGNATURE = hr.Signature.like({"n": np.int64(0)})


class Scene:
    """A replay on a clock that stands still, and threads whose calls wait on it."""

    def __init__(self, *tables):
        self.clock = FakeClock()
        self.replay = hr.Replay(SIGNATURE, tables, seed=0, clock=self.clock)
        self.threads = ThreadPoolExecutor(8)
        self.waiting = 0

    def start(self, call, *arguments, **options):
        """Call in a thread, and return when it waits."""
        future = self.threads.submit(call, *arguments, **options)
        self.waiting += 1
        self.clock.wait_for_waiters(self.waiting)
        return future

    def writer(self, **options):
        return self.replay.writer(history=1, **options)

    def put(self, writer, *numbers, table="t"):
        for number in numbers:
            writer.append({"n": number})
            writer.create_item(table, 1)

    def statistics(self, table="t"):
        return self.replay.table(table).statistics()


@pytest.fixture
def scene():
    scenes = []

    def make(*tables):
        scenes.append(Scene(*tables))
        return scenes[-1]

    yield make
    for each in scenes:
        each.replay.close()
        each.threads.shutdown()


def table(name="t", sampler=None, max_size=1000, **settings):
    return hr.Table(name, sampler=sampler or Fifo(), remover=Fifo(), max_size=max_size, **settings)


# ---- deadlines -----------------------------------------------------------------------------------------------


def test_a_timeout_of_zero_never_waits(scene):
    # L9
    play = scene(table(rate_limiter=MinSize(3)))
    with play.writer() as writer:
        play.put(writer, 1, 2)
    before = play.statistics()
    with pytest.raises(hr.DeadlineExceeded) as caught:
        play.replay.sample("t", 4, timeout=0)
    assert isinstance(caught.value, TimeoutError)
    message = str(caught.value)
    for part in ("'t'", "sample of 4", "size 2", "inserts 2", "samples 0", "min_size=3", "min_diff=-inf"):
        assert part in message
    assert play.statistics() == before


def test_a_sample_waits_exactly_its_timeout(scene):
    # L9: nothing is taken or counted
    play = scene(table())
    waiter = play.start(play.replay.sample, "t", 2, timeout=5.0)
    assert play.statistics().waiting_samples == 1
    play.clock.advance(4.9)
    play.clock.wait_for_waiters(1)  # For the rest: a time that moves before would not end it.
    assert not waiter.done()
    play.clock.advance(0.2)
    with pytest.raises(hr.DeadlineExceeded, match="waited 5.1 s"):
        waiter.result(10)
    found = play.statistics()
    assert (found.waiting_samples, found.samples) == (0, 0)
    assert found.seconds_waiting_samples == pytest.approx(5.1)


def test_no_timeout_waits_for_ever(scene):
    # L9
    play = scene(table())
    waiter = play.start(play.replay.sample, "t", 1)
    play.clock.advance(1e9)
    assert not waiter.done()
    with play.writer() as writer:
        play.put(writer, 7)
    assert waiter.result(10).data["n"].tolist() == [7]
    assert play.statistics().seconds_waiting_samples == pytest.approx(1e9)


def test_flush_tells_how_many_items_wait_for_which_table(scene):
    # I5: they stay pending, and go in later
    play = scene(hr.Table.queue("a", 1), hr.Table.queue("b", 2))
    writer = play.writer()
    play.put(writer, 1, 2, 3, table="a")
    play.put(writer, 4, 5, 6, table="b")
    with pytest.raises(hr.DeadlineExceeded, match=r"3 items.*2 for table 'a'.*1 for table 'b'") as caught:
        writer.flush(timeout=0)
    assert caught.value.pending == writer.pending == 3
    flush = play.start(writer.flush, timeout=3.0)
    play.replay.sample("a", 1)
    play.replay.sample("b", 1)
    play.clock.wait_for_waiters(1)
    assert not flush.done()
    play.replay.sample("a", 1)
    flush.result(10)
    assert writer.pending == 0
    writer.close()


def test_close_flushes_and_says_what_was_not_inserted(scene):
    # I6
    play = scene(hr.Table.queue("t", 1))
    writer = play.writer()
    play.put(writer, 1, 2, 3)
    close = play.start(writer.close, timeout=2.0)
    play.clock.advance(2.0)
    with pytest.raises(hr.DeadlineExceeded, match="2 items"):
        close.result(10)
    # It is still open and can be closed when its items are in.
    play.waiting = 0
    play.replay.sample("t", 1)
    play.replay.sample("t", 1)
    writer.close(timeout=0)
    writer.close()
    with pytest.raises(hr.Closed):
        writer.append({"n": 4})


def test_a_with_block_waits_for_its_items(scene):
    # I6
    play = scene(hr.Table.queue("t", 1))

    def write():
        with play.writer() as writer:
            play.put(writer, 1, 2)

    block = play.start(write)
    assert play.replay.sample("t", 1).data["n"].tolist() == [1]
    block.result(10)
    assert len(play.replay.table("t")) == 1


def test_a_with_block_left_by_an_exception_waits_for_nothing_and_warns(scene):
    # I6: the items are not dropped; they go in when the gate opens
    play = scene(hr.Table.queue("t", 1))

    def write():
        with play.writer() as writer:
            play.put(writer, 1, 2, 3)
            raise KeyError("mine")

    with pytest.warns(ResourceWarning, match="2 items pending"), pytest.raises(KeyError, match="mine"):
        write()
    assert [play.replay.sample("t", 1, timeout=0).data["n"].tolist() for _ in range(3)] == [[1], [2], [3]]
    assert play.replay.statistics().store.pages == 0


def test_a_with_block_left_by_an_exception_is_silent_when_nothing_is_pending(scene):
    # I6
    play = scene(table())
    writer = play.writer()

    def write():
        with writer:
            play.put(writer, 1)
            raise KeyError("mine")

    with pytest.raises(KeyError, match="mine"):
        write()
    with pytest.raises(hr.Closed):
        writer.append({"n": 1})


def test_a_forgotten_writer_warns_and_gives_its_pages_back(scene):
    # I6: never dropped in silence
    play = scene(hr.Table.queue("t", 1))
    writers = [play.writer()]
    play.put(writers[0], 1, 2)

    def forget():
        writers.clear()
        gc.collect()

    with pytest.warns(ResourceWarning, match="1 items pending"):
        forget()
    play.replay.sample("t", 1)
    play.replay.sample("t", 1)
    assert play.replay.statistics().store.pages == 0


# ---- pending inserts -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("opens", ["sample", "delete", "reset", "configure"])
def test_whoever_opens_the_gate_applies_what_is_pending(scene, opens):
    # I3: no further call of the writer is needed
    play = scene(table(rate_limiter=Queue(1)))
    writer = play.writer()
    play.put(writer, 1, 2)
    assert (play.statistics().size, play.statistics().pending_inserts, writer.pending) == (1, 1, 1)
    if opens == "sample":
        play.replay.sample("t", 1)
    elif opens == "delete":
        play.replay.delete("t", [1])
    elif opens == "reset":
        play.replay.reset("t")
    else:
        play.replay.table("t").configure(rate_limiter=Queue(2))
    assert (play.statistics().pending_inserts, writer.pending) == (0, 0)
    writer.close(timeout=0)


def test_create_item_does_not_wait_while_there_is_room(scene):
    # I3, I4
    play = scene(hr.Table.queue("t", 1))
    writer = play.writer(max_pending=3, timeout=0)
    play.put(writer, 1, 2, 3, 4)
    assert writer.pending == 3
    with pytest.raises(hr.DeadlineExceeded, match="3 items"):
        writer.create_item("t", 1)
    assert writer.pending == 3
    for number in (1, 2, 3, 4):
        assert play.replay.sample("t", 1).data["n"].tolist() == [number]
    writer.close()


def test_create_item_waits_for_room_by_the_writers_timeout(scene):
    # I4
    play = scene(hr.Table.queue("t", 1))
    writer = play.writer(max_pending=1, timeout=4.0)
    play.put(writer, 1, 2)
    create = play.start(writer.create_item, "t", 1)
    play.clock.advance(3.9)
    assert not create.done()
    play.replay.sample("t", 1)
    assert create.result(10) == 3
    play.waiting = 0
    create = play.start(writer.create_item, "t", 1)
    play.clock.advance(4.0)
    with pytest.raises(hr.DeadlineExceeded):
        create.result(10)
    assert [play.replay.sample("t", 1).info.keys[0] for _ in range(2)] == [2, 3]
    writer.close(timeout=0)


def test_only_an_append_that_makes_an_item_waits_for_room(scene):
    # I4: windows of 2 rows, one every 3; a refused append stores nothing
    play = scene(hr.Table.queue("t", 1))
    writer = play.replay.writer(items=[hr.ItemRule("t", 2, stride=3)], max_pending=1, timeout=0)
    for number in range(5):  # Items of rows 0-1 and 3-4: the second is pending.
        writer.append({"n": number})
    assert writer.pending == 1
    writer.append({"n": 5})
    writer.append({"n": 6})
    for _ in range(2):
        with pytest.raises(hr.DeadlineExceeded):
            writer.append({"n": 7})
    assert play.replay.sample("t", 1).data["n"].tolist() == [[0, 1]]
    writer.append({"n": 7})
    assert play.replay.sample("t", 1).data["n"].tolist() == [[3, 4]]
    assert play.replay.sample("t", 1).data["n"].tolist() == [[6, 7]]
    writer.close()


def test_items_enter_in_the_order_they_arrived_from_all_writers(scene):
    # I3, L11
    play = scene(hr.Table.queue("t", 2))
    writers = [play.writer() for _ in range(3)]
    random = np.random.default_rng(0)
    for number in range(30):
        play.put(writers[random.integers(3)], number)
    drawn = [play.replay.sample("t", 1).data["n"][0] for _ in range(30)]
    assert drawn == list(range(30))
    for writer in writers:
        writer.close(timeout=0)


# ---- waiting samples -----------------------------------------------------------------------------------------


def test_waiting_samples_are_served_in_order_of_arrival(scene):
    # L11: the large batch at the head is not overtaken by the small one that could be served
    play = scene(table(max_times_sampled=1))
    large = play.start(play.replay.sample, "t", 3)
    small = play.start(play.replay.sample, "t", 1)
    writer = play.writer()
    play.put(writer, 0, 1)
    assert not play.replay.can_sample("t", 1)
    with pytest.raises(hr.DeadlineExceeded):
        play.replay.sample("t", 1, timeout=0)
    assert play.statistics().samples == 0
    play.put(writer, 2)
    assert large.result(10).data["n"].tolist() == [0, 1, 2]
    play.put(writer, 3)
    assert small.result(10).data["n"].tolist() == [3]
    writer.close()


def test_a_sample_that_is_about_to_be_drawn_lets_items_leave(scene):
    # collectors CV7: a full store is no error while the thread of a sample that can be served has not run yet.
    scene = scene(table(max_times_sampled=1))
    core, writer = core_of(scene.replay), scene.writer()
    future = scene.start(scene.replay.sample, "t", 1, timeout=40)
    assert not core.items_may_leave()
    with core.lock:
        scene.put(writer, 1)
        assert core.items_may_leave()
    assert future.result(40)["n"].tolist() == [1]
    writer.close()


def test_when_the_head_gives_up_the_next_is_served(scene):
    # L11
    play = scene(table(max_times_sampled=1))
    large = play.start(play.replay.sample, "t", 3, timeout=1.0)
    small = play.start(play.replay.sample, "t", 1)
    with play.writer() as writer:
        play.put(writer, 0)
    play.clock.advance(1.0)
    with pytest.raises(hr.DeadlineExceeded):
        large.result(10)
    assert small.result(10).data["n"].tolist() == [0]


@pytest.mark.parametrize("change", ["insert", "delete", "configure"])
def test_a_change_that_opens_the_gate_wakes_a_sample(scene, change):
    # L11, L8, T9
    play = scene(table(rate_limiter=Queue(2)))
    writer = play.writer()
    play.put(writer, 0, 1)
    play.replay.sample("t", 2)
    waiter = play.start(play.replay.sample, "t", 1)
    if change == "insert":
        play.put(writer, 2)
    elif change == "delete":  # Nothing is pending, so only an insert helps; the delete must not disturb.
        play.replay.delete("t", [1])
        assert not waiter.done()
        play.put(writer, 2)
    else:
        play.replay.table("t").configure(rate_limiter=MinSize(1))
    assert len(waiter.result(10).info.keys) == 1
    writer.close()


def test_a_waiting_batch_that_has_become_impossible_ends(scene):
    # L10, T9: waiters are looked at again
    play = scene(table(rate_limiter=Queue(8)))
    waiter = play.start(play.replay.sample, "t", 6)
    play.replay.table("t").configure(rate_limiter=Queue(5))
    with pytest.raises(ValueError, match="at most 5"):
        waiter.result(10)


# ---- closing -------------------------------------------------------------------------------------------------


def test_close_wakes_every_waiter(scene):
    # Part 12, L12: samples, a flush and a create_item
    play = scene(hr.Table.queue("t", 1), table("other"))
    flushing, creating = play.writer(), play.writer(max_pending=1)
    play.put(flushing, 1, 2, 3)
    play.put(creating, 4)
    waiters = [
        play.start(play.replay.sample, "other", 1),
        play.start(play.replay.sample, "other", 5, timeout=1e6),
        play.start(creating.create_item, "t", 1),
    ]
    flush = play.start(flushing.flush)
    play.replay.close()
    for waiter in waiters:
        with pytest.raises(hr.Closed):
            waiter.result(10)
    with pytest.raises(hr.Closed, match="2 items.*refused"):
        flush.result(10)
    with pytest.raises(hr.Closed, match="1 items.*refused"):
        creating.close()
    with pytest.raises(hr.Closed, match="2 items.*refused"):
        flushing.close()
    # A second close does nothing (I6, part 12).
    creating.close()
    flushing.close()
    play.replay.close()


def test_close_ends_a_wait_that_stands_behind_another(scene):
    """L12, part 12: what waits behind a batch that closing ended is not served by a closed replay in its place."""
    play = scene(table(rate_limiter=Queue(20), max_times_sampled=1))
    writer = play.writer()
    play.put(writer, *range(5))
    waits = [play.start(play.replay.sample, "t", size) for size in (10, 1, 1)]
    play.replay.close()
    for each in waits:
        with pytest.raises(hr.Closed):
            each.result(10)
    writer.close()


def test_after_close_every_call_raises(scene):
    # Part 12
    play = scene(table())
    writer = play.writer()
    play.put(writer, 1)
    handle = play.replay.table("t")
    play.replay.close()
    for call in (
        lambda: play.replay.sample("t", 1),
        lambda: play.replay.sample("unknown", 1),
        lambda: play.replay.update_priorities("t", [1], [1.0]),
        lambda: play.replay.delete("t", [1]),
        lambda: play.replay.reset("t"),
        lambda: play.replay.can_insert("t"),
        lambda: play.replay.can_sample("t"),
        play.replay.statistics,
        lambda: play.replay.table("t"),
        lambda: core_of(play.replay).declarations.declare_final_columns(["n"]),
        lambda: core_of(play.replay).declarations.declare_padding("t", {"n": 1}),
        lambda: len(handle),
        handle.statistics,
        handle.distribution,
        lambda: handle.configure(max_size=5),
        play.replay.writer,
        lambda: writer.append({"n": 1}),
        lambda: writer.create_item("t", 1),
        writer.end_episode,
        writer.flush,
        lambda: writer._rows.end_lanes(np.array([0]), None),
        lambda: writer._rows.end_lanes(np.array([0]), {"n": np.array([1])}),
        writer._rows.cut_open_lanes,
        writer._rows.drop_open_lanes,
        writer._rows.end_streams,
    ):
        with pytest.raises(hr.Closed):
            call()
    assert "closed" in repr(play.replay)
    assert "closed" in repr(handle)
    assert (handle.name, play.replay.table_names) == ("t", ("t",))
    # What was applied before is no error of the writer's end (I6).
    writer.close()


@pytest.mark.parametrize("lengths", [[1], [2], [1, 2]])
def test_a_replay_that_is_closed_in_the_middle_of_an_append_takes_nothing_more(scene, lengths):
    # L12, part 12: a flush must never report an item as applied that came after.
    play = scene(table())
    writer = play.replay.writer(items=[hr.ItemRule("t", length) for length in lengths])
    writer.append({"n": 0})
    lock = core_of(play.replay).lock
    about_to_append, lock_is_held = threading.Event(), threading.Event()

    class Handing:
        """Lets the replay be closed after `append` has looked, and before it has the lock."""

        def __enter__(self):
            about_to_append.set()
            assert lock_is_held.wait(10)
            return lock.__enter__()

        def __exit__(self, *error):
            return lock.__exit__(*error)

    writer._rows._lock = Handing()
    appending = play.threads.submit(writer.append, {"n": 1})
    assert about_to_append.wait(10)
    play.replay.close()
    lock_is_held.set()
    with pytest.raises(hr.Closed):
        appending.result(10)
    writer._rows._lock = lock
    writer.close()


INTERRUPTED = """
import os, signal, sys, threading, time
import numpy as np, headrace as hr
from headrace.clock import SystemClock

class InterruptingClock(SystemClock):
    armed = False
    def wait(self, condition, timeout):
        if self.armed:
            self.armed = False
            threading.Thread(target=self.interrupt, args=(condition,)).start()
        return super().wait(condition, timeout)
    def interrupt(self, condition):
        with condition:  # Its lock can be had once the main thread has given it up to wait.
            pass
        os.kill(os.getpid(), signal.SIGINT)

clock = InterruptingClock()
replay = hr.Replay(hr.Signature.like({"n": np.int64(0)}), [hr.Table.queue("t", 1)], clock=clock)
writer = replay.writer(history=1)
for number in range(2):
    writer.append({"n": number})
    writer.create_item("t", 1)
def interrupted(call):
    clock.armed = True
    begin = time.monotonic()
    try:
        call()
    except KeyboardInterrupt:
        print(time.monotonic() - begin < 1 + slack)

# Compiled before the clock counts.
for _ in range(2):
    replay.sample("t", 1)
slack = 9
interrupted(lambda: replay.sample("t", 1))
print(replay.table("t").statistics().waiting_samples)
for number in range(2):
    writer.append({"n": number})
    writer.create_item("t", 1)
interrupted(writer.flush)
replay.close()
"""


def test_ctrl_c_ends_a_wait():
    # L12: of a sample and of a flush, within a second (the rest is slack for a busy machine)
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", INTERRUPTED],
        capture_output=True,
        text=True,
        timeout=55,
        env={**os.environ},
        check=False,
    )
    assert done.stdout.split() == ["True", "0", "True"], done.stderr


class InterruptedClock:
    """Ctrl-C hits the wait where it has given the lock up and would not take it again."""

    def __init__(self):
        self.longest = 0.0

    def monotonic(self):
        return 0.0

    def wait(self, condition, timeout):
        self.longest = max(self.longest, timeout)
        condition.release()
        raise KeyboardInterrupt


def test_ctrl_c_inside_the_wait_leaves_the_replay_usable():
    # L12; a sleep that a signal cannot wake is never longer than a second
    clock = InterruptedClock()
    with hr.Replay(SIGNATURE, [hr.Table.queue("t", 1)], clock=clock) as replay:
        with pytest.raises(KeyboardInterrupt):
            replay.sample("t", 1)
        assert replay.table("t").statistics().waiting_samples == 0
        writer = replay.writer(history=1)
        for number in range(2):
            writer.append({"n": number})
            writer.create_item("t", 1)
        with pytest.raises(KeyboardInterrupt):
            writer.flush(timeout=1e6)
        with ThreadPoolExecutor(1) as threads:
            assert threads.submit(replay.sample, "t", 1).result(10).data["n"].tolist() == [0]
        assert replay.sample("t", 1).data["n"].tolist() == [1]
        writer.close()
        assert clock.longest < 1.0


# ---- several threads -----------------------------------------------------------------------------------------


def test_no_batch_shows_a_torn_row_while_writers_write():
    # B5: every row says n in a thousand places; pages are used again all the time (C4)
    signature = hr.Signature.like({"n": np.zeros(1000, np.int32), "m": np.int64(0)})
    tables = [table("t", Uniform(), max_size=50), table("p", Prioritized(), max_size=30, max_times_sampled=5)]
    problems = []
    with hr.Replay(signature, tables, capacity=600, seed=0) as replay:
        started, done = threading.Barrier(4), threading.Event()

        def guarded(work, *arguments):
            try:
                started.wait()
                work(*arguments)
            except Exception as problem:
                problems.append(problem)
            finally:
                done.set() if work is write and arguments[0] == 0 else None

        def write(first):
            rules = [hr.ItemRule("t", 2), hr.ItemRule("p", 1)]
            with replay.writer(items=rules) as writer:
                for number in range(first, first + 1500):
                    writer.append({"n": np.full(1000, number, np.int32), "m": number})
                    if number % 7 == 0:
                        writer.end_episode()

        def read(name):
            while not done.is_set():
                try:
                    batch = replay.sample(name, 4, timeout=0.05)
                except hr.DeadlineExceeded:
                    continue
                n, m = batch.data["n"], batch.data["m"]
                assert (n == m[..., None]).all(), "a torn row"
                if name == "t":
                    assert (m[:, 1] == m[:, 0] + 1).all(), "a mixture of two items"
                else:
                    assert (batch.info.times_sampled <= 5).all()
                    pairs = list(zip(batch.info.keys, batch.info.times_sampled, strict=True))
                    assert not taken.intersection(pairs), "one sample of an item given twice"
                    taken.update(pairs)

        taken = set()
        threads = [
            threading.Thread(target=guarded, args=arguments)
            for arguments in ((write, 0), (write, 1_000_000), (read, "t"), (read, "p"))
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert not problems


def test_two_learners_share_a_queue_and_no_item_comes_twice():
    # B5, L11, I3: a slow queue between two writers and two learners, whole by the counts
    with hr.Replay(SIGNATURE, [hr.Table.queue("t", 8)], seed=0) as replay, ThreadPoolExecutor(4) as threads:

        def write(first):
            with replay.writer(items=[hr.ItemRule("t", 1)], max_pending=5) as writer:
                for number in range(first, first + 400):
                    writer.append({"n": number})

        def learn():
            return [n for _ in range(80) for n in replay.sample("t", 5, timeout=30).data["n"].tolist()]

        writing = [threads.submit(write, first) for first in (0, 1000)]
        learning = [threads.submit(learn) for _ in range(2)]
        drawn = [future.result(50) for future in learning]
        for future in writing:
            future.result(50)
    assert sorted(drawn[0] + drawn[1]) == [*range(400), *range(1000, 1400)]
    for numbers in drawn:
        assert [n for n in numbers if n < 1000] == sorted(n for n in numbers if n < 1000)


def test_a_sample_is_woken_by_the_insert(monkeypatch):
    # L11, on the machine's own clock: at once, and not by a look of its own
    monkeypatch.setattr("headrace.waits._LONGEST_TURN", 1000.0)
    monkeypatch.setattr("headrace.clock._LONGEST_SLEEP", 1000.0)
    with hr.Replay(SIGNATURE, [table()], seed=0) as replay, ThreadPoolExecutor(1) as threads:
        with replay.writer(items=[hr.ItemRule("t", 1)]) as writer:
            waiter = threads.submit(replay.sample, "t", 1, timeout=500)
            while not replay.table("t").statistics().waiting_samples:
                assert not waiter.done()
            writer.append({"n": 1})
            assert waiter.result(30).data["n"].tolist() == [1]


def test_main_thread_signal_handler_is_untouched():
    # L12: nothing of the library replaces the handler of Ctrl-C
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


# ---- writers that failed -------------------------------------------------------------------------------------


class Gone:
    """A writer that was never opened here."""


def test_when_the_last_writer_has_failed_a_waiting_sample_ends_with_its_error(scene):
    # Part 12
    play = scene(table())
    with play.writer() as writer:
        play.put(writer, 1)
    play.replay.reset("t")
    waiter = play.start(play.replay.sample, "t", 1)
    core_of(play.replay).writers.failed(Gone(), hr.WorkerDied("worker 3 died", worker_idx=3))
    with pytest.raises(hr.WorkerDied, match="worker 3"):
        waiter.result(10)
    with pytest.raises(hr.WorkerDied):
        play.replay.sample("t", 1)


def test_while_another_can_write_a_failure_ends_no_wait(scene):
    # Part 12
    play = scene(table())
    writer = play.writer()
    waiter = play.start(play.replay.sample, "t", 1)
    core_of(play.replay).writers.failed(Gone(), hr.WorkerDied("worker 3 died", worker_idx=3))
    assert not waiter.done()
    play.put(writer, 5)
    assert waiter.result(10).data["n"].tolist() == [5]
    writer.close()


def test_what_can_be_served_is_served_also_after_a_failure(scene):
    # Part 12: only what cannot come is not waited for; a new writer can bring it again
    play = scene(hr.Table.queue("t", 5))
    with play.writer() as writer:
        play.put(writer, 1, 2)
    core_of(play.replay).writers.failed(Gone(), hr.WorkerDied("worker 3 died", worker_idx=3))
    assert play.replay.sample("t", 2).data["n"].tolist() == [1, 2]
    with pytest.raises(hr.WorkerDied):
        play.replay.sample("t", 1)
    with play.writer() as writer:
        waiter = play.start(play.replay.sample, "t", 1)
        play.put(writer, 3)
        assert waiter.result(10).data["n"].tolist() == [3]


# ---- what comes between planning a batch and drawing it ------------------------------------------------------------


@pytest.mark.filterwarnings("ignore:.* newest of their lanes")
@pytest.mark.parametrize("cached", [False, True])
def test_the_first_final_row_comes_while_a_sample_waits(cached):
    # views V2, V16: a column that final rows are given is known before acting, for the batch that waited too.
    signature = hr.Signature.like({"n": np.int64(0), "goal": np.int64(0)})
    clock = FakeClock()
    views = {"goal": hr.View("goal", shift=1, mask=True)}
    tables = [table(rate_limiter=MinSize(2)), table("other")]
    with hr.Replay(signature, tables, clock=clock) as replay, ThreadPoolExecutor(1) as threads:
        with replay.writer(items=[hr.ItemRule("t", 1), hr.ItemRule("other", 1)]) as writer:
            writer.append({"n": 0, "goal": 5})
            if cached:
                batch = replay.sample("other", 1, views=views)
                assert (batch.data["goal"].tolist(), batch.data["goal_mask"].tolist()) == ([0], [False])
            waiting = threads.submit(replay.sample, "t", 2, views=views)
            clock.wait_for_waiters(1)
            writer.append({"n": 1, "goal": 6})
            assert waiting.result(10).data["goal"].tolist() == [6, 6]
            replay.reset("t")
            waiting = threads.submit(replay.sample, "t", 2, views=views)
            clock.wait_for_waiters(1)
            with core_of(replay).lock:  # The sample is drawn when both are there.
                writer.append({"n": 2, "goal": 7})
                writer.create_item("t", 1)
                writer.end_episode({"goal": 8})
            batch = waiting.result(10)
        assert batch.data["goal"].tolist() == [8, 8]
        assert batch.data["goal_mask"].tolist() == [True, True]
        assert replay.sample("t", 1, views=views).data["goal"].tolist() == [8]


def test_a_plan_that_is_made_while_the_first_final_row_comes_is_not_kept(monkeypatch):
    # views V2: by an explicit hand-over: the row comes after the plan was made, before it is put away for the next.
    signature = hr.Signature.like({"n": np.int64(0), "goal": np.int64(0)})
    views = {"goal": hr.View("goal", shift=1, mask=True)}
    with hr.Replay(signature, [table()]) as replay, replay.writer(items=[hr.ItemRule("t", 1)]) as writer:
        writer.append({"n": 0, "goal": 5})
        planned = sampling_module.SamplingPlan

        def plan_and_end(*arguments):
            monkeypatch.setattr(sampling_module, "SamplingPlan", planned)
            made = planned(*arguments)
            writer.end_episode({"goal": 8})
            return made

        monkeypatch.setattr(sampling_module, "SamplingPlan", plan_and_end)
        for given in (views, views, dict(views)):
            data = replay.sample("t", 1, views=given).data
            assert (data["goal"].tolist(), data["goal_mask"].tolist()) == ([8], [True])


@pytest.mark.parametrize("views", [None, {"n": hr.View("n")}])
def test_the_first_padded_item_comes_while_a_sample_waits(scene, views):
    # B2: the batch has its mask, and invented rows hold what was noted of the table (trajectories M2).
    play = scene(table(sampler=Lifo(), rate_limiter=MinSize(2)))
    with play.replay.writer(items=[hr.ItemRule("t", 3, stride=3, end=hr.EndOfEpisode.PAD)]) as writer:
        waiter = play.start(play.replay.sample, "t", 2, views=views)
        core_of(play.replay).declarations.declare_padding("t", {"n": -1})
        for number in range(4):
            writer.append({"n": number})
        writer.end_episode()
    batch = waiter.result(10)
    assert batch.data["n"].tolist() == [[3, -1, -1]] * 2
    assert batch.mask.tolist() == [[True, False, False]] * 2
