"""A store on disk: opening, reopening, owning, refusing (replay D1, D3 to D8, K1)."""

import json
import mmap
import os
import shutil
import subprocess
import sys
import threading
from functools import partial
from pathlib import Path

import numpy as np
import pytest
import xxhash

import headrace as hr
from headrace.persist.disk.stored import StoredReplay
from headrace.replay.public import core_of
from headrace.store.layout import LANES, NEXT, PAGE_WORDS, USED
from headrace.store.memory.arena import Arena
from headrace.tables.description.rate_limiters import MinSize
from headrace.tables.description.selectors import Fifo, Lifo, MaxHeap, MinHeap, Prioritized, Uniform
from headrace.tables.item_memory import found_items
from headrace.tables.items.layout import FIRST, LIVE, SPAN

SIGNATURE = hr.Signature.like({"x": 0, "y": np.zeros(3, np.float32)})


def table(**changes):
    settings = {"sampler": Uniform(), "remover": Fifo(), "max_size": 20, **changes}
    return hr.Table("t", **settings)


def step(x):
    return {"x": x, "y": np.full(3, x, np.float32)}


def fill(replay, count, start=0, **writer):
    with replay.writer(items=[hr.ItemRule("t", 1)], **writer) as made:
        for x in range(start, start + count):
            made.append(step(x))


def kept(replay, name="t"):
    ring = core_of(replay).live_table(name).ring
    rows = ring.arrays.rows[ring._live_slots()]
    return core_of(replay).store.columns["x"][rows].tolist()


@pytest.fixture
def place(tmp_path):
    return tmp_path / "store"


def test_d1_a_store_is_made_and_opened_again(place, tools):
    with hr.Replay(tools.SIGNATURE, tools.every_kind_of_table(), path=place, capacity=600, seed=1) as replay:
        past = tools.Past(replay)
        past.go(150)
        past.writer.close()
        before = tools.counts(replay)
        assert core_of(replay).is_on_disk
    with hr.Replay(tools.SIGNATURE, tools.every_kind_of_table(), path=str(place)) as again:
        assert tools.counts(again) == before
        assert core_of(again).store.capacity == 600


def test_d1_an_empty_folder_that_is_there_and_folders_above_it(tmp_path):
    (tmp_path / "empty").mkdir()
    for place in (tmp_path / "empty", tmp_path / "a" / "b"):
        with hr.Replay(SIGNATURE, [table()], path=place) as replay:
            fill(replay, 3)
        with hr.Replay(SIGNATURE, [table()], path=place) as replay:
            assert kept(replay) == [0, 1, 2]


def test_d7_after_an_orderly_close_the_next_batches_are_the_same(place, tools, tmp_path):
    with hr.Replay(tools.SIGNATURE, tools.every_kind_of_table(), path=place, capacity=600, seed=1) as replay:
        past = tools.Past(replay, 5)
        past.go(150)
        past.writer.close()
        twin = hr.Replay.load(replay.save(tmp_path))
    with twin, hr.Replay(tools.SIGNATURE, tools.every_kind_of_table(), path=place, seed=99) as again:
        tools.assert_same_draws(twin, again, 100)


def test_d7_a_second_life_goes_on_like_one_that_was_never_closed(place, tmp_path):
    """Closing and opening between the steps changes nothing of what is drawn."""
    drawn = []
    for closes, folder in ((True, place), (False, tmp_path / "other")):
        replay = hr.Replay(SIGNATURE, [table(sampler=Prioritized(0.6))], path=folder, seed=7)
        drawn.append([])
        for life in range(4):
            fill(replay, 11, start=11 * life)
            batch = replay.sample("t", 5)
            replay.update_priorities("t", batch.info.keys, np.arange(1.0, 6.0))
            drawn[-1].append(
                (batch.data["x"].tolist(), batch.info.keys.tolist(), batch.info.probabilities.tolist())
            )
            if closes:
                replay.close()
                replay = hr.Replay(SIGNATURE, [table(sampler=Prioritized(0.6))], path=folder)
        replay.close()
    assert drawn[0] == drawn[1]


def test_a_checkpoint_of_a_store_on_disk_is_like_any_other(place, tmp_path, tools):
    with hr.Replay(SIGNATURE, [table()], path=place, seed=1) as replay:
        fill(replay, 30)
        with hr.Replay.load(replay.save(tmp_path)) as loaded:
            assert not core_of(loaded).is_on_disk
            assert kept(loaded) == kept(replay) == list(range(10, 30))
            with pytest.raises(ValueError, match="lives in memory"):
                loaded.writer().flush(durable=True)


