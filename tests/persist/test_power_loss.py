"""A store on disk whose machine fails (replay D3). power.py makes up what the disk may hold then.

HEADRACE_POWER_ROUNDS makes more rounds of each seed; a run of hundreds takes some minutes.
"""

import json
import os
import shutil
import subprocess
import sys
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pytest

import headrace as hr
from headrace.persist import whole_file
from headrace.replay.public import core_of
from headrace.store.pages import retained
from headrace.tables.description.selectors import Fifo, MaxHeap, Uniform

SCRIPT = Path(__file__).with_name("power.py")
ROUNDS = os.environ.get("HEADRACE_POWER_ROUNDS", "6")
SIGNATURE = hr.Signature.like({"x": 0})


@pytest.mark.timeout(60 + 10 * int(ROUNDS))
@pytest.mark.parametrize("seed", [0, 7])
def test_d3_what_was_durable_is_there_whichever_blocks_came_to_the_disk(seed):
    done = subprocess.run(
        [sys.executable, str(SCRIPT), str(seed), ROUNDS], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr[-3000:]
    found = json.loads(done.stdout)
    assert found["failures"] > 10 * int(ROUNDS)
    assert found["items kept"] > 100
    assert found["kills"] > 0


@pytest.fixture
def place(tmp_path):
    return tmp_path / "store"


@contextmanager
def on_machine(monkeypatch, boot):
    with monkeypatch.context() as patched:
        patched.setattr("headrace.persist.disk.store_files.boot_id", lambda: boot)
        yield


def table(**changes):
    return hr.Table("t", **{"sampler": Uniform(), "remover": Fifo(), "max_size": 20, **changes})


def made(place):
    """Small: copies of its files are no longer sparse."""
    return hr.Replay(SIGNATURE, [table()], path=place, capacity=640)


def append(replay, numbers, durable=False):
    with replay.writer(items=[hr.ItemRule("t", 1)]) as writer:
        for x in numbers:
            writer.append({"x": x})
        writer.flush(durable=durable)


def kept(replay):
    ring = core_of(replay).live_table("t").ring
    return core_of(replay).store.columns["x"][ring.arrays.rows[ring._live_slots()]].tolist()


def copied(place, target):
    """As a kill leaves it, or a machine that had written everything."""
    shutil.copytree(place, target)
    return target


def test_d2_d3_a_kill_loses_nothing_and_a_failure_what_was_not_durable(place, tmp_path, monkeypatch):
    with on_machine(monkeypatch, 5), made(place) as replay:
        append(replay, range(3), durable=True)
        append(replay, range(3, 6))
        left = copied(place, tmp_path / "left")
    with (
        on_machine(monkeypatch, 6),
        hr.Replay(SIGNATURE, [table()], path=copied(left, tmp_path / "failed")) as again,
    ):
        assert kept(again) == [0, 1, 2]
        assert again.statistics().tables["t"].inserts == 3
    with on_machine(monkeypatch, 5), hr.Replay(SIGNATURE, [table()], path=left) as again:
        assert kept(again) == [0, 1, 2, 3, 4, 5]


def test_d3_a_close_makes_a_store_durable_that_ever_was(place, tmp_path, monkeypatch):
    with on_machine(monkeypatch, 5):
        with made(place) as replay:
            append(replay, range(3), durable=True)
            append(replay, range(3, 6))
        replay = made(place)
        append(replay, range(6, 9))
        left = copied(place, tmp_path / "left")
        replay.close()
    with on_machine(monkeypatch, 6), hr.Replay(SIGNATURE, [table()], path=left) as again:
        assert kept(again) == [0, 1, 2, 3, 4, 5]


def test_d3_a_failure_after_a_kill_finds_the_rows_of_the_durable_flush(place, tmp_path, monkeypatch):
    """The items were removed before the kill, so after it nothing but the durable point needs their pages."""
    with on_machine(monkeypatch, 5):
        with made(place) as replay:
            append(replay, range(20), durable=True)
            replay.reset("t")
            killed = copied(place, tmp_path / "killed")
        with hr.Replay(SIGNATURE, [table()], path=killed) as replay:
            assert kept(replay) == []
            append(replay, range(100, 140))
            left = copied(killed, tmp_path / "left")
    with on_machine(monkeypatch, 6), hr.Replay(SIGNATURE, [table()], path=left) as again:
        assert kept(again) == list(range(20))


def test_d3_who_never_asks_for_it_pays_nothing(place, tmp_path, monkeypatch):
    synced = []
    with on_machine(monkeypatch, 5), made(place) as replay:
        with monkeypatch.context() as patched:
            patched.setattr(os, "fsync", synced.append)
            append(replay, range(300))
            replay.reset("t")
            append(replay, range(20))
        assert not synced
        assert core_of(replay).store.retained is None
        left = copied(place, tmp_path / "left")
    with on_machine(monkeypatch, 6), hr.Replay(SIGNATURE, [table()], path=left) as again:
        # Everything had come to the disk, as it happens.
        assert kept(again) == list(range(20))


def test_k1_keys_that_may_have_been_used_before_a_failure_are_not_used_again(place, tmp_path, monkeypatch):
    with on_machine(monkeypatch, 5), made(place) as replay:
        append(replay, range(3), durable=True)
        durable = (place / "header").read_bytes()
        append(replay, range(70_000))
        used = replay.sample("t", 20).info.keys.max()
        left = copied(place, tmp_path / "left")
    # What came later of the header did not come to the disk.
    (left / "header").write_bytes(durable)
    with on_machine(monkeypatch, 6), hr.Replay(SIGNATURE, [table()], path=left) as again:
        assert core_of(again).keys.next > used


def test_d3_pages_of_the_durable_point_are_used_again_many_at_a_time(place, tmp_path, monkeypatch):
    """However long ago the durable flush is, the store stays small, and the disk is waited for rarely."""
    with on_machine(monkeypatch, 5):
        replay = hr.Replay(SIGNATURE, [table(max_size=640)], path=place, capacity=640)
        append(replay, range(640), durable=True)
        pages = core_of(replay).store._never_used
        synced, sync = [], os.fsync
        with monkeypatch.context() as patched:
            patched.setattr(os, "fsync", lambda descriptor: (synced.append(descriptor), sync(descriptor)))
            append(replay, range(640, 940))
        assert 0 < len(synced) <= 300 // 20 // retained._FEWEST + 1
        append(replay, range(940, 10_000))
        assert core_of(replay).store._never_used <= pages + retained._FEWEST
        assert replay.statistics().store.rows <= 640 + 4 * 20
        left = copied(place, tmp_path / "left")
        replay.close()
    with on_machine(monkeypatch, 6), hr.Replay(SIGNATURE, [table(max_size=640)], path=left) as again:
        # All of them were removed since.
        assert kept(again) == []
        counts = again.statistics().tables["t"]
        assert (counts.inserts, counts.deletes) == (640, 640)
        append(again, range(5))
        assert kept(again) == [0, 1, 2, 3, 4]


def test_d3_a_flush_that_fails_leaves_the_last_point(place, tmp_path, monkeypatch):
    def full(*arguments):
        raise OSError(28, "No space left on device")

    with on_machine(monkeypatch, 5), made(place) as replay:
        append(replay, range(3), durable=True)
        append(replay, range(3, 200))
        with monkeypatch.context() as patched:
            patched.setattr(whole_file.os, "replace", full)
            with pytest.raises(OSError, match="No space"):
                core_of(replay).sync()
        append(replay, range(200, 400))
        left = copied(place, tmp_path / "left")
        core_of(replay).sync()
        later = copied(place, tmp_path / "later")
    for folder, rows in ((left, None), (later, list(range(380, 400)))):
        with on_machine(monkeypatch, 6), hr.Replay(SIGNATURE, [table()], path=folder) as again:
            assert kept(again) == ([0, 1, 2] if rows is None else rows)


@pytest.mark.parametrize("place_in_file", [0, 40, 200, -400, -1])
def test_d8_a_damaged_point_is_refused(place, tmp_path, monkeypatch, place_in_file):
    with on_machine(monkeypatch, 5), made(place) as replay:
        append(replay, range(3), durable=True)
        left = copied(place, tmp_path / "left")
    content = bytearray((left / "durable").read_bytes())
    content[place_in_file] ^= 1
    (left / "durable").write_bytes(content)
    with on_machine(monkeypatch, 6), pytest.raises(hr.CheckpointError, match="durable"):
        hr.Replay(SIGNATURE, [table()], path=left)


def test_d1_other_settings_may_be_given_after_a_failure(place, tmp_path, monkeypatch):
    with on_machine(monkeypatch, 5), made(place) as replay:
        append(replay, range(10))
        keys = core_of(replay).live_table("t").ring.arrays.keys[:10]
        replay.update_priorities("t", keys, np.arange(10.0))
        core_of(replay).sync()
        left = copied(place, tmp_path / "left")
    other = table(sampler=MaxHeap(), max_size=5)
    with on_machine(monkeypatch, 6), hr.Replay(SIGNATURE, [other], path=left) as again:
        assert kept(again) == [5, 6, 7, 8, 9]
        assert again.sample("t", 1).info.priorities.tolist() == [9.0]


def test_d3_an_opening_after_a_failure_that_is_interrupted_is_begun_again(place, tmp_path, monkeypatch):
    with on_machine(monkeypatch, 5), made(place) as replay:
        append(replay, range(10), durable=True)
        append(replay, range(10, 100))
        left = copied(place, tmp_path / "left")
    for name in ("restore_rows", "restored_items", "recover", "sync_folder", "pages_in_use"):
        with on_machine(monkeypatch, 6), monkeypatch.context() as patched:

            def interrupted(*arguments, **options):
                raise KeyboardInterrupt

            patched.setattr(f"headrace.persist.disk.disk.{name}", interrupted)
            if name != "sync_folder":
                with pytest.raises(KeyboardInterrupt):
                    hr.Replay(SIGNATURE, [table()], path=left)
    with on_machine(monkeypatch, 6), hr.Replay(SIGNATURE, [table()], path=left) as again:
        assert kept(again) == list(range(10))
