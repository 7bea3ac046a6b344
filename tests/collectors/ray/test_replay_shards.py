"""A replay whose shards are actors (CY4, CY5)."""

import os
import signal
import sys
import time

import cloudpickle
import numpy as np
import pytest

import headrace as hr

cloudpickle.register_pickle_by_value(sys.modules[__name__])
ray = pytest.importorskip("ray")
pytestmark = [pytest.mark.usefixtures("cluster"), pytest.mark.timeout(180)]

OPTIONS = {"num_cpus": 1}


def make_replay():
    tables = [
        hr.Table(
            "t",
            sampler=hr.selectors.Prioritized(),
            remover=hr.selectors.Fifo(),
            max_size=1000,
            rate_limiter=hr.rate_limiters.MinSize(4),
        ),
        hr.Table.queue("q", 100),
    ]
    return hr.Replay(hr.Signature.like({"n": 0}), tables, seed=0)


def fill(replay, table, steps, lanes=2):
    with replay.writer(lanes=lanes, items=[hr.ItemRule(table, 1)]) as writer:
        for n in range(steps):
            writer.append({"n": np.arange(lanes) + lanes * n})


def until(there, seconds):
    end = time.monotonic() + seconds
    while not there():
        assert time.monotonic() < end, f"not within {seconds} s"
        time.sleep(0.05)


@ray.remote(num_cpus=0)
def write(replay, first):
    with replay, replay.writer(items=[hr.ItemRule("q", 1)]) as writer:
        for n in range(first, first + 5):
            writer.append({"n": n})


def test_shards_are_one_replay_and_a_dead_one_is_started_again():
    with hr.collectors.ReplayShards(make_replay, 2, options=OPTIONS) as replay:
        # The limiter's number is that of the whole: each shard holds half of it.
        assert replay.table("t").statistics().min_size == 4
        fill(replay, "t", 1)
        assert not replay.can_sample("t")
        fill(replay, "t", 9)
        batch = replay.sample("t", 200, timeout=40)
        assert [shard.replay.tables["t"].size for shard in replay.statistics().shards] == [10, 10]
        assert (batch.info.keys % 2 == batch["n"] % 2).all()
        np.testing.assert_allclose(batch.info.probabilities, 1 / 20)
        assert replay.update_priorities("t", batch.info.keys[:1], [0.0]) == 1
        # Another process writes to the same shards.
        ray.get([write.remote(replay, first) for first in (0, 5)], timeout=40)
        assert sorted(replay.sample("q", 10, timeout=40)["n"].tolist()) == list(range(10))
        # One dies: the other one serves meanwhile, and no key is used a second time.
        place = ray.get(replay._actors[1].place.remote())
        os.kill(place[1], signal.SIGKILL)
        until(lambda: replay.statistics().shards[1].is_down, 40)
        assert (replay.sample("t", 50, timeout=40)["n"] % 2 == 0).all()
        until(lambda: not replay.statistics().shards[1].is_down, 60)
        assert [shard.replay.tables["t"].size for shard in replay.statistics().shards] == [10, 0]
        fill(replay, "t", 4)
        odd = batch.info.keys[batch.info.keys % 2 == 1]
        assert replay.delete("t", odd) == 0
        assert [shard.replay.tables["t"].size for shard in replay.statistics().shards] == [14, 4]
    assert ray.is_initialized()
    with pytest.raises(hr.Closed):
        replay.sample("t", 1)


def test_shards_begin_with_their_last_checkpoint(tmp_path):
    options = {"num_cpus": 0.5, "checkpoint": tmp_path}
    for steps in (5, 0):
        with hr.collectors.ReplayShards(make_replay, 1, options=options) as replay:
            fill(replay, "t", steps)
            assert len(replay.table("t")) == 10
            replay.checkpoint()
            replay.checkpoint()


def test_a_shard_with_a_path_goes_on_with_its_items_and_gives_no_key_twice(tmp_path):
    """Collectors CY4, replay K1: also one that is killed before it made an item, and keys given to clients ahead."""

    def stored():
        fifo = hr.selectors.Fifo()
        table = hr.Table("t", sampler=fifo, remover=fifo, max_size=1000)
        return hr.Replay(hr.Signature.like({"n": 0}), [table], path=tmp_path / "store")

    def answers(replay):
        try:
            replay.statistics()
        except hr.Disconnected:
            return False
        return True

    given = []
    with hr.collectors.ReplayShards(stored, 1, options=OPTIONS) as replay:
        for life in range(3):
            if life:
                with replay.writer() as writer:
                    for n in range(3):
                        writer.append({"n": n})
                        given.append(writer.create_item("t", 1))
                fill(replay, "t", 2)
            os.kill(ray.get(replay._actors[0].place.remote())[1], signal.SIGKILL)
            until(lambda: not answers(replay), 40)
            until(lambda: answers(replay), 60)
            assert len(replay.table("t")) == 7 * life
        keys = [int(item.info.keys[0]) for item in replay.items("t")]
    assert len(set(keys)) == 14
    assert set(given) < set(keys)


def test_what_cannot_be_made_is_told_by_the_constructor():
    def broken():
        raise OverflowError("no such replay")

    with pytest.raises(OverflowError, match="no such replay"):
        hr.collectors.ReplayShards(broken, 1, options=OPTIONS)
    with pytest.raises(hr.DeadlineExceeded, match=r"shards \[0\] are without a place"):
        hr.collectors.ReplayShards(
            make_replay, 1, options={"resources": {"unknown": 1}, "start_timeout": 0.5}
        )
    for options, error in (
        ({"cpus": 1}, TypeError),
        ({"start_timeout": -1}, ValueError),
        ({"checkpoint": 3}, TypeError),
    ):
        with pytest.raises(error, match="^options"):
            hr.collectors.ReplayShards(make_replay, 1, options=options)
