import threading

import numpy as np
import pytest

import headrace as hr
from headrace.replay import ReplaySample, SampleInfo

WAIT = 20.0


class ScriptedReplay:
    """Has `sample` and nothing else (loaders LD1). Batch n is full of n, from 1 on.

    `script[n]` is an error that draw n raises, or a function that it calls first. `allow` lets so many draws through;
    without it they wait, as for data, until their timeout.
    """

    def __init__(self, allowed=10**9, script=None):
        self.script = script or {}
        self.calls = []
        self.turns = 0
        self.drawn = 0
        self._allowed = allowed
        self._changed = threading.Condition()

    def sample(self, table, batch_size, *, views=None, timeout=None):
        with self._changed:
            self.turns += 1
            self._changed.notify_all()
            if not self._changed.wait_for(lambda: self.drawn < self._allowed, timeout):
                raise hr.DeadlineExceeded(f"table {table!r}: waited for {self._allowed + 1}")
            self.drawn += 1
            number = self.drawn
            self._changed.notify_all()
            self.calls.append((table, batch_size, views))
        action = self.script.get(number)
        if isinstance(action, BaseException):
            raise action
        if action is not None:
            action()
        return numbered(number, batch_size)

    def allow(self, more):
        with self._changed:
            self._allowed += more
            self._changed.notify_all()

    def wait_for_draws(self, count):
        self._wait_for(lambda: self.drawn >= count, f"{count} draws")

    def wait_for_turns(self, count):
        self._wait_for(lambda: self.turns >= count, f"{count} turns")

    def _wait_for(self, condition, what):
        with self._changed:
            if not self._changed.wait_for(condition, WAIT):
                raise TimeoutError(f"expected {what}, got {self.drawn} draws in {self.turns} turns")


class Watched:
    """A wrapper around a replay: counts the batches that it gave."""

    def __init__(self, replay):
        self.replay = replay
        self.drawn = 0
        self._changed = threading.Condition()

    def sample(self, *args, **kwargs):
        batch = self.replay.sample(*args, **kwargs)
        with self._changed:
            self.drawn += 1
            self._changed.notify_all()
        return batch

    def wait_for_draws(self, count):
        with self._changed:
            assert self._changed.wait_for(lambda: self.drawn >= count, WAIT)


def numbered(number, batch_size):
    info = SampleInfo(
        np.full(batch_size, number, np.uint64),
        np.ones(batch_size),
        np.ones(batch_size, np.int64),
        np.ones(batch_size),
        np.ones(batch_size, np.int64),
    )
    return ReplaySample({"n": np.full(batch_size, number)}, info)


def number_of(batch):
    return int(batch.data["n"][0])


def fill(replay, count):
    with replay.writer(items=[hr.ItemRule(name, 1) for name in replay.table_names]) as writer:
        for x in range(count):
            writer.append({"x": x, "image": np.full(1000, x % 256, np.uint8)})


SAMPLERS = {
    "queue": lambda: hr.Table.queue("t", 4000),
    "uniform": lambda: table(hr.selectors.Uniform()),
    "distinct": lambda: table(hr.selectors.Uniform(replacement=False)),
    "prioritized": lambda: table(hr.selectors.Prioritized()),
    "lifo twice": lambda: table(hr.selectors.Lifo(), max_times_sampled=2),
    "heap thrice": lambda: table(hr.selectors.MaxHeap(), max_times_sampled=3),
}


def table(sampler, **options):
    return hr.Table("t", sampler=sampler, remover=hr.selectors.Fifo(), max_size=4000, **options)


@pytest.fixture
def scripted():
    return ScriptedReplay


@pytest.fixture
def watched():
    return Watched


@pytest.fixture
def numbers():
    """The numbers of the next batches."""
    return lambda loader, count: [number_of(next(loader)) for _ in range(count)]


@pytest.fixture
def make_replay():
    """Makes replays of one table "t" with 1,000 items; all with the same draws."""
    made = []

    def make(sampler="queue", count=1000, **options):
        signature = hr.Signature.like({"x": 0, "image": np.zeros(1000, np.uint8)})
        replay = hr.Replay(signature, [SAMPLERS[sampler]()], seed=3, **options)
        made.append(replay)
        fill(replay, count)
        return replay

    yield make
    for replay in made:
        replay.close()


@pytest.fixture(params=SAMPLERS)
def sampler(request):
    return request.param


@pytest.fixture(autouse=True)
def no_thread_outlives_the_test():
    """Also no daemon, which the fixture for all tests lets pass."""
    yield
    for thread in threading.enumerate():
        if thread.name == "headrace-loader":
            thread.join(WAIT)
            assert not thread.is_alive()
