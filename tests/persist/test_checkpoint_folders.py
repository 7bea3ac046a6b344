"""Folders of checkpoints: whole or not at all, their order, what is removed, damage (replay Q1, Q4 to Q7, Q10, Q11)."""

import errno
import json
import os
import shutil
import sys
import threading

import numpy as np
import pytest
import xxhash

import headrace as hr
from headrace.persist.checkpoint import files, folders
from headrace.tables.description.selectors import Fifo, Prioritized, Uniform
from headrace.tables.item_state import ItemState

FILES = ["index.bin", "items-0.bin", "items-1.bin", "rows-0.bin", "steps.bin", "manifest.json"]


@pytest.fixture
def small():
    tables = [
        hr.Table("a", sampler=Uniform(), remover=Fifo(), max_size=9),
        hr.Table("b", sampler=Prioritized(), remover=Fifo(), max_size=9),
    ]
    with hr.Replay(hr.Signature.like({"x": 0, "y": np.zeros(2)}), tables, capacity=100, seed=0) as replay:
        with replay.writer(items=[hr.ItemRule("a", 1)], history=5) as writer:
            for x in range(20):
                writer.append({"x": x, "y": np.zeros(2)})
                writer.create_item("b", 2 if x > 3 else 1, priority=float(x))
            writer.end_episode({"x": -1})
        yield replay


def test_q4_names_sort_in_the_order_of_making(small, tmp_path, monkeypatch):
    monkeypatch.setattr("time.time_ns", lambda: 0)
    paths = [small.save(tmp_path) for _ in range(12)]
    assert paths == sorted(paths)
    assert {path.parent for path in paths} == {tmp_path}


def test_q4_the_number_goes_on_after_a_removal_of_older_ones_and_beside_foreign_names(small, tmp_path):
    first = small.save(tmp_path)
    second = small.save(tmp_path)
    shutil.rmtree(first)
    (tmp_path / "checkpoint-000000000003").mkdir()
    (tmp_path / "checkpoint-000000000004").write_text("not ours")
    third = small.save(tmp_path)
    assert third.name == "checkpoint-000000000005"
    assert second < third
    assert os.listdir(tmp_path / "checkpoint-000000000003") == []


def test_q5_keep_removes_only_what_save_made(small, tmp_path):
    (tmp_path / "notes.txt").write_text("mine")
    (tmp_path / "zzz").mkdir()
    (tmp_path / "zzz" / "data").write_text("mine")
    (tmp_path / "checkpoint-999999999999").mkdir()
    (tmp_path / "checkpoint-best").mkdir()
    elsewhere = tmp_path / "elsewhere"
    link = tmp_path / "checkpoint-000000000000"
    shutil.move(small.save(elsewhere), elsewhere / "moved")
    link.symlink_to(elsewhere / "moved")
    paths = [small.save(tmp_path) for _ in range(3)]
    newest = small.save(tmp_path, keep=2)
    assert sorted(path.name for path in tmp_path.iterdir()) == sorted(
        [
            "notes.txt",
            "zzz",
            "checkpoint-999999999999",
            "checkpoint-best",
            "elsewhere",
            link.name,
            paths[-1].name,
            newest.name,
        ]
    )
    assert (tmp_path / "zzz" / "data").read_text() == "mine"
    only = small.save(tmp_path, keep=1)
    assert only.exists()
    assert not newest.exists()
    assert (elsewhere / "moved" / "manifest.json").exists()


def test_q5_none_removes_none_and_zero_is_refused(small, tmp_path):
    for _ in range(3):
        small.save(tmp_path)
    with pytest.raises(ValueError, match="keep"):
        small.save(tmp_path, keep=0)
    assert len(list(tmp_path.iterdir())) == 3


