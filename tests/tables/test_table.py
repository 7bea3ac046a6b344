"""Tables and keys (replay T1 to T9, K1 to K3, L5 to L8)."""

import numpy as np
import pytest

import headrace as hr
from headrace.replay.public import core_of
from headrace.tables.description.rate_limiters import MinSize, Queue, SampleToInsertRatio, Stack
from headrace.tables.description.selectors import Fifo, Lifo, MaxHeap, Prioritized, Uniform

SIGNATURE = hr.Signature.like({"n": np.int64(0)})


def table(name="t", sampler=None, remover=None, max_size=100, **settings):
    return hr.Table(name, sampler=sampler or Fifo(), remover=remover or Fifo(), max_size=max_size, **settings)


def new_replay(*tables, **settings):
    return hr.Replay(SIGNATURE, tables or [table()], seed=0, **settings)


def put(replay, numbers, name="t"):
    """One item a row; the items that the gate refuses stay pending."""
    writer = replay.writer(history=1)
    keys = []
    for number in numbers:
        writer.append({"n": number})
        keys.append(writer.create_item(name, 1))
    if not writer.pending:
        writer.close()
    return keys, writer


# ---- descriptions --------------------------------------------------------------------------------------------


def test_the_usual_tables_in_one_call():
    wait = MinSize(9)
    assert hr.Table.uniform(10) == table("replay", Uniform(), Fifo(), 10)
    assert hr.Table.uniform(10, name="a", rate_limiter=wait) == table(
        "a", Uniform(), Fifo(), 10, rate_limiter=wait
    )
    assert hr.Table.prioritized(10, 0.6) == table("replay", Prioritized(0.6), Fifo(), 10)
    assert hr.Table.prioritized(10, 0.6, name="a", rate_limiter=wait) == table(
        "a", Prioritized(0.6), Fifo(), 10, rate_limiter=wait
    )
    with pytest.raises(ValueError, match="exponent"):
        hr.Table.prioritized(10, -1)
    with pytest.raises(ValueError, match="max_size"):
        hr.Table.uniform(0)


def test_a_table_is_an_immutable_description():
    # T1
    one = table(max_size=3)
    with pytest.raises(AttributeError):
        one.max_size = 4
    assert one == table(max_size=3)
    with new_replay(one) as first, new_replay(one) as second:
        put(first, [1, 2])
        assert (len(first.table("t")), len(second.table("t"))) == (2, 0)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"name": ""}, "name"),
        ({"max_size": 0}, "max_size"),
        ({"max_times_sampled": -1}, "max_times_sampled"),
        ({"name": "\ud800"}, r"fits into UTF-8, got '\\ud800'"),
        ({"max_times_sampled": 2**63}, "max_times_sampled: expected at most 9223372036854775807"),
        ({"max_size": 2**63}, "max_size: expected at most 9223372036854775807"),
        ({"max_size": 5, "rate_limiter": MinSize(6)}, "never open"),
        ({"max_size": 5, "rate_limiter": SampleToInsertRatio(1, 6, 3)}, "never open"),
    ],
)
def test_a_table_that_cannot_work_is_refused(settings, message):
    # T2
    with pytest.raises(ValueError, match=message):
        table(**settings)


def test_a_table_of_the_wrong_parts_is_refused():
    with pytest.raises(TypeError, match="sampler"):
        table(sampler=Fifo)
    with pytest.raises(TypeError, match="rate_limiter"):
        table(rate_limiter=3)


@pytest.mark.parametrize("example", [{}, {"x": np.zeros((0, 3)), "y": ()}])
def test_steps_without_values_are_refused(example):
    with pytest.raises(hr.SpecError, match="signature: expected a step with at least one value"):
        hr.Replay(hr.Signature.like(example), [table()])


@pytest.mark.parametrize(
    ("tables", "settings", "message"),
    [
        ([], {}, "at least one"),
        ([table("a"), table("b"), table("a")], {}, "'?a'?"),
        ([table()], {"capacity": 0}, "capacity"),
        ([table()], {"capacity": -5}, "capacity"),
    ],
)
def test_a_replay_that_cannot_work_is_refused(tables, settings, message):
    # T2
    with pytest.raises(ValueError, match=message):
        hr.Replay(SIGNATURE, tables, **settings)


