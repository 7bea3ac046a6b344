"""Ctrl-C at every moment of an append at which Python looks for signals: the step is in, whole, or it is not."""

import gc
import shutil

import numpy as np
import pytest
from interrupts import Interrupt

import headrace as hr
from headrace.persist.checkpoint import saving
from headrace.replay.public import core_of
from headrace.store.layout import REFERENCES

SIGNATURE = hr.Signature.like({"n": np.int64(0)})


def new_replay(path=None, **options):
    table = hr.Table("t", sampler=hr.selectors.Uniform(), remover=hr.selectors.Fifo(), max_size=1500)
    return hr.Replay(SIGNATURE, [table], seed=0, capacity=6000, path=path, **options)


class Steps:
    """Appends of rising numbers, a hundred times the step and the lane."""

    def __init__(self, replay, rule, lanes):
        self.replay, self.lanes, self.length = replay, lanes, rule.length
        self.writer = replay.writer(lanes=lanes, items=[rule])
        self.count = 0

    def append(self, times):
        for _ in range(times):
            n = self.count * 100 + np.arange(self.lanes)
            self.count += 1
            self.writer.append({"n": n if self.lanes > 1 else n[0]})


def check(replay, steps):
    """What is in the table, by the numbers in its rows."""
    live = core_of(replay).live_table("t")
    items, slots = live.ring.arrays, live.ring._live_slots()
    keys = items.keys[slots].astype(np.int64)
    assert live.inserts - live.deletes == len(live.ring) == len(slots)
    assert (np.diff(keys) > 0).all()
    assert core_of(replay).keys.next > keys.max(initial=-1)
    first = core_of(replay).store.columns["n"][items.rows[slots].astype(np.int64)]
    by_lane = [first[first % 100 == lane] for lane in range(steps.lanes)]
    assert sum(map(len, by_lane)) == len(first)
    for found in by_lane:
        # Each step once, all of the newest; of the whole history only the one that was cut off may be missing.
        assert (np.diff(found) >= 100).all()
        assert np.count_nonzero(np.diff(found) > 100) <= 1
        assert abs(len(found) - len(by_lane[0])) <= 1  # A full table need not hold whole steps.
        assert found[-1] // 100 == steps.count - steps.length
    return len(first)


def interrupted(number, steps, before):
    """Whether there was such a moment in the append after so many."""
    steps.append(before)
    try:
        with Interrupt(number):
            steps.append(1)
    except KeyboardInterrupt:
        return True
    return False


CASES = pytest.mark.parametrize(
    ("rule", "lanes", "before"),
    [
        (hr.ItemRule("t", 1), 1, 10),
        (hr.ItemRule("t", 1), 64, 10),
        (hr.ItemRule("t", 1), 64, 16),  # The items are given more room.
        (hr.ItemRule("t", 2), 3, 10),
        (hr.ItemRule("t", 2), 3, 0),
        (hr.ItemRule("t", 2), 64, 17),
        (hr.ItemRule("t", 2), 64, 40),  # The oldest leave.
    ],
    ids=["one", "lanes", "lanes_grow", "windows", "windows_first", "windows_grow", "windows_full"],
)


@CASES
def test_an_append_is_in_or_not(rule, lanes, before):
    """replay I1, T1: and the writer goes on."""
    number, goes_on = 1, True
    while goes_on:
        with new_replay() as replay:
            steps = Steps(replay, rule, lanes)
            goes_on = interrupted(number, steps, before)
            steps.append(5)
            size = check(replay, steps)
            assert replay.sample("t", 10).data["n"].shape == ((10,) if rule.length == 1 else (10, 2))
            # All but perhaps one step's.
            whole = min(1500, lanes * (steps.count - rule.length + 1))
            assert whole - lanes <= size <= whole
        number += 1
    assert number > 6, "there are moments to try"


@CASES
def test_an_append_to_a_replay_on_disk(rule, lanes, before, tmp_path):
    """replay D1: what is opened again is what was there."""
    number, goes_on = 1, True
    while goes_on:
        path = tmp_path / str(number)
        with new_replay(path) as replay:
            steps = Steps(replay, rule, lanes)
            goes_on = interrupted(number, steps, before)
            steps.append(5)
            size = check(replay, steps)
            counts = replay.statistics().tables["t"].inserts
        with new_replay(path) as again:
            assert check(again, steps) == size
            assert again.statistics().tables["t"].inserts == counts
        number += 1
    assert number > 6, "there are moments to try"


# ---- draws -----------------------------------------------------------------------------------------------------


UNIFORM, FIFO = hr.selectors.Uniform(), hr.selectors.Fifo()
DRAWS = pytest.mark.parametrize(
    ("sampler", "k"),
    [(FIFO, 1), (UNIFORM, 2), (UNIFORM, 0), (hr.selectors.Uniform(replacement=False), 2)],
    ids=["queue", "leaving", "staying", "distinct"],
)


def draw_interrupted(number, replay):
    """Whether there was such a moment in the draw."""
    try:
        with Interrupt(number):
            replay.sample("t", 2)
    except KeyboardInterrupt:
        return True
    return False


def filled(sampler, k, path=None, limiter=None):
    """A table of 4 items, in each of which is room for a draw, and the writer."""
    limiter = limiter or hr.rate_limiters.SampleToInsertRatio(2, 1, (-100, 100))
    table = hr.Table(
        "t", sampler=sampler, remover=FIFO, max_size=50, max_times_sampled=k, rate_limiter=limiter
    )
    replay = hr.Replay(SIGNATURE, [table], seed=0, capacity=100, path=path)
    writer = replay.writer(items=[hr.ItemRule("t", 1)])
    for number in range(4):
        writer.append({"n": number})
    return replay, writer


