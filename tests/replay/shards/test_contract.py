"""The contracts of replays and of writers over shards."""

import numpy as np
import pytest

import headrace as hr
from headrace.replay.intake.selection import Selection
from headrace.replay.shards.replay import ShardedReplay
from headrace.tables.description.rules import PatternWindow
from headrace.testing import ReplayContract, WriterContract


def sharded(signature, tables, seed, count, capacity=None):
    replays = [hr.Replay(signature, tables, seed=seed + number, capacity=capacity) for number in range(count)]
    return ShardedReplay([lambda replay=replay: replay for replay in replays], seed=seed)


class TestOneShard(ReplayContract):
    def make(self, signature, tables, seed=0):
        return sharded(signature, tables, seed, 1)


class TestWritersOfOneShard(WriterContract):
    def make(self, signature, tables, capacity=None):
        return sharded(signature, tables, 0, 1, capacity)


class TestTwoShards(ReplayContract):
    """The first writer of one lane writes to shard 0, so one shard has the items of many tests."""

    def make(self, signature, tables, seed=0):
        return sharded(signature, tables, seed, 2)

    def test_a_smaller_table_removes_at_once(self):
        # replay T9, CY4: a shard has its part of the numbers.
        table = hr.Table("t", sampler=hr.selectors.Fifo(), remover=hr.selectors.Fifo(), max_size=99)
        with self.new(table) as replay:
            with replay.writer(lanes=2, items=[hr.ItemRule("t", 1)]) as writer:
                for n in range(5):
                    writer.append({"n": [n, n]})
            replay.table("t").configure(max_size=4)
            assert len(replay.table("t")) == replay.table("t").statistics().max_size == 4
            assert replay.sample("t", 2).data["n"].tolist() == [3, 3]
            with pytest.raises(ValueError, match="3"):
                replay.table("t").configure(rate_limiter=hr.rate_limiters.MinSize(5))
            assert replay.can_sample("t")

    def test_a_batch_that_can_never_be_served_is_refused_at_once(self):
        # replay L10: the limits of the shards are added.
        limiter = hr.rate_limiters.SampleToInsertRatio(2, 3, 4)
        selectors = {"sampler": hr.selectors.Fifo(), "remover": hr.selectors.Fifo()}
        with self.new(hr.Table("t", **selectors, max_size=99, rate_limiter=limiter)) as replay:
            for size in (0, -1, 17):
                with pytest.raises(ValueError, match=str(size)):
                    replay.sample("t", size, timeout=0)
            with pytest.raises(hr.DeadlineExceeded, match="sizes of the shards: 0, 0"):
                replay.sample("t", 16, timeout=0)
            assert not replay.can_sample("t", 17)

    def test_a_batch_is_a_copy(self):
        # replay B4
        with self.new(hr.Table.queue("t", 99)) as replay:
            with replay.writer(lanes=2, items=[hr.ItemRule("t", 1)]) as writer:
                writer.append({"n": [1, 2]})
                batch = replay.sample("t", 2)
                batch.data["n"][:] += 70
                for _ in range(20):
                    writer.append({"n": [3, 4]})
            assert batch.data["n"].tolist() == [71, 72]


class TestWritersOfTwoShards(WriterContract):
    def make(self, signature, tables, capacity=None):
        return sharded(signature, tables, 0, 2, capacity)

    def test_checked_steps_are_stored_as_others(self):
        # The order between shards is open.
        with self.new() as replay:
            writer = replay.row_writer(lanes=3, items=[hr.ItemRule("t", 1)])
            for n in range(4):
                before = writer.steps
                (writer.append_checked if n % 2 else writer.append)(steps_of(n))
                assert writer.steps > before
            writer.make_room()
            writer.append_ends(steps_of(4), np.zeros(3, np.bool_), np.zeros(0, np.int64), {})
            writer.close()
            found = replay.sample("t", 15, timeout=0)["n"]
            assert sorted(found.tolist()) == sorted(lane * 100 + n for n in range(5) for lane in range(3))

    def test_priorities_and_windows_are_given_with_a_call(self):
        # The keys of one shard follow those of the other.
        rules = [hr.ItemRule("t", 1, priority=2.0), PatternWindow("u", 2)]
        queues = [hr.Table.queue(name, 99) for name in "tu"]
        with self.new(*queues) as replay:
            writer = replay.row_writer(lanes=3, items=rules)
            writer.record_items()
            none, last_two = np.zeros(3, np.bool_), np.array([False, True, True])
            for n, mask in enumerate([none, last_two, none]):
                lanes = {0: np.arange(3), 1: np.flatnonzero(mask)}
                writer.give_priorities({0: n + 5.0 * lanes[0], 1: 7.0 + lanes[1]}, lanes)
                writer.select_windows(Selection({1: mask}, {1: none}))
                writer.append_checked(steps_of(n))
            made = [(rule, list(keys)) for rule, keys in writer.take_made()]
            writer.close()
            batch = replay.sample("t", 9, timeout=0)
            lane, t = np.divmod(batch["n"], 100)
            np.testing.assert_array_equal(batch.info.priorities, t + 5.0 * lane)
            assert {key for rule, keys in made if rule == 0 for key in keys} == set(batch.info.keys.tolist())
            batch = replay.sample("u", 2, timeout=0)
            np.testing.assert_array_equal(batch.info.priorities, 7 + batch["n"] // 100)
            assert {key for rule, keys in made if rule == 1 for key in keys} == set(batch.info.keys.tolist())


def steps_of(n):
    numbers = np.arange(3) * 100 + n
    return {"n": numbers, "x": np.repeat(numbers[:, None], 2, 1).astype(np.float32)}