@pytest.mark.parametrize(
    "other",
    [
        table(sampler=MaxHeap(), max_size=8),
        table(sampler=Prioritized(0.3), remover=MinHeap()),
        table(remover=Lifo(), max_size=5, max_times_sampled=1, rate_limiter=MinSize(2)),
        table(sampler=Uniform(replacement=False), remover=Prioritized()),
    ],
)
def test_d1_settings_given_on_reopening_win(place, other):
    with hr.Replay(SIGNATURE, [table()], path=place) as replay:
        fill(replay, 20)
        replay.update_priorities("t", core_of(replay).live_table("t").ring.arrays.keys[:20], np.arange(20.0))
    with hr.Replay(SIGNATURE, [other], path=place) as again:
        statistics = again.statistics().tables["t"]
        assert statistics.max_size == other.max_size
        assert statistics.max_times_sampled == other.max_times_sampled
        assert statistics.size == min(20, other.max_size)
        assert statistics.inserts - statistics.deletes == statistics.size
        if isinstance(other.sampler, MaxHeap):
            assert again.sample("t", 1).info.priorities.tolist() == [19.0]
    with hr.Replay(SIGNATURE, [table()], path=place) as back:
        assert len(back.table("t")) == min(20, other.max_size)


def drawn_until_empty(replay):
    drawn = []
    while len(replay.table("t")):
        batch = replay.sample("t", 1)
        drawn.append(int(batch.data["x"][0]))
        replay.delete("t", batch.info.keys)
    return drawn


@pytest.mark.parametrize("is_loaded", [False, True])
@pytest.mark.parametrize(
    ("lives", "expected"),
    [
        ([{"sampler": MinHeap()}, {"sampler": MinHeap()}], [2, 3, 4, 1, 0]),
        ([{"sampler": MaxHeap()}, {"sampler": MinHeap()}], [2, 3, 4, 1, 0]),
        ([{"remover": MinHeap()}, {"sampler": MinHeap()}], [2, 3, 4, 1, 0]),
        ([{}, {"sampler": MinHeap()}], [0, 1, 2, 3, 4]),
        ([{"sampler": MinHeap()}, {}, {"sampler": MinHeap()}], [0, 1, 2, 3, 4]),
    ],
)
def test_s5_ties_of_heaps_keep_the_order_of_touch_while_every_life_has_a_heap(
    place, tmp_path, lives, expected, is_loaded
):
    """Replay S5, P3, D1: a life without a heap forgets it, and the next one begins with the order of insertion."""
    replay = hr.Replay(SIGNATURE, [table(**lives[0])], path=place, capacity=100)
    fill(replay, 5)
    keys = core_of(replay).live_table("t").ring.arrays.keys[:5].copy()
    for touched in (1, 0):
        replay.update_priorities("t", [keys[touched]], [1.0])
    for settings in lives[1:]:
        if is_loaded:
            replay.save(tmp_path / "checkpoints")
        replay.close()
        replay = (
            hr.Replay.load(tmp_path / "checkpoints", tables=[table(**settings)])
            if is_loaded
            else hr.Replay(SIGNATURE, [table(**settings)], path=place)
        )
    assert drawn_until_empty(replay) == expected
    replay.close()


def test_k1_keys_go_on_after_reopening_and_after_a_kill(place, tmp_path):
    used = []
    for life in range(3):
        replay = hr.Replay(SIGNATURE, [table()], path=place, capacity=100)
        with replay.writer() as writer:
            for _ in range(5):
                writer.append(step(0))
                used.append(writer.create_item("t", 1))
        # The second life ends without a close: its folder is copied as a kill would leave it.
        if life == 1:
            copy = tmp_path / "killed"
            shutil.copytree(place, copy)
            replay.close()
            shutil.rmtree(place)
            shutil.copytree(copy, place)
        else:
            replay.close()
    assert len(set(used)) == 15
    assert used == sorted(used)


def left_by_a_kill(place, copy):
    """A copy of a store, as a kill at this moment would leave it."""
    shutil.copytree(place, copy)
    return copy


