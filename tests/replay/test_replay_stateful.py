"""A whole replay under random calls against lists (replay T, K, I, S, L, B, P and C rules together)."""

import math
import tempfile
from collections import deque
from dataclasses import dataclass, field
from unittest import mock

import numpy as np
import pytest
from hypothesis import HealthCheck, note, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

import headrace as hr
from headrace.replay.public import core_of
from headrace.tables.description.rate_limiters import CustomRateLimiter, MinSize, Queue, SampleToInsertRatio
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
from headrace.tables.items.layout import DEAD, FIRST, SPAN
from headrace.testing import FakeClock, RankBased

SIGNATURE = hr.Signature.like({"n": np.int64(0), "nested": {"twice": np.zeros(2, np.float64)}})
PRIORITIES = st.sampled_from([0.0, 0.5, 1.0, 1.0, 2.0, 1e15])
DETERMINISTIC = [Fifo(), Lifo(), MinHeap(), MaxHeap()]


class LeastRecentlyTouched(CustomSelector):
    """A user's own selector that looks at the order of insertions and updates, and at nothing else."""

    def new_index(self):
        return LeastRecentlyTouchedIndex()


class LeastRecentlyTouchedIndex(SelectorIndex):
    def __init__(self):
        self.priorities = {}

    def insert(self, key, priority):
        assert not self.priorities or key > max(self.priorities)
        self.priorities[key] = priority

    def update(self, key, priority):
        del self.priorities[key]
        self.priorities[key] = priority

    def remove(self, key):
        del self.priorities[key]

    def choose(self, count, random):
        return [next(iter(self.priorities))] * count, [1.0] * count


BUILT_IN = st.sampled_from(
    [*DETERMINISTIC, Uniform(), Uniform(replacement=False), Prioritized(), Prioritized(0.5), Prioritized(0.0)]
)
CUSTOM = st.sampled_from([RankBased(1.0), RankBased(0.0), LeastRecentlyTouched()])


class Rounds(CustomRateLimiter):
    """A user's own limiter: after `min_size` items, rounds of `length` inserts and `length` samples."""

    def __init__(self, min_size, length):
        super().__init__(min_size=min_size)
        self.length = length

    def allows_insert(self, inserts, samples, deletes, n):
        return inserts + n - samples <= self.min_size + self.length

    def allows_sample(self, inserts, samples, deletes, n):
        return inserts - samples - n >= self.min_size - self.length


def limiters(max_size):
    size = st.integers(1, max_size)
    return st.one_of(
        size.map(MinSize),
        st.integers(1, 12).map(Queue),
        st.builds(
            lambda spi, m, extra: SampleToInsertRatio(spi, m, max(1, spi) * extra),
            st.sampled_from([0.5, 1.0, 3.0]),
            size,
            st.sampled_from([1.0, 2.5, 20.0]),
        ),
    )


def all_limiters(max_size):
    return st.one_of(limiters(max_size), st.builds(Rounds, st.integers(1, max_size), st.integers(1, 9)))


@st.composite
def tables(draw, name, selectors, limiters):
    max_size = draw(st.integers(1, 12))
    return hr.Table(
        name,
        sampler=draw(selectors),
        remover=draw(selectors),
        max_size=max_size,
        rate_limiter=draw(limiters(max_size)),
        max_times_sampled=draw(st.sampled_from([0, 0, 1, 2, 3])),
    )


@dataclass
class Item:
    key: int
    rows: list[int]
    priority: float
    touch: int = 0
    times: int = 0


