"""A shard that is down: counted, logged once, left out, and tried again."""

import logging

import numpy as np
import pytest

import headrace as hr
from headrace.errors import Disconnected
from headrace.replay.shards.replay import ShardedReplay
from headrace.testing import FakeClock

TABLE = hr.Table("t", sampler=hr.selectors.Uniform(), remover=hr.selectors.Fifo(), max_size=1000)


def is_down(whole):
    return [shard.is_down for shard in whole.statistics().shards]


def fill(whole, count, lanes=2):
    with whole.writer(lanes=lanes, items=[hr.ItemRule("t", 1)]) as writer:
        for n in range(count):
            writer.append({"n": np.arange(lanes) + lanes * n})


def test_sampling_goes_on_with_the_others(make_shards, caplog):
    clock = FakeClock()
    whole, shards = make_shards([TABLE], 2, clock=clock)
    fill(whole, 5)
    keys = whole.sample("t", 50).info.keys
    assert set((keys % 2).tolist()) == {0, 1}
    shards[1].is_lost = True
    with caplog.at_level(logging.WARNING):
        for _ in range(3):
            batch = whole.sample("t", 50)
            assert set((batch["n"] % 2).tolist()) == {0}
            np.testing.assert_allclose(batch.info.probabilities, 0.2)
            assert (batch.info.table_size == 5).all()
            assert whole.update_priorities("t", keys, np.ones(50)) == (keys % 2 == 0).sum()
        clock.advance(1.1)
        whole.sample("t", 1)
    assert len(caplog.records) == 1
    assert "shard 1 is down" in caplog.text
    told = whole.statistics()
    assert told.tables["t"].size == 5
    assert [(shard.is_down, shard.losses) for shard in told.shards] == [(False, 0), (True, 1)]
    assert "connection" in told.shards[1].last_error or "listens" in told.shards[1].last_error
    assert told.shards[1].replay is None
    with pytest.raises(Disconnected, match=r"\[1\] are down"):
        whole.reset("t")


def test_it_is_tried_again_after_a_pause(make_shards):
    clock = FakeClock()
    whole, shards = make_shards([TABLE], 2, clock=clock)
    fill(whole, 5)
    shards[1].is_lost = True
    assert is_down(whole) == [False, True]
    shards[1].is_lost = False
    assert is_down(whole) == [False, True]
    clock.advance(1.1)
    assert is_down(whole) == [False, False]
    assert whole.statistics().tables["t"].size == 10
    # The pauses grow while it stays down.
    shards[1].is_lost = True
    attempts = 0
    for _ in range(60):
        before = whole._shards[1]._try_at
        whole.table("t").statistics()
        attempts += whole._shards[1]._try_at != before
        clock.advance(1.0)
    assert 4 <= attempts <= 8


def test_all_shards_down_is_an_error(make_shards):
    whole, shards = make_shards([TABLE], 2)
    fill(whole, 2)
    for shard in shards:
        shard.is_lost = True
    for call in (
        lambda: whole.sample("t", 1, timeout=1),
        whole.statistics,
        lambda: whole.update_priorities("t", [2, 3], [1.0, 1.0]),
        lambda: whole.can_sample("t"),
    ):
        with pytest.raises(Disconnected, match="shard . is down"):
            call()


def test_a_shard_may_be_down_at_first(make_shards):
    clock = FakeClock()
    signature = hr.Signature.like({"n": 0})
    up = [False]
    replays = [hr.Replay(signature, [TABLE]) for _ in range(2)]

    def second():
        if not up[0]:
            raise Disconnected("nobody listens there")
        return replays[1]

    with ShardedReplay([lambda: replays[0], second], clock=clock) as whole:
        fill(whole, 3)
        assert is_down(whole) == [False, True]
        assert whole.statistics().shards[1].rows_dropped == 3
        up[0] = True
        clock.advance(1.1)
        fill(whole, 3)
        assert [len(replay.table("t")) for replay in replays] == [6, 3]


def test_shards_of_other_steps_or_tables_are_refused():
    signature = hr.Signature.like({"n": 0})
    with (
        hr.Replay(signature, [TABLE]) as one,
        hr.Replay(hr.Signature.like({"n": 0.0}), [TABLE]) as other,
        hr.Replay(signature, [hr.Table.queue("u", 5)]) as third,
    ):
        with pytest.raises(hr.SpecError, match="shard 1.*n"):
            ShardedReplay([lambda: one, lambda: other])
        with pytest.raises(ValueError, match=r"shard 1.*'t'.*'u'"):
            ShardedReplay([lambda: one, lambda: third])
        with pytest.raises(ValueError, match="at least one"):
            ShardedReplay([])


