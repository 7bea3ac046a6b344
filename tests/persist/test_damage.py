"""A store on disk that was closed, and in which one bit has changed since (replay D8)."""

import json
import shutil

import numpy as np
import pytest
from click.testing import CliRunner

import headrace as hr
from headrace.cli import main
from headrace.persist.disk.stored import StoredReplay
from headrace.replay.public import core_of
from headrace.tables.description.selectors import Fifo, MaxHeap, MinHeap, Prioritized, Uniform

SIGNATURE = hr.Signature.like({"x": 0, "wide": np.zeros(300, np.float32)})
RULES = [hr.ItemRule("t", 1, lookahead=1), hr.ItemRule("heap", 2)]


def tables():
    return [
        hr.Table("t", sampler=Prioritized(), remover=Fifo(), max_size=100),
        hr.Table("heap", sampler=MaxHeap(), remover=MinHeap(), max_size=20),
        hr.Table("empty", sampler=Uniform(), remover=Fifo(), max_size=20),
    ]


def opened(place):
    return hr.Replay(SIGNATURE, tables(), path=place, capacity=None if place.exists() else 320)


def fill(replay, begin):
    with replay.writer(lanes=2, items=RULES) as writer:
        for x in range(begin, begin + 20):
            writer.policy_version = x
            wide = np.full((2, 300), x, np.float32)
            writer.append({"x": np.array([x, -x]), "wide": wide})
            if x % 7 == 6:
                writer.end_episode({"wide": wide[0]}, lane=0)
            if x % 11 == 10:
                writer.end_episode({"wide": wide})
    batch = replay.sample("t", 10)
    replay.update_priorities("t", batch.info.keys, np.arange(10.0))
    replay.update_priorities("heap", replay.sample("heap", 3).info.keys, [3.0, 2.0, 1.0])


@pytest.fixture
def closed(tmp_path):
    """A store that was closed twice; the second life left many pages as they were."""
    for begin in (0, 20):
        with opened(tmp_path / "store") as replay:
            fill(replay, begin)
    return tmp_path / "store"


def everything(replay):
    """All that a user can see of the items and their rows."""
    found = {}
    for name in ("t", "heap"):
        ring = core_of(replay).live_table(name).ring
        items, slots = ring.arrays, ring._live_slots()
        rows = items.rows[slots].astype(np.int64)
        touches = items.last_updates[slots].tolist() if len(items.last_updates) else []
        found[name] = [
            items.keys[slots].tolist(), items.times[slots].tolist(), items.priorities[slots].tolist(), touches,
            [column[rows].tolist() for column in core_of(replay).store.columns.values()],
            items.ring[[0, 1, 2, 3, 4, 8, 9, 10]].tolist(),
        ]  # fmt: skip
    found["next_key"], found["episodes"] = (
        core_of(replay).keys.next,
        int(core_of(replay).store.next_episode[0]),
    )
    return found


def noticed(place):
    """By what a change was noticed; None if it was not."""
    try:
        with StoredReplay(place) as stored:
            stored.verify_rows()
    except hr.CheckpointError as error:
        assert str(place) in str(error)
        try:
            opened(place).close()
        except hr.CheckpointError as other:
            assert str(place) in str(other)
            return "opening"
        return "verify"
    return None


