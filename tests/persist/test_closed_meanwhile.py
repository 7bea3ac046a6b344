"""A store on disk that is closed during a call belongs to whoever opens it next (replay part 12, Q1, Q10)."""

import numpy as np
import pytest

import headrace as hr
from headrace.datasets import episodes
from headrace.persist.checkpoint import saving
from headrace.persist.disk.disk import Disk
from headrace.persist.disk.durable_point import DurablePoints
from headrace.replay.public import core_of
from headrace.store.memory.arena import Arena
from headrace.store.store import Store
from headrace.tables.live_table import LiveTable

STEP = {"observation": 0.0, "action": 0, "reward": 0.0, "terminated": False, "truncated": False}
SIGNATURE = hr.Signature.like(STEP)
COUNT = 40


def table():
    return hr.Table("t", sampler=hr.selectors.Uniform(), remover=hr.selectors.Fifo(), max_size=COUNT)


def open_replay(place):
    return hr.Replay(SIGNATURE, [table()], path=place, capacity=200, seed=0)


def fill(replay, reward):
    with hr.StepWriter(replay, [hr.ItemRule("t", 1)]) as writer:
        writer.add_first(reward)
        for t in range(COUNT):
            writer.add(t, reward, t == COUNT - 1, False, reward)


def rewards(replay):
    return set(replay.sample("t", 200).data["reward"].tolist())


class NextOwner:
    """Closes a replay, opens its folder again, and writes other rows into the same pages."""

    def __init__(self, replay, place):
        self._replay, self._place = replay, place
        self.replay = None

    def __call__(self):
        if self.replay is None:
            self._replay.close()
            self.replay = open_replay(self._place)
            self.replay.reset("t")
            fill(self.replay, 2.0)


@pytest.fixture
def place(tmp_path):
    return tmp_path / "store"


@pytest.fixture
def replay(place):
    with open_replay(place) as replay:
        fill(replay, 1.0)
        yield replay


@pytest.fixture
def take_over(replay, place):
    owner = NextOwner(replay, place)
    yield owner
    if owner.replay is not None:
        owner.replay.close()


@pytest.mark.parametrize("moment", ["before the rows", "after some rows", "after the rows"])
def test_a_checkpoint_never_has_rows_of_the_next_owner(replay, take_over, tmp_path, monkeypatch, moment):
    """Q7: its checksum would be right."""
    monkeypatch.setattr(saving, "_GROUP_BYTES", 1)
    groups, write_rows = saving._groups, saving._write_rows

    def some_groups(*arguments):
        for number, group in enumerate(groups(*arguments)):
            if moment == "before the rows" or number == 2:
                take_over()
            yield group

    def all_rows(*arguments):
        written = write_rows(*arguments)
        take_over()
        return written

    if moment == "after the rows":
        monkeypatch.setattr(saving, "_write_rows", all_rows)
    else:
        monkeypatch.setattr(saving, "_groups", some_groups)
    directory = tmp_path / "checkpoints"
    if moment == "after the rows":
        replay.save(directory)
        with hr.Replay.load(directory) as loaded:
            assert rewards(loaded) == {1.0}
    else:
        with pytest.raises(hr.Closed, match="closed while"):
            replay.save(directory)
        assert list(directory.iterdir()) == []
    assert rewards(take_over.replay) == {2.0}


def test_a_replay_in_memory_that_is_closed_meanwhile_is_saved(tmp_path, monkeypatch):
    """Its rows stay as they were: nobody else writes there."""
    replay = hr.Replay(SIGNATURE, [table()], capacity=200)
    fill(replay, 1.0)
    groups = saving._groups

    def closing(*arguments):
        replay.close()
        yield from groups(*arguments)

    monkeypatch.setattr(saving, "_groups", closing)
    replay.save(tmp_path)
    with hr.Replay.load(tmp_path) as loaded:
        assert rewards(loaded) == {1.0}


class Before:
    """A lock, or a call, before which something else happens once."""

    def __init__(self, first, then):
        self._first, self._then = first, then

    def __enter__(self):
        self._first()
        return self._then.__enter__()

    def __exit__(self, *error):
        return self._then.__exit__(*error)

    def __call__(self, *arguments):
        self._first()
        return self._then(*arguments)