def test_a_lane_goes_on_with_its_next_episode_when_its_shard_is_back(make_shards):
    # No item holds rows from before and after the hole.
    clock = FakeClock()
    table = hr.Table(
        "t", sampler=hr.selectors.Fifo(), remover=hr.selectors.Fifo(), max_size=1000, max_times_sampled=1
    )
    whole, shards = make_shards([table], 2, clock=clock)
    writer = whole.writer(lanes=4, items=[hr.ItemRule("t", 2)])
    ends = {2: 1, 6: 1, 7: 3}  # Steps after which an episode of a lane ends.
    for t in range(10):
        shards[1].is_lost = 3 <= t < 5
        clock.advance(1.0)
        writer.append({"n": np.arange(4) * 100 + t})
        if t in ends:
            writer.end_episode(lane=ends[t])
        assert writer.lanes == 4
    told = whole.statistics().shards[1]
    with pytest.raises(Disconnected, match="shards 1") as caught:
        writer.flush()
    assert caught.value.pending > 0
    writer.close()
    windows = [shard.replay.table("t").statistics().inserts for shard in shards]
    assert [len(set(row // 100)) for row in whole.sample("t", len(whole.table("t")))["n"]] == [1] * sum(
        windows
    )
    # Lane 1: rows 0-2, then from row 7 on; lane 3: rows 0-2 without an end, then from row 8 on.
    assert windows == [18, 2 + 2 + 2 + 1]
    assert told.rows_dropped > 0


def test_a_shard_that_was_emptied_is_left_out_until_it_is_full_enough(make_shards):
    # CY4: one that was started again has too few items for its rate limiter for a while.
    table = hr.Table(
        "t",
        sampler=hr.selectors.Uniform(),
        remover=hr.selectors.Fifo(),
        max_size=1000,
        rate_limiter=hr.rate_limiters.MinSize(3),
    )
    whole, shards = make_shards([table], 2)
    fill(whole, 5)
    shards[1].replay.reset("t")
    fill(whole, 1)
    assert whole.can_sample("t", 50)
    batch = whole.sample("t", 50, timeout=0)
    assert (batch.info.keys % 2 == 0).all()
    np.testing.assert_allclose(batch.info.table_size * batch.info.probabilities, 1.0)
    fill(whole, 2)
    assert set((whole.sample("t", 50, timeout=0).info.keys % 2).tolist()) == {0, 1}
    for shard in shards:
        shard.replay.reset("t")
    fill(whole, 2)
    assert not whole.can_sample("t")


def test_a_batch_of_different_items_begins_anew_when_a_shard_is_lost(make_shards):
    # replay S7
    table = hr.Table(
        "t", sampler=hr.selectors.Uniform(replacement=False), remover=hr.selectors.Fifo(), max_size=99
    )
    whole, shards = make_shards([table], 3)
    fill(whole, 4, lanes=3)
    sample = shards[0].replay.sample

    def lost_meanwhile(*args, **kwargs):
        shards[2].is_lost = True
        return sample(*args, **kwargs)

    shards[0].replay.sample = lost_meanwhile
    found = whole.sample("t", 8, timeout=5)
    assert len(set(found["n"].tolist())) == 8
    assert (found["n"] % 3 != 2).all()


def test_closing_a_writer_tells_once_what_was_lost(make_shards):
    whole, shards = make_shards([TABLE], 2)
    writer = whole.writer(lanes=2, items=[hr.ItemRule("t", 1)])
    writer.append({"n": [0, 1]})
    shards[1].is_lost = True
    writer.append({"n": [2, 3]})
    with pytest.raises(
        Disconnected, match="3 items on their way to shards 1, which are lost, are not known to be stored"
    ):
        writer.close()
    writer.close()
    with pytest.raises(hr.Closed):
        writer.append({"n": [0, 1]})
    assert len(shards[0].replay.table("t")) == 2


def test_items_and_keys_of_the_shards(make_shards):
    """CY4, K1: items come shard by shard, and keys are those of the whole."""
    whole, _ = make_shards([TABLE], 2)
    fill(whole, 5)
    batches = list(whole.items("t", 3))
    assert [batch["n"].tolist() for batch in batches] == [[0, 2, 4], [6, 8], [1, 3, 5], [7, 9]]
    assert all((batch.info.table_size == 10).all() for batch in batches)
    keys = np.concatenate([batch.info.keys for batch in batches])
    wanted = keys[[7, 0, 5, 7]]
    batch = whole.get("t", wanted)
    assert batch["n"].tolist() == [5, 0, 1, 5]
    assert batch.info.keys.tolist() == wanted.tolist()
    assert np.isnan(batch.info.probabilities).all()
    whole.delete("t", keys[7:8])
    with pytest.raises(
        hr.ItemNotFound, match=r"shard 1, whose key k is key k \* 2 \+ 1 of the whole: keys: no items"
    ):
        whole.get("t", wanted)
    with pytest.raises(ValueError, match="at least one"):
        whole.get("t", [])
    with pytest.raises(KeyError, match="no table 'u'"):
        whole.items("u")


def test_items_of_lengths_that_differ_between_shards(make_shards):
    whole, _ = make_shards([TABLE], 2)
    with whole.writer(lanes=2, history=3) as writer:
        for n in range(3):
            writer.append({"n": np.array([n, 10 + n])})
        keys = [writer.create_item("t", 1, lane=0), writer.create_item("t", 3, lane=1)]
    batch = whole.get("t", keys[::-1])
    assert batch["n"].tolist() == [[10, 11, 12], [2, 0, 0]]
    assert batch.mask.tolist() == [[True, True, True], [True, False, False]]


def test_items_of_a_lost_shard_are_left_out(make_shards):
    whole, shards = make_shards([TABLE], 2)
    fill(whole, 5)
    items = whole.items("t", 2)
    first = next(items)
    shards[0].is_lost = True
    assert [batch["n"].tolist() for batch in items] == [[1, 3], [5, 7], [9]]
    with pytest.raises(Disconnected, match="shard 0, which has 2 of the keys, is down"):
        whole.get("t", first.info.keys)