@pytest.mark.parametrize("rules", [[hr.ItemRule("t", 1)], [hr.ItemRule("t", 1), hr.ItemRule("t", 2)]])
def test_ages_are_right_after_kills(place, tmp_path, rules):
    """An age is the number of items made since: a kill leaves no gap between keys, also where the newest had left."""
    for life in range(3):
        replay = hr.Replay(SIGNATURE, [table()], path=place, capacity=None if life else 100, seed=0)
        with replay.writer(items=rules, history=2) as writer:
            for x in range(5):
                writer.append(step(x))
            newest = writer.create_item("t", 1)
        assert replay.delete("t", [newest]) == 1
        found = replay.table("t").distribution()
        assert found.oldest_age < 40
        left = left_by_a_kill(place, tmp_path / f"killed-{life}")
        replay.close()
        with StoredReplay(left) as stored:
            assert stored.next_key == newest + 1
        with hr.Replay(SIGNATURE, [table()], path=left) as again:
            assert again.table("t").distribution() == found
        # Closed in order by now.
        with hr.Replay(SIGNATURE, [table()], path=left) as again:
            assert again.table("t").distribution() == found
        place = left_by_a_kill(left, tmp_path / f"closed-{life}")


def test_keys_that_were_skipped_are_not_given_after_a_kill(place, tmp_path):
    """Replay K1, collectors CY4: as a shard of a cluster does, which is killed before and after it made items."""
    given, first = [], 1 << 50
    for life in range(6):
        replay = hr.Replay(SIGNATURE, [table()], path=place, capacity=None if life else 100, seed=0)
        keys = core_of(replay).keys
        with core_of(replay).lock:
            keys.skip_to(first + 1000 * life)
            assert keys.next == first + 1000 * life
        if life % 2:
            with replay.writer() as writer:
                writer.append(step(life))
                given += [writer.create_item("t", 1) for _ in range(3)]
        # An age is the number of items made since, also over several lives.
        found = replay.table("t").distribution()
        if given:
            assert found.oldest_age == len(given) - 1
        place = left_by_a_kill(place, tmp_path / f"killed-{life}")
        replay.close()
        with StoredReplay(place) as stored:
            assert stored.skipped_keys == keys.skipped
    assert given == sorted(set(given))


def test_k1_the_key_of_an_item_that_waited_is_not_used_again_after_a_kill(place, tmp_path):
    replay = hr.Replay(SIGNATURE, [hr.Table.queue("t", 1)], path=place, capacity=100)
    writer = replay.writer(history=3)
    writer.append(step(0))
    keys = [writer.create_item("t", 1) for _ in range(3)]
    left = left_by_a_kill(place, tmp_path / "killed")
    with pytest.raises(hr.Closed):
        replay.close() or writer.close(0)
    with hr.Replay(SIGNATURE, [hr.Table.queue("t", 1)], path=left) as again, again.writer() as other:
        assert again.table("t").distribution().oldest_age == 2
        other.append(step(1))
        again.sample("t", 1)
        assert other.create_item("t", 1) == keys[-1] + 1


def test_d3_durable_syncs_every_file_and_holds_up_nobody(place, monkeypatch):
    synced, flushing = [], [True]
    sync = os.fsync
    with hr.Replay(SIGNATURE, [table()], path=place) as replay:
        writer = replay.writer(items=[hr.ItemRule("t", 1)])
        writer.append(step(1))
        replay.sample("t", 1)  # Its kernels are there before the other thread needs them.

        def noted(descriptor):
            synced.append(os.path.basename(os.readlink(f"/proc/self/fd/{descriptor}")))
            if flushing:
                # Another thread samples meanwhile.
                thread = threading.Thread(target=lambda: replay.sample("t", 1, timeout=0))
                thread.start()
                thread.join(20.0)
                assert not thread.is_alive()
            sync(descriptor)

        writer.flush()
        assert not synced
        monkeypatch.setattr(os, "fsync", noted)
        writer.flush(durable=True)
        # Items are copied: their own file changes in place afterwards. A copy counts once it is on the disk.
        assert synced == ["rows", "index", "header", "durable.partial", "store"]
        # From now on nothing else is synced: tests/persist/test_power_loss.py shows what that survives.
        del synced[:], flushing[:]
        replay.reset("t")
        assert not synced
        monkeypatch.undo()
        writer.close()


def test_d3_a_flush_that_is_closed_meanwhile_says_so(place):
    replay = hr.Replay(SIGNATURE, [table()], path=place)
    replay.close()
    with pytest.raises(hr.Closed):
        core_of(replay).sync()


