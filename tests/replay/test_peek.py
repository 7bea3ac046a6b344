"""`TableView.peek`: an item without a sample."""

import numpy as np
import pytest

import headrace as hr
from headrace.testing import RankBased

SIGNATURE = hr.Signature.like({"n": np.int64(0), "image": np.zeros((4, 3), np.uint8)})
SAMPLERS = [
    hr.selectors.Uniform(),
    hr.selectors.Prioritized(),
    hr.selectors.Fifo(),
    hr.selectors.MaxHeap(),
    RankBased(),
]


def table(sampler=None, **settings):
    sampler = sampler or hr.selectors.Uniform()
    return hr.Table("t", sampler=sampler, remover=hr.selectors.Fifo(), max_size=50, **settings)


def filled(*tables, steps=20, length=1, **settings):
    replay = hr.Replay(SIGNATURE, tables or [table()], **settings)
    with replay.writer(items=[hr.ItemRule("t", length)]) as writer:
        for n in range(steps):
            writer.append({"n": n, "image": np.full((4, 3), n, np.uint8)})
    return replay


@pytest.mark.parametrize("sampler", SAMPLERS, ids=lambda each: type(each).__name__)
def test_nothing_is_counted_and_the_next_batches_are_the_same(sampler):
    batches = []
    for looks in (0, 10):
        with filled(table(sampler), seed=3) as replay:
            before = replay.statistics()
            for _ in range(looks):
                replay.table("t").peek()
            assert replay.statistics() == before
            batches.append(replay.sample("t", 8)["n"].tolist())
    assert batches[0] == batches[1]


def test_an_item_whose_samples_are_used_up_by_one_draw_stays():
    with filled(hr.Table.queue("t", 30)) as replay:
        seen = {int(replay.table("t").peek()["n"][0]) for _ in range(400)}
        assert seen == set(range(20))
        assert replay.sample("t", 20)["n"].tolist() == list(range(20))


def test_it_does_not_wait_for_the_rate_limiter():
    with filled(table(rate_limiter=hr.rate_limiters.MinSize(40))) as replay:
        assert not replay.can_sample("t")
        assert 0 <= replay.table("t").peek()["n"][0] < 20


def test_every_item_has_the_same_chance_also_between_holes():
    with filled(table(hr.selectors.Prioritized())) as replay:
        keys = set(replay.sample("t", 500).info.keys.tolist())
        assert len(keys) == 20
        gone = sorted(keys)[::2]
        replay.delete("t", gone)
        replay.update_priorities("t", sorted(keys)[1::2], np.arange(10) ** 6)
        random = np.random.default_rng(0)
        found = [int(replay.table("t").peek(random=random).info.keys[0]) for _ in range(2000)]
        counts = {key: found.count(key) for key in keys}
        assert all(counts[key] == 0 for key in gone)
        assert min(counts[key] for key in sorted(keys)[1::2]) > 140


def test_its_facts_are_those_of_the_item():
    with filled(table(hr.selectors.Prioritized())) as replay:
        drawn = replay.sample("t", 200)
        replay.update_priorities("t", drawn.info.keys, 2.5 + drawn["n"])
        looked = replay.table("t").peek(random=np.random.default_rng(5))
        key, n = int(looked.info.keys[0]), int(looked["n"][0])
        assert looked.info.priorities[0] == 2.5 + n
        assert looked.info.times_sampled[0] == (drawn.info.keys == key).sum()
        assert (looked.info.table_size[0], looked.info.probabilities[0]) == (20, 1 / 20)
        np.testing.assert_array_equal(looked["image"], np.full((1, 4, 3), n))
        assert looked.explain(0).t.tolist() == [n]


@pytest.mark.parametrize(("max_rows", "expected"), [(None, 6), (2, 2), (6, 6), (100, 6)])
def test_long_items_can_be_cut(max_rows, expected):
    with filled(length=6) as replay:
        item = replay.table("t").peek(max_rows=max_rows)
        assert item["image"].shape == (1, expected, 4, 3)
        assert np.diff(item["n"][0]).tolist() == [1] * (expected - 1)
        assert item.mask is None


@pytest.mark.parametrize("max_rows", [None, 1, 2, 3, 4, 9])
def test_padding_is_shown_as_in_a_sample(max_rows):
    with hr.Replay(SIGNATURE, [table()]) as replay:
        rule = hr.ItemRule("t", 5, end=hr.EndOfEpisode.PAD)
        with replay.writer(items=[rule]) as writer:
            for n in (7, 8):
                writer.append({"n": n, "image": np.zeros((4, 3), np.uint8)})
            writer.end_episode()
        item, whole = replay.table("t").peek(max_rows=max_rows), replay.sample("t", 1)
        rows = min(max_rows or 5, 5)
        np.testing.assert_array_equal(item["n"], whole["n"][:, :rows])
        if item.mask is not None:
            np.testing.assert_array_equal(item.mask, whole.mask[:, :rows])
        else:
            assert whole.mask[:, :rows].all()


def test_refusals():
    replay = filled()
    with pytest.raises(ValueError, match="max_rows: expected"):
        replay.table("t").peek(max_rows=0)
    replay.reset("t")
    with pytest.raises(hr.ItemNotFound, match="no items"):
        replay.table("t").peek()
    looked = replay.table("t")
    replay.close()
    with pytest.raises(hr.Closed):
        looked.peek()
