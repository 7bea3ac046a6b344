"""Waiting, failing, ending (loaders LW1 to LW7)."""

import gc
import os
import signal
import subprocess
import sys
import threading
import time
import traceback
import weakref

import pytest

import headrace as hr
from headrace.loaders import Loader
from headrace.testing import FakeClock

PREFETCHES = pytest.mark.parametrize("prefetch", [0, 2])
PROGRAM_SECONDS = 50.0


def in_thread(function):
    """Starts it; returns where its result or its error comes to stand, and the thread."""
    result = []

    def run():
        try:
            result.append(function())
        except BaseException as error:
            result.append(error)

    thread = threading.Thread(target=run)
    thread.start()
    return result, thread


def advance_until_over(clock, thread, *, seconds, waiters=1):
    """Moves the clock by one step when so many threads wait; `wait_for_waiters` would not see that `thread` ended."""
    while thread.is_alive():
        if clock.waiters >= waiters:
            clock.advance(seconds)
        thread.join(0.001)


class Interrupted(Exception):
    pass


@PREFETCHES
def test_waits_for_ever(make_replay, prefetch):
    """LW1: more than one turn, then the batch comes."""
    replay = make_replay(count=0)
    with Loader(replay, "t", 1, prefetch=prefetch) as loader:
        result, thread = in_thread(lambda: list(next(loader).data["x"]))
        with replay.writer(items=[hr.ItemRule("t", 1)]) as writer:
            writer.append({"x": 5, "image": replay.signature.zeros()["image"]})
        thread.join()
    assert result == [[5]]


@PREFETCHES
def test_a_wait_takes_many_turns(scripted, prefetch):
    """LW1."""
    replay = scripted(allowed=0)
    with Loader(replay, "t", 1, prefetch=prefetch) as loader:
        result, thread = in_thread(lambda: list(next(loader).data["n"]))
        replay.wait_for_turns(3)
        assert result == []
        replay.allow(1)
        thread.join()
    assert result == [[1]]


@PREFETCHES
def test_a_signal_ends_the_wait(scripted, numbers, prefetch):
    """LW1: nothing is lost. Within a second, but on a busy machine."""
    replay = scripted(allowed=0)

    def interrupt(*_):
        raise Interrupted

    before = signal.signal(signal.SIGUSR1, interrupt)
    try:
        with Loader(replay, "t", 1, prefetch=prefetch) as loader:
            _, thread = in_thread(
                lambda: (replay.wait_for_turns(2), os.kill(os.getpid(), signal.SIGUSR1), time.monotonic())
            )
            with pytest.raises(Interrupted):
                next(loader)
            thread.join()
            sent = _[0][2]
            assert time.monotonic() - sent < 10.0
            replay.allow(2)
            assert numbers(loader, 2) == [1, 2]
    finally:
        signal.signal(signal.SIGUSR1, before)


@PREFETCHES
def test_deadline(make_replay, prefetch):
    """LW2: with the rate limiter's own words; nothing was taken, and the loader goes on."""
    clock = FakeClock()
    replay = make_replay(count=3, clock=clock)
    with Loader(replay, "t", 5, prefetch=prefetch, timeout=30.0, clock=clock) as loader:
        for time_up in (30.0, 60.0):
            result, thread = in_thread(lambda: next(loader))
            # The learner, and the thread that draws for it: it has its time for each turn.
            advance_until_over(clock, thread, seconds=0.25, waiters=2 if prefetch else 1)
            assert clock.monotonic() >= time_up
            (error,) = result
            assert isinstance(error, hr.DeadlineExceeded)
            assert "no batch within 30 s: table 't': a sample of 5 waited" in str(error)
            assert "size 3, inserts 3, samples 0" in str(error)
        with replay.writer(items=[hr.ItemRule("t", 1)]) as writer:
            for x in (3, 4):
                writer.append({"x": x, "image": replay.signature.zeros()["image"]})
        assert next(loader).data["x"].tolist() == [0, 1, 2, 3, 4]
        close(loader, clock)


def close(loader, clock):
    """With a clock that stands still somebody has to move it until the turn in progress is over."""
    _, thread = in_thread(loader.close)
    while thread.is_alive():
        clock.advance(0.25)
        thread.join(0.001)


