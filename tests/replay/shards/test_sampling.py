"""Batches of several shards are those of one replay (CY4)."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import headrace as hr
from headrace.replay.shards.keys import split_keys, whole_keys
from headrace.replay.shards.split import split


def table(sampler, **options):
    return hr.Table("t", sampler=sampler, remover=hr.selectors.Fifo(), **{"max_size": 10_000, **options})


def fill(replay, priorities, lanes):
    """Items 0, 1, 2 ... with these priorities, dealt to the lanes in turn; returns their keys."""
    keys = []
    with replay.writer(lanes=lanes, history=1) as writer:
        for first in range(0, len(priorities), lanes):
            numbers = np.arange(first, first + lanes)
            writer.append({"n": numbers if lanes > 1 else numbers[0]})
            keys += [writer.create_item("t", 1, priorities[n], lane=n - first) for n in numbers]
    return keys


def chi_square(counts, chances):
    possible = chances > 0
    expected = counts.sum() * chances[possible]
    return ((counts[possible] - expected) ** 2 / expected).sum()


@pytest.mark.parametrize("num_shards", [2, 3])
@pytest.mark.parametrize("exponent", [0.0, 0.6, 1.0])
def test_the_distribution_is_that_of_one_replay(make_shards, num_shards, exponent):
    # replay S4, S8, B3: chances are exact, whatever lies in which shard.
    priorities = np.array([1.0, 9.0, 0.25, 4.0, 4.0, 0.0, 100.0, 2.0, 3.0, 1.0, 7.0, 5.0])
    whole, shards = make_shards([table(hr.selectors.Prioritized(exponent))], num_shards)
    fill(whole, priorities, lanes=6)
    assert [len(shard.replay.table("t")) for shard in shards] == [12 // num_shards] * num_shards
    weights = np.where(priorities > 0, priorities**exponent, 0.0)
    chances = weights / weights.sum()
    counts = np.zeros(12)
    for _ in range(20):
        batch = whole.sample("t", 500)
        np.testing.assert_allclose(batch.info.probabilities, chances[batch["n"]], rtol=1e-9)
        np.testing.assert_array_equal(batch.info.priorities, priorities[batch["n"]])
        assert (batch.info.table_size == 12).all()
        counts += np.bincount(batch["n"], minlength=12)
    assert counts[5] == 0
    assert chi_square(counts, chances) < 31.3  # 0.1 % of 11 degrees of freedom exceed it.


def test_places_in_a_batch_are_alike(make_shards):
    # A learner may take minibatches from a batch: its order must not be that of the shards.
    whole, _ = make_shards([table(hr.selectors.Uniform())], 2)
    fill(whole, [1.0] * 10, lanes=2)
    halves = [whole.sample("t", 40)["n"].reshape(2, 20) % 2 for _ in range(50)]
    assert abs(np.mean([half[0].mean() for half in halves]) - 0.5) < 0.06


def test_uneven_shards_are_drawn_by_their_sizes(make_shards):
    # replay S3
    whole, shards = make_shards([table(hr.selectors.Uniform())], 2)
    fill(whole, [1.0] * 10, lanes=2)
    fill(shards[1].replay, [1.0] * 30, lanes=1)
    batch = whole.sample("t", 4000)
    np.testing.assert_allclose(batch.info.probabilities, 1 / 40, rtol=1e-9)
    share = (batch.info.keys % 2 == 1).mean()
    assert abs(share - 35 / 40) < 0.02


def test_weights_of_zero_are_drawn_when_there_are_no_others(make_shards):
    # replay S4, S9: over all shards, not in each.
    whole, _ = make_shards([table(hr.selectors.Prioritized())], 2)
    keys = fill(whole, [0.0, 3.0, 0.0, 1.0], lanes=2)
    assert set(whole.sample("t", 100)["n"].tolist()) == {1, 3}
    assert whole.update_priorities("t", keys, [0.0] * 4) == 4
    batch = whole.sample("t", 100)
    assert set(batch["n"].tolist()) == {0, 1, 2, 3}
    np.testing.assert_allclose(batch.info.probabilities, 0.25)


def test_different_items_come_from_all_shards(make_shards):
    # replay S7: each subset with the same chance, which a multinomial draw would not give.
    whole, _ = make_shards([table(hr.selectors.Uniform(replacement=False))], 2)
    fill(whole, [1.0] * 4, lanes=2)
    found = [tuple(sorted(whole.sample("t", 2)["n"].tolist())) for _ in range(600)]
    subsets, counts = np.unique(np.array(found), axis=0, return_counts=True)
    assert len(subsets) == 6
    assert chi_square(counts, np.full(6, 1 / 6)) < 20.5  # 0.1 % of 5 degrees of freedom
    batch = whole.sample("t", 4)
    assert sorted(batch["n"].tolist()) == [0, 1, 2, 3]
    np.testing.assert_allclose(batch.info.probabilities, 0.25)
    assert not whole.can_sample("t", 5)
    with pytest.raises(hr.DeadlineExceeded):
        whole.sample("t", 5, timeout=0)


def test_items_that_leave_are_drawn_to_the_last(make_shards):
    # replay T6, L6, B3: a shard whose items are gone leaves the rest of the batch to the others.
    for seed in range(5):
        whole, _ = make_shards([table(hr.selectors.Uniform(), max_times_sampled=1)], 3, seed=seed)
        fill(whole, [1.0] * 9, lanes=3)
        first, rest = whole.sample("t", 4), whole.sample("t", 5)
        assert sorted([*first["n"].tolist(), *rest["n"].tolist()]) == list(range(9))
        assert first.info.table_size.tolist() == [9, 8, 7, 6]
        assert rest.info.table_size.tolist() == [5, 4, 3, 2, 1]
        assert len(whole.table("t")) == 0
        with pytest.raises(hr.DeadlineExceeded):
            whole.sample("t", 1, timeout=0)


def test_shards_of_queues_give_in_turn(make_shards):
    # Each shard in its own order; the next batch begins where the last one ended.
    whole, _ = make_shards([hr.Table.queue("t", 50)], 3)
    fill(whole, [1.0] * 12, lanes=3)
    assert whole.sample("t", 4)["n"].tolist() == [0, 1, 2, 3]
    batch = whole.sample("t", 5)
    assert batch["n"].tolist() == [4, 5, 6, 7, 8]
    assert batch.info.probabilities.tolist() == [1.0] * 5
    with pytest.raises(hr.DeadlineExceeded):
        whole.sample("t", 4, timeout=0)
    assert whole.sample("t", 3, timeout=0)["n"].tolist() == [9, 10, 11]


def test_a_queue_that_is_empty_leaves_its_turn_to_the_others(make_shards):
    whole, shards = make_shards([hr.Table.queue("t", 50)], 3)
    fill(shards[1].replay, [1.0] * 6, lanes=1)
    fill(shards[2].replay, [1.0] * 2, lanes=1)
    batch = whole.sample("t", 7, timeout=0)
    assert (batch.info.keys % 3).tolist() == [1, 2, 1, 2, 1, 1, 1]
    assert batch["n"].tolist() == [0, 0, 1, 1, 2, 3, 4]


def test_updates_and_deletes_go_where_the_key_says(make_shards):
    # CY4, replay P2, T7, K1
    whole, _ = make_shards([table(hr.selectors.Prioritized())], 3)
    keys = fill(whole, [1.0] * 6, lanes=3)
    assert len(set(keys)) == 6
    assert whole.update_priorities("t", [keys[4], keys[0], keys[4], 999_999], [5.0, 0.0, 7.0, 1.0]) == 3
    assert whole.delete("t", [keys[1], keys[1], 999_998]) == 1
    info = whole.sample("t", 400).info
    found = dict(zip(info.keys.tolist(), info.priorities.tolist(), strict=True))
    assert found == {keys[2]: 1.0, keys[3]: 1.0, keys[4]: 7.0, keys[5]: 1.0}
    told = whole.table("t").statistics()
    assert (told.updates, told.ignored_updates, told.deletes, told.ignored_deletes) == (3, 1, 1, 2)
    assert told.total_weight == 10.0


def test_the_rate_limiter_of_each_shard_holds(make_shards):
    # CY4; replay L9: nothing is drawn while one of the shards has too few items.
    limiter = hr.rate_limiters.MinSize(4).share(2)
    whole, _ = make_shards([table(hr.selectors.Uniform(), rate_limiter=limiter)], 2)
    writer = whole.writer(lanes=2, items=[hr.ItemRule("t", 1)])
    writer.append({"n": [0, 1]})
    with pytest.raises(hr.DeadlineExceeded, match="sizes of the shards: 1, 1"):
        whole.sample("t", 1, timeout=0.01)
    assert not whole.can_sample("t")
    writer.append({"n": [2, 3]})
    assert whole.can_sample("t")
    assert whole.table("t").statistics().min_size == 4
    assert len(whole.sample("t", 8, timeout=0)["n"]) == 8
    writer.close()


def test_no_draw_is_lost_when_shards_keep_a_batch_waiting(make_shards):
    # replay L9: a shard that has to be waited for comes first; the next call of the same kind goes on.
    whole, shards = make_shards([table(hr.selectors.Uniform())], 3)
    fill(whole, [1.0] * 6, lanes=3)
    closed = hr.rate_limiters.SampleToInsertRatio(1, 1, (1.0, 9.0))
    opened = hr.rate_limiters.MinSize(1)
    tables = [shard.replay.table("t") for shard in shards]
    for each in tables[1:]:
        each.configure(rate_limiter=closed)

    def samples():
        return [each.statistics().samples for each in tables]

    def wait_in_vain(shard):
        with pytest.raises(hr.DeadlineExceeded, match=f"shard {shard} of 3"):
            whole.sample("t", 30, timeout=0)

    wait_in_vain(1)
    assert samples() == [0, 0, 0]
    tables[1].configure(rate_limiter=opened)
    wait_in_vain(2)
    assert samples()[1] > 0
    tables[2].configure(rate_limiter=opened)
    batch = whole.sample("t", 30, timeout=0)
    assert sum(samples()) == 30
    assert np.bincount((batch.info.keys % 3).astype(int)).tolist() == samples()


def test_batches_that_are_never_completed_do_not_gather(make_shards):
    whole, shards = make_shards([table(hr.selectors.Uniform())], 3)
    fill(whole, [1.0] * 6, lanes=3)
    for shard in shards:
        closed = hr.rate_limiters.SampleToInsertRatio(1, 1, (1.0, 9.0))
        shard.replay.table("t").configure(rate_limiter=closed)
    for size in range(30, 130):
        with pytest.raises(hr.DeadlineExceeded):
            whole.sample("t", size, timeout=0)
    kept = [batch.request.batch_size for batch in whole._sampler._kept]
    assert kept == list(range(66, 130))


SIGNATURE = {"n": 0, "x": np.zeros(3, np.float32)}


@pytest.mark.filterwarnings("ignore:.*newest of their lanes")
@pytest.mark.parametrize(
    "views",
    [
        None,
        hr.views.transition(n_step=2),
        {
            "n": hr.View("n"),
            "back": hr.View("n", shift="-1:0", fill="edge", mask=True),
            "half": hr.View("x", every=2),
        },
        {"next": hr.View("n", shift=1, fill=9), "n": hr.View("n")},
    ],
)
def test_items_of_several_lengths_are_those_of_one_replay(make_shards, views):
    # replay B1, B2: filled to the longest of the whole batch, with the same values and masks.
    example = SIGNATURE
    if views is not None and "reward" in views:
        example = {"observation": 0.0, "action": 0, "reward": 0.0, "terminated": False, "truncated": False}
    whole, _ = make_shards([table(hr.selectors.Fifo(), max_times_sampled=1)], 2, example)
    one = hr.Replay(hr.Signature.like(example), [table(hr.selectors.Fifo(), max_times_sampled=1)])
    zeros = hr.Signature.like(example).zeros(2)
    for replay in (whole, one):
        with replay.writer(lanes=2, history=5) as writer:
            writer._rows.declare_padding("t", {"n": 77} if "n" in example else {"action": 7})
            for n in range(5):
                writer.append(
                    {
                        name: value + (value.dtype.kind != "b") * np.array(n + 1, value.dtype)
                        for name, value in zeros.items()
                    }
                )
                writer.create_item("t", 1 + n % 3, lane=0)
                writer.create_item("t", min(n + 1, 4), lane=1)
    for size in (2, 3, 5):
        ours, theirs = whole.sample("t", size, views=views), one.sample("t", size, views=views)
        assert ours.layout == theirs.layout
        np.testing.assert_array_equal(ours.mask, theirs.mask)
        assert ours.data.keys() == theirs.data.keys()
        for name in theirs.data:
            np.testing.assert_array_equal(ours.data[name], theirs.data[name], err_msg=name)
        np.testing.assert_array_equal(ours.info.table_size, theirs.info.table_size)
        np.testing.assert_array_equal(ours.info.times_sampled, theirs.info.times_sampled)
        np.testing.assert_array_equal(ours.pack().lengths, theirs.pack().lengths)
    one.close()


@given(st.lists(st.integers(0, 2**58), max_size=20), st.integers(1, 50))
def test_keys_carry_their_shard(keys, num_shards):
    numbers = np.array(keys, np.uint64)
    for shard in {0, num_shards - 1}:
        owners, back = split_keys(whole_keys(numbers, shard, num_shards), num_shards)
        assert (owners == shard).all()
        np.testing.assert_array_equal(back, numbers)


@settings(max_examples=60)
@given(st.data())
def test_a_split_asks_no_shard_for_more_than_it_has(make_record, data):
    sizes = data.draw(st.lists(st.integers(0, 6), min_size=1, max_size=4))
    count = data.draw(st.integers(1, 12))
    kind = data.draw(st.sampled_from(["weights", "distinct", "turn"]))
    records = [make_record(size, kind, times=1 if kind == "weights" else 0) for size in sizes]
    found = split(records, count, np.random.default_rng(0), turn=0)
    if kind == "turn":
        assert (found is None) == (not any(sizes))
        return
    assert (found is None) == (sum(sizes) < count)
    if found is not None:
        taken = np.bincount(found.owners, minlength=len(sizes))
        assert taken.sum() == count
        assert (taken <= sizes).all()


@pytest.fixture(scope="module")
def make_record():
    samplers = {
        "weights": hr.selectors.Prioritized(),
        "distinct": hr.selectors.Uniform(replacement=False),
        "turn": hr.selectors.Lifo(),
    }

    def make(size, kind, times):
        tables = [table(samplers[kind], max_times_sampled=times)]
        with hr.Replay(hr.Signature.like({"n": 0}), tables) as replay:
            fill(replay, [1.0] * size, lanes=1)
            return replay.table("t").statistics()

    return make