def test_an_unknown_table_is_a_key_error_in_every_call():
    # T3
    with new_replay(table("known"), table("other")) as replay, replay.writer() as writer:
        writer.append({"n": 1})
        for call in (
            lambda: replay.sample("nope", 1),
            lambda: replay.update_priorities("nope", [1], [1.0]),
            lambda: replay.delete("nope", [1]),
            lambda: replay.reset("nope"),
            lambda: replay.can_insert("nope"),
            lambda: replay.can_sample("nope"),
            lambda: replay.table("nope"),
            lambda: replay.writer(items=[hr.ItemRule("nope", 1)]),
            lambda: writer.create_item("nope", 1),
        ):
            with pytest.raises(KeyError, match="nope.*known.*other"):
                call()


def test_queue_and_stack_are_tables_of_t4():
    assert hr.Table.queue("q", 5) == table("q", max_size=5, rate_limiter=Queue(5), max_times_sampled=1)
    assert hr.Table.stack("s", 5) == table(
        "s", Lifo(), Lifo(), max_size=5, rate_limiter=Stack(5), max_times_sampled=1
    )


# ---- items come and go ---------------------------------------------------------------------------------------


def test_a_queue_gives_each_item_once_in_order_and_holds_inserts_back():
    # T4
    with new_replay(hr.Table.queue("t", 3)) as replay:
        _, writer = put(replay, range(5))
        assert (len(replay.table("t")), writer.pending) == (3, 2)
        assert replay.sample("t", 2).data["n"].tolist() == [0, 1]
        assert (len(replay.table("t")), writer.pending) == (3, 0)
        assert replay.sample("t", 3).data["n"].tolist() == [2, 3, 4]
        assert not replay.can_sample("t")
        writer.close()


def test_a_stack_gives_the_newest_first():
    # T4
    with new_replay(hr.Table.stack("t", 3)) as replay:
        put(replay, range(3))
        assert replay.sample("t", 2).data["n"].tolist() == [2, 1]
        put(replay, [3])
        assert replay.sample("t", 2).data["n"].tolist() == [3, 0]


def test_a_queue_gives_each_item_its_own_length():
    # T4, B1, I3: what a draw lets in has another length than what it hands out
    with new_replay(hr.Table.queue("t", 1)) as replay, replay.writer(history=4) as writer:
        for number in range(1, 5):
            writer.append({"n": number})
        for length in (1, 3, 2, 4):
            writer.create_item("t", length)
        assert replay.sample("t", 1).data["n"].tolist() == [4]
        assert replay.sample("t", 1).data["n"].tolist() == [[2, 3, 4]]
        assert replay.sample("t", 1).data["n"].tolist() == [[3, 4]]
        assert replay.sample("t", 1).data["n"].tolist() == [[1, 2, 3, 4]]


def test_overflow_takes_the_removers_victim_after_the_insert():
    # T5 and its example
    with new_replay(table(sampler=Uniform(), remover=Lifo(), max_size=2)) as replay:
        put(replay, range(5))
        statistics = replay.table("t").statistics()
        assert (statistics.inserts, statistics.deletes, statistics.size) == (5, 3, 2)
        assert set(replay.sample("t", 100).data["n"].tolist()) == {0, 1}


@pytest.mark.parametrize("batches", [[1] * 6, [6], [2, 4], [3, 3], [5, 1]])
def test_worked_example_of_part_6(batches):
    # T6, L5: k = 3, Fifo, two items, six samples in any batching
    with new_replay(table(max_times_sampled=3)) as replay:
        put(replay, [0, 1])
        told = []
        for size in batches:
            batch = replay.sample("t", size)
            told += zip(
                batch.data["n"].tolist(),
                batch.info.times_sampled.tolist(),
                batch.info.table_size.tolist(),
                strict=True,
            )
        assert told == [(0, 1, 2), (0, 2, 2), (0, 3, 2), (1, 1, 1), (1, 2, 1), (1, 3, 1)]
        statistics = replay.table("t").statistics()
        assert (statistics.size, statistics.inserts, statistics.samples) == (0, 2, 6)
        assert (statistics.deletes, statistics.unique_samples) == (2, 2)