def test_q6_the_newest_that_is_whole(small, tmp_path):
    paths = [small.save(tmp_path) for _ in range(4)]
    (paths[3] / "rows-0.bin").unlink()
    (paths[2] / "manifest.json").write_text("{}")
    (tmp_path / "checkpoint-999999999999").mkdir()
    (tmp_path / "zzz").mkdir()
    with pytest.warns(UserWarning, match="is left out") as warned, hr.Replay.load(tmp_path) as loaded:
        assert len(loaded.table("a")) == 9
    assert [str(each.message).split(" ")[0] for each in warned] == [
        "checkpoint-999999999999",
        paths[3].name,
        paths[2].name,
    ]
    assert "rows-0.bin" in str(warned[1].message)
    assert {each.filename for each in warned} == {__file__}


def test_q6_none_that_is_whole(small, tmp_path):
    with pytest.raises(hr.CheckpointError, match="there is none"):
        hr.Replay.load(tmp_path)
    with pytest.raises(hr.CheckpointError, match="missing"):
        hr.Replay.load(tmp_path / "missing")
    (tmp_path / "file").write_text("")
    with pytest.raises(hr.CheckpointError, match="file"):
        hr.Replay.load(tmp_path / "file")
    path = small.save(tmp_path)
    (path / "steps.bin").unlink()
    with (
        pytest.warns(UserWarning, match="steps.bin"),
        pytest.raises(hr.CheckpointError, match="there is none"),
    ):
        hr.Replay.load(tmp_path)


def test_q6_a_folder_that_was_renamed_is_a_checkpoint_by_its_path(small, tmp_path):
    path = small.save(tmp_path).rename(tmp_path / "best")
    with hr.Replay.load(str(path)) as loaded:
        assert len(loaded.table("a")) == 9


