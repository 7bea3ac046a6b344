"""Every wait that lasts is told, and one that nothing could end is an error at once."""

import logging
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

import headrace as hr
import headrace.collectors.handle.group_status as status_module
from headrace.testing import FakeClock
from headrace.waits import Wait

STEP = {"n": np.int64(0)}
SIGNATURE = hr.Signature.like(STEP)


def told(caplog):
    return [record.getMessage() for record in caplog.records if record.name == "headrace.waits"]


class Waiting:
    """One call in another thread that waits on a clock that stands still."""

    def __init__(self, clock, call):
        self.clock = clock
        self._threads = ThreadPoolExecutor(1)
        self.future = self._threads.submit(call)
        clock.wait_for_waiters(1)

    def pass_time(self, seconds):
        """Let this much time go by; returns when the call waits again."""
        self.clock.advance(seconds)
        self.clock.wait_for_waiters(1)

    def end(self):
        self._threads.shutdown()


def check_told(waiting, caplog, *parts):
    """Warnings come after 10 s, then every minute, and say these things."""
    with caplog.at_level(logging.WARNING, "headrace.waits"):
        waiting.pass_time(9.5)
        assert told(caplog) == []
        waiting.pass_time(0.5)
        assert len(told(caplog)) == 1
        waiting.pass_time(59.5)
        assert len(told(caplog)) == 1
        waiting.pass_time(0.5)
        assert len(told(caplog)) == 2
        waiting.pass_time(60.0)
        assert len(told(caplog)) == 3
    assert told(caplog)[0].startswith("still waiting after 10 s: ")
    for part in parts:
        assert all(part in text for text in told(caplog)), (part, told(caplog))


def test_a_sample_that_waits_is_told(caplog):
    """replay L9: with the words that `DeadlineExceeded` has."""
    clock = FakeClock()
    with hr.Replay(SIGNATURE, [hr.Table.queue("t", 3)], clock=clock) as replay:
        waiting = Waiting(clock, lambda: replay.sample("t", 2))
        check_told(waiting, caplog, "table 't': a sample of 2 waited", "size 0, inserts 0", "Insert more")
        with replay.writer(items=[hr.ItemRule("t", 1)]) as writer:
            writer.append({"n": 1})
            writer.append({"n": 2})
        assert waiting.future.result(10).data["n"].tolist() == [1, 2]
        waiting.end()


def test_a_flush_that_waits_is_told(caplog):
    """replay I5."""
    clock = FakeClock()
    with hr.Replay(SIGNATURE, [hr.Table.queue("t", 1)], clock=clock) as replay:
        writer = replay.writer(items=[hr.ItemRule("t", 1)])
        writer.append({"n": 1})
        writer.append({"n": 2})
        waiting = Waiting(clock, writer.flush)
        check_told(
            waiting, caplog, "1 items of this writer are still pending", "1 for table 't'", "sample from"
        )
        replay.sample("t", 1)
        waiting.future.result(10)
        writer.close()
        waiting.end()


def test_an_append_that_waits_for_room_is_told(caplog):
    """replay I4."""
    clock = FakeClock()
    with hr.Replay(SIGNATURE, [hr.Table.queue("t", 1)], clock=clock) as replay:
        writer = replay.writer(items=[hr.ItemRule("t", 1)], max_pending=1)
        writer.append({"n": 1})
        writer.append({"n": 2})
        waiting = Waiting(clock, lambda: writer.append({"n": 3}))
        check_told(waiting, caplog, "1 items of this writer are still pending")
        replay.sample("t", 1)
        waiting.future.result(10)
        replay.sample("t", 1)
        writer.close()
        waiting.end()


@pytest.mark.parametrize("prefetch", [0])
def test_a_loader_that_waits_is_told(caplog, prefetch):
    """loaders LW4: with the table's reason."""
    clock = FakeClock()

    def refuse(table, batch_size, *, views, timeout):
        clock.advance(timeout)
        raise hr.DeadlineExceeded("table 't': nothing was inserted")

    replay = type("Refusing", (), {"sample": staticmethod(refuse)})()
    done = threading.Event()

    class Seen(logging.Handler):
        def emit(self, record):
            if record.name == "headrace.waits" and "nothing was inserted" in record.getMessage():
                texts.append(record.getMessage())
                if len(texts) == 2:
                    loader.close_soon()

    texts = []
    with hr.loaders.Loader(replay, "t", 1, prefetch=prefetch, clock=clock) as loader:
        loader.close_soon = lambda: (done.set(), loader._stream.close())
        handler = Seen()
        logging.getLogger("headrace.waits").addHandler(handler)
        try:
            assert list(loader) == []
        finally:
            logging.getLogger("headrace.waits").removeHandler(handler)
    assert done.is_set()
    assert texts[0].startswith("still waiting after 10 s: no batch within 10")
    assert 69 < float(texts[1].split()[3]) < 72


def test_a_queue_of_batches_that_waits_is_told(caplog):
    clock = FakeClock()
    queue = hr.BatchQueue(STEP, 2, num_buffers=2, clock=clock)
    waiting = Waiting(clock, queue.sample)
    check_told(waiting, caplog, "sample: no batch of 2 was full", "0 samples wait")
    caplog.clear()
    for number in range(2):
        queue.send({"n": number})
    waiting.future.result(10)
    waiting.end()
    for number in range(4):
        queue.send({"n": number})
    waiting = Waiting(clock, lambda: queue.send({"n": 4}))
    check_told(waiting, caplog, "send: all 4 places were taken", "Take batches faster")
    queue.sample()
    waiting.future.result(10)
    waiting.end()