def step_of(lanes, value):
    columns = SIGNATURE.columns.items()
    return {
        name: np.full(lanes, value, spec.dtype) if lanes > 1 else spec.dtype.type(value)
        for name, spec in columns
    }


def none_of(lanes):
    return np.zeros(lanes, np.bool_)


FINAL = {"observation": np.zeros(1)}


def mapped(place):
    """The bytes of the files that a store maps."""
    return [(place / name).read_bytes() for name in ("rows", "index")]


CALLS = {
    "append": lambda writer, lanes: writer.append(step_of(lanes, 7)),
    "append_checked": lambda writer, lanes: writer._rows.append_checked(step_of(lanes, 7)),
    "append_ends": lambda writer, lanes: writer._rows.append_ends(
        {name: np.full(lanes, 7, spec.dtype) for name, spec in SIGNATURE.columns.items()},
        none_of(lanes),
        np.array([0]),
        FINAL,
    ),
    "end_lanes": lambda writer, lanes: writer._rows.end_lanes(np.array([0]), FINAL),
    "end_episode": lambda writer, lanes: writer.end_episode(lane=0),
    "cut_open_lanes": lambda writer, lanes: writer._rows.cut_open_lanes(),
    "drop_open_lanes": lambda writer, lanes: writer._rows.drop_open_lanes(),
    "create_item": lambda writer, lanes: writer.create_item("t", 1),
}


@pytest.mark.parametrize("rules", [[], [1], [2], [1, 2]], ids=str)
@pytest.mark.parametrize("lanes", [1, 3, 20])
@pytest.mark.parametrize("call", CALLS)
@pytest.mark.parametrize("moment", ["before a row is written", "before it is committed"])
def test_a_writer_that_is_overtaken_is_refused(replay, take_over, place, moment, call, lanes, rules):
    """What it writes would lie among the rows of the next owner, and it would be told that it is stored."""
    writer = replay.writer(lanes=lanes, items=[hr.ItemRule("t", length) for length in rules])
    writer.append(step_of(lanes, 3))
    files = []

    def overtake():
        if not files:
            take_over()
            files.append(mapped(place))

    if moment == "before a row is written":
        block = writer._rows._lanes.blocks[0]
        block.make_room = Before(overtake, block.make_room)
    for holder in (writer._rows,):
        holder._lock = Before(overtake, holder._lock)
    with pytest.raises(hr.Closed):
        CALLS[call](writer, lanes)
    assert mapped(place) == files[0]
    assert rewards(take_over.replay) == {2.0}


def test_a_page_is_not_taken_from_the_next_owner(replay, take_over, place):
    writer = replay.writer(lanes=3)
    writer._rows._lanes.blocks[0]._store = store = writer._rows._store
    take_over()
    content = mapped(place)
    with pytest.raises(hr.Closed):
        store.acquire(3)
    assert mapped(place) == content


def test_episodes_of_the_next_owner_are_not_given(replay, take_over):
    """They are copied without the lock, as batches are."""
    found = episodes(replay)
    core_of(replay).store.columns = Overtaking(take_over, core_of(replay).store.columns)
    with pytest.raises(hr.Closed):
        next(found)


class Overtaking(dict):
    """Columns, before the first of which something else happens."""

    def __init__(self, first, columns):
        super().__init__(columns)
        self._first = first

    def items(self):
        self._first()
        return super().items()


@pytest.mark.parametrize(
    ("owner", "call"),
    [
        (LiveTable, "refuse_pending"),
        (Disk, "sync"),
        (Disk, "close"),
        (DurablePoints, "close"),
        (Arena, "make_private"),
        (Store, "close"),
    ],
)
def test_ctrl_c_while_a_replay_is_closed_gives_its_folder_free(replay, place, monkeypatch, owner, call):
    with replay.writer() as writer:
        writer.flush(durable=True)
    calls, original = [], getattr(owner, call)

    def interrupted_once(*arguments):
        calls.append(arguments)
        if len(calls) == 1:
            raise KeyboardInterrupt
        return original(*arguments)

    with monkeypatch.context() as patched:
        patched.setattr(owner, call, interrupted_once)
        with pytest.raises(KeyboardInterrupt):
            replay.close()
    replay.close()
    with pytest.raises(hr.Closed):
        replay.sample("t", 1)
    with open_replay(place) as again:
        assert rewards(again) == {1.0}
