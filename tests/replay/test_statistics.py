"""Statistics (replay, part 9)."""

import copy
import dataclasses
import json
import pickle
import threading

import numpy as np
import pytest

import headrace as hr
from headrace.tables.description.rate_limiters import Queue, SampleToInsertRatio
from headrace.tables.description.selectors import Fifo, MaxHeap, Prioritized, Uniform
from headrace.testing import FakeClock, RankBased

SIGNATURE = hr.Signature.like({"n": np.int64(0), "x": np.zeros(6, np.float32)})
STEP = {"n": 1, "x": np.ones(6, np.float32)}


def test_a_fresh_replay_has_nothing():
    tables = [
        hr.Table(
            "t",
            sampler=Uniform(),
            remover=Fifo(),
            max_size=50,
            rate_limiter=SampleToInsertRatio(2, 3, 4),
            max_times_sampled=7,
        ),
        hr.Table.queue("q", 5),
    ]
    with hr.Replay(SIGNATURE, tables, capacity=640) as replay:
        found = replay.statistics()
        assert list(found.tables) == ["t", "q"]
        one = found.tables["t"]
        assert (one.name, one.size, one.max_size, one.max_times_sampled) == ("t", 0, 50, 7)
        assert (one.samples_per_insert, one.min_size, one.min_diff, one.max_diff) == (2, 3, 2, 10)
        for name in (
            "inserts",
            "samples",
            "deletes",
            "unique_samples",
            "updates",
            "ignored_updates",
            "ignored_deletes",
            "pending_inserts",
            "waiting_samples",
            "seconds_waiting_inserts",
            "seconds_waiting_samples",
            "resets",
            "longest_waiting_insert",
            "longest_waiting_sample",
            "samples_per_insert_so_far",
        ):
            assert getattr(one, name) == 0, name
        assert (found.store.rows, found.store.capacity, found.store.pages) == (0, 640, 0)
        assert (found.store.free_pages, found.store.bytes) == (0, 0)
        empty = replay.table("t").distribution()
        assert (empty.name, empty.size, empty.rows, empty.rows_bytes) == ("t", 0, 0, 0)
        assert (empty.mean_age, empty.oldest_age, empty.effective_sample_size) == (0, 0, 0)
        assert (empty.mean_times_sampled, empty.max_times_sampled_so_far) == (0, 0)


def test_counts_of_everything_that_happens():
    with hr.Replay(SIGNATURE, [hr.Table("t", sampler=Fifo(), remover=Fifo(), max_size=4)]) as replay:
        with replay.writer(items=[hr.ItemRule("t", 1)]) as writer:
            for _ in range(6):
                writer.append(STEP)
        replay.sample("t", 3)
        replay.update_priorities("t", [3, 4, 4, 1], [1.0] * 4)
        replay.delete("t", [3, 3, 100])
        replay.sample("t", 1)
        found = replay.table("t").statistics()
        assert found == replay.statistics().tables["t"]
        assert (found.size, found.inserts, found.samples, found.deletes) == (3, 6, 4, 3)
        assert found.unique_samples == 2
        assert (found.updates, found.ignored_updates, found.ignored_deletes) == (3, 1, 2)
        assert found.samples_per_insert_so_far == 4 / 6


def test_queues_and_the_seconds_in_them():
    clock = FakeClock()
    table = hr.Table("t", sampler=Fifo(), remover=Fifo(), max_size=10, rate_limiter=Queue(1))
    with hr.Replay(SIGNATURE, [table], clock=clock) as replay:
        writer = replay.writer(items=[hr.ItemRule("t", 1)])
        for _ in range(3):
            writer.append(STEP)
            clock.advance(1.0)
        found = replay.table("t").statistics()
        # The second has waited since 1 s, the third since 2 s.
        assert (found.pending_inserts, found.longest_waiting_insert) == (2, 2.0)
        replay.sample("t", 1)
        found = replay.table("t").statistics()
        assert (found.pending_inserts, found.seconds_waiting_inserts) == (1, 2.0)
        clock.advance(4.0)
        assert replay.table("t").statistics().longest_waiting_insert == 5.0
        replay.sample("t", 1)
        # The third waited 1 s before the first sample and 4 s after it.
        found = replay.table("t").statistics()
        assert (found.seconds_waiting_inserts, found.longest_waiting_insert) == (2.0 + 5.0, 0.0)
        writer.close(timeout=0)