def test_d5_a_second_opener_is_refused_in_this_process_and_in_another(place):
    with hr.Replay(SIGNATURE, [table()], path=place) as replay:
        fill(replay, 3)
        with pytest.raises(hr.CheckpointError, match="in use"):
            hr.Replay(SIGNATURE, [table()], path=place)
        code = (
            "import sys, headrace as hr\n"
            "from headrace.persist.disk.disk import Disk\n"
            f"try: Disk({str(place)!r}, hr.Signature.like({{'x': 0}}), ['t'], None)\n"
            "except hr.CheckpointError as error: sys.exit(f'{error}')"
        )
        done = subprocess.run(
            [sys.executable, "-c", code], capture_output=True, text=True, check=False, timeout=50
        )
        assert "in use" in done.stderr
        assert kept(replay) == [0, 1, 2]
    hr.Replay(SIGNATURE, [table()], path=place).close()


def test_d5_a_killed_owner_leaves_no_lock(place):
    code = (
        "import os, signal, numpy as np, headrace as hr\n"
        "from headrace.persist.disk.disk import Disk\n"
        "signature = hr.Signature.like({'x': 0, 'y': np.zeros(3, np.float32)})\n"
        f"Disk({str(place)!r}, signature, ['t'], None)\n"
        "os.kill(os.getpid(), signal.SIGKILL)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, check=False, timeout=50)
    assert done.returncode == -9, done.stderr
    hr.Replay(SIGNATURE, [table()], path=place).close()


def test_d5_a_forked_child_of_a_killed_owner_holds_no_lock(place):
    """A worker of a `DataLoader` has inherited the owner's descriptors and mappings; it may live longer."""
    code = (
        "import os, signal, numpy as np, headrace as hr\n"
        "signature = hr.Signature.like({'x': 0, 'y': np.zeros(3, np.float32)})\n"
        f"replay = hr.Replay(signature, [hr.Table.queue('t', 20)], path={str(place)!r})\n"
        "if os.fork():\n"
        "    os.kill(os.getpid(), signal.SIGKILL)\n"
        "os.write(1, b'forked')\n"
        "os.read(0, 1)\n"
    )
    with subprocess.Popen(
        [sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as owner:
        assert owner.stdout.read(6) == b"forked"
        assert owner.wait(50) == -9
        hr.Replay(SIGNATURE, [table()], path=place).close()
        owner.stdin.close()
        assert owner.stdout.read() == b""  # The child is gone, too.


def test_d5_a_view_that_is_still_held_does_not_hold_the_lock(place):
    replay = hr.Replay(SIGNATURE, [table()], path=place)
    fill(replay, 3)
    view = core_of(replay).store.block(0, "x")
    replay.close()
    with hr.Replay(SIGNATURE, [table()], path=place) as again:
        assert kept(again) == [0, 1, 2]
        # The old one writes nothing any more.
        replay.close()
        core_of(replay).store.statistics()
        words = core_of(again).store.arrays.pages.copy()
        core_of(replay).store.release(0)
        np.testing.assert_array_equal(core_of(again).store.arrays.pages, words)
    assert view[:, 0].tolist() == [0, 1, 2]


def snapshot(place):
    return {path.name: path.read_bytes() for path in place.iterdir()}


@pytest.mark.parametrize(
    ("signature", "tables", "capacity", "message"),
    [
        (
            hr.Signature.like({"x": 0.0, "y": np.zeros(3, np.float32)}),
            [table()],
            None,
            r"int64\[\].*float64\[\]",
        ),
        (SIGNATURE, [hr.Table.queue("u", 3)], None, "expected t, got u"),
        (SIGNATURE, [table(), hr.Table.queue("u", 3)], None, "expected t, got t, u"),
        (SIGNATURE, [table()], 999, "100.*999"),
    ],
)
def test_d6_another_store_is_refused_and_left_untouched(place, signature, tables, capacity, message):
    with hr.Replay(SIGNATURE, [table()], path=place, capacity=100) as replay:
        fill(replay, 3)
    before = snapshot(place)
    with pytest.raises(hr.CheckpointError, match=message):
        hr.Replay(signature, tables, path=place, capacity=capacity)
    assert snapshot(place) == before
    with hr.Replay(SIGNATURE, [table()], path=place) as again:
        assert kept(again) == [0, 1, 2]


def test_d6_a_folder_of_something_else_is_left_untouched(tmp_path):
    (tmp_path / "thesis.tex").write_text("mine")
    with pytest.raises(hr.CheckpointError, match=r"thesis\.tex"):
        hr.Replay(SIGNATURE, [table()], path=tmp_path)
    assert snapshot(tmp_path) == {"thesis.tex": b"mine"}
    (tmp_path / "file").write_text("mine")
    with pytest.raises(FileExistsError):
        hr.Replay(SIGNATURE, [table()], path=tmp_path / "file")


def test_d4_what_a_creation_that_was_killed_left_is_no_store_yet(place):
    with hr.Replay(SIGNATURE, [table()], path=place) as replay:
        fill(replay, 3)
    (place / "manifest.json").unlink()
    with pytest.raises(hr.CheckpointError, match=r"manifest\.json"):
        hr.Replay(SIGNATURE, [table()], path=place)
    # The header says that the store was begun; a creation that is killed comes never so far.
    with open(place / "header", "r+b") as file:
        file.seek(8 * 5)
        file.write(np.int64(0).tobytes())
    with hr.Replay(SIGNATURE, [table()], path=place) as again:
        assert kept(again) == []
        assert again.statistics().tables["t"].inserts == 0


def test_d4_pages_of_writers_that_are_gone_are_free(place):
    replay = hr.Replay(SIGNATURE, [table(max_size=10)], path=place, capacity=320)
    writer = replay.writer(items=[hr.ItemRule("t", 1)], history=80)
    for x in range(100):
        writer.append(step(x))
    held = replay.statistics().store.pages
    replay.close()
    with hr.Replay(SIGNATURE, [table(max_size=10)], path=place) as again:
        assert again.statistics().store.pages <= 2 < held
        assert kept(again) == list(range(90, 100))
        fill(again, 1000, start=100)
        assert kept(again) == list(range(1090, 1100))


def test_the_store_stays_small_however_long_it_runs(place):
    with hr.Replay(SIGNATURE, [table(max_size=50, remover=Uniform())], path=place, capacity=200) as replay:
        fill(replay, 5000)
        # Holes were closed many times: each left one generation.
        assert len(list(place.glob("items-*"))) == 1
        assert sum(path.stat().st_size for path in place.iterdir()) < 400_000


# ---- damage ----------------------------------------------------------------------------------------------------------


@pytest.fixture
def damaged(place):
    """A closed store; its items' arrays can be opened to be spoiled."""
    with hr.Replay(SIGNATURE, [table(sampler=Prioritized())], path=place, capacity=320) as replay:
        fill(replay, 30)
        with replay.writer(history=5) as writer:
            for x in range(30, 45):
                writer.append(step(x))
                if x > 32:
                    writer.create_item("t", 3, priority=float(x))
    return place


def reopen(place):
    return hr.Replay(SIGNATURE, [table(sampler=Prioritized())], path=place)


def items_of(place):
    (path,) = place.glob("items-0-*")
    return path, found_items(Arena.file(path, path.stat().st_size))


@pytest.mark.parametrize(
    ("array", "value"),
    [
        ("keys", 0),
        ("keys", 1 << 61),
        ("rows", 5_000),
        ("rows", 0xFFFFFFFF),
        ("priorities", -1.0),
        ("priorities", np.nan),
        ("windows", 0),
        ("windows", 0xFFFFFFFF),
        ("windows", 30),
    ],
)
def test_d8_items_that_cannot_be(damaged, array, value):
    path, memory = items_of(damaged)
    slot = (int(memory.arrays.ring[FIRST]) + 15) % len(memory.arrays.rows)
    getattr(memory.arrays, array)[slot] = value
    with pytest.raises(hr.CheckpointError, match=rf"{path.name}, byte (\d+)") as caught:
        reopen(damaged)
    # A window too long, or an item that is gone, shows elsewhere.
    if value not in (30, 0xFFFFFFFF):
        offset = int(str(caught.value).split("byte ")[1].split(" ")[0].rstrip(":"))
        begin, shape, dtype = memory.layout.places["records" if array in ("keys", "rows") else array]
        assert begin <= offset < begin + int(np.prod(shape)) * dtype.itemsize


@pytest.mark.parametrize(
    ("word", "value"), [(FIRST, -1), (FIRST, 10_000), (SPAN, 10_000), (SPAN, 3), (LIVE, 3), (8, 1)]
)
def test_d8_words_of_a_ring_that_cannot_be(damaged, word, value):
    path, memory = items_of(damaged)
    memory.arrays.ring[word] = value
    with pytest.raises(hr.CheckpointError, match=path.name):
        reopen(damaged)


@pytest.mark.parametrize(("word", "value"), [(0, 7), (1, 1 << 40), (2 + 30, 1 << 40)])
def test_d8_a_journal_that_cannot_be(damaged, word, value):
    path, memory = items_of(damaged)
    memory.arrays.journal[0], memory.arrays.journal[1] = 1, 1
    memory.arrays.journal[word] = value
    with pytest.raises(hr.CheckpointError, match=rf"{path.name}, byte \d+"):
        reopen(damaged)


@pytest.mark.parametrize(
    ("word", "value"), [(LANES, 0), (LANES, 1 << 40), (USED, -1), (USED, 2), (NEXT, 9_999), (NEXT, -1)]
)
def test_d8_words_of_pages_that_cannot_be(damaged, word, value):
    """Items in such a page have no rows any more."""
    with hr.Replay(SIGNATURE, [table(sampler=Prioritized())], path=damaged) as replay:
        starts = (
            core_of(replay)
            .live_table("t")
            .ring.arrays.rows[core_of(replay).live_table("t").ring._live_slots()]
        )
        rows, page_rows = starts.astype(int), core_of(replay).store.arrays.page_rows
        offset = core_of(replay).store.index_layout.places["pages"][0]
        # One over whose end a window goes.
        page = next(row // page_rows for row in rows[-12:] if row // page_rows != (row + 2) // page_rows)
    with open(damaged / "index", "r+b") as file:
        file.seek(offset + 8 * (PAGE_WORDS * int(page) + word))
        file.write(np.int64(value).tobytes())
    with pytest.raises(hr.CheckpointError, match=r"items-0-\d, byte \d+"):
        reopen(damaged)


@pytest.mark.parametrize("name", ["rows", "index", "header", "items", "closed.json", "manifest.json"])
@pytest.mark.parametrize("change", ["cut", "grown", "empty", "missing"])
def test_d8_files_of_another_size_or_missing(damaged, name, change):
    (path,) = damaged.glob(f"{name}*")
    content = path.read_bytes()
    path.unlink()
    if change != "missing":
        path.write_bytes({"cut": content[:-1], "grown": content + b"\0", "empty": b""}[change])
    if change == "missing" and name == "closed.json":
        # It was not closed orderly.
        reopen(damaged).close()
        return
    with pytest.raises(hr.CheckpointError, match=path.name):
        reopen(damaged)


@pytest.mark.parametrize("place_in_file", range(0, 400, 7))
def test_d8_small_files_prove_themselves(damaged, place_in_file):
    for name in ("closed.json", "manifest.json"):
        content = bytearray((damaged / name).read_bytes())
        original = bytes(content)
        content[place_in_file % len(content)] ^= 4
        (damaged / name).write_bytes(content)
        with pytest.raises(hr.CheckpointError, match=name):
            reopen(damaged)
        (damaged / name).write_bytes(original)


@pytest.mark.parametrize("word", range(6))
def test_d8_a_header_that_cannot_be(damaged, word):
    with open(damaged / "header", "r+b") as file:
        file.seek(8 * word)
        file.write(np.int64(-5).tobytes())
    with pytest.raises(hr.CheckpointError, match=f"header, byte {8 * word}"):
        reopen(damaged)


@pytest.mark.parametrize("key", ["page_rows", "num_pages", "arrays", "signature", "tables"])
def test_d8_a_manifest_with_the_right_checksum_that_does_not_fit(damaged, key):
    line, _, body = (damaged / "manifest.json").read_bytes().partition(b"\n")
    head, content = json.loads(line), json.loads(body)
    content[key] = {"arrays": [["other", 3]], "signature": {"kind": "x"}, "tables": ["other"]}.get(key, 3)
    body = json.dumps(content, separators=(",", ":")).encode()
    head["xxh3_128"] = xxhash.xxh3_128_hexdigest(body)
    (damaged / "manifest.json").write_bytes(json.dumps(head, separators=(",", ":")).encode() + b"\n" + body)
    with pytest.raises(hr.CheckpointError):
        reopen(damaged)


def test_d8_an_opening_that_fails_gives_the_lock_back(damaged):
    path, memory = items_of(damaged)
    memory.arrays.ring[LIVE] += 1
    for _ in range(2):
        with pytest.raises(hr.CheckpointError, match=path.name):
            reopen(damaged)
    memory.arrays.ring[LIVE] -= 1
    reopen(damaged).close()


def test_a_disk_without_room_is_a_full_store(place, monkeypatch):
    """A sparse file that finds no room would end the process; so room is taken page by page."""
    with hr.Replay(SIGNATURE, [table(max_size=1000)], path=place, capacity=1000) as replay:
        writer = replay.writer(items=[hr.ItemRule("t", 1)])
        writer.append(step(0))

        def full(self, offset, nbytes):
            raise OSError(28, "No space left on device")

        with monkeypatch.context() as patched:
            patched.setattr(Arena, "reserve", full)
            for x in range(1, core_of(replay).store.arrays.page_rows):
                writer.append(step(x))
            with pytest.raises(hr.StoreFull, match="expected room for another page.*No space left") as caught:
                writer.append(step(500))
            assert isinstance(caught.value.__cause__, OSError)
        stored = len(replay.table("t"))
        assert stored == core_of(replay).store.arrays.page_rows
        writer.append(step(stored))
        assert kept(replay) == list(range(stored + 1))


def test_a_worker_process_writes_into_the_files_of_a_store(place):
    """The rows of a collector's worker are in the file like any others, and the lock is the worker's too."""
    from headrace.testing import CounterEnv

    assert Path(place).parent.exists()
    make_env = partial(CounterEnv, 5)
    signature = hr.collectors.signature(make_env)
    tables = [hr.Table("t", sampler=Fifo(), remover=Fifo(), max_size=64)]
    with hr.Replay(signature, tables, path=place, capacity=2000) as replay:
        collector = hr.AsyncCollector(
            make_env, frames_per_batch=8, total_frames=40, replay_buffer=replay, items=[hr.ItemRule("t", 1)]
        )
        frames = sum(batch.frames for batch in collector)
        collector.shutdown()
        before = replay.sample("t", len(replay.table("t"))).data
        assert frames == 40
    with hr.Replay(signature, tables, path=place) as again:
        after = again.sample("t", len(again.table("t"))).data
        for name, values in signature.flatten(before).items():
            np.testing.assert_array_equal(values, signature.flatten(after)[name])


def test_d5_a_store_is_in_use_as_long_as_a_worker_may_write_into_it(place):
    """Its pages are on loan: the next owner would find the worker's rows in them."""
    from headrace.testing import CounterEnv

    make_env = partial(CounterEnv, 5)
    signature = hr.collectors.signature(make_env)
    tables = [hr.Table("t", sampler=Fifo(), remover=Fifo(), max_size=64)]
    with hr.Replay(signature, tables, path=place, capacity=2000) as replay:
        collector = hr.AsyncCollector(
            make_env, frames_per_batch=8, total_frames=-1, replay_buffer=replay, items=[hr.ItemRule("t", 1)]
        )
        next(collector)
    with pytest.raises(hr.CheckpointError, match="in use by.* the worker of a collector"):
        hr.Replay(signature, tables, path=place)
    collector.shutdown(raise_on_error=False)
    hr.Replay(signature, tables, path=place).close()


def test_a_large_batch_does_not_write_the_items_of_a_large_table_anew(place):
    """The journal has grown with the table, so nobody waits for that under the lock."""
    with hr.Replay(SIGNATURE, [table(max_size=40_000)], path=place) as replay:
        lanes = 100
        with replay.writer(lanes=lanes, items=[hr.ItemRule("t", 1)]) as writer:
            for _ in range(400):
                writer.append({"x": np.zeros(lanes, np.int64), "y": np.zeros((lanes, 3), np.float32)})
        replay.update_priorities("t", [1], [2.0])
        files = {path.name for path in place.glob("items-*")}
        for count in (513, 1000, 1250):
            batch = replay.sample("t", count)
            replay.update_priorities("t", batch.info.keys, np.ones(count))
        assert {path.name for path in place.glob("items-*")} == files
    with hr.Replay(SIGNATURE, [table(max_size=40_000)], path=place) as again:
        assert {path.name for path in place.glob("items-*")} == files
        again.sample("t", 1250)
        assert {path.name for path in place.glob("items-*")} == files
        again.sample("t", 5000)
        assert {path.name for path in place.glob("items-*")} != files


class _Full:
    """A disk on which no new file can be made."""

    def __init__(self, monkeypatch):
        self._patch = monkeypatch

    def __enter__(self):
        def refuse(path, nbytes):
            raise OSError(28, "No space left on device")

        self._patch.setattr(Arena, "file", refuse)

    def __exit__(self, *error):
        self._patch.undo()


@pytest.fixture
def many(place):
    with hr.Replay(SIGNATURE, [table(max_size=5000)], path=place) as replay:
        with replay.writer(items=[hr.ItemRule("t", 1)]) as writer:
            for x in range(3000):
                writer.append(step(x))
        yield replay


def test_a_journal_that_could_not_grow_is_as_long_as_it_was(many, monkeypatch):
    """Replay P1, D2: the call changes nothing, and the table serves on."""
    ring = core_of(many).live_table("t").ring
    first = int(ring.arrays.keys[ring._live_slots()[0]])
    every = np.arange(first + 1, first + 1501)
    for _ in range(2):
        with _Full(monkeypatch), pytest.raises(hr.StoreFull, match="No space") as caught:
            many.delete("t", every)
        assert isinstance(caught.value.__cause__, OSError)
        assert len(many.table("t")) == 3000
    assert many.delete("t", every) == 1500
    assert len(many.table("t")) == 1500


def test_holes_that_cannot_be_closed_are_no_error_of_the_call(many, monkeypatch):
    """Replay T7, L7: what was asked for is done and counted; tidying waits."""
    first = int(
        core_of(many).live_table("t").ring.arrays.keys[core_of(many).live_table("t").ring._live_slots()[0]]
    )
    with _Full(monkeypatch):
        for begin in range(1, 2600, 400):
            assert many.delete("t", np.arange(first + begin, first + begin + 400)) == 400
        counts = many.table("t").statistics()
        assert (counts.size, counts.inserts, counts.deletes) == (200, 3000, 2800)
        assert len(many.sample("t", 50, timeout=0).info.keys) == 50
    many.delete("t", [first])
    assert len(many.sample("t", 50, timeout=0).info.keys) == 50


@pytest.mark.parametrize("method", ["file", "reserve"])
def test_c3_a_disk_without_room_for_items_is_a_full_store_and_nothing_is_lost(place, monkeypatch, method):
    """Replay C3: the step is not stored, and the writer goes on when there is room."""
    with hr.Replay(SIGNATURE, [table(max_size=5000)], path=place) as replay:
        writer = replay.writer(items=[hr.ItemRule("t", 1)])
        capacity = len(core_of(replay).live_table("t").ring.arrays.rows)
        for x in range(capacity):
            writer.append(step(x))

        def refuse(*arguments):
            raise OSError(28, "No space left on device")

        with monkeypatch.context() as patched:
            patched.setattr(Arena, method, refuse)
            for _ in range(3):
                with pytest.raises(
                    hr.StoreFull, match=r"expected room for \d+ bytes.*No space.*lost"
                ) as caught:
                    writer.append(step(capacity))
                assert isinstance(caught.value.__cause__, OSError)
        counts = replay.table("t").statistics()
        assert (counts.size, counts.inserts, counts.deletes) == (capacity, capacity, 0)
        writer.append(step(capacity))
        writer.close()
        assert kept(replay) == list(range(capacity + 1))
    assert sorted(path.name.partition("-")[0] for path in Path(place).glob("items-*")) == ["items"]
    with hr.Replay(SIGNATURE, [table(max_size=5000)], path=place) as again:
        assert kept(again) == list(range(capacity + 1))


def test_a_disk_without_room_for_a_new_store_is_told_clearly(place, monkeypatch):
    def refuse(*arguments, **options):
        if arguments[-1] != 0:
            raise OSError(28, "No space left on device")

    for module, name in ((mmap, "mmap"), (os, "ftruncate"), (os, "posix_fallocate")):
        with monkeypatch.context() as patched:
            patched.setattr(module, name, refuse)
            with pytest.raises(hr.StoreFull, match=r"expected room for \d+ bytes.*No space") as caught:
                hr.Replay(SIGNATURE, [table()], path=place)
        assert isinstance(caught.value.__cause__, OSError)
    hr.Replay(SIGNATURE, [table()], path=place).close()
