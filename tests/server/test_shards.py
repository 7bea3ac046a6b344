"""One replay over several servers (CY4)."""

import threading
import time
from contextlib import suppress

import numpy as np
import pytest

import headrace as hr
from headrace.errors import Disconnected
from headrace.replay.shards.together import AtOnce
from headrace.testing import ReplayContract, WriterContract, in_forked_child

SIGNATURE = hr.Signature.like({"n": 0})


class ShardsAndServers:
    """Shards with the servers and replays behind them."""

    def __init__(self, replays):
        self.replays = replays
        self.servers = [hr.Server({"r": replay}, token="secret").start() for replay in replays]
        self.whole = hr.server.shards(
            [server.address for server in self.servers], "r", token="secret", seed=0
        )

    def __getattr__(self, name):
        return getattr(self.whole, name)

    def close(self):
        self.whole.close()
        for server, replay in zip(self.servers, self.replays, strict=True):
            server.stop()
            replay.close()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()


class TestOneServer(ReplayContract):
    def make(self, signature, tables, seed=0):
        return ShardsAndServers([hr.Replay(signature, tables, seed=seed)])


class TestWritersOfOneServer(WriterContract):
    def make(self, signature, tables, capacity=None):
        return ShardsAndServers([hr.Replay(signature, tables, capacity=capacity)])


def test_a_server_is_one_shard_only():
    address = "tcp://127.0.0.1:1"
    with pytest.raises(ValueError, match="expected different servers, got tcp://127.0.0.1:1 twice"):
        hr.server.shards([address, "tcp://127.0.0.1:2", address], "r")


def uniform(name="t"):
    return hr.Table(name, sampler=hr.selectors.Uniform(), remover=hr.selectors.Fifo(), max_size=1000)


def fill(whole, steps, lanes=4):
    with whole.writer(lanes=lanes, items=[hr.ItemRule("t", 1)]) as writer:
        for n in range(steps):
            writer.append({"n": np.arange(lanes) + lanes * n})


def test_lanes_draws_and_updates_over_two_servers():
    with ShardsAndServers([hr.Replay(SIGNATURE, [uniform()], seed=seed) for seed in range(2)]) as whole:
        fill(whole, 10)
        assert [len(replay.table("t")) for replay in whole.replays] == [20, 20]
        batch = whole.sample("t", 400)
        assert len(set(batch["n"].tolist())) == 40
        assert (batch.info.keys % 2 == batch["n"] % 2).all()
        np.testing.assert_allclose(batch.info.probabilities, 1 / 40)
        assert whole.update_priorities("t", batch.info.keys[:7], np.full(7, 2.0)) == 7


def test_a_server_that_stops_leaves_its_part_to_the_others():
    with ShardsAndServers([hr.Replay(SIGNATURE, [uniform()], seed=seed) for seed in range(2)]) as whole:
        fill(whole, 10)
        address = whole.servers[1].address
        whole.servers[1].stop()
        batch = whole.sample("t", 50, timeout=20)
        assert (batch["n"] % 2 == 0).all()
        told = whole.statistics()
        assert (told.tables["t"].size, [shard.is_down for shard in told.shards]) == (20, [False, True])
        whole.servers[1] = hr.Server({"r": whole.replays[1]}, address=address, token="secret").start()
        deadline = time.monotonic() + 20
        while whole.statistics().shards[1].is_down:
            assert time.monotonic() < deadline
            time.sleep(0.05)
        assert set((whole.sample("t", 50)["n"] % 2).tolist()) == {0, 1}
        fill(whole, 1)
        assert [len(replay.table("t")) for replay in whole.replays] == [22, 22]


def test_servers_that_are_not_there_are_an_error():
    with pytest.raises(Disconnected, match="shard"):
        hr.server.shards(["tcp://127.0.0.1:1", "tcp://127.0.0.1:2"], "r")
    with (
        hr.Replay(SIGNATURE, [uniform()]) as replay,
        hr.Server({"r": replay}) as server,
        hr.server.shards(["tcp://127.0.0.1:1", server.address], "r") as whole,
    ):
        fill(whole, 2)
        told = whole.statistics()
        assert (len(whole.table("t")), [shard.is_down for shard in told.shards]) == (4, [True, False])
        with pytest.raises(KeyError, match="serves no 'other'"):
            hr.server.shards([server.address], "other")


def test_servers_are_asked_at_the_same_time():
    # Neither call ends before the other one has begun; the caller's thread makes one of them.
    barrier = threading.Barrier(2, timeout=10)
    at_once = AtOnce(2)
    for _ in range(3):
        assert len(at_once([barrier.wait, barrier.wait])) == 2
    assert at_once([]) == []
    at_once.close()
    with ShardsAndServers([hr.Replay(SIGNATURE, [uniform()], seed=seed) for seed in range(2)]) as whole:
        fill(whole, 10)
        whole.sample("t", 50)
        assert any(thread.name.startswith("headrace-shards") for thread in threading.enumerate())
    assert not any(thread.name.startswith("headrace-shards") for thread in threading.enumerate())


def test_a_forked_child_is_refused():
    # server CL9
    with ShardsAndServers([hr.Replay(SIGNATURE, [uniform()])]) as whole:
        fill(whole, 1)

        def child():
            with pytest.raises(RuntimeError, match="forked"):
                whole.whole.sample("t", 1)
            whole.whole.close()

        in_forked_child(child)
        assert len(whole.sample("t", 3)["n"]) == 3


def test_ends_that_find_no_page_at_one_server_can_be_tried_again():
    """replay C3: the other server has not ended its episodes either, so each has one final row."""
    tables = [hr.Table.queue("t", 99), uniform("other")]
    with ShardsAndServers([hr.Replay(SIGNATURE, tables, capacity=512) for _ in range(2)]) as whole:
        writer = whole.row_writer(4, items=[hr.ItemRule("t", 2)])
        writer.append({"n": np.arange(4)})
        writer.flush(10)
        with whole.replays[1].writer(items=[hr.ItemRule("other", 1)]) as other:
            with suppress(hr.StoreFull):
                while True:
                    other.append({"n": -1})
            with pytest.raises(hr.StoreFull):
                writer.end_lanes(np.arange(3), {"n": 100 + np.arange(3)})
            assert writer.open_lanes.all()
            whole.replays[1].reset("other")
        writer.end_lanes(np.arange(3), {"n": 100 + np.arange(3)})
        writer.append({"n": 10 + np.arange(4)})
        writer.close(10)
        found = [replay.sample("t", 2, timeout=0)["n"].tolist() for replay in whole.replays]
        assert [sorted(windows) for windows in found] == [[[0, 100], [2, 102]], [[1, 101], [3, 13]]]