@dataclass
class Model:
    """A table as lists; `items` in the order of insertion."""

    table: hr.Table
    max_size: int
    limiter: object
    items: list[Item] = field(default_factory=list)
    pending: deque = field(default_factory=deque)
    inserts: int = 0
    samples: int = 0
    deletes: int = 0
    unique: int = 0
    updates: int = 0
    ignored_updates: int = 0
    ignored_deletes: int = 0
    touches: int = 0
    has_sequences: bool = False

    def may_insert(self, n):
        limiter = self.limiter
        if isinstance(limiter, Rounds):
            by_size = self.inserts + n - self.deletes <= limiter.min_size
            return by_size or self.inserts + n - self.samples <= limiter.min_size + limiter.length
        return (
            self.inserts + n - self.deletes <= limiter.min_size
            or (self.inserts + n) * limiter.samples_per_insert - self.samples <= limiter.max_diff
        )

    def may_sample(self, n):
        limiter, k = self.limiter, self.table.max_times_sampled
        if self.inserts - self.deletes < max(1, limiter.min_size):
            return False
        if isinstance(limiter, Rounds):
            if self.inserts - self.samples - n < limiter.min_size - limiter.length:
                return False
        elif self.inserts * limiter.samples_per_insert - self.samples - n < limiter.min_diff:
            return False
        if k and sum(k - item.times for item in self.items) < n:
            return False
        return self.table.sampler != Uniform(replacement=False) or len(self.items) >= n

    def probabilities(self, selector):
        """Key to probability of one draw."""
        items = self.items
        if isinstance(selector, Fifo):
            return {items[0].key: 1.0}
        if isinstance(selector, Lifo):
            return {items[-1].key: 1.0}
        if isinstance(selector, MinHeap):
            sign = -1.0 if isinstance(selector, MaxHeap) else 1.0
            return {min(items, key=lambda item: (sign * item.priority, item.touch)).key: 1.0}
        if isinstance(selector, LeastRecentlyTouched):
            return {min(items, key=lambda item: item.touch).key: 1.0}
        if isinstance(selector, RankBased):
            items = sorted(items, key=lambda item: (-item.priority, item.key))
        weights = [1.0] * len(items)
        if isinstance(selector, Prioritized):
            exponent = selector.priority_exponent
            weights = [item.priority**exponent if item.priority > 0 else 0.0 for item in items]
        if isinstance(selector, RankBased):
            weights = [(place + 1) ** -selector.exponent for place in range(len(items))]
        whole = math.fsum(weights)
        if whole == 0:
            weights, whole = [1.0] * len(items), float(len(items))
        return {item.key: w / whole for item, w in zip(items, weights, strict=True) if w > 0}

    def remove(self, key):
        self.items = [item for item in self.items if item.key != key]
        self.deletes += 1

    def touch(self, item):
        item.touch = self.touches
        self.touches += 1

    def clear(self):
        self.items = []
        self.inserts = self.samples = self.deletes = self.unique = 0
        self.has_sequences = False


def keys_in_order(replay, table):
    """The keys of all items in the order of insertion, read where they lie."""
    arrays = core_of(replay).live_table(table).ring.arrays
    slots = (arrays.ring[FIRST] + np.arange(arrays.ring[SPAN])) % len(arrays.rows)
    return arrays.keys[slots[arrays.rows[slots] != DEAD]].tolist()