def damages(content, random):
    """Flipped bits in every region, cut, grown, emptied."""
    size = len(content)
    places = {
        0,
        size - 1,
        *np.linspace(0, size - 1, 24).astype(int).tolist(),
        *random.integers(0, size, 8).tolist(),
    }
    for place in places:
        flipped = bytearray(content)
        flipped[place] ^= 1 << int(random.integers(8))
        yield bytes(flipped)
    yield content[:-1]
    yield content[: size // 2]
    yield content + b"\0"
    yield b""


@pytest.mark.parametrize("name", FILES)
def test_q7_damage_of_any_kind_names_the_file(small, tmp_path, name):
    path = small.save(tmp_path)
    assert sorted(os.listdir(path)) == sorted(FILES)
    content = (path / name).read_bytes()
    for damaged in damages(content, np.random.default_rng(0)):
        (path / name).write_bytes(damaged)
        with pytest.raises(hr.CheckpointError, match=name):
            hr.Replay.load(path)
    (path / name).unlink()
    with pytest.raises(hr.CheckpointError, match=name):
        hr.Replay.load(path)
    (path / name).mkdir()
    with pytest.raises(hr.CheckpointError, match=name):
        hr.Replay.load(path)


def test_q7_no_bit_of_the_manifest_may_flip(small, tmp_path):
    path = small.save(tmp_path)
    content = (path / "manifest.json").read_bytes()
    for place in range(len(content)):
        flipped = bytearray(content)
        flipped[place] ^= 1 << place % 8
        (path / "manifest.json").write_bytes(flipped)
        with pytest.raises(hr.CheckpointError, match=r"manifest\.json"):
            hr.Replay.load(path)


def rewrite(path, change):
    """A manifest with another content and the right checksum."""
    line, _, body = (path / "manifest.json").read_bytes().partition(b"\n")
    head, content = json.loads(line), json.loads(body)
    change(content)
    body = json.dumps(content, separators=(",", ":")).encode()
    head["xxh3_128"] = xxhash.xxh3_128_hexdigest(body)
    line = json.dumps(head, separators=(",", ":")).encode()
    (path / "manifest.json").write_bytes(line + b"\n" + body)


def set_at(*keys):
    *way, last, value = keys

    def change(content):
        for key in way:
            content = content[key]
        content[last] = value

    return change


def drop_file(content):
    content["files"] = content["files"][1:]


@pytest.mark.parametrize(
    "change",
    [
        set_at("signature", {"kind": "dict", "children": {}}),
        set_at("signature", {"kind": "code", "children": []}),
        set_at("signature", "children", "y", "shape", [3]),
        set_at("page_rows", 0),
        set_at("page_rows", 7),
        set_at("capacity", -1),
        set_at("next_key", 3),
        set_at("next_key", 0),
        set_at("next_key", "1"),
        set_at("next_episode", -1),
        set_at("given", ["unknown"]),
        set_at("generator", "state", "0x1" + "0" * 32),
        set_at("generator", "state", "nonsense"),
        set_at("generator", "bit_generator", "MT19937"),
        set_at("generator", "uinteger", -1),
        set_at("tables", []),
        set_at("tables", 0, "table", "name", ""),
        set_at("tables", 0, "table", "max_size", 0),
        set_at("tables", 0, "table", "sampler", "kind", "Evil"),
        set_at("tables", 0, "table", "rate_limiter", "min_size", 99),
        set_at("tables", 0, "table", "rate_limiter", "max_diff", 3.0),
        set_at("tables", 0, "counts", "inserts", 5),
        set_at("tables", 0, "counts", "deletes", -1),
        set_at("tables", 0, "counts", {}),
        set_at("tables", 0, "capacity", 0),
        set_at("tables", 0, "ring", [0]),
        set_at("tables", 0, "ring", 0, 1 << 40),
        set_at("tables", 0, "ring", 1, 5),
        set_at("tables", 0, "ring", 2, 5),
        set_at("tables", 0, "window", [0, 0, 0]),
        set_at("tables", 0, "window", [40, 0, 0]),
        set_at("tables", 0, "scratch", 0),
        set_at("tables", 0, "file", "../../etc/passwd"),
        set_at("files", 0, "name", "../steps.bin"),
        set_at("files", 0, "arrays", 0, "name", "rows"),
        set_at("files", 0, "arrays", 0, "dtype", "object"),
        set_at("files", 0, "arrays", 0, "shape", [1 << 50]),
        set_at("files", 0, "arrays", 0, "shape", [-1]),
        set_at("files", 1, "arrays", []),
        set_at("surprise", 1),
        drop_file,
    ],
)
def test_q7_a_manifest_that_contradicts_itself(small, tmp_path, change):
    path = small.save(tmp_path)
    rewrite(path, change)
    with pytest.raises(hr.CheckpointError, match=r"manifest\.json|items-|index|steps|rows-"):
        hr.Replay.load(path)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("keys", 0),
        ("keys", 1 << 60),
        ("rows", 4_000_000),
        ("rows", 0xFFFFFFFF),
        ("priorities", -1.0),
        ("priorities", np.nan),
        ("windows", 0),
        ("windows", 90),
    ],
)
def test_q7_items_that_contradict_the_rows(small, tmp_path, monkeypatch, name, value):
    """Written with right checksums by a program gone wrong: still an error, with the file and the place."""
    original = ItemState.__init__

    def spoiled(self, capacity, ring, priority, window, arrays):
        if name == "keys":
            arrays["items"][2, :2] = np.array([value], np.uint64).view(np.uint32)
        elif name == "rows":
            arrays["items"][2, 2] = value
        elif name in arrays:
            arrays[name][2] = value
        original(self, capacity, ring, priority, window, arrays)

    monkeypatch.setattr(ItemState, "__init__", spoiled)
    if name == "rows":
        monkeypatch.setattr(
            "headrace.persist.checkpoint.saving._items_of", lambda table, renumber: table.items.arrays
        )
    path = small.save(tmp_path)
    monkeypatch.undo()
    with pytest.raises(hr.CheckpointError, match=r"items-\d\.bin, byte \d+|manifest\.json, table"):
        hr.Replay.load(path)


def test_q11_another_version_is_refused_with_both(small, tmp_path):
    path = small.save(tmp_path)
    content = (path / "manifest.json").read_bytes()
    (path / "manifest.json").write_bytes(content.replace(b'"version":2', b'"version":7', 1))
    with pytest.raises(hr.CheckpointError, match="version 2.*version 7"):
        hr.Replay.load(path)