def places_of(content, random, count):
    """Positions that are sampled: half of them where something stands."""
    filled = np.flatnonzero(np.frombuffer(content, np.uint8))
    anywhere = random.integers(0, len(content), count // 2)
    return (
        np.concatenate([anywhere, random.choice(filled, count - len(anywhere))]) if len(filled) else anywhere
    )


@pytest.mark.parametrize("seed", range(4))
def test_d8_any_bit_that_changed_in_a_closed_store_is_noticed_or_does_no_harm(closed, tmp_path, seed):
    random = np.random.default_rng(seed)
    shutil.copytree(closed, tmp_path / "whole")
    with opened(tmp_path / "whole") as replay:
        expected = everything(replay)
    seen = {"opening": set(), "verify": set(), None: set()}
    for path in sorted(closed.iterdir()):
        content = path.read_bytes()
        for place in places_of(content, random, 10).tolist():
            damaged = bytearray(content)
            damaged[place] ^= 1 << int(random.integers(8))
            folder = tmp_path / "damaged"
            shutil.copytree(closed, folder)
            (folder / path.name).write_bytes(damaged)
            how = noticed(folder)
            if how is None:
                with opened(folder) as replay:
                    assert everything(replay) == expected, (path.name, place)
            seen[how].add(path.name.partition("-")[0])
            shutil.rmtree(folder)
    assert {"items", "header", "closed.json", "manifest.json"} <= seen["opening"]
    assert "rows" in seen["verify"]


@pytest.mark.parametrize(("name", "value"), [("priorities", 16.0), ("times", 7), ("keys", 3)])
def test_d8_items_that_could_be_but_are_others_than_were_closed(closed, name, value):
    """A priority of 8 that has become 16 fits in with everything."""
    from headrace.store.memory.arena import Arena
    from headrace.tables.item_memory import found_items

    (path,) = closed.glob("items-0-*")
    memory = found_items(Arena.file(path, path.stat().st_size))
    before = getattr(memory.arrays, name)[memory.arrays.ring[0] + 1]
    getattr(memory.arrays, name)[memory.arrays.ring[0] + 1] = value if name != "keys" else before
    if name == "keys":
        memory.arrays.ring[9] += 1
    for _ in range(2):
        with pytest.raises(hr.CheckpointError, match=rf"{path.name}: expected the checksum"):
            opened(closed)
    if name != "keys":
        getattr(memory.arrays, name)[memory.arrays.ring[0] + 1] = before
        opened(closed).close()


def test_d7_an_opening_that_was_interrupted_is_no_damage(closed, monkeypatch):
    def interrupted(*arguments):
        raise KeyboardInterrupt

    other = [hr.Table("t", sampler=MaxHeap(), remover=Uniform(), max_size=100), *tables()[1:]]
    for name in ("DurableRing", "recover", "boot_id"):
        with monkeypatch.context() as patched:
            if name == "boot_id":
                patched.setattr("headrace.persist.disk.disk.Disk.begin", interrupted)
            else:
                patched.setattr(f"headrace.persist.disk.disk.{name}", interrupted)
            with pytest.raises(KeyboardInterrupt):
                hr.Replay(SIGNATURE, other, path=closed)
    with opened(closed) as replay:
        assert len(replay.table("heap")) == 20


def test_only_pages_that_were_taken_are_hashed_by_a_close(closed, monkeypatch):
    hashed = []
    from headrace.persist.disk import closed_store

    hash_of_page = closed_store.hash_of_page
    monkeypatch.setattr(
        closed_store, "hash_of_page", lambda store, page: (hashed.append(page), hash_of_page(store, page))[1]
    )
    opened(closed).close()
    assert not hashed
    with opened(closed) as replay:
        fill(replay, 40)
    assert 0 < len(hashed) <= 8


def test_pages_of_a_killed_process_are_told_apart(closed, tmp_path):
    with opened(closed) as replay:
        fill(replay, 40)
        killed = shutil.copytree(closed, tmp_path / "killed")
    for place, unknown in ((closed, 0), (killed, 1)):
        result = CliRunner().invoke(main, ["inspect", str(place), "--verify", "--json"])
        assert result.exit_code == 0, result.output
        told = json.loads(result.output)
        assert told["pages_verified"] > 0
        assert (told["pages_without_checksum"] > 0) == unknown


def test_verify_names_the_rows_and_refuses_what_is_no_store(closed, tmp_path):
    with opened(closed) as replay:
        offset = core_of(replay).store.layout.places["column:wide"][0]
        row = int(
            core_of(replay)
            .live_table("t")
            .ring.arrays.rows[core_of(replay).live_table("t").ring._live_slots()[5]]
        )
    with open(closed / "rows", "r+b") as file:
        file.seek(offset + row * 1200)
        file.write(b"\x01")
    result = CliRunner().invoke(main, ["inspect", str(closed), "--verify"])
    assert result.exit_code == 1
    assert "expected rows" in result.output
    result = CliRunner().invoke(main, ["inspect", str(tmp_path), "--verify"])
    assert result.exit_code == 2