@PREFETCHES
def test_no_time_at_all(scripted, numbers, prefetch):
    """LW2, timeout=0: asks the table once and does not wait."""
    replay = scripted(allowed=0)
    with Loader(replay, "t", 1, prefetch=prefetch, timeout=0) as loader:
        for _ in range(3):
            with pytest.raises(hr.DeadlineExceeded, match="waited for 1"):
                next(loader)
        replay.allow(10)
        replay.wait_for_draws(prefetch)
        assert numbers(loader, 1) == [1]


def test_deadline_while_sample_does_not_return(scripted, numbers):
    """LW2: nothing was taken; the batch comes the next time."""
    clock, blocked = FakeClock(), threading.Event()
    replay = scripted(script={1: blocked.wait})
    with Loader(replay, "t", 1, prefetch=1, timeout=5.0, clock=clock) as loader:
        result, thread = in_thread(lambda: next(loader))
        replay.wait_for_draws(1)
        advance_until_over(clock, thread, seconds=1.0)
        assert "`sample` has not returned yet" in str(result[0])
        blocked.set()
        assert numbers(loader, 2) == [1, 2]


def test_errors_come_in_their_turn(scripted, numbers):
    """LW3, the page's example: batch 1, batch 2, the error, batch 4."""
    error = OSError("the third draw")
    replay = scripted(script={3: error})
    with Loader(replay, "t", 1, prefetch=2) as loader:
        assert numbers(loader, 1) == [1]
        replay.wait_for_draws(3)
        # Nothing is drawn until it was delivered, though there is room.
        assert numbers(loader, 1) == [2]
        loader._stream.hold()
        loader._stream.release()
        assert replay.turns == 3
        with pytest.raises(OSError, match="the third draw") as raised:
            next(loader)
        assert raised.value is error
        assert "sample" in [frame.name for frame in traceback.extract_tb(error.__traceback__)]
        assert numbers(loader, 2) == [4, 5]


@PREFETCHES
@pytest.mark.parametrize(
    "error", [hr.Disconnected("gone"), KeyError("t"), SystemExit(3), hr.DeadlineExceeded("x")]
)
def test_errors_of_every_kind(scripted, numbers, prefetch, error):
    """LW3, LW6: the same exception, then it goes on. A deadline that nobody set is somebody's error, too."""
    with Loader(scripted(script={2: error}), "t", 1, prefetch=prefetch) as loader:
        assert numbers(loader, 1) == [1]
        with pytest.raises(type(error)) as raised:
            next(loader)
        assert raised.value is error
        assert numbers(loader, 1) == [3]


@PREFETCHES
def test_the_replay_is_closed(make_replay, watched, prefetch):
    """LW4: what was drawn is delivered, then the loop ends, and stays ended."""
    replay = make_replay()
    wrapper = watched(replay)
    with Loader(wrapper, "t", 10, prefetch=prefetch) as loader:
        assert next(loader).data["x"][0] == 0
        wrapper.wait_for_draws(1 + prefetch)
        replay.close()
        assert [batch.data["x"][0] for batch in loader] == [10, 20][:prefetch]
        assert next(loader, None) is None
        assert list(loader) == []


@PREFETCHES
def test_close_ends_a_wait(scripted, prefetch):
    """LW5: from any thread; the thread is gone; then `Closed`. Within a second, but on a busy machine."""
    replay = scripted(allowed=0)
    loader = Loader(replay, "t", 1, prefetch=prefetch)
    result, thread = in_thread(lambda: list(loader))
    replay.wait_for_turns(1)
    begin = time.monotonic()
    loader.close()
    thread.join()
    assert time.monotonic() - begin < 10.0
    assert result == [[]]
    assert "headrace-loader" not in [thread.name for thread in threading.enumerate()]
    loader.close()
    assert next(loader, None) is None
    with pytest.raises(hr.Closed, match="the loader is closed"):
        iter(loader)
    with pytest.raises(hr.Closed, match="the loader is closed"):
        loader.load_state_dict({})


@PREFETCHES
def test_close_ends_a_loop_that_has_batches(scripted, numbers, prefetch):
    """LW5: also with batches ready; they are in the state."""
    replay = scripted()
    with Loader(replay, "t", 1, prefetch=prefetch) as loader:
        assert numbers(loader, 1) == [1]
        replay.wait_for_draws(1 + prefetch)
    assert list_of(loader) == []
    assert [batch.data["n"][0] for batch in loader.state_dict()["batches"]] == [2, 3][:prefetch]