@pytest.mark.parametrize("sampler", [Fifo(), Lifo(), Uniform(), Prioritized(), MaxHeap()])
def test_no_item_is_sampled_more_than_k_times(sampler):
    # T6, L5, L6: the whole supply can be drawn in one batch, and no more
    with new_replay(table(sampler=sampler, max_times_sampled=3)) as replay:
        put(replay, range(10))
        replay.sample("t", 4)
        assert replay.can_sample("t", 26)
        assert not replay.can_sample("t", 27)
        with pytest.raises(hr.DeadlineExceeded):
            replay.sample("t", 27, timeout=0)
        info = replay.sample("t", 26).info
        assert max(info.times_sampled) == 3
        assert np.count_nonzero(info.times_sampled == 3) >= 8
        assert (info.table_size[1:] <= info.table_size[:-1]).all()
        assert len(replay.table("t")) == 0


def test_probabilities_of_one_batch_are_of_each_draw():
    # L5: an item that left is out of the sum for the next draw
    with new_replay(table(sampler=Prioritized(), max_times_sampled=1)) as replay:
        with replay.writer(history=1) as writer:
            for number, priority in enumerate([1.0, 2.0, 3.0, 4.0, 0.0]):
                writer.append({"n": number})
                writer.create_item("t", 1, priority)
        batch = replay.sample("t", 5)
        left = 10.0
        for place in range(4):
            assert batch.info.probabilities[place] == pytest.approx(batch.info.priorities[place] / left)
            left -= batch.info.priorities[place]
        # The last has weight 0 and is alone (S4): uniform among one.
        assert batch.data["n"][4] == 4
        assert batch.info.probabilities[4] == 1.0
        assert batch.info.table_size.tolist() == [5, 4, 3, 2, 1]


@pytest.mark.parametrize("sampler", [Fifo(), Lifo(), MaxHeap()])
def test_without_k_the_same_item_comes_as_often_as_asked(sampler):
    # L6
    with new_replay(table(sampler=sampler)) as replay:
        put(replay, range(3))
        info = replay.sample("t", 50).info
        assert len(set(info.keys.tolist())) == 1
        assert info.times_sampled.tolist() == list(range(1, 51))
        assert info.table_size.tolist() == [3] * 50


# ---- delete, reset, configure --------------------------------------------------------------------------------


def test_delete_counts_what_was_there():
    # T7
    with new_replay() as replay:
        keys, _ = put(replay, range(4))
        assert replay.delete("t", [keys[1], keys[3], keys[1], 999]) == 2
        statistics = replay.table("t").statistics()
        assert (statistics.size, statistics.deletes, statistics.ignored_deletes) == (2, 2, 2)
        assert replay.delete("t", [keys[1]]) == 0
        assert replay.delete("t", []) == 0


def test_delete_opens_inserts_and_closes_samples():
    # T7, L8: it is not gated itself
    with new_replay(table(rate_limiter=SampleToInsertRatio(1, 3, (0, 3)))) as replay:
        keys, writer = put(replay, range(5))
        assert (len(replay.table("t")), writer.pending) == (3, 2)
        assert replay.can_sample("t")
        assert replay.delete("t", keys[:1]) == 1
        assert (len(replay.table("t")), writer.pending) == (3, 1)
        assert replay.delete("t", keys[1:3]) == 2
        assert (len(replay.table("t")), writer.pending) == (2, 0)
        assert not replay.can_sample("t")
        writer.close()


