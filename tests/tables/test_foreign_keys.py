"""Keys that were given out ahead come in any order: beside a dict, for every selector, in memory and on disk."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from plain_kernels import fewer

import headrace as hr
from headrace.replay.public import core_of
from headrace.tables.description.selectors import (
    CustomSelector,
    Fifo,
    Lifo,
    MaxHeap,
    MinHeap,
    Prioritized,
    SelectorIndex,
    Uniform,
)
from headrace.tables.indexes.key_index import KeyIndex
from headrace.tables.items.layout import FLAGS, HAS_KEY_INDEX
from headrace.tables.new_items import NewItems
from headrace.tables.pending import Pending

SIGNATURE = hr.Signature.like({"n": np.int64(0)})
WINDOW = np.array([[1, 0, 0]], np.uint32)


class Oldest(CustomSelector):
    """A selector of a user, which is asked for keys."""

    def new_index(self):
        return OldestIndex()


class OldestIndex(SelectorIndex):
    def __init__(self):
        self.keys = []

    def insert(self, key, priority):
        assert key not in self.keys
        self.keys.append(key)

    def update(self, key, priority):
        assert key in self.keys

    def remove(self, key):
        self.keys.remove(key)

    def choose(self, count, random):
        return [self.keys[0]] * count, [1.0] * count


SELECTORS = [
    Uniform(),
    Uniform(replacement=False),
    Prioritized(),
    Fifo(),
    Lifo(),
    MinHeap(),
    MaxHeap(),
    Oldest(),
]


class Clients:
    """A replay and the dict that it is compared with: from the key, the number of the row and the priority."""

    def __init__(self, sampler, max_size=40, path=None, **options):
        self.table = hr.Table("t", sampler=sampler, remover=Fifo(), max_size=max_size, **options)
        self.path = path
        self.replay = hr.Replay(SIGNATURE, [self.table], seed=0, capacity=50_000, path=path)
        self.items, self.ahead, self.number, self.gone = {}, [], 0, []
        self.open()

    def open(self):
        self.core = core_of(self.replay)
        self.live = self.core.live_table("t")
        self.writer = self.replay.writer(history=1, max_pending=10_000)
        self.pending = Pending(lambda: 0.0)

    @property
    def has_index(self):
        return bool(self.live.ring.arrays.ring[FLAGS] & HAS_KEY_INDEX)

    def give_keys(self, count):
        with self.core.lock:
            first = self.core.keys.take(count)
        self.ahead += range(first, first + count)

    def row(self):
        self.number += 1
        self.writer.append({"n": self.number})
        return self.number, int(self.writer._rows._lanes.blocks[0].tail(0))

    def commit(self, keys, priority=1.0):
        """Items of these keys, of a row each, all at once."""
        self.ahead = [key for key in self.ahead if key not in keys]
        numbers, rows = zip(*(self.row() for _ in keys), strict=True)
        rows = np.array(rows)
        with self.core.lock:
            self.core.store.pins.pin_pages(rows // self.core.store.arrays.page_rows, 1)
            priorities = np.array([priority])
            new = NewItems(0, rows, WINDOW, priorities, np.array(keys, np.uint64))
            self.live.offer(new, self.pending)
        self.inserted(zip(keys, numbers, strict=True), priority)

    def create(self, priority=1.0):
        number, _ = self.row()
        key = self.writer.create_item("t", 1, priority)
        self.inserted([(key, number)], priority)

    def inserted(self, items, priority):
        for key, number in items:
            self.items[key] = (number, priority)
            if len(self.items) > self.table.max_size:
                self.gone.append(oldest := next(iter(self.items)))
                del self.items[oldest]

    def update(self, keys, priorities):
        known = sum(key in self.items for key in keys)
        assert self.replay.update_priorities("t", keys, priorities) == known
        for key, priority in zip(keys, priorities, strict=True):
            if key in self.items:
                self.items[key] = (self.items[key][0], priority)

    def delete(self, keys):
        assert self.replay.delete("t", keys) == sum(key in self.items for key in set(keys))
        for key in keys:
            self.items.pop(key, None)

    def check(self):
        ring = self.live.ring
        slots = ring._live_slots()
        assert ring.arrays.keys[slots].tolist() == list(self.items)
        rows = ring.arrays.rows[slots].astype(int)
        assert self.core.store.columns["n"][rows].tolist() == [number for number, _ in self.items.values()]
        assert [ring.items.priority_of(slot) for slot in slots] == [
            priority for _, priority in self.items.values()
        ]
        keys = np.array([*self.items, *self.gone, *self.ahead, 1 << 40], np.uint64)
        assert ring._found_slots(keys).tolist() == slots.tolist()
        if self.items:
            batch = self.replay.sample("t", min(3, len(self.items)))
            for key, n in zip(batch.info.keys.tolist(), batch.data["n"].tolist(), strict=True):
                assert self.items[key][0] == n
        found = self.replay.table("t").distribution()
        assert found.size == len(self.items)

    def reopen(self):
        self.writer.close()
        self.replay.close()
        self.replay = hr.Replay(SIGNATURE, [self.table], seed=0, capacity=50_000, path=self.path)
        self.open()

    def close(self):
        self.writer.close()
        self.replay.close()


STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("give_keys"), st.integers(1, 6)),
        st.tuples(st.just("commit"), st.integers(1, 4)),
        st.tuples(st.just("create"), st.sampled_from([1.0, 2.0])),
        st.tuples(st.just("update"), st.integers(1, 4)),
        st.tuples(st.just("delete"), st.integers(1, 3)),
        st.tuples(st.just("reset"), st.none()),
        st.tuples(st.just("shrink"), st.none()),
    ),
    min_size=5,
    max_size=40,
)


def play(clients, steps, random):
    for name, number in steps:
        some = list(clients.items) + clients.gone + clients.ahead
        if name == "commit":
            keys = random.permutation(clients.ahead)[:number].tolist()
            if keys:
                clients.commit(keys, float(random.integers(1, 4)))
        elif name in ("update", "delete"):
            keys = random.choice(some, min(number, len(some)), replace=False).tolist() if some else []
            if name == "update":
                clients.update(keys, random.integers(0, 5, len(keys)).astype(float).tolist())
            else:
                clients.delete(keys)
        elif name == "reset":
            clients.replay.reset("t")
            clients.items.clear()
        elif name == "shrink":
            for key in list(clients.items)[:-20]:
                del clients.items[key]
            clients.replay.table("t").configure(max_size=20)
            clients.replay.table("t").configure(max_size=40)
        else:
            getattr(clients, name)(number)
        clients.check()


@pytest.mark.parametrize("sampler", SELECTORS, ids=lambda sampler: str(type(sampler).__name__))
@given(steps=STEPS, seed=st.integers(0, 100))
@settings(max_examples=fewer(25), deadline=None)
def test_keys_in_any_order_beside_a_dict(sampler, steps, seed):
    clients = Clients(sampler)
    play(clients, steps, np.random.default_rng(seed))
    clients.close()


@pytest.mark.parametrize("sampler", [Uniform(), Prioritized(), MinHeap()], ids=repr)
@pytest.mark.parametrize("seed", range(4))
def test_a_store_on_disk_and_a_checkpoint_keep_them(sampler, seed, tmp_path):
    random = np.random.default_rng(seed)
    clients = Clients(sampler, path=tmp_path / "store")
    names = ("give_keys", "commit", "commit", "create", "update", "delete")
    for _ in range(5):
        play(clients, [(random.choice(names), int(random.integers(1, 5))) for _ in range(30)], random)
        clients.reopen()
        clients.check()
        clients.replay.save(tmp_path / "checkpoints", keep=1)
        with hr.Replay.load(tmp_path / "checkpoints") as loaded:
            ring = core_of(loaded).live_table("t").ring
            assert ring.arrays.keys[ring._live_slots()].tolist() == list(clients.items)
            keys = np.array(list(clients.items)[::-1], np.uint64)
            assert len(ring._found_slots(keys)) == len(keys)
            assert loaded.delete("t", keys) == len(keys)
    assert clients.has_index
    clients.close()


def test_keys_that_rise_need_no_index():
    clients = Clients(Uniform())
    clients.give_keys(6)
    clients.commit([1, 2])
    clients.commit([4, 6])
    clients.create()
    clients.check()
    assert not clients.has_index
    clients.commit([3])
    clients.check()
    assert clients.has_index
    clients.replay.reset("t")
    clients.items.clear()
    assert not clients.has_index
    clients.commit([5])
    clients.create()
    clients.check()
    assert not clients.has_index
    clients.close()


def test_the_index_moves_with_the_items():
    clients = Clients(Uniform(), max_size=3000)
    clients.give_keys(2)
    clients.commit([2, 1])
    for _ in range(1500):
        clients.create()
    assert clients.has_index
    clients.check()
    clients.close()


def test_keys_that_are_there_are_refused():
    clients = Clients(Uniform())
    clients.give_keys(5)
    clients.commit([3, 2])
    pins = clients.core.store.arrays.pages.copy()
    for keys in ([2], [5, 3], [1, 1], [4, 4]):
        new = NewItems(0, np.array([0] * len(keys)), WINDOW, np.ones(1), np.array(keys, np.uint64))
        with pytest.raises(ValueError, match="keys: expected keys of no item, each once"):
            clients.live.ring.insert(new)
    assert (clients.core.store.arrays.pages == pins).all()
    clients.check()
    clients.close()


def test_pending_items_keep_their_keys():
    clients = Clients(Fifo(), rate_limiter=hr.rate_limiters.Queue(2), max_times_sampled=1)
    clients.give_keys(7)
    clients.commit([7, 2, 5, 1, 6])
    assert clients.pending.count == 3
    drawn = [clients.replay.sample("t", 1).info.keys[0] for _ in range(5)]
    assert drawn == [7, 2, 5, 1, 6]
    clients.close()


# ---- the index -----------------------------------------------------------------------------------------------------


@given(st.lists(st.tuples(st.booleans(), st.integers(0, 31)), max_size=200), st.integers(0, 2))
@settings(deadline=None)
def test_the_index_beside_a_dict(changes, spread):
    # Keys that begin their search at few places: 32-bit multiples of a large power fall together.
    keys = np.zeros(64, np.uint64)
    keys[::2] = np.arange(32) * 2 ** (15 * spread) + 1
    index, model = KeyIndex(keys, np.full(64, -1, np.int64), 6), set()
    for adds, slot in changes:
        if adds and slot not in model:
            index.insert(slot)
            model.add(slot)
        elif not adds:
            index.remove(slot)
            model.discard(slot)
        for each in range(32):
            assert index.find(int(keys[2 * each])) == (each if each in model else -1)
