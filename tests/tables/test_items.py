"""The items of a table as kernels have them: keys, holes, priorities, and arrays that take the places of others."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.store.layout import LANES, NEXT, PAGE_WORDS, PREVIOUS, REFERENCES, USED, StoreArrays
from headrace.store.memory.arena import Arena
from headrace.store.pages.pinning import Pins
from headrace.store.window import Window
from headrace.tables.description.selectors import Fifo, MaxHeap, MinHeap, Prioritized, Uniform
from headrace.tables.item_memory import found_items, new_items, shape_for, with_selectors
from headrace.tables.items import changing, compaction, drawing, inserting, journal, passes
from headrace.tables.items.items import Items, weight
from headrace.tables.items.layout import (
    ACTIVE,
    CHANGES,
    COUNTER_WORDS,
    DEAD,
    DONE,
    FIRST,
    LIVE,
    MAX_SIZE,
    PRIORITY_OF_ALL,
    SLOT,
    SPAN,
    STREAM,
)
from headrace.tables.items.passes import count_rows

ROWS = 50
SELECTORS = [(Uniform(), Fifo()), (Prioritized(0.5), MinHeap()), (MaxHeap(), Prioritized())]

NO_KEYS = np.zeros(0, np.uint64)


def new_store():
    """Two pages of one lane, one after the other, full of an episode without an end."""
    pages = np.zeros((2, PAGE_WORDS), np.int64)
    pages[:, LANES], pages[:, USED], pages[0, NEXT], pages[0, PREVIOUS] = 1, ROWS, 1, -1
    pages[1, NEXT] = -1
    by_row = [np.zeros(2 * ROWS, dtype) for dtype in (np.uint32, np.uint32, np.uint32, np.int64)]
    arrays = StoreArrays(pages, *by_row, np.zeros(3, np.int64), ROWS)
    arrays.steps[:] = np.arange(2 * ROWS)
    return arrays, Pins(Window(arrays))


class Ring:
    """Items, with a journal, and beside them a list of [key, row, priority, touch] in the order of insertion.

    Args:
        first: the slot of the oldest.
        there: of each item that was inserted, whether it is still there; the ends are.
        gaps: between the keys.
    """

    def __init__(self, selectors, capacity, first, there, gaps):
        self.store, self.pins = new_store()
        shape = shape_for(*selectors, capacity, with_windows=False, with_priorities=True)
        self.use(new_items(shape._replace(journal=journal.words_for(100)), *selectors), selectors)
        arrays = self.arrays
        slots = (first + np.arange(len(there))) % capacity
        arrays.keys[slots] = 7 + np.cumsum(gaps)
        arrays.rows[slots] = np.where(there, np.arange(len(there)) % (2 * ROWS), DEAD)
        arrays.times[slots] = 1 + np.arange(len(there)) % 4
        arrays.priorities[slots] = np.arange(len(there)) % 3
        arrays.common_window[:] = (1, 0, 0)
        if len(arrays.last_updates):
            arrays.last_updates[slots] = np.arange(len(there))
        arrays.ring[[FIRST, SPAN, LIVE, CHANGES]] = first, len(there), sum(there), len(there)
        compaction.reindex(self.items)
        self.model = [
            [int(arrays.keys[slot]), int(arrays.rows[slot]), float(arrays.priorities[slot]), touch]
            for touch, slot in enumerate(slots)
            if there[touch]
        ]
        self.last_updates = len(there)
        for _, row, *_ in self.model:
            self.pins.pin_rows(row, 1, 0, 1)

    def use(self, memory, selectors):
        self.memory, self.arrays, self.selectors = memory, memory.arrays, selectors
        self.items = Items(memory.arrays, self.pins)

    def plain(self):
        """What is not derived."""
        arrays = self.arrays
        return [arrays.records, arrays.priorities, arrays.last_updates, arrays.ring, arrays.common]

    def update(self, keys, priorities):
        there, known = {item[0]: item for item in self.model}, 0
        for key, priority in zip(keys, priorities, strict=True):
            if key in there:
                there[key][2:] = priority, self.last_updates + known
                known += 1
        self.last_updates += known
        return known

    def check(self):
        arrays = self.arrays
        slots = np.full(len(self.model), -1)
        passes.live_slots(self.items, slots)
        assert arrays.ring[LIVE] == len(self.model)
        assert arrays.keys[slots].tolist() == [key for key, *_ in self.model]
        assert arrays.rows[slots].tolist() == [row for _, row, *_ in self.model]
        priorities = [priority for *_, priority, _ in self.model]
        assert [self.items.priority_of(slot) for slot in slots] == priorities
        if len(arrays.last_updates):
            assert arrays.last_updates[slots].tolist() == [touch for *_, touch in self.model]
            assert arrays.ring[CHANGES] == self.last_updates
        held = np.bincount([row // ROWS for _, row, *_ in self.model], minlength=2)
        assert self.store.pages[:, REFERENCES].tolist() == held.tolist()
        if self.model:
            ends = (arrays.ring[FIRST] + np.array([0, arrays.ring[SPAN] - 1])) % len(arrays.rows)
            assert (arrays.rows[ends] != DEAD).all()
        for index, selector in zip((arrays.sampler, arrays.remover), self.selectors, strict=True):
            self._check_index(index, selector, slots)

    def _check_index(self, index, selector, slots):
        if isinstance(selector, Prioritized):
            weights = np.array([priority for *_, priority, _ in self.model]) ** selector.exponent
            assert index.nodes[slots].tolist() == weights.tolist()
            assert index.nodes[-1] == pytest.approx(weights.sum())
            assert np.count_nonzero(index.nodes[: len(self.arrays.rows)]) == np.count_nonzero(weights)
        elif isinstance(selector, MinHeap):
            assert index.heap_slots[-1] == len(self.model)
            if self.model:
                root = min(self.model, key=lambda item: (selector.sign * item[2], item[3]))
                assert self.arrays.keys[index.heap_slots[0]] == root[0]


@st.composite
def rings(draw):
    capacity = draw(st.integers(1, 60))
    inner = draw(st.lists(st.booleans(), max_size=max(0, capacity - 2)))
    there = [True, *inner, True][: draw(st.integers(1, capacity))]
    there[-1] = True
    gaps = draw(
        st.lists(st.sampled_from([1, 1, 1, 2, 900, 1 << 50]), min_size=len(there), max_size=len(there))
    )
    selectors = draw(st.sampled_from(SELECTORS))
    return Ring(selectors, capacity, draw(st.integers(0, capacity - 1)), there, gaps)


def some_keys(ring):
    """Of items that are there, that have left, and of none."""
    used = ring.arrays.keys.tolist()
    return st.lists(st.sampled_from([*used, 0, 5, 8, 1 << 40, (1 << 64) - 1]), max_size=20)


@given(ring=rings(), data=st.data())
def test_keys_are_found_where_they_are(ring, data):
    keys = data.draw(some_keys(ring))
    slots = np.full(len(keys), -1)
    found = changing.find_keys(ring.items, np.array(keys, np.uint64), slots)
    there = {key for key, *_ in ring.model}
    assert ring.arrays.keys[slots[:found]].tolist() == [key for key in keys if key in there]


@given(ring=rings(), data=st.data())
def test_updates_and_removals_equal_those_of_a_list(ring, data):
    for _ in range(3):
        keys = data.draw(some_keys(ring))
        priorities = [float(number % 4) for number in range(len(keys))]
        journal.begin(ring.arrays)
        known = changing.update(ring.items, np.array(keys, np.uint64), np.array(priorities))
        assert known == ring.update(keys, priorities)
        ring.check()
        gone = sorted({key for key, *_ in ring.model} & set(data.draw(some_keys(ring))))
        slots = np.empty(len(gone), np.int64)
        assert changing.find_keys(ring.items, np.array(gone, np.uint64), slots) == len(gone)
        journal.begin(ring.arrays)
        changing.remove(ring.items, slots)
        ring.model = [item for item in ring.model if item[0] not in gone]
        ring.check()


@given(ring=rings(), data=st.data())
def test_the_journal_undoes_what_was_done_since_it_began(ring, data):
    # replay D2
    before = [array.copy() for array in ring.plain()]
    journal.begin(ring.arrays)
    keys = data.draw(some_keys(ring))
    changing.update(ring.items, np.array(keys, np.uint64), np.arange(len(keys), dtype=np.float64))
    slots = np.empty(len(ring.model), np.int64)
    passes.live_slots(ring.items, slots)
    integers = np.empty((4, len(slots)), np.int64)
    integers[SLOT] = slots
    drawing.take(ring.items, 0, len(slots), np.empty(len(slots), np.uint64), integers, np.empty(len(slots)))
    changing.remove(ring.items, slots[:: data.draw(st.integers(1, 3))].copy())
    ring.arrays.common[PRIORITY_OF_ALL] = 5.0
    assert journal.is_sound(ring.arrays)
    for _ in range(2):
        ring.arrays.journal[ACTIVE] = 1
        journal.undo(ring.arrays)
        assert all(np.array_equal(now, then) for now, then in zip(ring.plain(), before, strict=True))
    assert not ring.arrays.journal[ACTIVE]


@pytest.mark.parametrize("with_windows", [False, True])
def test_the_journal_gives_back_slots_that_are_filled_again(with_windows):
    """replay D2: also where all that items differ in are their keys and rows, which go in as one run without it."""
    ring = Ring(SELECTORS[0], 5, 3, [True] * 4, [1] * 4)
    shape = ring.memory.shape._replace(with_windows=with_windows, with_priorities=False)
    memory = new_items(shape, *SELECTORS[0])
    compaction.move_items(ring.items, Items(memory.arrays, ring.pins))
    arrays, told = memory.arrays, np.zeros(COUNTER_WORDS, np.int64)
    told[MAX_SIZE] = 4
    if with_windows:
        arrays.windows[:4] = [[1, 0, 0], [1, 2, 0], [1, 0, 3], [1, 2, 3]]
    items = Items(arrays, ring.pins, None, told)
    kept = [arrays.records, arrays.windows, arrays.ring, arrays.common_window]
    before = [array.copy() for array in kept]
    journal.begin(arrays)
    changing.remove(items, np.array([2, 3]))
    rows, window = np.array([5, 6, 7]), np.array([1, 0, 0], np.uint32)
    for row in rows:
        ring.pins.pin_rows(row, 1, 0, 1)
    assert inserting.insert(items, 50, NO_KEYS, rows, window, np.full(1, arrays.common[PRIORITY_OF_ALL])) == (
        3,
        DONE,
    )
    journal.undo(arrays)
    assert all(np.array_equal(now, then) for now, then in zip(kept, before, strict=True))


@pytest.mark.parametrize("selectors", SELECTORS[1:])
def test_more_items_than_the_scratch_has_room_for_go_in_at_once(selectors):
    """The sums of both selectors are those of all items."""
    # More sums than are computed anew at once in any case.
    ring = Ring(selectors, 20_000, 0, [True], [1])
    told = np.zeros(COUNTER_WORDS, np.int64)
    told[MAX_SIZE] = 20_000
    ring.items = Items(ring.arrays._replace(journal=np.zeros(0, np.int64)), ring.pins, None, told)
    rows, priorities = np.arange(1500) % (2 * ROWS), 1.0 + np.arange(1500) % 7
    window = np.array([1, 0, 0], np.uint32)
    for row in rows:
        ring.pins.pin_rows(row, 1, 0, 1)
    assert inserting.insert(ring.items, 100, NO_KEYS, rows, window, priorities) == (1500, DONE)
    ring.model += [
        [100 + number, int(rows[number]), float(priorities[number]), 1 + number] for number in range(1500)
    ]
    ring.last_updates += 1500
    ring.check()


@given(ring=rings(), room=st.integers(0, 3), selectors=st.sampled_from(SELECTORS))
def test_items_that_move_stay_what_they_were_without_holes(ring, room, selectors):
    shape = shape_for(*selectors, len(ring.model) + room, with_windows=True, with_priorities=False)
    memory = new_items(shape, *selectors)
    ring.arrays.common[PRIORITY_OF_ALL] = 4.0
    compaction.move_items(ring.items, Items(memory.arrays, ring.pins))
    if not memory.shape.with_priorities:
        assert memory.arrays.common[PRIORITY_OF_ALL] == 4.0
        for item in ring.model:
            item[2] = 4.0
    if len(memory.arrays.last_updates) and not len(ring.arrays.last_updates):
        # Their order is that of insertion, where nothing asked for it before.
        for place, item in enumerate(ring.model):
            item[3] = place
        ring.last_updates = len(ring.model)
    ring.use(memory, selectors)
    assert ring.arrays.ring[SPAN] == len(ring.model)
    assert ring.arrays.windows[: len(ring.model)].tolist() == [[1, 0, 0]] * len(ring.model)
    ring.check()


def test_there_must_be_room_for_items_that_move():
    ring = Ring(SELECTORS[0], 4, 3, [True, False, True], [1, 1, 1])
    memory = new_items(ring.memory.shape._replace(capacity=1), *SELECTORS[0])
    with pytest.raises(ValueError, match="expected slots for 2 items, got 1"):
        compaction.move_items(ring.items, Items(memory.arrays, ring.pins))


@pytest.mark.parametrize("wrong", [-1.0, -5e-324, np.inf, np.nan])
def test_a_priority_that_is_none_changes_nothing(wrong):
    # replay P1
    ring = Ring(SELECTORS[1], 4, 3, [True, True], [1, 1])
    before = [array.copy() for array in ring.plain()]
    keys = np.array([8, 9], np.uint64)
    assert changing.update(ring.items, keys, np.array([7.0, wrong])) == -1
    assert all(np.array_equal(now, then) for now, then in zip(ring.plain(), before, strict=True))


def test_an_update_of_more_keys_than_ever_takes_room():
    there = [True] * 2000
    ring = Ring(SELECTORS[0], 2000, 999, there, [1] * 2000)
    ring.items = Items(ring.arrays._replace(journal=np.zeros(0, np.int64)), ring.pins)
    keys = np.array([key for key, *_ in ring.model], np.uint64)
    assert changing.update(ring.items, keys, np.arange(2000.0)) == 2000
    ring.update(keys.tolist(), np.arange(2000.0).tolist())
    ring.check()


def test_kernels_refuse_arrays_that_do_not_fit():
    ring = Ring(SELECTORS[0], 4, 0, [True, True], [1, 1])
    keys = np.array([8, 9], np.uint64)
    with pytest.raises(ValueError, match="priorities: expected 2, got 1"):
        changing.update(ring.items, keys, np.ones(1))
    with pytest.raises(ValueError, match="slots: expected 2 or more, got 1"):
        changing.find_keys(ring.items, keys, np.zeros(1, np.int64))
    with pytest.raises(ValueError, match="slots: expected 2, got 1"):
        passes.live_slots(ring.items, np.zeros(1, np.int64))
    with pytest.raises(ValueError, match="windows: expected 1 or 3, got 2"):
        changing.unpin_items(ring.pins, np.zeros(3, np.int64), np.ones((2, 3), np.uint32))


@pytest.mark.parametrize("windows", [[[2, 0, 1]], [[2, 0, 1], [1, 3, 0], [4, 0, STREAM]]])
def test_pages_of_items_that_are_never_made_are_given_back(windows):
    store, pins = new_store()
    rows, windows = np.array([0, ROWS - 2, ROWS - 1]), np.array(windows, np.uint32)
    for row, (real, _, lookahead) in zip(rows.tolist(), (windows.tolist() * 3)[:3], strict=True):
        pins.pin_rows(row, real, lookahead, 2)
    before = store.pages[:, REFERENCES].copy()
    changing.unpin_items(pins, rows, windows)
    assert (2 * store.pages[:, REFERENCES] == before).all()
    assert before.all()


def test_rows_of_items_are_counted_once():
    ring = Ring(SELECTORS[0], 8, 5, [True, True, False, True], [1] * 4)
    assert count_rows(ring.items, np.zeros(2 * ROWS, np.uint8)) == 3
    ring.arrays.common_window[:] = (2, 0, 1)
    assert count_rows(ring.items, np.zeros(2 * ROWS, np.uint8)) == 6
    ring.arrays.common_window[:] = (ROWS, 0, STREAM)
    assert count_rows(ring.items, np.zeros(2 * ROWS, np.uint8)) == ROWS + 3


def test_weights_stay_where_they_can_be_summed():
    # replay S4
    assert weight(1.0, 0.0) == weight(0.5, 0.0) == 0.0
    assert weight(1.0, np.nan) == weight(0.5, np.nan) == weight(1.0, -1.0) == 0.0
    assert weight(0.5, 4.0) == 2.0
    assert weight(0.0, 4.0) == 1.0
    assert weight(3.0, 1e300) == weight(1.0, 1e300) == weight(0.5, np.inf) == 1e290
    assert weight(3.0, 1e-300) == weight(1.0, 5e-324) == 5e-324


def test_arrays_in_a_file_are_found_again(tmp_path):
    selectors = SELECTORS[1]
    shape = shape_for(*selectors, 10, with_windows=True, with_priorities=True)._replace(journal=40)
    memory = new_items(shape, *selectors, lambda nbytes: Arena.file(tmp_path / "items", nbytes))
    for number, array in enumerate(memory.layout.arrays(memory.arena).values()):
        assert array.__array_interface__["data"][0] % 64 == 0
        if number:  # What the file says of itself stays.
            array.reshape(-1).view(np.uint8)[:] = number
    memory = with_selectors(memory, *selectors)
    found = found_items(Arena.file(tmp_path / "items", memory.arena.nbytes))
    assert found.shape == shape
    for name, array in memory.layout.arrays(memory.arena).items():
        assert np.array_equal(found.layout.arrays(found.arena)[name], array, equal_nan=name == "priorities")
    sampler, remover = found.arrays.sampler, found.arrays.remover
    assert (sampler.kind, sampler.exponent, remover.kind, remover.sign) == (3, 0.5, 4, 1.0)
    # The key, the row and the times of an item are its record.
    found.arrays.records[3] = (1, 2, 3, 4)
    arrays = found.arrays
    assert (arrays.keys[3], arrays.rows[3], arrays.times[3]) == (1 + (2 << 32), 3, 4)
