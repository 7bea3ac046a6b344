"""A forked child may not use a replay; the copy that a loader draws from there is whole, free of locks, and without
effect on the parent (loaders LP4, LP6).
"""

import copy
import os
import pickle
import threading

import numpy as np
import pytest

import headrace as hr
from headrace.forking import ForkFollowers, HomeProcess, reading_copies
from headrace.replay.public import core_of
from headrace.testing import FakeClock, in_forked_child

ROWS = 3000


def row(x):
    return {"x": x, "image": np.zeros(2000, np.uint8)}


def make_replay(path=None):
    table = hr.Table("t", sampler=hr.selectors.Uniform(), remover=hr.selectors.Fifo(), max_size=ROWS)
    signature = hr.Signature.like({"x": 0, "image": np.zeros(2000, np.uint8)})
    replay = hr.Replay(
        signature, [table, hr.Table.queue("q", ROWS)], capacity=ROWS, seed=0, clock=FakeClock(), path=path
    )
    with replay.writer(items=[hr.ItemRule("t", 1), hr.ItemRule("q", 1)]) as writer:
        for x in range(1000):
            writer.append(row(x))
    return replay


@pytest.fixture(params=["memory", "disk"])
def replay(request, tmp_path):
    with make_replay(tmp_path / "store" if request.param == "disk" else None) as replay:
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


def copy_of_all(replay):
    """In a forked child."""
    with reading_copies():
        return all_of(replay)


def errors_of(uses):
    """Runs each, and returns what they raised."""
    found = {}
    for name, use in uses.items():
        try:
            found[name] = f"returned {use()!r}"
        except Exception as error:
            found[name] = f"{type(error).__name__}: {error}"
    return found


def assert_all_refused(uses):
    for name, error in in_forked_child(lambda: errors_of(uses)).items():
        assert error.startswith("RuntimeError: this replay belongs to process"), (name, error)
        assert "snapshot=True" in error, (name, error)


def files_of(replay):
    if core_of(replay)._disk is None:
        return {}
    return {path.name: path.read_bytes() for path in core_of(replay)._disk.folder.iterdir()}


def test_every_use_in_a_child_raises(replay, tmp_path):
    """Calls that look like a success in the child, and change nothing in the parent, lose data without a word."""
    writer, table = replay.writer(items=[hr.ItemRule("q", 1)]), replay.table("t")
    lanes = replay.writer(lanes=2)
    writer.append(row(1000))
    before = replay.statistics(), files_of(replay)
    two = {"x": np.zeros(2, np.int64), "image": np.zeros((2, 2000), np.uint8)}
    uses = {
        "append": lambda: writer.append(row(1)),
        "append_checked": lambda: writer._rows.append_checked(row(1)),
        "append_ends": lambda: lanes._rows.append_ends(
            two, np.zeros(2, np.bool_), np.array([1]), {"x": np.zeros(1, np.int64)}
        ),
        "append of lanes": lambda: lanes.append(two),
        "create_item": lambda: writer.create_item("t", 1),
        "end_episode": writer.end_episode,
        "flush": writer.flush,
        "close of a writer": writer.close,
        "sample": lambda: replay.sample("t", 1),
        "update_priorities": lambda: replay.update_priorities("t", [1], [2.0]),
        "delete": lambda: replay.delete("t", [1]),
        "reset": lambda: replay.reset("t"),
        "can_insert": lambda: replay.can_insert("t"),
        "can_sample": lambda: replay.can_sample("t"),
        "writer": replay.writer,
        "save": lambda: replay.save(tmp_path / "checkpoints"),
        "statistics": replay.statistics,
        "table": lambda: replay.table("t"),
        "len": lambda: len(table),
        "statistics of a table": table.statistics,
        "distribution": table.distribution,
        "configure": lambda: table.configure(max_size=10),
    }
    if core_of(replay).is_on_disk:
        uses["durable flush"] = lambda: writer.flush(durable=True)
    assert_all_refused(uses)
    assert not (tmp_path / "checkpoints").exists()
    assert (replay.statistics().tables, files_of(replay)) == (before[0].tables, before[1])
    writer.append(row(1001))
    writer.close()
    assert replay.sample("q", 1002).data["x"].tolist() == list(range(1002))


STEP = {"observation": 0.0, "action": 0, "reward": 0.0, "terminated": False, "truncated": False}


def test_every_use_of_a_step_writer_in_a_child_raises():
    table = hr.Table("t", sampler=hr.selectors.Uniform(), remover=hr.selectors.Fifo(), max_size=9)
    with hr.Replay(hr.Signature.like(STEP), [table]) as replay, hr.TransitionWriter(replay, "t") as writer:
        writer.add_first(0.0)
        writer.add(1, 1.0, False, False, 1.0)
        episode = hr.Episode(np.zeros(2), [1], [1.0], [True], [False])
        fresh = hr.TransitionWriter(replay, "t")
        assert_all_refused(
            {
                "add_first": lambda: fresh.add_first(0.0),
                "add": lambda: writer.add(1, 1.0, False, False, 2.0),
                "the last add": lambda: writer.add(1, 1.0, True, False, 2.0),
                "add_episode": lambda: fresh.add_episode(episode),
                "reset": writer.reset,
                "flush": writer.flush,
                "close": writer.close,
                "statistics": writer.statistics,
                "new": lambda: hr.TransitionWriter(replay, "t"),
            }
        )
        fresh.close()
        writer.add(2, 1.0, True, False, 2.0)
        assert writer.statistics().steps_written == 3
    assert table.max_size == 9


