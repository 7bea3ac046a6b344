"""A thread that appends and one that samples share the interpreter lock: neither waits for turns of 5 ms."""

import sys
import threading
import time

import numpy as np
import pytest

import headrace as hr
from headrace.kernels import handoff
from headrace.store.copying import take_rows
from headrace.testing import in_forked_child

NBYTES = 2000
BATCH = 256

pytestmark = pytest.mark.skipif(
    handoff.__file__.endswith(".py"), reason="plain kernels keep the interpreter lock throughout"
)


@pytest.fixture
def no_turns():
    """CPython takes the interpreter lock from no thread: it goes where a thread gives it up."""
    before = sys.getswitchinterval()
    sys.setswitchinterval(1000)
    yield
    sys.setswitchinterval(before)


class Repeated:
    """Does something again and again in a thread, until the end of its `with` block."""

    def __init__(self, work):
        self.done = 0
        self._work = work
        self._stops = False
        self._begun = threading.Event()
        self._thread = threading.Thread(target=self._loop)

    def _loop(self):
        self._begun.set()
        while not self._stops:
            self._work()
            self.done += 1

    def __enter__(self):
        self._thread.start()
        self._begun.wait()
        return self

    def __exit__(self, *_):
        self._stops = True
        self._thread.join()


@pytest.mark.parametrize("lanes", [1, 4])
@pytest.mark.parametrize("views", [None, {"x": hr.View("x"), "t": hr.View("t")}], ids=["fused", "general"])
def test_a_thread_that_samples_has_its_turns_beside_one_that_appends(no_turns, lanes, views):
    table = hr.Table("t", sampler=hr.selectors.Uniform(), remover=hr.selectors.Fifo(), max_size=1000)
    step = {"x": np.zeros((lanes, NBYTES) if lanes > 1 else NBYTES, np.uint8)}
    with hr.Replay(hr.Signature.like({"x": np.zeros(NBYTES, np.uint8)}), [table], seed=0) as replay:
        with replay.writer(lanes, items=[hr.ItemRule("t", 1)]) as writer:
            writer.append(step)
            replay.sample("t", BATCH, views=views)  # The first one is planned, with calls of NumPy.
            with Repeated(lambda: replay.sample("t", BATCH, views=views)) as samples:
                before, left = samples.done, 100_000
                while samples.done < before + 10 and left:
                    writer.append(step)
                    left -= 1
    assert left


def a_copy():
    column, out = np.zeros(1000 * NBYTES, np.uint8), np.empty(BATCH * NBYTES, np.uint8)
    rows = np.zeros(BATCH, np.int64)
    return lambda: take_rows(column, NBYTES, rows, out)


def test_a_forked_child_waits_for_no_thread_of_its_parent(no_turns):
    with Repeated(a_copy()):
        deadline = time.monotonic() + 60
        while not handoff.count_asking() and time.monotonic() < deadline:
            pass
        # This thread has not given up the interpreter lock since.
        assert handoff.count_asking() == 1
        in_forked_child(_assert_none_asks)
    assert handoff.count_asking() == 0


def _assert_none_asks():
    assert handoff.count_asking() == 0
