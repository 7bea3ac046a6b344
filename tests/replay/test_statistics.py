"""Statistics (replay, part 9)."""

import dataclasses
import threading

import numpy as np
import pytest

import headrace as hr
from headrace.replay.rate_limiters import Queue, SampleToInsertRatio
from headrace.replay.selectors import Fifo, Uniform
from headrace.testing import FakeClock

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
        ):
            assert getattr(one, name) == 0, name
        assert (found.store.rows, found.store.capacity, found.store.pages) == (0, 640, 0)
        assert (found.store.free_pages, found.store.bytes) == (0, 0)


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


def test_queues_and_the_seconds_in_them():
    clock = FakeClock()
    table = hr.Table("t", sampler=Fifo(), remover=Fifo(), max_size=10, rate_limiter=Queue(1))
    with hr.Replay(SIGNATURE, [table], clock=clock) as replay:
        writer = replay.writer(items=[hr.ItemRule("t", 1)])
        for _ in range(3):
            writer.append(STEP)
            clock.advance(1.0)
        assert replay.table("t").statistics().pending_inserts == 2
        replay.sample("t", 1)
        found = replay.table("t").statistics()
        assert (found.pending_inserts, found.seconds_waiting_inserts) == (1, 2.0)
        clock.advance(4.0)
        replay.sample("t", 1)
        # The third waited 1 s before the first sample and 4 s after it.
        assert replay.table("t").statistics().seconds_waiting_inserts == 2.0 + 5.0
        writer.close(timeout=0)


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
        copy = dataclasses.asdict(before.tables["t"])
        with replay.writer(items=[hr.ItemRule("t", 1)]) as writer:
            writer.append(STEP)
        replay.sample("t", 2)
        assert dataclasses.asdict(before.tables["t"]) == copy
        assert before.store.rows == 0
        for record, name in ((before, "store"), (before.store, "rows"), (before.tables["t"], "size")):
            with pytest.raises(dataclasses.FrozenInstanceError):
                setattr(record, name, 5)


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