def test_who_waits_to_sample_and_for_how_long():
    clock = FakeClock()
    table = hr.Table("t", sampler=Fifo(), remover=Fifo(), max_size=10, rate_limiter=Queue(9))
    with hr.Replay(SIGNATURE, [table], clock=clock) as replay:
        threads = []
        for number in range(2):
            threads.append(threading.Thread(target=replay.sample, args=("t", 1 + number)))
            threads[-1].start()
            clock.wait_for_waiters(number + 1)
            clock.advance(0.125)
        found = replay.table("t").statistics()
        assert (found.waiting_samples, found.longest_waiting_sample) == (2, 0.25)
        assert found.seconds_waiting_samples == 0.0
        with replay.writer(items=[hr.ItemRule("t", 1)]) as writer:
            for _ in range(3):
                writer.append(STEP)
        for thread in threads:
            thread.join(10)
        found = replay.table("t").statistics()
        assert (found.waiting_samples, found.longest_waiting_sample) == (0, 0.0)
        assert found.seconds_waiting_samples == 0.25 + 0.125


def test_rates_are_what_happened_between_two_records():
    clock = FakeClock()
    with hr.Replay(
        SIGNATURE, [hr.Table("t", sampler=Fifo(), remover=Fifo(), max_size=4)], clock=clock
    ) as replay:
        writer = replay.writer(items=[hr.ItemRule("t", 1)])
        writer.append(STEP)
        before = replay.statistics()
        for _ in range(6):
            writer.append(STEP)
        replay.sample("t", 3)
        replay.update_priorities("t", [7], [2.0])
        clock.advance(2.0)
        rates = replay.statistics().rates_since(before)["t"]
        assert (rates.inserts, rates.samples, rates.deletes, rates.updates) == (3.0, 1.5, 1.5, 0.5)
        # Only those since a reset are known, also where as many have come again.
        replay.reset("t")
        writer.append(STEP)
        rates = replay.statistics().rates_since(before)["t"]
        assert (rates.inserts, rates.samples, rates.deletes) == (0.5, 0.0, 0.0)
        with pytest.raises(ValueError, match="rates_since: expected an earlier record"):
            before.rates_since(before)
        writer.close()


# ---- what the items are like ---------------------------------------------------------------------------------


def with_items(sampler, *rules, steps=10, **settings):
    tables = [
        hr.Table("t", sampler=sampler, remover=Fifo(), max_size=100, **settings),
        hr.Table("other", sampler=Fifo(), remover=Fifo(), max_size=100),
    ]
    replay = hr.Replay(SIGNATURE, tables, seed=0)
    with replay.writer(items=rules, history=20) as writer:
        for _ in range(steps):
            writer.append(STEP)
    return replay


def test_each_tables_rows_are_counted_once():
    # replay, part 9: byte counts exist for every table's rows
    rules = [hr.ItemRule("t", 4), hr.ItemRule("other", 2, stride=3)]
    with with_items(Uniform(), *rules) as replay:
        found, other = (replay.table(name).distribution() for name in ("t", "other"))
        assert (found.size, found.rows) == (7, 10), "windows that overlap share rows"
        assert (other.size, other.rows) == (3, 6)
        row_bytes = replay.statistics().store.row_bytes
        assert (found.rows_bytes, other.rows_bytes) == (10 * row_bytes, 6 * row_bytes)
        replay.delete("t", replay.sample("t", 200).info.keys[:1])
        assert replay.table("t").distribution().size == 6