def test_q1_nothing_is_to_be_seen_before_it_is_complete(small, tmp_path, monkeypatch):
    seen = []
    sync = files.HashedWriter.sync

    def look(self):
        seen.append([path.name for path in tmp_path.iterdir() if folders.is_checkpoint(path)])
        sync(self)

    monkeypatch.setattr(files.HashedWriter, "sync", look)
    path = small.save(tmp_path)
    assert seen
    assert not any(seen)
    assert list(tmp_path.iterdir()) == [path]


@pytest.mark.skipif(sys.platform == "win32", reason="Windows opens no folder to sync it")
def test_q1_files_and_folders_are_synced_before_the_name(small, tmp_path, monkeypatch):
    done = []
    sync, rename = os.fsync, os.rename
    monkeypatch.setattr(
        os, "fsync", lambda descriptor: done.append(os.readlink(f"/proc/self/fd/{descriptor}"))
    )
    original = folders.Path.rename
    monkeypatch.setattr(
        folders.Path, "rename", lambda self, target: (done.append("named"), original(self, target))[1]
    )
    path = small.save(tmp_path)
    assert sync is not os.fsync
    assert rename is os.rename
    before, after = done[: done.index("named")], done[done.index("named") + 1 :]
    names = {os.path.basename(each) for each in before}
    assert names >= set(FILES)
    synced = [os.path.basename(each) for each in before if os.path.basename(each) in FILES]
    assert synced[-1] == "manifest.json", "it says that the others are there"
    assert any(each.endswith(".partial") and "checkpoint" in os.path.basename(each) for each in before)
    assert after == [str(tmp_path)]
    assert path.exists()


def test_q10_a_save_that_fails_leaves_nothing_and_the_replay_goes_on(small, tmp_path, monkeypatch):
    """No space at the n-th write, for every n."""
    whole = small.save(tmp_path / "whole")
    before = small.statistics().store
    for number in range(100):
        left = [number]
        original = os.fsync

        def fail(descriptor, left=left, original=original):
            left[0] -= 1
            if left[0] < 0:
                raise OSError(errno.ENOSPC, "No space left on device")
            original(descriptor)

        monkeypatch.setattr(os, "fsync", fail)
        try:
            small.save(tmp_path / "full")
        except OSError as error:
            assert error.errno == errno.ENOSPC
        else:
            break
        finally:
            monkeypatch.undo()
        # The name is the last but one: after it the checkpoint is complete, whatever the sync of its name says.
        for path in (tmp_path / "full").iterdir():
            with hr.Replay.load(path):
                shutil.rmtree(path)
        assert small.statistics().store == before
        assert small.sample("a", 1).data["x"].shape == (1,)
    folders_synced = 0 if sys.platform == "win32" else 2
    assert number == len(FILES) + folders_synced, "files, their folder, and the one around it"
    assert whole.exists()


def test_q10_not_a_directory(small, tmp_path):
    (tmp_path / "file").write_text("mine")
    with pytest.raises(OSError, match="file"):
        small.save(tmp_path / "file")
    with pytest.raises(OSError, match="file"):
        small.save(tmp_path / "file" / "under")
    assert (tmp_path / "file").read_text() == "mine"


def test_what_a_killed_save_left_behind_is_removed_by_the_next(small, tmp_path):
    abandoned = tmp_path / ".checkpoint-0123456789abcdef.partial"
    abandoned.mkdir()
    (abandoned / "steps.bin").write_text("half")
    with folders.new_folder(tmp_path) as under_way:
        assert not abandoned.exists()
        path = small.save(tmp_path)
        assert under_way.exists(), "another save is still writing it"
    assert list(tmp_path.iterdir()) == [path]


def test_two_saves_at_once_have_two_names(small, tmp_path):
    paths = []
    threads = [threading.Thread(target=lambda: paths.append(small.save(tmp_path))) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(paths) == sorted(tmp_path.iterdir())
    assert len(paths) == 4
    for path in paths:
        with hr.Replay.load(path) as loaded:
            assert len(loaded.table("b")) == 9
