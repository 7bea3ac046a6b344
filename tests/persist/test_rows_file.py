"""The sizes of the files of rows and index: a close cuts them, an opening lets them grow (replay D1, D7, D8)."""

import json
import os
import shutil

import msgspec
import numpy as np
import pytest
from click.testing import CliRunner

import headrace as hr
from headrace.cli import main
from headrace.persist.checked_json import write_checked_json
from headrace.persist.disk import manifest as store_manifest
from headrace.persist.disk.stored import StoredReplay
from headrace.replay.public import core_of
from headrace.store.memory.arena import Arena
from headrace.tables.description.selectors import Fifo, Uniform

SMALL = hr.Signature.like({"x": 0})
FRAMES = hr.Signature.like({"mask": np.zeros(100, np.uint8), "x": 0, "frame": np.zeros((84, 84), np.uint8)})
WHOLE = {"small": SMALL, "frames": FRAMES}


def opened(place, signature, **options):
    return hr.Replay(
        signature, [hr.Table("t", sampler=Uniform(), remover=Fifo(), max_size=100_000)], path=place, **options
    )


def step(signature, x):
    tree = {"x": x}
    if signature is FRAMES:
        tree |= {"mask": np.full(100, x % 7, np.uint8), "frame": np.full((84, 84), x % 251, np.uint8)}
    return tree


def fill(replay, numbers):
    signature = core_of(replay).store.signature
    with replay.writer(items=[hr.ItemRule("t", 1)]) as writer:
        for x in numbers:
            writer.append(step(signature, x))


def kept(replay):
    """The numbers of all steps, whose frames are looked at too."""
    ring, columns = core_of(replay).live_table("t").ring, core_of(replay).store.columns
    rows = ring.arrays.rows[ring._live_slots()].astype(np.int64)
    found = columns["x"][rows].tolist()
    if "frame" in columns:
        assert (columns["frame"][rows] == np.array(found)[:, None, None] % 251).all()
        assert (columns["mask"][rows] == np.array(found)[:, None] % 7).all()
    return found


def size(place, name="rows"):
    return (place / name).stat().st_size


@pytest.fixture
def place(tmp_path):
    return tmp_path / "store"


@pytest.fixture
def closed(place):
    """A closed store of frames."""
    with opened(place, FRAMES, capacity=5000) as replay:
        fill(replay, range(300))
    return place


@pytest.mark.parametrize(("kind", "fewer", "more"), [("small", 1000, 70_000), ("frames", 200, 1000)])
def test_a_close_leaves_of_the_widest_column_what_was_used(place, kind, fewer, more):
    """Without a capacity what is reserved is a multiple of the memory of the machine."""
    signature, sizes, used = WHOLE[kind], [], []
    for begin, end in ((0, fewer), (fewer, more)):
        with opened(place, signature) as replay:
            store = core_of(replay).store
            assert kept(replay) == list(range(begin))
            fill(replay, range(begin, end))
            assert size(place) == store.layout.nbytes
            offset, shape, dtype = list(store.layout.places.values())[-1]
            row_nbytes = int(np.prod(shape[1:])) * dtype.itemsize
            used.append(store.pages_taken * store.arrays.page_rows * row_nbytes)
        sizes.append(size(place))
    assert row_nbytes == max(spec.nbytes for spec in signature.columns.values())
    assert [each - offset for each in sizes] == used
    assert used[1] > used[0] > 0
    # What stands before it: for each row that is reserved 24 bytes and the other columns.
    assert sizes[1] < (0.8 if kind == "small" else 0.025) * store.layout.nbytes
    with opened(place, signature) as replay:
        assert kept(replay) == list(range(more))


def test_an_empty_store_and_one_that_was_emptied(place):
    opened(place, FRAMES, capacity=5000).close()
    empty = size(place)
    with opened(place, FRAMES) as replay:
        fill(replay, range(300))
        replay.reset("t")
    # The blocks of free pages are still the file's.
    assert size(place) > empty
    with opened(place, FRAMES) as replay:
        fill(replay, range(7))
        assert kept(replay) == list(range(7))


def test_pages_of_a_durable_point_count_as_used(place, tmp_path, monkeypatch):
    """Replay D3: what the point needs is there when a later life goes back to it."""
    with opened(place, FRAMES, capacity=5000) as replay:
        fill(replay, range(300))
        core_of(replay).sync()
        replay.reset("t")
        fill(replay, range(5))
    with opened(place, FRAMES) as replay:
        fill(replay, range(5, 200))
        failed = shutil.copytree(place, tmp_path / "failed")
    with monkeypatch.context() as patched:
        patched.setattr("headrace.persist.disk.store_files.boot_id", lambda: 7)
        with opened(failed, FRAMES) as replay:
            assert kept(replay) == list(range(5))


def test_the_file_has_grown_on_the_disk_before_the_record_of_the_close_goes(closed, monkeypatch):
    """Replay D3: after the machine failed, a short file beside other pages would look damaged."""
    fsync, seen = os.fsync, []

    def noted(descriptor):
        fsync(descriptor)
        name = os.path.basename(os.readlink(f"/proc/self/fd/{descriptor}"))
        seen.append((name, size(closed), (closed / "closed.json").exists()))

    with monkeypatch.context() as patched:
        patched.setattr(os, "fsync", noted)
        replay = opened(closed, FRAMES)
    whole = core_of(replay).store.layout.nbytes
    replay.close()
    assert seen == [("rows", whole, True), ("index", whole, True), ("store", whole, False)]


