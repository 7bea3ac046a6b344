"""A disk that is full for the items of a client's steps: they wait, and none is lost (replay C3, server AK1, AK4)."""

from contextlib import contextmanager

import numpy as np
import pytest

import headrace as hr
from headrace.replay.public import core_of
from headrace.store.memory.arena import Arena
from tests.server.test_stopping import until

SIGNATURE = hr.Signature.like({"x": 0})
# The first file of items has room for so many.
ROOM, MORE = 1024, 500


def table(name):
    fifo = hr.selectors.Fifo()
    return hr.Table(name, sampler=fifo, remover=fifo, max_size=100_000)


@pytest.fixture
def full_disk(monkeypatch):
    """A context in which there is no space for the next file of items."""

    def refuse(*arguments):
        raise OSError(28, "No space left on device")

    @contextmanager
    def entered():
        with monkeypatch.context() as patch:
            patch.setattr(Arena, "file", refuse)
            yield

    return entered


@pytest.fixture(params=["unix", "tcp"])
def served(request, tmp_path):
    """A replay on disk, and a client's view of it."""
    with hr.Replay(SIGNATURE, [table("t"), table("u")], path=tmp_path / "store") as replay:
        place = {"unix": tmp_path / "socket", "address": None} if request.param == "unix" else {}
        with hr.Server({"r": replay}, **place) as server, hr.Client(server.addresses[0]) as client:
            yield replay, client.replay("r")


def written(remote):
    """A writer of more steps than there is room for, each of them an item."""
    writer = remote.writer(items=[hr.ItemRule("t", 1)])
    for x in range(ROOM + MORE):
        writer.append({"x": x})
    return writer


def kept(replay, name="t"):
    live = core_of(replay).live_table(name)
    return core_of(replay).store.columns["x"][live.ring.arrays.rows[live.ring._live_slots()]].tolist()


def test_items_of_steps_in_flight_wait_for_disk_space(served, full_disk):
    replay, remote = served
    with full_disk():
        writer = written(remote)
        until(lambda: not writer._rows._stream.is_busy)
        with pytest.raises(hr.DeadlineExceeded, match="no memory or disk space") as caught:
            writer.flush(timeout=0.0)
        assert caught.value.pending == MORE + ROOM - len(replay.table("t"))
    # The server tries again by itself: no other call opens the gate.
    writer.flush(timeout=30.0)
    assert kept(replay) == list(range(ROOM + MORE))
    writer.append({"x": -1})
    writer.close()
    assert kept(replay)[-1] == -1


@pytest.mark.parametrize("lanes", [3, 148], ids=["one block", "two blocks"])
def test_items_of_several_rules_and_ends_wait_for_disk_space(served, full_disk, lanes):
    replay, remote = served
    rules = [hr.ItemRule("t", 1), hr.ItemRule("u", 2, end=hr.EndOfEpisode.TRUNCATE)]
    writer, steps = remote.writer(lanes=lanes, items=rules), ROOM // lanes + 4
    with full_disk():
        for t in range(steps):
            writer.append({"x": 1000 * t + np.arange(lanes)})
        writer.end_episode({"x": np.full(lanes, -1)})
        until(lambda: replay.statistics().tables["u"].pending_inserts)
    writer.close(timeout=30.0)
    every = [1000 * t + lane for t in range(steps) for lane in range(lanes)]
    assert kept(replay) == every
    assert kept(replay, "u")[: len(every) - lanes] == every[: len(every) - lanes]


def test_items_that_wait_for_disk_space_go_in_once_after_a_lost_connection(served, full_disk):
    """Server AK3."""
    replay, remote = served
    with full_disk():
        writer = written(remote)
        until(lambda: replay.statistics().tables["t"].pending_inserts)
        writer._rows._stream._link.channel.shutdown()
        writer.append({"x": ROOM + MORE})
    writer.close(timeout=30.0)
    assert kept(replay) == list(range(ROOM + MORE + 1))


def test_a_created_item_waits_for_disk_space(served, full_disk):
    replay, remote = served
    writer = remote.writer()
    with full_disk():
        keys = []
        for x in range(ROOM + 10):
            writer.append({"x": x})
            keys.append(writer.create_item("t", 1))
    writer.close(timeout=30.0)
    assert kept(replay) == list(range(ROOM + 10))
    ring = core_of(replay).live_table("t").ring
    assert ring.arrays.keys[ring._live_slots()].tolist() == keys