@DRAWS
@pytest.mark.parametrize("on_disk", [False, True], ids=["memory", "disk"])
def test_what_an_interrupted_draw_took_is_counted(sampler, k, on_disk, tmp_path):
    """replay T6, L5: in S, in D, and in the item, or nowhere."""
    number, goes_on = 1, True
    while goes_on:
        path = tmp_path / str(number) if on_disk else None
        replay, writer = filled(sampler, k, path)
        with replay:
            goes_on = draw_interrupted(number, replay)
            live = core_of(replay).live_table("t")
            times = live.ring.arrays.times[live.ring._live_slots()].astype(int)
            found = replay.statistics().tables["t"]
            assert found.samples in (0, 1, 2)
            assert found.samples == times.sum() + k * found.deletes
            assert found.deletes == 4 - len(times)
            assert not k or times.max(initial=0) < k
            assert replay.sample("t", 1, timeout=0).data["n"].shape == (1,)
            counts = replay.statistics().tables["t"]
            assert counts.samples == found.samples + 1
            writer.close()
        if on_disk:
            with hr.Replay(SIGNATURE, [live.description()], capacity=100, path=path) as again:
                assert again.statistics().tables["t"].samples == counts.samples
            shutil.rmtree(path)
        number += 1
    assert number > 10, "there are moments to try"


@DRAWS
def test_an_interrupted_draw_ends_no_flush(sampler, k):
    """replay I5: the table did not fail. What the draw let in is in."""
    number, goes_on = 1, True
    while goes_on:
        # Two more inserts for each sample.
        limiter = hr.rate_limiters.SampleToInsertRatio(0.5, 1, (-100, 2))
        replay, writer = filled(sampler, k, limiter=limiter)
        with replay:
            for extra in range(6):
                writer.append({"n": 4 + extra})
            assert writer.pending == 6
            goes_on = draw_interrupted(number, replay)
            samples = replay.statistics().tables["t"].samples
            assert writer.pending == 6 - 2 * samples
            with pytest.raises(hr.DeadlineExceeded):
                writer.flush(timeout=0)
            with pytest.warns(ResourceWarning, match="pending"):
                writer.__exit__(KeyError, KeyError(), None)
        number += 1
    assert number > 10, "there are moments to try"


def test_no_interrupted_wait_is_in_the_way_of_the_next_one():
    """replay L11."""
    with hr.Replay(SIGNATURE, [hr.Table.queue("t", 3)]) as replay:
        writer = replay.writer(items=[hr.ItemRule("t", 1)])
        number, goes_on = 1, True
        while goes_on:
            try:
                with Interrupt(number):
                    replay.sample("t", 1, timeout=0)
            except hr.DeadlineExceeded:
                goes_on = False
            except KeyboardInterrupt:
                number += 1
            writer.append({"n": number})
            assert replay.sample("t", 1, timeout=0).data["n"].tolist() == [number]
        assert number > 10, "there are moments to try"


def test_a_queue_that_interrupted_draws_have_emptied_takes_as_many_as_before():
    """replay L2."""
    with hr.Replay(SIGNATURE, [hr.Table.queue("t", 3)]) as replay:
        writer = replay.writer(items=[hr.ItemRule("t", 1)])
        for n in range(3):
            writer.append({"n": n})
        ring = core_of(replay).live_table("t").ring
        draw = ring.draw

        def draw_and_interrupt(*arguments):
            draw(*arguments)
            raise KeyboardInterrupt

        ring.draw = draw_and_interrupt
        for _ in range(3):
            with pytest.raises(KeyboardInterrupt):
                replay.sample("t", 1)
        for n in range(3):
            writer.append({"n": n})
        assert (len(replay.table("t")), writer.pending) == (3, 0)
        writer.close()


# ---- checkpoints ----------------------------------------------------------------------------------------------


def references(store):
    """What holds each page, after what was given back is taken."""
    with store.lock:
        store.reclaim()
        return store.arrays.pages[: store.pages_taken, REFERENCES].tolist()


# Those that hold pages for a checkpoint and give them back.
HOLDING = {
    "save",
    "_write",
    "copy_state",
    "hold_all",
    "note_holder",
    "pages_in_use",
    "reclaim",
    "release",
    "__enter__",
    "__exit__",
}


# A file that was opened just before the interrupt is closed as garbage.
@pytest.mark.filterwarnings("ignore:unclosed file:ResourceWarning")
def test_a_save(tmp_path, monkeypatch):
    """Q2, Q10: no page is held for ever by a checkpoint that was interrupted, and none is given back twice."""
    monkeypatch.setattr(saving, "_GROUP_BYTES", 1 << 12)  # They are given back bit by bit.
    with new_replay() as replay:
        steps = Steps(replay, hr.ItemRule("t", 1), 3)
        steps.append(600)
        before, number, goes_on = references(core_of(replay).store), 1, True
        assert len(before) > 5
        while goes_on:
            goes_on = False
            try:
                with Interrupt(number, HOLDING):
                    replay.save(tmp_path, keep=1)
            except KeyboardInterrupt:
                goes_on = True
            gc.collect()  # What leads in a circle to what the interrupt has passed.
            assert references(core_of(replay).store) == before
            assert not any(held.extra_rows for held in core_of(replay).store._holders)
            number += 1
        steps.append(5)
        check(replay, steps)
        with hr.Replay.load(tmp_path) as loaded:
            assert len(loaded.table("t")) == 1500
    assert number > 40, "there are moments to try"