def test_reset_begins_to_count_anew_and_keys_go_on():
    # T8, K1
    with new_replay(table("t"), table("other")) as replay:
        keys, _ = put(replay, range(3))
        put(replay, [7], "other")
        replay.sample("t", 5)
        replay.delete("t", keys[:1])
        replay.reset("t")
        statistics = replay.table("t").statistics()
        assert (statistics.size, statistics.inserts, statistics.samples) == (0, 0, 0)
        assert (statistics.deletes, statistics.unique_samples) == (0, 0)
        assert len(replay.table("other")) == 1
        more, _ = put(replay, [9])
        assert more[0] > max(keys)
        assert replay.sample("t", 1).info.times_sampled.tolist() == [1]
        assert replay.table("t").statistics().unique_samples == 1


def test_after_a_reset_pending_inserts_go_in_by_the_fresh_counts():
    # T8, I3
    with new_replay(hr.Table.queue("t", 2)) as replay:
        _, writer = put(replay, range(5))
        assert writer.pending == 3
        replay.reset("t")
        statistics = replay.table("t").statistics()
        assert (statistics.inserts, statistics.size, statistics.pending_inserts) == (2, 2, 1)
        assert replay.sample("t", 2).data["n"].tolist() == [2, 3]
        assert replay.sample("t", 1).data["n"].tolist() == [4]
        writer.close()


def test_configure_removes_at_once_and_grows_again():
    # T9, T5
    with new_replay(table(sampler=Uniform())) as replay:
        put(replay, range(10))
        handle = replay.table("t")
        handle.configure(max_size=4)
        assert (len(handle), handle.statistics().max_size, handle.statistics().deletes) == (4, 4, 6)
        assert set(replay.sample("t", 100).data["n"].tolist()) == {6, 7, 8, 9}
        handle.configure(max_size=6)
        put(replay, range(10, 13))
        assert set(replay.sample("t", 200).data["n"].tolist()) == set(range(7, 13))


def test_configure_with_a_random_remover_keeps_the_size():
    # T9: far more victims than random numbers are drawn at a time; the holes are closed afterwards
    with new_replay(table(sampler=Uniform(), remover=Uniform(), max_size=3000)) as replay:
        put(replay, range(2500))
        replay.table("t").configure(max_size=5)
        drawn = replay.sample("t", 500)
        assert len(set(drawn.data["n"].tolist())) == 5
        assert (drawn.info.table_size == 5).all()
        ring = core_of(replay).live_table("t").ring.arrays.ring
        assert ring[1] <= 2 * 5 + 64


def test_configure_looks_at_pending_inserts_again():
    # T9
    with new_replay(table(rate_limiter=Queue(2))) as replay:
        _, writer = put(replay, range(5))
        assert writer.pending == 3
        replay.table("t").configure(rate_limiter=Queue(4))
        assert writer.pending == 1
        replay.table("t").configure(rate_limiter=MinSize(1))
        assert writer.pending == 0
        assert replay.table("t").statistics().max_diff == float("inf")
        writer.close()


@pytest.mark.parametrize("settings", [{"max_size": 0}, {"rate_limiter": MinSize(11)}, {"max_size": 2}])
def test_configure_refuses_what_a_table_refuses_and_changes_nothing(settings):
    # T9, T2
    with new_replay(table(max_size=10, rate_limiter=MinSize(3))) as replay:
        put(replay, range(5))
        before = replay.table("t").statistics()
        with pytest.raises(ValueError):
            replay.table("t").configure(**settings)
        assert replay.table("t").statistics() == before


def test_a_live_table_tells_its_name_and_size():
    # T9
    with new_replay() as replay:
        put(replay, range(3))
        handle = replay.table("t")
        assert (handle.name, len(handle), handle.statistics().size) == ("t", 3, 3)
        assert repr(handle) == "<table 't' of 3 items>"


# ---- keys ----------------------------------------------------------------------------------------------------


def test_keys_are_unique_over_all_tables_and_never_used_again():
    # K1, K2
    with new_replay(table("a", max_size=3), table("b", max_times_sampled=1)) as replay:
        with replay.writer(items=[hr.ItemRule("a", 1), hr.ItemRule("b", 1)], history=2) as writer:
            returned = []
            for number in range(10):
                writer.append({"n": number})
                returned.append(writer.create_item("ab"[number % 2], 1))
        assert len(set(returned)) == 10
        seen = replay.sample("b", len(replay.table("b"))).info.keys.tolist()
        seen += replay.sample("a", 1).info.keys.tolist()
        assert len(set(seen)) == len(seen)
        replay.reset("a")
        replay.reset("b")
        (key,), _ = put(replay, [1], "a")
        assert key > max([*seen, *returned])