def test_every_use_of_an_observer_in_a_child_raises():
    frame = hr.Trajectory(hr.StepType.FIRST, 0.0, 0, 0.0, hr.StepType.MID, 0.0, 1.0)
    table = hr.Table("t", sampler=hr.selectors.Uniform(), remover=hr.selectors.Fifo(), max_size=9)
    with hr.Replay(hr.Signature.like(frame), [table]) as replay:
        observers = hr.AddTrajectoryObserver(replay, "t", 2), hr.AddEpisodeObserver(replay, "t", 5)
        for observer in observers:
            observer(frame)
            assert_all_refused(
                {
                    "call": lambda observer=observer: observer(frame._replace(step_type=hr.StepType.MID)),
                    "reset": observer.reset,
                    "flush": observer.flush,
                    "close": observer.close,
                    "statistics": observer.statistics,
                }
            )
        for observer in observers:
            observer.reset(write_cached_steps=False)
            observer.close()


def test_leaving_with_blocks_in_a_child_does_nothing(recwarn):
    """A child that ends by an error or `sys.exit` inside of them shows that, and touches nothing of the parent's."""
    with hr.Replay(hr.Signature.like(STEP), [hr.Table.queue("t", 1)]) as replay:
        writer = replay.writer(items=[hr.ItemRule("t", 1)])
        writer.append(STEP)
        writer.append(STEP)
        steps = hr.TransitionWriter(replay, "t")
        steps.add_first(0.0)

        def leave():
            with pytest.raises(SystemExit), replay, writer, steps:
                raise SystemExit
            return repr(replay), [str(each.message) for each in recwarn]

        shown, warnings = in_forked_child(leave)
        assert shown.endswith("of another process>")
        assert warnings == []
        replay.sample("t", 1)
        writer.close()
        steps.reset(write_cached_steps=False)
        steps.close()


def test_a_copy_that_a_loader_may_read_is_whole_and_the_childs_own(replay):
    """LP4: what it removes stays in the parent, whose files are not written."""
    files = files_of(replay)
    assert in_forked_child(lambda: copy_of_all(replay)) == list(range(1000))
    assert in_forked_child(lambda: copy_of_all(replay)) == list(range(1000))
    assert files_of(replay) == files
    assert all_of(replay) == list(range(1000))


def test_permission_to_read_a_copy_ends(replay):
    def words():
        with reading_copies():
            all_of(replay)
        return errors_of({"sample": lambda: replay.sample("t", 1)})["sample"]

    assert in_forked_child(words).startswith("RuntimeError")
    replay.close()
    with pytest.raises(hr.Closed), reading_copies():
        replay.sample("t", 1)


def test_draws_go_on_as_the_parents(replay):
    replay.sample("t", 10)

    def draw():
        with reading_copies():
            return [replay.sample("t", 10).info.keys.tolist() for _ in range(3)]

    drawn = in_forked_child(draw)
    assert drawn == [replay.sample("t", 10).info.keys.tolist() for _ in range(3)]


def test_fork_waits_for_the_lock(replay):
    """LP6: no lock is taken over, whoever holds it."""
    held, forking, halves = threading.Event(), threading.Event(), []

    class Signal(Follower):
        def before_fork(self):
            forking.set()

    def hold():
        with core_of(replay).lock:
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
    assert in_forked_child(lambda: (halves, copy_of_all(replay))) == ([1, 2], list(range(1000)))
    thread.join()


def test_nobody_waits_behind_a_thread_of_the_parent(replay):
    """LP6: a thread that waits in the table has no place in the child's queue."""
    replay.sample("q", 999)
    thread = threading.Thread(target=lambda: replay.sample("q", 2))
    thread.start()
    core_of(replay).clock.wait_for_waiters(1)

    def sample():
        with reading_copies():
            return replay.sample("q", 1, timeout=0).data["x"].tolist()

    assert in_forked_child(sample) == [999]
    with replay.writer(items=[hr.ItemRule("q", 1)]) as writer:
        writer.append(row(1))
    thread.join()


def test_a_pools_lock_is_not_taken_over(replay):
    """LP6: threads of the parent may be copying rows."""
    replay.sample("t", 100)
    pool = core_of(replay).sampling.plan(None)._pool

    def shape_of_a_batch():
        with reading_copies():
            return replay.sample("t", 100).data["image"].shape

    with pool._lock:
        shape = in_forked_child(shape_of_a_batch)
    assert shape == (100, 2000)


def test_a_closed_replay_can_be_forked(replay):
    replay.close()
    assert in_forked_child(lambda: errors_of({"reset": lambda: replay.reset("t")})) == {
        "reset": "Closed: the replay is closed"
    }


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


def test_an_object_knows_in_which_process_it_was_made():
    here = HomeProcess("this thing", "Make another one.")
    here.check()

    def words():
        there = HomeProcess("that thing", "Leave it.")
        there.check()
        grandchild = in_forked_child(lambda: errors_of({"here": here.check, "there": there.check}))
        return errors_of({"here": here.check}), grandchild, there.is_elsewhere

    child, grandchild, is_elsewhere = in_forked_child(words)
    assert child["here"].startswith(f"RuntimeError: this thing belongs to process {os.getpid()}; process ")
    assert child["here"].endswith("Make another one.")
    assert grandchild["here"].startswith(
        f"RuntimeError: this thing belongs to process {os.getpid()}; process "
    )
    assert grandchild["there"].endswith("Leave it.")
    assert not is_elsewhere
    assert not here.is_elsewhere
