"""A disk that is full in the middle of a vector step: the step is stored whole or not at all (replay C3)."""

import os
import re

import numpy as np
import pytest

import headrace as hr
from headrace.replay.public import core_of
from headrace.store.memory.arena import Arena
from headrace.store.pages.retained import RetainedPages
from headrace.store.store import Store

SIGNATURE = hr.Signature.like({"x": 0, "y": np.float32(0)})
# Two blocks of lanes, of 125 and 23. The first file of items has room for 1024: after six steps for the items of the
# first block and not for those of the second.
LANES, BEFORE = 148, 6


def table(name):
    return hr.Table(name, sampler=hr.selectors.Uniform(), remover=hr.selectors.Fifo(), max_size=5000)


@pytest.fixture
def replay(tmp_path):
    with hr.Replay(SIGNATURE, [table("t"), table("u")], path=tmp_path / "store", capacity=4000) as replay:
        assert core_of(replay).store.arrays.page_rows == 125
        yield replay


def step(t):
    return {"x": 1000 * t + np.arange(LANES), "y": np.full(LANES, t, np.float32)}


def kept(replay, name="t"):
    live = core_of(replay).live_table(name)
    return core_of(replay).store.columns["x"][live.ring.arrays.rows[live.ring._live_slots()]].tolist()


def refuse(*arguments):
    raise OSError(28, "No space left on device")


def none():
    return np.zeros(LANES, np.bool_)


APPENDS = {
    "append": lambda writer, t: writer.append(step(t)),
    "append_checked": lambda writer, t: writer._rows.append_checked(step(t)),
    "append_ends": lambda writer, t: writer._rows.append_ends(step(t), none(), np.zeros(0, np.int64), {}),
}