def list_of(loader):
    return list(iter(lambda: next(loader, None), None))


def test_close_before_the_first_batch(scripted):
    loader = Loader(scripted(), "t", 1)
    loader.close()
    assert next(loader, None) is None


@pytest.mark.parametrize("waits", [True, False])
def test_a_dropped_loader_lets_go(scripted, waits):
    """LW7: its thread ends by itself, and the replay is free; while it waits for data, and while it is idle."""
    replay = scripted(allowed=1 if waits else 10)
    loader = Loader(replay, "t", 1, prefetch=2)
    next(loader)
    replay.wait_for_turns(2 if waits else 3)
    (thread,) = [thread for thread in threading.enumerate() if thread.name == "headrace-loader"]
    gone = weakref.ref(replay)
    del loader, replay
    gc.collect()
    thread.join(20.0)
    assert not thread.is_alive()
    del thread
    gc.collect()
    assert gone() is None


PROGRAM = """
import threading
import headrace as hr

class Replay:
    def __init__(self, batches):
        self.left = batches

    def sample(self, table, batch_size, *, views=None, timeout=None):
        if not self.left:
            threading.Event().wait(timeout)
            raise hr.DeadlineExceeded("nothing left")
        self.left -= 1
        return self.left

# One waits for data, one has nothing to do; a cycle keeps both to the end.
kept = [hr.loaders.Loader(Replay(batches), "t", 1) for batches in (1, 10)]
kept.append(kept)
print(next(kept[0]), next(kept[1]), threading.active_count())
"""


def test_the_program_ends():
    """LW7."""
    command = [sys.executable, "-c", PROGRAM]
    done = subprocess.run(command, check=False, capture_output=True, text=True, timeout=PROGRAM_SECONDS)
    assert (done.returncode, done.stdout, done.stderr) == (0, "0 9 3\n", "")


@pytest.mark.parametrize("asked", ["batch", "state"])
def test_a_draw_in_the_caller_wakes_a_thread_that_waits_for_its_end(scripted, monkeypatch, asked):
    """LW1: at once, and not by a look of its own."""
    monkeypatch.setattr("headrace.waits._LONGEST_TURN", 1000.0)
    monkeypatch.setattr("headrace.clock._LONGEST_SLEEP", 1000.0)
    begun = threading.Event()

    def until_the_other_sleeps():
        begun.set()
        while not loader._stream._sleepers:
            os.sched_yield()

    replay = scripted(script={1: until_the_other_sleeps})
    with Loader(replay, "t", 1, prefetch=0) as loader:
        first, drawing = in_thread(lambda: int(next(loader).data["n"][0]))
        begun.wait()
        if asked == "batch":
            second, waiting = in_thread(lambda: int(next(loader).data["n"][0]))
        else:
            second, waiting = in_thread(lambda: loader.state_dict()["delivered"])
        for thread in (drawing, waiting):
            thread.join(10)
            assert not thread.is_alive()
    assert (first, second) == ([1], [2 if asked == "batch" else 1])


def test_an_interrupt_as_a_batch_is_handed_over_leaves_no_thread_asleep(scripted, monkeypatch):
    """LW1: the drawer has given up its turn, and is interrupted before it has told the thread that waits for that."""
    monkeypatch.setattr("headrace.waits._LONGEST_TURN", 1000.0)
    monkeypatch.setattr("headrace.clock._LONGEST_SLEEP", 1000.0)
    begun = threading.Event()

    def until_the_other_sleeps():
        begun.set()
        while not loader._stream._sleepers:
            os.sched_yield()
        monkeypatch.setattr(loader._stream, "_tell", interrupted)

    def interrupted():
        monkeypatch.undo()
        raise KeyboardInterrupt

    replay = scripted(script={1: until_the_other_sleeps})
    with Loader(replay, "t", 1, prefetch=0) as loader:
        first, drawing = in_thread(lambda: next(loader))
        begun.wait()
        second, waiting = in_thread(lambda: int(next(loader).data["n"][0]))
        for thread in (drawing, waiting):
            thread.join(10)
            assert not thread.is_alive()
    assert isinstance(first[0], KeyboardInterrupt)
    assert second == [2]
