"""`Replay.get` and `Replay.items`: items by key and in order, without a sample."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import headrace as hr
from headrace.testing import RankBased

SIGNATURE = hr.Signature.like({"n": np.int64(0)})
SAMPLERS = [hr.selectors.Uniform(), hr.selectors.Prioritized(), hr.selectors.Fifo(), RankBased()]


def new_replay(sampler=None, remover=None, max_size=100, seed=0):
    sampler, remover = sampler or hr.selectors.Uniform(), remover or hr.selectors.Fifo()
    return hr.Replay(
        SIGNATURE, [hr.Table("t", sampler=sampler, remover=remover, max_size=max_size)], seed=seed
    )


def put(replay, numbers, length=1):
    """Items whose last row has the number; returns their keys."""
    keys = []
    with replay.writer(history=10) as writer:
        for n in range(1 - length, 0):
            writer.append({"n": n})
        for n in numbers:
            writer.append({"n": n})
            keys.append(writer.create_item("t", length, priority=n + 1.0))
    return keys


@settings(max_examples=30, deadline=None)
@given(
    count=st.integers(0, 30),
    max_size=st.integers(1, 20),
    remover=st.sampled_from([hr.selectors.Fifo(), hr.selectors.Lifo(), hr.selectors.MaxHeap()]),
    deleted=st.sets(st.integers(0, 29)),
    batch_size=st.integers(1, 9),
)
def test_items_are_those_of_a_model(count, max_size, remover, deleted, batch_size):
    with new_replay(remover=remover, max_size=max_size) as replay:
        keys = put(replay, range(count))
        replay.delete("t", [keys[n] for n in deleted if n < count])
        model = []
        for n in range(count):
            model.append(n)
            if len(model) > max_size:
                model.pop(0 if remover == hr.selectors.Fifo() else -1)
        model = [n for n in model if n not in deleted]
        batches = list(replay.items("t", batch_size))
        assert [n for batch in batches for n in batch["n"].tolist()] == model
        assert [len(batch.info.keys) for batch in batches[:-1]] == [batch_size] * (len(batches) - 1)
        for batch in batches:
            assert batch.info.priorities.tolist() == [n + 1.0 for n in batch["n"]]
            assert batch.info.keys.tolist() == [keys[n] for n in batch["n"]]


@pytest.mark.parametrize("sampler", SAMPLERS, ids=lambda each: type(each).__name__)
def test_nothing_is_counted_and_the_next_batches_are_the_same(sampler):
    batches = []
    for looks in (False, True):
        with new_replay(sampler) as replay:
            keys = put(replay, range(20))
            replay.sample(5)
            before = replay.statistics()
            if looks:
                assert len(list(replay.items("t"))) == 20
                assert replay.get("t", keys[:3])["n"].tolist() == [0, 1, 2]
                assert replay.statistics() == before
            batches.append(replay.sample("t", 8)["n"].tolist())
    assert batches[0] == batches[1]


def test_get_keeps_the_order_of_the_keys():
    with new_replay() as replay:
        keys = put(replay, range(5))
        replay.update_priorities("t", [keys[4]], [7.5])
        replay.sample(3)
        batch = replay.get("t", [keys[4], keys[0], keys[4]])
        assert batch["n"].tolist() == [4, 0, 4]
        assert batch.info.priorities.tolist() == [7.5, 1.0, 7.5]
        assert np.isnan(batch.info.probabilities).all()
        assert batch.info.table_size.tolist() == [5] * 3


def test_get_names_keys_that_are_gone():
    with new_replay() as replay:
        keys = put(replay, range(3))
        replay.delete("t", keys[:1])
        with pytest.raises(hr.ItemNotFound, match=rf"no items with 1 of 2 keys, such as \[{keys[0]}\]"):
            replay.get("t", keys[:2])
        with pytest.raises(ValueError, match="expected at least one"):
            replay.get("t", [])
        with pytest.raises(KeyError, match="'t'"):
            replay.get("u", keys)
        with pytest.raises(KeyError, match="'t'"):
            replay.items("u")
        with pytest.raises(ValueError, match="batch_size"):
            replay.items("t", 0)


def test_items_of_different_lengths_are_padded():
    with new_replay() as replay:
        keys = put(replay, [3], length=3) + put(replay, [9])
        batch = replay.get("t", keys)
        assert batch["n"].tolist() == [[-2, -1, 3], [9, 0, 0]]
        assert batch.mask.tolist() == [[True, True, True], [True, False, False]]
        assert [item["n"].tolist() for item in replay.items("t")] == [[[-2, -1, 3]], [[9]]]


def test_views():
    with new_replay() as replay:
        with replay.writer(items=[hr.ItemRule("t", 1, lookahead=1)]) as writer:
            for n in range(4):
                writer.append({"n": n})
            writer.end_episode()
        views = {"now": hr.View("n"), "next": hr.View("n", shift=1)}
        (batch,) = replay.items("t", 9, views=views)
        assert batch["now"].tolist() == [0, 1, 2, 3]
        assert batch["next"].tolist()[:3] == [1, 2, 3]
        assert replay.get("t", batch.info.keys[1:2], views=views)["next"].tolist() == [2]


def test_what_changes_meanwhile():
    """Items that leave before their turn are left out; those that come are not shown; new priorities are."""
    with new_replay() as replay:
        keys = put(replay, range(6))
        items = replay.items("t", 2)
        assert next(items)["n"].tolist() == [0, 1]
        replay.delete("t", [keys[1], keys[2], keys[4], keys[5]])
        replay.update_priorities("t", [keys[3]], [70.0])
        put(replay, [100])
        batch = next(items)
        assert (batch["n"].tolist(), batch.info.priorities.tolist()) == ([3], [70.0])
        assert next(items, None) is None
        items = replay.items("t")
        next(items)
    with pytest.raises(hr.Closed):
        next(items)


def test_an_item_that_leaves_between_two_looks(monkeypatch):
    with new_replay() as replay:
        keys = put(replay, range(3))
        sampling, get = replay._core.sampling, type(replay._core.sampling).get

        def get_late(self, live, wanted, views):
            replay.delete("t", keys[:1])
            return get(self, live, wanted, views)

        monkeypatch.setattr(type(sampling), "get", get_late)
        assert [batch["n"].tolist() for batch in replay.items("t", 3)] == [[1, 2]]
