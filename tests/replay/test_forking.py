"""A forked replay is a copy: whole, free of locks, and without effect on its parent (loaders LP4, LP6)."""

import copy
import pickle
import threading

import numpy as np
import pytest

import headrace as hr
from headrace.replay.forking import ForkFollowers
from headrace.testing import FakeClock, in_forked_child

ROWS = 3000


def row(x):
    return {"x": x, "image": np.zeros(2000, np.uint8)}


@pytest.fixture
def replay():
    table = hr.Table("t", sampler=hr.selectors.Uniform(), remover=hr.selectors.Fifo(), max_size=ROWS)
    signature = hr.Signature.like({"x": 0, "image": np.zeros(2000, np.uint8)})
    with hr.Replay(
        signature, [table, hr.Table.queue("q", ROWS)], capacity=ROWS, seed=0, clock=FakeClock()
    ) as replay:
        with replay.writer(items=[hr.ItemRule("t", 1), hr.ItemRule("q", 1)]) as writer:
            for x in range(1000):
                writer.append(row(x))
        yield replay


class Follower:
    def __init__(self):
        self.told = []

    def before_fork(self):
        self.told.append("before")

    def after_fork_in_parent(self):
        self.told.append("parent")

    def after_fork_in_child(self):
        self.told.append("child")


def all_of(replay):
    return replay.sample("q", 1000, timeout=0).data["x"].tolist()


def test_child_and_parent_each_take_every_item(replay):
    """Rows and references of pages are the child's own: what it removes stays in the parent."""
    assert in_forked_child(lambda: all_of(replay)) == list(range(1000))
    assert in_forked_child(lambda: all_of(replay)) == list(range(1000))
    assert all_of(replay) == list(range(1000))


def test_what_the_child_writes_stays_there(replay):
    def overwrite():
        for table in ("q", "t"):
            replay.reset(table)
        with replay.writer(items=[hr.ItemRule("q", 1)]) as writer:
            for x in range(2000):
                writer.append({"x": -x, "image": np.full(2000, 1, np.uint8)})
        return replay.sample("q", 2000).data["x"].tolist()

    before = replay.statistics()
    assert in_forked_child(overwrite) == [-x for x in range(2000)]
    assert replay.statistics() == before
    assert not replay.sample("t", 500).data["image"].any()


def test_draws_go_on_as_the_parents(replay):
    replay.sample("t", 10)
    drawn = in_forked_child(lambda: [replay.sample("t", 10).info.keys.tolist() for _ in range(3)])
    assert drawn == [replay.sample("t", 10).info.keys.tolist() for _ in range(3)]


def test_fork_waits_for_the_lock(replay):
    """LP6: no lock is taken over, whoever holds it."""
    held, forking, halves = threading.Event(), threading.Event(), []

    class Signal(Follower):
        def before_fork(self):
            forking.set()

    def hold():
        with replay.lock:
            halves.append(1)
            held.set()
            forking.wait()
            halves.append(2)

    # What is made later is told earlier: the fork goes on to the replay, whose lock is held.
    followers, begins = ForkFollowers(), Signal()
    followers.add(begins)
    thread = threading.Thread(target=hold)
    thread.start()
    held.wait()
    assert in_forked_child(lambda: (halves, all_of(replay))) == ([1, 2], list(range(1000)))
    thread.join()


def test_nobody_waits_behind_a_thread_of_the_parent(replay):
    """LP6: a thread that waits in the table has no place in the child's queue."""
    replay.sample("q", 1000)
    thread = threading.Thread(target=lambda: replay.sample("q", 2))
    thread.start()
    replay.clock.wait_for_waiters(1)

    def write_and_sample():
        with replay.writer(items=[hr.ItemRule("q", 1)]) as writer:
            writer.append(row(7))
        return replay.sample("q", 1, timeout=0).data["x"].tolist()

    assert in_forked_child(write_and_sample) == [7]
    with replay.writer(items=[hr.ItemRule("q", 1)]) as writer:
        for x in (1, 2):
            writer.append(row(x))
    thread.join()


def test_a_pools_lock_is_not_taken_over(replay):
    """LP6: threads of the parent may be copying rows."""
    replay.sample("t", 100)
    pool = replay._sampling.plan(None)._pool
    with pool._lock:
        shape = in_forked_child(lambda: replay.sample("t", 100).data["image"].shape)
    assert shape == (100, 2000)


def test_a_closed_replay_can_be_forked(replay):
    replay.close()
    assert in_forked_child(lambda: replay.is_closed)


@pytest.mark.parametrize("pack", [pickle.dumps, copy.copy, copy.deepcopy])
def test_a_replay_does_not_travel(replay, pack):
    """LP7: it says where it lives, before a row is copied."""
    with pytest.raises(TypeError, match="lives in the process that made it"):
        pack(replay)


def test_followers_are_told_as_long_as_they_live():
    followers, kept, dropped = ForkFollowers(), Follower(), Follower()
    followers.add(kept)
    followers.add(dropped)
    told = dropped.told
    del dropped
    assert in_forked_child(lambda: kept.told) == ["before", "child"]
    assert kept.told == ["before", "parent"]
    assert told == []


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
def test_who_was_not_at_rest_is_not_told_to_go_on():
    class Unwilling(Follower):
        def before_fork(self):
            raise KeyboardInterrupt

    followers, kept, unwilling = ForkFollowers(), Follower(), Unwilling()
    followers.add(kept)
    followers.add(unwilling)
    assert in_forked_child(lambda: unwilling.told) == []
    assert (kept.told, unwilling.told) == (["before", "parent"], [])