class ReplayAgainstLists(RuleBasedStateMachine):
    """Random victims are looked up in the replay; everything else the model knows by itself."""

    selectors = BUILT_IN
    limiters = staticmethod(limiters)

    @initialize(
        data=st.data(),
        lanes=st.sampled_from([1, 1, 2, 3]),
        length=st.integers(1, 3),
        capacity=st.sampled_from([None, 4000]),
        seed=st.integers(0, 2**32),
    )
    def make(self, data, lanes, length, capacity, seed):
        first, second = (
            data.draw(tables(name, self.selectors, self.limiters)) for name in ("first", "second")
        )
        self.clock = FakeClock()
        self.replay = self.new_replay([first, second], capacity=capacity, seed=seed, clock=self.clock)
        self.models = {t.name: Model(t, t.max_size, t.rate_limiter) for t in (first, second)}
        self.lanes, self.length = lanes, length
        self.counter = 0
        self.next_key = 1
        self.begin_writing()

    def new_replay(self, tables, **settings):
        return hr.Replay(SIGNATURE, tables, **settings)

    def begin_writing(self):
        self.writer = self.replay.writer(
            lanes=self.lanes, items=[hr.ItemRule("first", self.length)], history=8, max_pending=10**6
        )
        # The rows of the episode of each lane: numbers, and 0 for a final row whose columns were not given.
        self.episodes = [[] for _ in range(self.lanes)]
        self.ended = [False] * self.lanes

    @precondition(lambda self: hasattr(self, "replay") and not self.writer.pending)
    @rule()
    def another_life(self):
        """The replay comes back as it was (replay Q8, D1, D7), apart from its writers."""
        self.writer.close()
        self.replay = self.next_life()
        self.next_key = core_of(self.replay).keys.next
        self.begin_writing()

    @precondition(lambda self: hasattr(self, "replay") and not self.writer.pending)
    @rule()
    def another_writer(self):
        """It may go on in the page that the one before has left (C3)."""
        self.writer.close()
        self.begin_writing()

    def next_life(self):
        with tempfile.TemporaryDirectory() as folder:
            path = self.replay.save(folder)
            self.replay.close()
            # New keys depend on the clock.
            with mock.patch("headrace.persist.key_of_time.time.time_ns", return_value=0):
                return hr.Replay.load(path)

    def teardown(self):
        if not hasattr(self, "replay"):
            return
        # A fresh table takes at least one item in, so resets let all of them in; then nobody holds a page (I8, C4).
        while self.writer.pending:
            for name in self.models:
                self.replay.reset(name)
        self.writer.close(timeout=0)
        for name in self.models:
            self.replay.reset(name)
        store = self.replay.statistics().store
        assert (store.pages, store.rows) == (0, 0)
        self.replay.close()

    # ---- what the model does with an item that is made -----------------------------------------------------

    def offer(self, name, rows, priority):
        self.models[name].pending.append(Item(self.next_key, list(rows), priority))
        self.next_key += 1

    def settle(self):
        """Apply what the gates let in, one item at a time, as single inserts would."""
        for name, model in self.models.items():
            while model.pending and model.may_insert(1):
                item = model.pending.popleft()
                model.items.append(item)
                model.touch(item)
                model.inserts += 1
                model.has_sequences = model.has_sequences or len(item.rows) > 1
                while len(model.items) > model.max_size:
                    self.lose_one(name, model)

    def lose_one(self, name, model):
        candidates = model.probabilities(model.table.remover)
        if len(candidates) == 1:
            model.remove(next(iter(candidates)))
            return
        # Which one a random remover took shows later; the model asks for it by who is still there.
        there = set(keys_in_order(self.replay, name))
        gone = [key for key in candidates if key not in there]
        assert gone, (candidates, there)
        # Several may have left in one call; any order of them is possible as long as each could be drawn.
        model.remove(gone[0])

    # ---- calls ---------------------------------------------------------------------------------------------

    def step(self):
        numbers = np.arange(self.counter + 1, self.counter + 1 + self.lanes)
        self.counter += self.lanes
        if self.lanes == 1:
            numbers = numbers[0]
        return {"n": numbers, "nested": {"twice": 2.0 * np.stack([numbers, -numbers], -1)}}

    @rule(times=st.integers(1, 4))
    def append(self, times):
        for _ in range(times):
            step = self.step()
            self.writer.append(step)
            for lane, number in enumerate(np.atleast_1d(step["n"]).tolist()):
                if self.ended[lane]:
                    self.episodes[lane], self.ended[lane] = [], False
                self.episodes[lane].append(number)
            for episode in self.episodes:
                if len(episode) >= self.length:
                    self.offer("first", episode[-self.length :], 1.0)
        self.settle()

    @precondition(lambda self: any(self.running()))
    @rule(data=st.data(), with_final=st.booleans())
    def end_episode(self, data, with_final):
        lane = data.draw(st.sampled_from([lane for lane, runs in enumerate(self.running()) if runs]))
        final = None
        if with_final:
            self.counter += 1
            final = {"n": self.counter}
        self.writer.end_episode(final, lane=lane)
        self.ended[lane] = True
        if with_final:
            self.episodes[lane].append(-self.counter)  # Negative: a row whose other column is zeros.
            if 1 < self.length <= len(self.episodes[lane]):
                self.offer("first", self.episodes[lane][-self.length :], 1.0)
        self.settle()

    def running(self):
        return [bool(rows) and not ended for rows, ended in zip(self.episodes, self.ended, strict=True)]

    @rule(
        table=st.sampled_from(["first", "second"]),
        items=st.lists(st.tuples(st.integers(1, 5), PRIORITIES), min_size=1, max_size=12),
        data=st.data(),
    )
    def create_items(self, table, items, data):
        lane = data.draw(st.integers(0, self.lanes - 1))
        rows = self.episodes[lane]
        for length, priority in items:
            if length <= len(rows):
                assert self.writer.create_item(table, length, priority, lane) == self.next_key
                self.offer(table, rows[-length:], priority)
                self.settle()

    @rule(table=st.sampled_from(["first", "second"]), length=st.integers(1, 12), data=st.data())
    def create_an_item_out_of_reach(self, table, length, data):
        lane = data.draw(st.integers(0, self.lanes - 1))
        if length > min(8, len(self.episodes[lane])):
            with pytest.raises(ValueError, match="length"):
                self.writer.create_item(table, length, 1.0, lane)

    @rule(table=st.sampled_from(["first", "second"]), n=st.integers(1, 20))
    def sample_what_is_refused(self, table, n):
        if self.models[table].may_sample(n):
            return
        assert not self.replay.can_sample(table, n)
        with pytest.raises((hr.DeadlineExceeded, ValueError)):
            self.replay.sample(table, n, timeout=0)

    def open_tables(self):
        return [name for name, model in self.models.items() if model.may_sample(1)]

    @precondition(lambda self: self.open_tables())
    @rule(data=st.data())
    def sample(self, data):
        table = data.draw(st.sampled_from(self.open_tables()))
        model = self.models[table]
        n = data.draw(st.sampled_from([n for n in range(1, 13) if model.may_sample(n)]))
        assert self.replay.can_sample(table, n)
        batch = self.replay.sample(table, n, timeout=0)
        self.check_rows(model, batch)
        drawn = set()
        for place in range(n):
            key, info = int(batch.info.keys[place]), batch.info
            chances = model.probabilities(model.table.sampler)
            assert key in chances, "an item that cannot be drawn"
            assert info.probabilities[place] == pytest.approx(chances[key], rel=1e-9)
            assert info.table_size[place] == len(model.items)
            item = next(item for item in model.items if item.key == key)
            item.times += 1
            model.unique += item.times == 1
            model.samples += 1
            assert info.times_sampled[place] == item.times
            assert info.priorities[place] == item.priority
            if model.table.sampler == Uniform(replacement=False):
                assert key not in drawn
                drawn.add(key)
            if item.times == model.table.max_times_sampled:
                model.remove(key)
        self.settle()

    def check_rows(self, model, batch):
        """B1, B2, B5: every row of the batch is what was appended."""
        items = {item.key: item for item in model.items}
        rows = [items[int(key)].rows for key in batch.info.keys]
        longest = max(map(len, rows))
        wanted = np.array([[*row, *[0] * (longest - len(row))] for row in rows])
        real = np.array([[True] * len(row) + [False] * (longest - len(row)) for row in rows])
        n, twice = batch.data["n"], batch.data["nested"]["twice"]
        if not model.has_sequences:
            assert n.shape == (len(rows),)
            n, twice = n[:, None], twice[:, None]
        assert n.tolist() == np.abs(wanted).tolist()
        assert twice.tolist() == (2.0 * np.stack([wanted, -wanted], -1) * (wanted > 0)[..., None]).tolist()
        if real.all():
            assert batch.mask is None
        else:
            assert batch.mask.tolist() == real.tolist()

    @rule(table=st.sampled_from(["first", "second"]), data=st.data())
    def update_priorities(self, table, data):
        model = self.models[table]
        keys = data.draw(st.lists(st.integers(0, self.next_key + 3), max_size=6))
        priorities = data.draw(st.lists(PRIORITIES, min_size=len(keys), max_size=len(keys)))
        applied = 0
        for key, priority in zip(keys, priorities, strict=True):
            for item in model.items:
                if item.key == key:
                    item.priority = priority
                    model.touch(item)
                    applied += 1
        model.updates += applied
        model.ignored_updates += len(keys) - applied
        assert self.replay.update_priorities(table, keys, priorities) == applied

    @rule(table=st.sampled_from(["first", "second"]), data=st.data())
    def delete(self, table, data):
        model = self.models[table]
        there = [item.key for item in model.items]
        keys = data.draw(st.lists(st.sampled_from([*there, 0, self.next_key + 1]), max_size=4))
        gone = [key for key in there if key in keys]
        assert self.replay.delete(table, keys) == len(gone)
        for key in gone:
            model.remove(key)
        model.ignored_deletes += len(keys) - len(gone)
        self.settle()

    @rule(table=st.sampled_from(["first", "second"]))
    def reset(self, table):
        self.replay.reset(table)
        self.models[table].clear()
        self.settle()

    @rule(table=st.sampled_from(["first", "second"]), data=st.data())
    def configure(self, table, data):
        model = self.models[table]
        max_size = data.draw(st.integers(1, 12))
        limiter = data.draw(self.limiters(max_size))
        self.replay.table(table).configure(max_size=max_size, rate_limiter=limiter)
        model.max_size, model.limiter = max_size, limiter
        while len(model.items) > max_size:
            self.lose_one(table, model)
        self.settle()

    # ---- what always holds ---------------------------------------------------------------------------------

    @invariant()
    def counts_agree(self):
        if not hasattr(self, "replay"):
            return
        for name, model in self.models.items():
            found = self.replay.table(name).statistics()
            note(f"{found}")
            assert len(self.replay.table(name)) == found.size == len(model.items)
            assert found.size <= found.max_size == model.max_size
            assert (found.inserts, found.samples, found.deletes) == (
                model.inserts,
                model.samples,
                model.deletes,
            )
            assert found.pending_inserts == len(model.pending)
            assert found.unique_samples == model.unique
            assert (found.updates, found.ignored_updates, found.ignored_deletes) == (
                model.updates,
                model.ignored_updates,
                model.ignored_deletes,
            )
            assert found.waiting_samples == 0
        assert self.writer.pending == sum(len(model.pending) for model in self.models.values())

    @invariant()
    def gates_agree(self):
        if not hasattr(self, "replay"):
            return
        for name, model in self.models.items():
            for n in (1, 2, 7):
                assert self.replay.can_sample(name, n) == model.may_sample(n)
                assert self.replay.can_insert(name, n) == model.may_insert(len(model.pending) + n)

    @invariant()
    def distributions_agree(self):
        if not hasattr(self, "replay"):
            return
        for name, model in self.models.items():
            found = self.replay.table(name).distribution()
            ages = [self.next_key - 1 - item.key for item in model.items]
            times = [item.times for item in model.items]
            assert found.size == len(model.items)
            assert found.rows == len({row for item in model.items for row in item.rows})
            assert found.oldest_age == max(ages, default=0)
            assert found.mean_age == pytest.approx(np.mean(ages) if ages else 0)
            assert found.mean_times_sampled == pytest.approx(np.mean(times) if times else 0)
            assert found.max_times_sampled_so_far == max(times, default=0)
            if isinstance(model.table.sampler, CustomSelector):
                assert found.effective_sample_size is None
            else:
                chances = model.probabilities(model.table.sampler).values() if model.items else []
                expected = 1 / math.fsum(chance**2 for chance in chances) if chances else 0
                assert found.effective_sample_size == pytest.approx(expected, rel=1e-9)

    @invariant()
    def keys_agree(self):
        if not hasattr(self, "replay"):
            return
        for name, model in self.models.items():
            assert keys_in_order(self.replay, name) == [item.key for item in model.items]