def test_a_collector_that_waits_for_its_worker_is_told(caplog, monkeypatch):
    clock = FakeClock()
    with hr.AsyncCollector("CartPole-v1", frames_per_batch=4, total_frames=400, num_envs=1) as collector:
        monkeypatch.setattr(status_module, "SYSTEM_CLOCK", clock)
        status = collector._group.status
        there = threading.Event()
        waiting = Waiting(clock, lambda: status.wait(there.is_set, None, lambda: "what is tested"))
        with caplog.at_level(logging.WARNING, "headrace.waits"):
            clock.advance(11.0)
            clock.wait_for_waiters(1)
        assert [text for text in told(caplog) if "for what is tested" in text]
        there.set()
        clock.advance(1.0)
        waiting.future.result(10)
        waiting.end()


def test_a_deadline_is_told_by_its_error_alone(caplog):
    clock = FakeClock()
    wait = Wait(clock, 5.0, lambda seconds: f"waited {seconds:g} s", lambda: 3)
    wait.look(None)
    clock.advance(5.0)
    with pytest.raises(hr.DeadlineExceeded, match="waited 5 s") as caught:
        wait.look(None)
    assert caught.value.pending == 3
    assert told(caplog) == []


def test_a_handler_of_the_log_may_wait_for_what_the_lock_guards():
    """The lock is given up while a warning is logged: no thread that holds the handler's waits for it for ever."""
    clock = FakeClock()
    lock = threading.RLock()
    condition = threading.Condition(lock)

    class Asking(logging.Handler):
        def emit(self, record):
            free.append(threads.submit(lock.acquire, timeout=5.0).result())
            threads.submit(lock.release).result()

    free = []
    handler = Asking()
    wait = Wait(clock, None, lambda seconds: "waits")
    clock.advance(11.0)
    logging.getLogger("headrace.waits").addHandler(handler)
    with ThreadPoolExecutor(1) as threads, condition:
        try:
            wait.turn(condition)
        finally:
            logging.getLogger("headrace.waits").removeHandler(handler)
    assert free == [True]


# ---- waits that nothing could end ------------------------------------------------------------------------------------


ALONE = """
import threading
import numpy as np
import headrace as hr

def ends(call):
    try:
        call()
    except hr.DeadlineExceeded as error:
        assert "only thread of the process" in str(error), error
        print("refused", error.pending)

step = {"observation": np.float32(0), "action": 0, "reward": 0.0, "terminated": False, "truncated": False}
"""

TRANSITIONS = """
table = hr.Table("t", sampler=hr.selectors.Uniform(), remover=hr.selectors.Fifo(), max_size=9)
with hr.Replay(hr.Signature.like(step), [table]) as replay:
    writer = hr.TransitionWriter(replay, "t", n_step=3)
    writer.add_first(np.float32(0))
    writer.add(0, 1.0, False, False, np.float32(1))
    ends(lambda: replay.sample("t", 1))
    writer.close()
    print(len(replay.sample("t", 1).data))
"""

RATIO = """
limiter = hr.rate_limiters.SampleToInsertRatio(1, 100, 64)
table = hr.Table("t", sampler=hr.selectors.Uniform(), remover=hr.selectors.Fifo(), max_size=9999, rate_limiter=limiter)
with hr.Replay(hr.Signature.like(step), [table]) as replay:
    writer = hr.TransitionWriter(replay, "t")
    writer.add_first(np.float32(0))
    def play():
        for t in range(2000):
            writer.add(t, 1.0, False, False, np.float32(t))
    ends(play)
    ends(writer.flush)
    ends(writer.close)
    print(replay.table("t").statistics().inserts)
"""

QUEUE = """
queue = hr.BatchQueue({"n": 0}, 2, num_buffers=2)
ends(queue.sample)
for n in range(4):
    queue.send({"n": n})
ends(lambda: queue.send({"n": 4}))
print(queue.sample()[0]["n"].tolist())
"""


def run(code):
    """What a process with one thread prints; pytest itself has a handler of signals, so nothing is refused in it."""
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", ALONE + code],
        check=False,
        capture_output=True,
        text=True,
        timeout=100,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


def test_a_sample_that_nothing_could_serve_is_refused_at_once():
    assert run(TRANSITIONS) == ["refused 0", "5"]


def test_an_add_that_nothing_could_let_in_is_refused_at_once():
    assert run(RATIO) == ["refused 1001", "refused 1001", "refused 1002", "164"]


def test_a_queue_of_batches_that_nobody_else_uses_is_refused_at_once():
    assert run(QUEUE) == ["refused 0", "refused 0", "[0, 1]"]


# What may end the wait, each alone: a thread, a handler of signals, and a thread that `threading` does not know of.
HELP = {
    "thread": """
import time
def insert():
    while not replay.table("t").statistics().waiting_samples:
        pass
    writer.append({"n": 7})
threading.Thread(target=insert).start()
""",
    "signal": """
import signal
def insert(*_):
    writer.append({"n": 7})
signal.signal(signal.SIGALRM, insert)
signal.setitimer(signal.ITIMER_REAL, 0.2)
""",
    "low-level thread": """
import _thread
def insert():
    while not replay.table("t").statistics().waiting_samples:
        pass
    writer.append({"n": 7})
_thread.start_new_thread(insert, ())
""",
}


@pytest.mark.parametrize("who", HELP)
def test_a_wait_that_something_ends_is_never_refused(who):
    code = """
table = hr.Table.queue("t", 3)
replay = hr.Replay(hr.Signature.like({"n": 0}), [table])
writer = replay.writer(items=[hr.ItemRule("t", 1)])
HELP
print(replay.sample("t", 1).data["n"].tolist())
writer.close()
replay.close()
"""
    assert run(code.replace("HELP", HELP[who])) == ["[7]"]
