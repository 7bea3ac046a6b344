"""Items that differ in key and row alone go in as a run; what comes of it is what comes of one after the other."""

import numpy as np
import pytest

import headrace as hr
from headrace.replay.public import core_of
from headrace.store.layout import LANES, REFERENCES
from headrace.tables.items.layout import FIRST, LIVE, SPAN

SIGNATURE = hr.Signature.like({"n": np.int64(0)})


def new_replay(max_size, capacity, *tables):
    made = [
        hr.Table(name, sampler=hr.selectors.Uniform(), remover=hr.selectors.Fifo(), max_size=max_size)
        for name in tables
    ]
    return hr.Replay(SIGNATURE, made, seed=0, capacity=capacity)


def contents(live):
    """Keys and rows, in order."""
    items, slots = live.ring.arrays, live.ring._live_slots()
    return items.keys[slots].tolist(), items.rows[slots].tolist()


def references(replay):
    pages = core_of(replay).store.arrays.pages
    return np.where(pages[:, LANES] > 0, pages[:, REFERENCES], 0).tolist()


@pytest.mark.parametrize("lookahead", [0, 2])
@pytest.mark.parametrize("lanes", [1, 5, 64])
@pytest.mark.parametrize("max_size", [1, 63, 64, 65, 300])
def test_a_run_is_what_its_items_are_one_by_one(max_size, lanes, lookahead):
    """replay T5: the same steps into two replays; in one of them the items have priorities of their own."""
    random = np.random.default_rng(max_size + lanes)
    replays = [new_replay(max_size, 2000, "t") for _ in range(2)]
    with replays[0] as plain, replays[1] as other:
        rules = [hr.ItemRule("t", 1, lookahead=lookahead)]
        writers = [replay.writer(lanes=lanes, items=rules) for replay in replays]
        for number in range(40 if lanes > 1 else 700):
            for writer in writers:
                n = number * lanes + np.arange(lanes)
                writer.append({"n": n if lanes > 1 else n[0]})
            if number == 4 + lookahead:
                # From now on each item there has a priority: they go in one after the other.
                other.update_priorities("t", other.sample("t", 1).info.keys, [2.0])
            if random.random() < 0.1 and len(plain.table("t")):
                # A hole; until it is at an end of the ring there is no run.
                keys = plain.sample("t", 1).info.keys
                assert [replay.delete("t", keys) for replay in replays] == [1, 1]
            tables = [core_of(replay).live_table("t") for replay in replays]
            assert contents(tables[0]) == contents(tables[1])
            assert references(plain) == references(other)
            assert tables[0].inserts == tables[1].inserts
            assert tables[0].deletes == tables[1].deletes
        assert len(tables[1].ring.arrays.priorities)
        assert not len(tables[0].ring.arrays.priorities)
        for writer in writers:
            writer.close()


def test_the_table_is_made_smaller_and_larger():
    """replay T9: a run goes in right after either."""
    with new_replay(100, 1000, "t") as replay, replay.writer(lanes=8, items=[hr.ItemRule("t", 1)]) as writer:
        number = 0
        for max_size in (100, 7, 8, 100, 20):
            replay.table("t").configure(max_size=max_size)
            for _ in range(30):
                writer.append({"n": number + np.arange(8)})
                number += 8
            live = core_of(replay).live_table("t")
            words = live.ring.arrays.ring
            assert words[LIVE] == words[SPAN] == max_size
            assert 0 <= words[FIRST] < len(live.ring.arrays.rows)
            rows = live.ring.arrays.rows[live.ring._live_slots()]
            assert core_of(replay).store.columns["n"][rows].tolist() == list(range(number - max_size, number))
            assert live.inserts - live.deletes == max_size