ReplayAgainstLists.TestCase.settings = settings(
    max_examples=50, stateful_step_count=40, suppress_health_check=list(HealthCheck), deadline=None
)
TestReplayAgainstLists = ReplayAgainstLists.TestCase


class StoreOnDiskAgainstLists(ReplayAgainstLists):
    """The same with the items in files, and closed and opened again now and then."""

    def new_replay(self, tables, capacity, **settings):
        self.folder = tempfile.TemporaryDirectory()
        return hr.Replay(SIGNATURE, tables, path=self.folder.name, capacity=4000, **settings)

    def next_life(self):
        tables = [core_of(self.replay).live_table(name).description() for name in self.models]
        self.replay.close()
        return hr.Replay(SIGNATURE, tables, path=self.folder.name, clock=self.clock)

    def teardown(self):
        super().teardown()
        if hasattr(self, "folder"):
            self.folder.cleanup()


StoreOnDiskAgainstLists.TestCase.settings = settings(
    max_examples=40, stateful_step_count=40, suppress_health_check=list(HealthCheck), deadline=None
)
TestStoreOnDiskAgainstLists = StoreOnDiskAgainstLists.TestCase


class OwnSelectorsAgainstLists(ReplayAgainstLists):
    """The same with selectors and limiters of a user's own, beside each other and beside those of Headrace."""

    selectors = st.one_of(CUSTOM, CUSTOM, BUILT_IN)
    limiters = staticmethod(all_limiters)

    def next_life(self):
        """They cannot be written down; another writer goes on."""
        return self.replay


OwnSelectorsAgainstLists.TestCase.settings = ReplayAgainstLists.TestCase.settings
TestOwnSelectorsAgainstLists = OwnSelectorsAgainstLists.TestCase