def test_a_key_is_there_before_its_item():
    # K2: returned while the insert is pending, and carried by the batch
    with new_replay(hr.Table.queue("t", 1)) as replay:
        keys, writer = put(replay, range(3))
        assert writer.pending == 2
        assert [int(replay.sample("t", 1).info.keys[0]) for _ in range(3)] == keys
        writer.close()


def test_a_pending_key_is_not_there_yet():
    # K2, P2, T7
    with new_replay(hr.Table.queue("t", 1)) as replay:
        keys, writer = put(replay, range(2))
        assert replay.update_priorities("t", keys[1:], [5.0]) == 0
        assert replay.delete("t", keys[1:]) == 0
        replay.sample("t", 1)
        assert replay.update_priorities("t", keys[1:], [5.0]) == 1
        writer.close()


@pytest.mark.parametrize("seed", range(5))
def test_keys_are_found_between_any_holes(seed):
    # K1: two tables share the keys and items leave anywhere, so the keys of one table have gaps of any size
    random = np.random.default_rng(seed)
    with new_replay(table("a", remover=Uniform(), max_size=200), table("b")) as replay:
        there = {}
        with replay.writer(history=1) as writer:
            for number in range(1500):
                writer.append({"n": number})
                for _ in range(int(random.integers(0, 4)) ** 4):
                    writer.create_item("b", 1)
                if random.random() < 0.6:
                    there[writer.create_item("a", 1)] = number
        keys = np.array(sorted(there), np.uint64)
        found = [key for key in keys if replay.update_priorities("a", [key], [1.0])]
        assert len(found) == len(replay.table("a")) == 200
        assert replay.update_priorities("a", keys + 1, np.ones(len(keys))) == np.isin(keys + 1, found).sum()


# ---- gates ---------------------------------------------------------------------------------------------------


def test_can_insert_counts_what_is_pending():
    # L7
    with new_replay(table(rate_limiter=Queue(3))) as replay:
        assert replay.can_insert("t", 3)
        assert not replay.can_insert("t", 4)
        _, writer = put(replay, range(4))
        assert not replay.can_insert("t")
        replay.sample("t", 2)
        assert replay.can_insert("t", 1)
        assert not replay.can_insert("t", 2)
        assert not replay.can_insert("t", 10**12)
        writer.close()


def test_can_sample_changes_nothing():
    # L7
    with new_replay(table(rate_limiter=MinSize(2))) as replay:
        assert not replay.can_sample("t")
        put(replay, range(2))
        before = replay.statistics().tables
        assert replay.can_sample("t", 10**12)
        assert replay.statistics().tables == before


@pytest.mark.parametrize("size", [0, -1])
def test_a_batch_below_one_is_refused(size):
    # L10
    with new_replay() as replay:
        put(replay, [1])
        with pytest.raises(ValueError, match="batch_size"):
            replay.sample("t", size)


@pytest.mark.parametrize(
    ("settings", "largest"),
    [
        ({"rate_limiter": Queue(5)}, 5),
        ({"rate_limiter": SampleToInsertRatio(2, 3, 4)}, 8),
        ({"max_size": 4, "max_times_sampled": 2}, 8),
        ({"max_size": 4, "sampler": Uniform(replacement=False)}, 4),
    ],
)
def test_a_batch_that_could_never_be_served_is_refused_at_once(settings, largest):
    # L10
    with new_replay(table(**settings)) as replay:
        with pytest.raises(ValueError, match=rf"batch of {largest + 1}.*at most {largest}"):
            replay.sample("t", largest + 1)
        with pytest.raises(hr.DeadlineExceeded):
            replay.sample("t", largest, timeout=0)
        assert replay.table("t").statistics().waiting_samples == 0
