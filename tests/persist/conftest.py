"""Replays with a past: every selector, windows of several lengths, two lanes, episodes that end."""

import numpy as np
import optree
import pytest

import headrace as hr
from headrace.tables.description.rate_limiters import MinSize, SampleToInsertRatio
from headrace.tables.description.selectors import Fifo, Lifo, MaxHeap, MinHeap, Prioritized, Uniform

SIGNATURE = hr.Signature.like({"n": np.int64(0), "nested": (np.zeros(3, np.float32), np.bool_(False))})


def every_kind_of_table():
    """Samplers, removers and limiters of all kinds."""
    return [
        hr.Table("uniform", sampler=Uniform(), remover=Fifo(), max_size=40),
        hr.Table(
            "prioritized", sampler=Prioritized(0.7), remover=MinHeap(), max_size=30, max_times_sampled=5
        ),
        hr.Table("heap", sampler=MaxHeap(), remover=Uniform(), max_size=25),
        hr.Table("random_victims", sampler=Uniform(), remover=Prioritized(), max_size=20),
        hr.Table("distinct", sampler=Uniform(replacement=False), remover=Lifo(), max_size=15),
        hr.Table(
            "limited",
            sampler=Fifo(),
            remover=Fifo(),
            max_size=50,
            rate_limiter=SampleToInsertRatio(2.0, 3, 1e6),
            max_times_sampled=4,
        ),
        hr.Table("empty", sampler=Lifo(), remover=Fifo(), max_size=5, rate_limiter=MinSize(2)),
    ]


RULES = [
    hr.ItemRule("uniform", 1),
    hr.ItemRule("prioritized", 3, end=hr.EndOfEpisode.PAD, lookahead=1),
    hr.ItemRule("heap", 2, stride=2, end=hr.EndOfEpisode.LAST),
    hr.ItemRule("random_victims", 1, priority=2.0),
    hr.ItemRule("distinct", 4, end=hr.EndOfEpisode.TILE),
    hr.ItemRule("limited", 1, lookahead=2),
]
NAMES = [rule.table for rule in RULES]


class Past:
    """Random calls on a replay; the same seed makes the same ones."""

    def __init__(self, replay, seed=0, lanes=2):
        self.replay, self.lanes = replay, lanes
        self.random = np.random.default_rng(seed)
        self.writer = replay.writer(lanes=lanes, items=RULES)
        self.time = 0

    def step(self):
        n = 10 * self.time + np.arange(self.lanes)
        frame = np.repeat(n[:, None], 3, axis=1).astype(np.float32)
        self.writer.policy_version = self.time // 7
        self.writer.append(self.of_lanes({"n": n, "nested": (frame, n % 2 == 0)}))
        self.time += 1

    def of_lanes(self, tree):
        """Without the leading axis where there is one lane."""
        return tree if self.lanes > 1 else optree.tree_map(lambda leaf: leaf[0], tree)

    def final(self):
        nested = (np.full((self.lanes, 3), -self.time, np.float32), np.zeros(self.lanes, np.bool_))
        return self.of_lanes({"nested": nested})

    def go(self, calls):
        for _ in range(calls):
            self.step()
            if self.random.random() < 0.15:
                self.writer.end_episode(self.final())
            if self.random.random() < 0.5:
                self.change()

    def change(self):
        name = NAMES[self.random.integers(len(NAMES))]
        batch = draw(self.replay, name, int(self.random.integers(1, 5)))
        what = self.random.random()
        if batch is None:
            return
        if what < 0.6:
            self.replay.update_priorities(name, batch.info.keys, self.random.random(len(batch.info.keys)))
        elif what < 0.9:
            self.replay.delete(name, batch.info.keys[:2])
        elif what < 0.93:
            self.replay.reset(name)


def draw(replay, name, count, views=None):
    try:
        return replay.sample(name, count, views=views, timeout=0)
    except (hr.DeadlineExceeded, ValueError):
        return None


def assert_same_batch(one, other):
    assert (one is None) == (other is None)
    if one is None:
        return
    for field in ("keys", "probabilities", "table_size", "priorities", "times_sampled"):
        np.testing.assert_array_equal(getattr(one.info, field), getattr(other.info, field))
    assert_same_data(one, other)


def assert_same_data(one, other):
    flat = SIGNATURE.flatten(one.data), SIGNATURE.flatten(other.data)
    for name, values in flat[0].items():
        np.testing.assert_array_equal(values, flat[1][name])
    np.testing.assert_array_equal(one.mask, other.mask)


def assert_same_draws(one, other, times):
    """The same draws from all tables, with what changes by them."""
    for number in range(times):
        for name in NAMES:
            assert_same_batch(draw(one, name, 1 + number % 3), draw(other, name, 1 + number % 3))


def counts(replay):
    """What statistics tell of every table, apart from waiting, from memory and from what is new in each process."""
    left_out = (
        "resets",
        "pending_inserts",
        "waiting_samples",
        "seconds_waiting_inserts",
        "seconds_waiting_samples",
        "longest_waiting_insert",
        "longest_waiting_sample",
        "resets",
        "bytes",
    )
    return {
        name: {field: value for field, value in vars(table).items() if field not in left_out}
        for name, table in replay.statistics().tables.items()
    }


class Tools:
    SIGNATURE = SIGNATURE
    NAMES = NAMES
    RULES = RULES
    Past = Past
    every_kind_of_table = staticmethod(every_kind_of_table)
    draw = staticmethod(draw)
    assert_same_batch = staticmethod(assert_same_batch)
    assert_same_data = staticmethod(assert_same_data)
    assert_same_draws = staticmethod(assert_same_draws)
    counts = staticmethod(counts)


@pytest.fixture(scope="session")
def tools():
    return Tools


@pytest.fixture
def replay():
    """A replay with a past, and some open ends."""
    with hr.Replay(SIGNATURE, every_kind_of_table(), capacity=600, seed=1) as made:
        past = Past(made)
        past.go(150)
        made.past = past
        yield made