def test_rows_over_ends_of_episodes_and_of_pages_are_counted():
    tables = [hr.Table(name, sampler=Fifo(), remover=Fifo(), max_size=1000) for name in "ab"]
    rules = [
        hr.ItemRule("a", 3, lookahead=2),
        hr.ItemRule("b", 5, end=hr.EndOfEpisode.CONTINUE),
    ]
    with hr.Replay(SIGNATURE, tables, capacity=640) as replay:
        with replay.writer(items=rules) as writer:
            for length in (10, 4, 40):
                for _ in range(length):
                    writer.append(STEP)
                writer.end_episode(STEP)
            # 11, 5 and 41 rows: windows of 3 rows and what follows them cover all; streams do, too.
            assert replay.table("a").distribution().rows == 57
            assert replay.table("b").distribution().rows == 57
            assert replay.statistics().store.pages > 2


def test_ages_are_items_made_since():
    with with_items(Fifo(), hr.ItemRule("t", 1), hr.ItemRule("other", 5)) as replay:
        # Keys: 1 to 4 in "t"; then one of each in turn, 5 in "t" and 6 in "other".
        keys = [1, 2, 3, 4, 5, 7, 9, 11, 13, 15]
        found = replay.table("t").distribution()
        assert (found.oldest_age, found.mean_age) == (15, np.mean([16 - key for key in keys]))
        replay.delete("t", keys[:3])
        found = replay.table("t").distribution()
        assert (found.oldest_age, found.mean_age) == (12, np.mean([16 - key for key in keys[3:]]))
        assert replay.table("other").distribution().oldest_age == 10


def test_ages_go_on_after_a_checkpoint_is_loaded(tmp_path):
    # Keys jump ahead there (replay K1).
    with with_items(Fifo(), hr.ItemRule("t", 1)) as replay:
        replay.save(tmp_path)
    with hr.Replay.load(tmp_path) as replay:
        assert replay.table("t").distribution().oldest_age == 9
        with replay.writer(items=[hr.ItemRule("t", 1)]) as writer:
            for _ in range(2):
                writer.append(STEP)
        found = replay.table("t").distribution()
        assert (found.oldest_age, found.mean_age) == (11, 5.5)
        replay.save(tmp_path)
    with hr.Replay.load(tmp_path) as replay:
        assert replay.table("t").distribution() == found


def test_how_often_items_were_sampled():
    with with_items(Fifo(), hr.ItemRule("t", 1), steps=4, max_times_sampled=6) as replay:
        replay.sample("t", 9)
        found = replay.table("t").distribution()
        # The first left with its sixth sample; three are left of the others'.
        assert (found.size, found.mean_times_sampled, found.max_times_sampled_so_far) == (3, 1.0, 3)


@pytest.mark.parametrize(
    ("sampler", "priorities", "expected"),
    [
        (Uniform(), [1, 2, 0, 5], 4.0),
        (Uniform(replacement=False), [1, 1, 1, 1], 4.0),
        (Prioritized(), [1, 1, 0, 0], 2.0),
        (Prioritized(), [0, 0, 0, 0], 4.0),
        (Prioritized(), [3, 1, 0, 0], 16 / 10),
        (Prioritized(0.5), [4, 1, 1, 0], 16 / 6),
        (Prioritized(), [1e300, 1e300, 1, 1], 2.0),
        (Prioritized(), [1e-200, 1e-200, 0, 0], 2.0),
        (MaxHeap(), [1, 2, 3, 4], 1.0),
        (Fifo(), [1, 2, 3, 4], 1.0),
        (RankBased(), [1, 2, 3, 4], None),
    ],
)
def test_effective_sample_size_is_that_of_the_weights_of_now(sampler, priorities, expected):
    with with_items(sampler, hr.ItemRule("t", 1), steps=4) as replay:
        replay.update_priorities("t", [1, 2, 3, 4], priorities)
        found = replay.table("t").distribution().effective_sample_size
        assert found == (None if expected is None else pytest.approx(expected, rel=1e-12))