@pytest.mark.parametrize("when", ["before", "after"])
def test_a_cut_that_fails_or_is_interrupted_leaves_a_store_that_opens(place, monkeypatch, when):
    truncate = Arena.truncate

    def interrupted(arena, nbytes):
        if when == "after":
            truncate(arena, nbytes)
        raise KeyboardInterrupt

    replay = opened(place, FRAMES, capacity=5000)
    whole = core_of(replay).store.layout.nbytes
    fill(replay, range(300))
    with monkeypatch.context() as patched:
        patched.setattr(Arena, "truncate", interrupted)
        with pytest.raises(KeyboardInterrupt):
            replay.close()
    assert (size(place) == whole) == (when == "before")
    with StoredReplay(place) as stored:
        assert stored.verify_rows()[0] > 0
    with opened(place, FRAMES) as replay:
        assert kept(replay) == list(range(300))


def test_a_file_system_that_refuses_keeps_the_whole_file(place, monkeypatch):
    def refused(descriptor, nbytes):
        raise OSError(1, "Operation not permitted")

    replay = opened(place, FRAMES, capacity=5000)
    whole = core_of(replay).store.layout.nbytes
    fill(replay, range(300))
    with monkeypatch.context() as patched:
        patched.setattr(os, "ftruncate", refused)
        replay.close()
    assert size(place) == whole
    with opened(place, FRAMES) as replay:
        assert kept(replay) == list(range(300))


def test_rows_that_are_held_over_a_close_can_be_read(place):
    replay = opened(place, FRAMES, capacity=5000)
    fill(replay, range(300))
    store = core_of(replay).store
    page = store.pages_taken - 1
    view = store.block(page, "frame")
    expected = view.copy()
    replay.close()
    np.testing.assert_array_equal(view, expected)


def test_looking_at_a_store_that_was_cut_changes_nothing(closed):
    before = (closed / "rows").read_bytes()
    result = CliRunner().invoke(main, ["inspect", str(closed), "--verify", "--json"])
    assert result.exit_code == 0, result.output
    told = json.loads(result.output)
    assert told["pages_verified"] > 0
    assert told["pages_without_checksum"] == 0
    with StoredReplay(closed) as stored:
        # Behind the end of the file stand zeros.
        assert not stored.store.columns["frame"][-1].any()
        stored.store.columns["frame"][0] = 77
    assert (closed / "rows").read_bytes() == before


@pytest.mark.parametrize("change", [-1, 1, 4096, -8192])
@pytest.mark.parametrize("is_recorded", [True, False])
@pytest.mark.parametrize("name", ["rows", "index"])
def test_d8_a_size_that_no_close_leaves_is_named_and_left(closed, name, change, is_recorded):
    expected = size(closed, name)
    if not is_recorded:
        (closed / "closed.json").unlink()
    os.truncate(closed / name, expected + change)
    for _ in range(2):
        for look in (lambda: opened(closed, FRAMES), lambda: StoredReplay(closed)):
            with pytest.raises(hr.CheckpointError, match=rf"{name}: expected \d+ bytes, or {expected} as"):
                look()
    assert size(closed, name) == expected + change
    os.truncate(closed / name, 100)
    with pytest.raises(hr.CheckpointError, match=rf"{name}: expected \d+ bytes, .*got 100"):
        opened(closed, FRAMES)


@pytest.mark.parametrize("cut", [["rows"], ["index"], []])
def test_each_file_may_be_whole_or_cut(closed, cut):
    """A close that is interrupted between its two cuts, or an opening between the two growths, leaves them so."""
    with opened(closed, FRAMES) as replay:
        store = core_of(replay).store
        whole = {"rows": store.layout.nbytes, "index": store.index_layout.nbytes}
    for name, nbytes in whole.items():
        assert size(closed, name) < nbytes
        if name not in cut:
            os.truncate(closed / name, nbytes)
    with StoredReplay(closed) as stored:
        assert stored.verify_rows()[0] > 0
    with opened(closed, FRAMES) as replay:
        assert kept(replay) == list(range(300))


def test_wide_columns_stand_in_the_order_of_their_width_and_no_other(closed):
    manifest = store_manifest.read_store_manifest(closed)
    assert [name for name, _ in manifest.arrays] == ["records", "column:mask", "column:frame"]
    records, mask, frame = manifest.arrays
    other = msgspec.structs.replace(manifest, arrays=(records, frame, mask))
    write_checked_json(closed / "manifest.json", other, store_manifest.FORMAT, store_manifest.VERSION)
    with pytest.raises(hr.CheckpointError, match="as another release of headrace has written them"):
        opened(closed, FRAMES)
    write_checked_json(closed / "manifest.json", manifest, store_manifest.FORMAT, store_manifest.VERSION)
    with opened(closed, FRAMES) as replay:
        assert kept(replay) == list(range(300))


def test_a_store_of_an_earlier_format_is_refused_and_left(closed):
    """Version 1 had the page table in the file of rows."""
    manifest = store_manifest.read_store_manifest(closed)
    write_checked_json(closed / "manifest.json", manifest, store_manifest.FORMAT, 1)
    before = {path.name: path.read_bytes() for path in closed.iterdir()}
    for look in (lambda: opened(closed, FRAMES), lambda: StoredReplay(closed)):
        with pytest.raises(hr.CheckpointError, match="expected version 2 of the format, got version 1"):
            look()
    assert {path.name: path.read_bytes() for path in closed.iterdir()} == before
