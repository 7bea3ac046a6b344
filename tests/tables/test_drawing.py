"""Items are drawn and inserted many at a time as they are one after the other."""

from __future__ import annotations

import numpy as np
import pytest

import headrace as hr
from headrace.replay.public import core_of
from headrace.tables.item_ring import ItemRing
from headrace.tables.items import drawing
from headrace.tables.items.layout import ROW, SIZE, SLOT, TIMES
from headrace.tables.new_items import NewItems

SAMPLERS = [
    hr.selectors.Uniform(),
    hr.selectors.Prioritized(0.7),
    hr.selectors.MaxHeap(),
    hr.selectors.Lifo(),
]
# More than kernels have room for at once.
DRAWS = 1000


def filled(sampler: hr.selectors.Selector, remover: hr.selectors.Selector, size: int = 300) -> hr.Replay:
    """A replay whose table has items of different priorities, and holes between them."""
    table = hr.Table("t", sampler=sampler, remover=remover, max_size=size)
    replay = hr.Replay(hr.Signature.like({"x": 0}), [table], seed=3, capacity=8000)
    with replay.writer(lanes=4, items=[hr.ItemRule("t", 1)]) as writer:
        for number in range(75):
            writer.append({"x": np.arange(4) + 4 * number})
    keys = ring_of(replay).arrays.keys[:300].copy()
    replay.update_priorities("t", keys, np.linspace(0.0, 5.0, 300))
    assert replay.delete("t", keys[1::3]) == 100
    return replay


def ring_of(replay: hr.Replay) -> ItemRing:
    return core_of(replay).live_table("t").ring


@pytest.mark.parametrize("sampler", SAMPLERS, ids=repr)
def test_a_batch_uses_up_random_numbers_as_draws_one_after_the_other(sampler):
    with filled(sampler, hr.selectors.Fifo()) as many, filled(sampler, hr.selectors.Fifo()) as single:
        items = ring_of(single).items
        slots, chances = zip(*(drawing.choose(items, items.sampler) for _ in range(DRAWS)), strict=True)
        ring = ring_of(many)
        keys, integers = np.empty(DRAWS, np.uint64), np.empty((4, DRAWS), np.int64)
        probabilities, priorities = np.empty((2, DRAWS))
        drawing.draw(ring.items, keys, integers, probabilities, priorities)
        assert integers[SLOT].tolist() == list(slots)
        assert probabilities.tolist() == list(chances)
        # What comes next is the same, too.
        assert ring_of(many)._random.random() == ring_of(single)._random.random()
        arrays = ring.arrays
        np.testing.assert_array_equal(keys, arrays.keys[integers[SLOT]])
        np.testing.assert_array_equal(priorities, arrays.priorities[integers[SLOT]])
        np.testing.assert_array_equal(integers[ROW], arrays.rows[integers[SLOT]])
        assert (integers[SIZE] == 200).all()
        times = [list(slots[: place + 1]).count(slot) for place, slot in enumerate(slots)]
        assert integers[TIMES].tolist() == times
        assert ring.items.sampled == DRAWS
        assert ring.unique == len(set(slots))


@pytest.mark.parametrize("remover", [*SAMPLERS, hr.selectors.Fifo()], ids=repr)
def test_many_items_at_once_are_what_they_are_one_by_one(remover):
    """replay T5: whatever the remover takes, by whatever numbers, and however many items go in with one call."""
    sampler = hr.selectors.Prioritized(0.5)
    with filled(sampler, remover) as many, filled(sampler, remover) as single:
        rows = np.arange(700) % 300
        windows, priorities = np.array([[1, 0, 0]], np.uint32), np.linspace(9.0, 0.5, 700)
        first_key = core_of(many).keys.take(700)
        tables = [core_of(each).live_table("t") for each in (many, single)]
        before = [table.deletes for table in tables]
        for replay in (many, single):
            for row in rows:
                core_of(replay).store.pins.pin_rows(row, 1, 0, 1)
        new = NewItems(first_key, rows, windows, priorities)
        ring_of(many).insert(new)
        for number in range(700):
            ring_of(single).insert(new.after(number).until(1))
        left, gone = (table.deletes - count for table, count in zip(tables, before, strict=True))
        assert left == gone == 600
        assert contents(many) == contents(single)
        assert ring_of(many)._random.random() == ring_of(single)._random.random()


def contents(replay: hr.Replay) -> list[tuple[int, int, float]]:
    """Key, row and priority of each item; and that the sampler's sums are those of their priorities."""
    ring = ring_of(replay)
    arrays, slots = ring.arrays, ring._live_slots()
    weights = np.sqrt(arrays.priorities[slots])
    assert np.isclose(arrays.sampler.nodes[-1], weights.sum())
    return list(zip(arrays.keys[slots], arrays.rows[slots], arrays.priorities[slots], strict=True))


def test_an_insertion_needs_a_window_and_a_priority_for_each_item_or_one_for_all():
    """Kernels do not look where arrays end."""
    with filled(hr.selectors.Uniform(), hr.selectors.Fifo()) as replay:
        ring = ring_of(replay)
        one, two = np.array([[1, 0, 0]], np.uint32), np.array([[1, 0, 0]] * 2, np.uint32)
        for windows, priorities in ((two, np.ones(1)), (one, np.ones(2)), (one, np.ones(4))):
            with pytest.raises(ValueError, match="expected 1 or 3 windows and priorities"):
                ring.insert(NewItems(1 << 60, np.arange(3), windows, priorities))