def test_the_store_counts_rows_pages_and_bytes():
    with hr.Replay(
        SIGNATURE, [hr.Table("t", sampler=Fifo(), remover=Fifo(), max_size=10)], capacity=320
    ) as replay:
        writer = replay.writer(items=[hr.ItemRule("t", 1)])
        for _ in range(100):
            writer.append(STEP)
        writer.close()
        store = replay.statistics().store
        # The last 10 rows, in pages of 10.
        assert 10 <= store.rows <= 20
        assert store.pages == -(-store.rows // 10)
        assert store.free_pages >= 1
        assert store.row_bytes >= SIGNATURE.nbytes == 32
        assert store.bytes == store.rows * store.row_bytes
        assert replay.table("t").statistics().bytes > 0
        replay.reset("t")
        store = replay.statistics().store
        assert (store.rows, store.pages, store.bytes) == (0, 0, 0)


def test_records_are_frozen_and_stay_as_they_were():
    with hr.Replay(SIGNATURE, [hr.Table("t", sampler=Fifo(), remover=Fifo(), max_size=10)]) as replay:
        before = replay.statistics()
        was = dataclasses.asdict(before.tables["t"])
        with replay.writer(items=[hr.ItemRule("t", 1)]) as writer:
            writer.append(STEP)
        replay.sample("t", 2)
        assert dataclasses.asdict(before.tables["t"]) == was
        assert before.store.rows == 0
        records = ((before, "store"), (before.store, "rows"), (before.tables["t"], "size"))
        for record, name in (*records, (replay.table("t").distribution(), "rows")):
            with pytest.raises(dataclasses.FrozenInstanceError):
                setattr(record, name, 5)


def test_records_can_be_pickled_copied_and_taken_apart():
    # replay, part 9: also those that hold others by name
    clock = FakeClock()
    with hr.Replay(
        SIGNATURE, [hr.Table("t", sampler=Fifo(), remover=Fifo(), max_size=10)], clock=clock
    ) as replay:
        before = replay.statistics()
        clock.advance(1.0)
        found = replay.statistics()
    for record in (found, found.rates_since(before)):
        for again in (pickle.loads(pickle.dumps(record)), copy.copy(record), copy.deepcopy(record)):
            assert again == record
            tables = getattr(again, "tables", again)
            for change in (
                lambda tables=tables: tables.update(t=None),
                lambda tables=tables: tables.__setitem__("t", None),
                lambda tables=tables: tables.pop("t"),
                lambda tables=tables: tables.clear(),
            ):
                with pytest.raises(TypeError, match=r"does not change after it was made; dict\(record\)"):
                    change()
            assert again == record
    plain = dataclasses.asdict(found)
    assert plain["tables"]["t"]["max_size"] == 10
    assert json.loads(json.dumps(plain["store"]))["rows"] == 0


def test_statistics_are_of_one_instant():
    # A step goes into both tables under one lock, so their inserts always agree.
    tables = [hr.Table(name, sampler=Fifo(), remover=Fifo(), max_size=50) for name in "ab"]
    with hr.Replay(SIGNATURE, tables) as replay:
        done = threading.Event()

        def write():
            with replay.writer(items=[hr.ItemRule("a", 1), hr.ItemRule("b", 1)]) as writer:
                for _ in range(3000):
                    writer.append(STEP)
            done.set()

        thread = threading.Thread(target=write)
        thread.start()
        seen = set()
        while not done.is_set():
            found = replay.statistics().tables
            assert found["a"].inserts == found["b"].inserts
            assert found["a"].inserts - found["a"].deletes == found["a"].size
            seen.add(found["a"].inserts)
        thread.join()
        assert replay.statistics().tables["b"].inserts == 3000