def rows_of_lanes(replay, writer):
    """How many rows each lane has, and whether they hold its steps in order."""
    store, found = core_of(replay).store, []
    for block in writer._rows._lanes.blocks:
        for lane in range(block.lanes):
            newest = block.last + lane
            found.append((int(block.lane_steps[lane]), int(store.columns["x"][newest]) // 1000))
    return found


@pytest.mark.parametrize("rules", [["t 1"], ["t 2"], ["t 1", "u 1"], ["u 1", "t 2"]], ids=str)
@pytest.mark.parametrize("call", APPENDS)
def test_items_that_find_no_room_leave_no_half_step(replay, monkeypatch, call, rules):
    """A retry of a step that is partly stored would double these lanes: what is stored in part is stored whole."""
    lengths = [int(rule[2:]) for rule in rules]
    writer = replay.writer(
        lanes=LANES, items=[hr.ItemRule(rule[0], length) for rule, length in zip(rules, lengths, strict=True)]
    )
    append, before = APPENDS[call], BEFORE + max(lengths) - 1
    for t in range(before):
        append(writer, t)
    with monkeypatch.context() as patched:
        patched.setattr(Arena, "file", refuse)
        with pytest.raises(hr.StoreFull, match="The step itself was stored: do not send it again"):
            append(writer, before)
    assert rows_of_lanes(replay, writer) == [(before + 1, before)] * LANES
    append(writer, before + 1)
    assert rows_of_lanes(replay, writer) == [(before + 2, before + 1)] * LANES
    for rule, length in zip(rules, lengths, strict=True):
        found = kept(replay, rule[0])
        assert len(found) == len(set(found))
        newest = {1000 * (before + 2 - length) + lane for lane in range(LANES)}
        assert newest <= set(found)
    writer.close()


def test_the_error_counts_the_items_of_every_rule_and_block(replay, monkeypatch):
    """Of two rules and two blocks: each has another part of the items."""
    writer = replay.writer(lanes=LANES, items=[hr.ItemRule("t", 1), hr.ItemRule("u", 1), hr.ItemRule("t", 2)])
    tables = [replay.table(name) for name in "tu"]
    for t in range(4):
        writer.append(step(t))
    refused = 0
    with monkeypatch.context() as patched:
        patched.setattr(Arena, "file", refuse)
        for t in range(4, 8):
            before = sum(map(len, tables))
            made = "0"
            try:
                writer.append(step(t))
            except hr.StoreFull as error:
                assert "The step itself was stored" in str(error)
                made = re.search(r"(\d+) items of it were not made", str(error)).group(1)
                refused += 1
            assert sum(map(len, tables)) - before + int(made) == 3 * LANES
    assert refused
    writer.close()


@pytest.mark.parametrize("call", ["append", "append_checked"])
def test_a_step_whose_first_items_find_no_room_is_not_stored(replay, monkeypatch, call):
    writer = replay.writer(lanes=LANES, items=[hr.ItemRule("t", 1)])
    append = APPENDS[call]
    for t in range(BEFORE):
        append(writer, t)
    with replay.writer(items=[hr.ItemRule("t", 1)]) as other:
        for x in range(100):
            other.append({"x": -x, "y": 0.0})
    with monkeypatch.context() as patched:
        patched.setattr(Arena, "file", refuse)
        with pytest.raises(hr.StoreFull, match="Nothing that was stored is lost") as caught:
            append(writer, BEFORE)
    assert "was stored: do not" not in str(caught.value)
    assert rows_of_lanes(replay, writer) == [(BEFORE, BEFORE - 1)] * LANES
    append(writer, BEFORE)
    assert rows_of_lanes(replay, writer) == [(BEFORE + 1, BEFORE)] * LANES
    writer.close()


def test_ctrl_c_between_two_blocks_leaves_no_half_step(replay):
    writer = replay.writer(lanes=LANES, items=[hr.ItemRule("t", 1)])
    writer.append(step(0))
    second, make = writer._rows._lanes.blocks[1], writer._rows._intake.commit

    def interrupted(block, ends):
        if block is second:
            raise KeyboardInterrupt
        make(block, ends)

    writer._rows._intake.commit = interrupted
    with pytest.raises(KeyboardInterrupt):
        writer.append(step(1))
    assert rows_of_lanes(replay, writer) == [(2, 1)] * LANES
    writer._rows._intake.commit = make
    writer.append(step(2))
    assert sorted(kept(replay)) == [1000 * t + lane for t in range(3) for lane in range(LANES)]
    writer.close()


@pytest.mark.parametrize(
    "ended", [[0, 1], [0, LANES - 1], list(range(LANES))], ids=["one block", "two", "all"]
)
def test_final_rows_that_find_no_room_leave_the_step_out(replay, monkeypatch, ended):
    """The room for them is taken before the step is committed."""
    writer = replay.writer(lanes=LANES, items=[hr.ItemRule("t", 1)])
    writer.append(step(0))
    store, lanes = core_of(replay).store, np.array(ended)
    finals = {"y": np.full(len(lanes), -1, np.float32)}
    # One page more, for the step itself: of the first block a page holds one.
    stop, fallocate = store.rows_in_pages // store.arrays.page_rows + 1, os.posix_fallocate
    first = store.index_layout.places["steps"][0] + 4 * stop * store.arrays.page_rows

    def only_one_page(descriptor, offset, nbytes):
        if offset == first:
            refuse()
        fallocate(descriptor, offset, nbytes)

    with monkeypatch.context() as patched:
        patched.setattr(os, "posix_fallocate", only_one_page)
        with pytest.raises(hr.StoreFull, match="No space"):
            writer._rows.append_ends(step(1), none(), lanes, finals)
    assert rows_of_lanes(replay, writer) == [(1, 0)] * LANES
    writer._rows.append_ends(step(1), none(), lanes, finals)
    expected = [0 if lane in set(ended) else 2 for lane in range(LANES)]
    assert [steps for steps, _ in rows_of_lanes(replay, writer)] == expected
    writer.close()


@pytest.mark.parametrize("num_pages", [6, 20], ids=["all pages were used", "the disk is full"])
def test_pages_that_wait_for_the_durable_point_are_room_for_final_rows(tmp_path, monkeypatch, num_pages):
    path, given_up = tmp_path / "rows", []
    store = Store(
        SIGNATURE,
        10_000,
        make_arena=lambda nbytes: Arena.file(path, nbytes),
        page_rows=1024,
        num_pages=num_pages,
    )
    store.retained = RetainedPages(num_pages, given_up.extend)
    pages, size = [store.acquire(1) for _ in range(6)], path.stat().st_size
    store.retained.retain(np.array(pages))
    for page in pages[:3]:
        store.release(page)
    if num_pages > 6:
        monkeypatch.setattr(os, "posix_fallocate", refuse)
    with store.lock:
        store.require([1, 1])
        assert {store.acquire(1), store.acquire(1)} < set(pages[:3])
    assert set(given_up) == set(pages[:3])
    # A file of another size would be refused when it is opened again.
    assert path.stat().st_size == size
    store.close()


def test_pending_items_without_disk_space_go_in_with_the_next_flush(tmp_path, monkeypatch, caplog):
    """Replay I5: a sample opened the gate when the disk was full; nothing else opens it again."""
    room = 1024
    limiter = hr.rate_limiters.SampleToInsertRatio(1, 1, (-9.0, float(room)))
    fifo = hr.selectors.Fifo()
    gated = hr.Table("t", sampler=fifo, remover=fifo, max_size=5000, rate_limiter=limiter)
    with hr.Replay(SIGNATURE, [gated], path=tmp_path / "gated") as replay:
        writer = replay.writer(items=[hr.ItemRule("t", 1)])
        for x in range(room + 2):
            writer.append({"x": x, "y": 0.0})
        assert writer.pending == 2
        with monkeypatch.context() as patched:
            patched.setattr(Arena, "file", refuse)
            replay.sample("t", 2)
            assert "items of table 't' stay pending" in caplog.text
            with pytest.raises(hr.DeadlineExceeded, match="memory or disk space"):
                writer.flush(timeout=0)
            assert writer.pending == 2
        writer.flush(timeout=0)
        assert kept(replay) == list(range(room + 2))
        writer.close()
