"""Which item next, in a replay (replay S1 to S10), and every selector as a remover (T5)."""

import itertools
import math

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from plain_kernels import fewer

import headrace as hr
from headrace.tables.description.selectors import Fifo, Lifo, MaxHeap, MinHeap, Prioritized, Uniform
from headrace.tables.items import passes

SIGNATURE = hr.Signature.like({"n": np.int64(0)})


def new_replay(sampler, remover=None, max_size=1000, seed=0, **settings):
    table = hr.Table("t", sampler=sampler, remover=remover or Fifo(), max_size=max_size, **settings)
    return hr.Replay(SIGNATURE, [table], seed=seed)


def put(replay, priorities, first=0):
    """One item a row for each priority, numbered on; returns the keys."""
    with replay.writer(history=1) as writer:
        keys = []
        for number, priority in enumerate(priorities, first):
            writer.append({"n": number})
            keys.append(writer.create_item("t", 1, priority))
        return keys


def numbers_left(replay, count):
    """Which of the first `count` items are in the table: a key that is gone takes no update."""
    return [number for number in range(count) if replay.update_priorities("t", [number + 1], [1.0])]


def chi_square(counts, probabilities):
    expected = counts.sum() * np.asarray(probabilities)
    return float(((counts - expected) ** 2 / expected).sum())


# ---- the order of deterministic selectors ------------------------------------------------------------------


def test_fifo_gives_the_first_whatever_is_updated():
    # replay S1
    with new_replay(Fifo()) as replay:
        keys = put(replay, [1, 5, 2])
        replay.update_priorities("t", keys[:1], [0.0])
        batch = replay.sample("t", 3)
        assert batch.info.keys.tolist() == [keys[0]] * 3
        assert batch.info.probabilities.tolist() == [1.0] * 3
        replay.delete("t", keys[:1])
        assert replay.sample("t", 1).data["n"].tolist() == [1]


def test_lifo_gives_the_last_whatever_is_updated():
    # replay S2
    with new_replay(Lifo()) as replay:
        keys = put(replay, [1, 5, 2])
        replay.update_priorities("t", keys[:1], [9.0])
        batch = replay.sample("t", 2)
        assert batch.info.keys.tolist() == [keys[2]] * 2
        assert batch.info.probabilities.tolist() == [1.0] * 2
        replay.delete("t", keys[2:])
        assert replay.sample("t", 1).data["n"].tolist() == [1]


@pytest.mark.parametrize(("selector", "extreme"), [(MinHeap(), [1, 4]), (MaxHeap(), [2, 3])])
def test_heaps_give_the_extreme_and_break_ties_by_touch(selector, extreme):
    # replay S5, P3: an update is a touch, also when the value stays
    with new_replay(selector) as replay:
        keys = put(replay, [3, 1, 7, 7, 1])
        first, second = extreme
        batch = replay.sample("t", 2)
        assert batch.data["n"].tolist() == [first, first]
        assert batch.info.probabilities.tolist() == [1.0, 1.0]
        replay.update_priorities("t", [keys[first]], [batch.info.priorities[0]])
        assert replay.sample("t", 1).data["n"].tolist() == [second]


@pytest.mark.parametrize("selector", [MinHeap(), MaxHeap()])
def test_a_heap_of_equal_priorities_is_a_fifo(selector):
    # replay S5
    with new_replay(selector, max_times_sampled=1) as replay:
        put(replay, [2.0] * 50)
        assert replay.sample("t", 50).data["n"].tolist() == list(range(50))


# ---- drawing -----------------------------------------------------------------------------------------------


def test_uniform_draws_all_alike():
    # replay S3: 19 degrees of freedom; 60 has p < 1e-5
    with new_replay(Uniform()) as replay:
        put(replay, [1.0, 1e9, 0.0, 5.0] * 5)
        batch = replay.sample("t", fewer(40_000))
        assert (batch.info.probabilities == 1 / 20).all()
        assert chi_square(np.bincount(batch.data["n"], minlength=20), np.full(20, 1 / 20)) < 60


def test_uniform_draws_all_alike_between_holes():
    # replay S3, T7: items that left in the middle are never drawn and leave no trace in the chances
    with new_replay(Uniform()) as replay:
        keys = put(replay, [1.0] * 60)
        replay.delete("t", [key for place, key in enumerate(keys) if place % 3])
        batch = replay.sample("t", fewer(40_000))
        counts = np.bincount(batch.data["n"], minlength=60)
        assert (np.flatnonzero(counts) % 3 == 0).all()
        assert (batch.info.probabilities == 1 / 20).all()
        assert chi_square(counts[::3], np.full(20, 1 / 20)) < 60


@pytest.mark.parametrize("exponent", [0.0, 0.5, 1.0, 2.0])
def test_prioritized_draws_by_weight(exponent):
    # replay S4, S9; also e = 0 never draws a priority of 0
    priorities = np.array([1.0, 0.0, 4.0, 9.0, 0.25, 0.0, 2.0])
    weights = np.where(priorities > 0, priorities**exponent, 0.0)
    probabilities = weights / weights.sum()
    with new_replay(Prioritized(exponent)) as replay:
        put(replay, priorities)
        batch = replay.sample("t", fewer(40_000))
        drawn = batch.data["n"]
        assert batch.info.probabilities == pytest.approx(probabilities[drawn], rel=1e-12)
        assert batch.info.priorities.tolist() == priorities[drawn].tolist()
        counts = np.bincount(drawn, minlength=7)
        assert counts[weights == 0].sum() == 0
        some = weights > 0
        assert chi_square(counts[some], probabilities[some]) < 35


def test_worked_example_of_part_4():
    # replay S10's example: e = 0.5, priorities 1, 4, 9 -> 1/6, 1/3, 1/2
    with new_replay(Prioritized(0.5)) as replay:
        put(replay, [1, 4, 9])
        batch = replay.sample("t", 200)
        found = dict(zip(batch.data["n"].tolist(), batch.info.probabilities.tolist(), strict=True))
        assert found == pytest.approx({0: 1 / 6, 1: 1 / 3, 2: 1 / 2}, rel=1e-12)


@pytest.mark.parametrize("exponent", [0.0, 1.0])
def test_prioritized_is_uniform_when_all_weights_are_zero(exponent):
    # replay S4
    with new_replay(Prioritized(exponent)) as replay:
        keys = put(replay, [0.0] * 10)
        batch = replay.sample("t", fewer(10_000))
        assert (batch.info.probabilities == 0.1).all()
        assert chi_square(np.bincount(batch.data["n"], minlength=10), np.full(10, 0.1)) < 40
        replay.update_priorities("t", keys[3:4], [1e-300])
        batch = replay.sample("t", 50)
        assert batch.data["n"].tolist() == [3] * 50
        assert (batch.info.probabilities == 1).all()


@settings(max_examples=fewer(30))
@given(st.integers(0, 2**32), st.lists(st.floats(0, 100), min_size=2, max_size=40))
@example(0, [2.2250738585072014e-308, 2.225073858507203e-309])
def test_probabilities_are_exact_after_priorities_went_1e15_and_back(seed, priorities):
    # replay S8
    random = np.random.default_rng(seed)
    with new_replay(Prioritized()) as replay:
        keys = np.array(put(replay, priorities))
        for _ in range(20):
            some = random.integers(0, len(keys), 5)
            replay.update_priorities("t", keys[some], np.asarray(priorities)[some] * 1e15)
            replay.update_priorities("t", keys[some], np.asarray(priorities)[some])
        batch = replay.sample("t", 64)
        whole = math.fsum(priorities)
        expected = [priorities[n] / whole if whole else 1 / len(keys) for n in batch.data["n"]]
        assert batch.info.probabilities == pytest.approx(expected, rel=1e-9)


@pytest.mark.parametrize(
    ("exponent", "priorities"),
    [
        (1.0, [1.7e308, 1.7e308, 1.0]),
        (2.0, [1e200, 1.0, 1e-200]),
        (5.0, [1e-200, 0.0, 1e-300]),
        (1.0, [5e-324, 0.0, 0.0]),
    ],
)
def test_weights_at_the_ends_of_the_range_still_draw(exponent, priorities):
    # replay S4, S9, P1: any finite priority is allowed, and the table serves on
    with new_replay(Prioritized(exponent)) as replay:
        put(replay, priorities)
        batch = replay.sample("t", 100)
        assert np.isfinite(batch.info.probabilities).all()
        assert (batch.info.probabilities > 0).all()
        assert all(priorities[n] > 0 for n in batch.data["n"])


@pytest.mark.parametrize("exponent", [-0.1, math.nan, math.inf])
def test_a_bad_exponent_is_refused(exponent):
    # replay S6
    with pytest.raises(ValueError, match="priority_exponent"):
        Prioritized(exponent)


def test_without_replacement_a_batch_has_no_item_twice():
    # replay S7
    with new_replay(Uniform(replacement=False)) as replay:
        keys = put(replay, [1.0] * 30)
        replay.delete("t", keys[5:25:2])
        counts = np.zeros(30)
        for _ in range(400):
            batch = replay.sample("t", 10)
            assert len(set(batch.info.keys.tolist())) == 10
            counts[batch.data["n"]] += 1
        left = [n for n in range(30) if keys[n] not in keys[5:25:2]]
        assert (np.flatnonzero(counts) == left).all()
        assert chi_square(counts[left], np.full(20, 1 / 20)) < 60
        assert sorted(replay.sample("t", 20).data["n"].tolist()) == left
        # replay L6: it needs as many items as it draws
        assert replay.can_sample("t", 20)
        assert not replay.can_sample("t", 21)
        with pytest.raises(hr.DeadlineExceeded):
            replay.sample("t", 21, timeout=0)


def test_without_replacement_every_order_is_as_likely():
    # replay S7, with items that left in between
    with new_replay(Uniform(replacement=False)) as replay:
        keys = put(replay, [1.0] * 9)
        replay.delete("t", [keys[1], keys[4], keys[5], keys[6]])
        left = [0, 2, 3, 7, 8]
        counts = dict.fromkeys(itertools.permutations(left, 2), 0)
        for _ in range(fewer(4000)):
            counts[tuple(replay.sample("t", 2).data["n"].tolist())] += 1
        # 19 degrees of freedom: above 44 once in a thousand.
        assert chi_square(np.array(list(counts.values())), np.full(20, 1 / 20)) < 44


def test_without_replacement_a_hole_does_not_make_a_list_of_all_items(monkeypatch):
    # replay S7, performance P7
    def refuse(*_):
        raise AssertionError("all items were looked at")

    with new_replay(Uniform(replacement=False)) as replay:
        keys = put(replay, [1.0] * 100)
        replay.delete("t", keys[50:60])
        monkeypatch.setattr(passes, "live_slots", refuse)
        for count in (1, 7, 90):
            drawn = replay.sample("t", count).info.keys.tolist()
            assert len(set(drawn)) == count
            assert not set(drawn) & set(keys[50:60])


def test_without_replacement_tells_each_draws_own_size():
    # replay S7, T6, L5, B3
    with new_replay(Uniform(replacement=False), max_times_sampled=2) as replay:
        put(replay, [1.0] * 6)
        first = replay.sample("t", 3).info
        assert first.table_size.tolist() == [6, 6, 6]
        second = replay.sample("t", 6).info
        size = 6
        for key, times, told, chance in zip(
            second.keys, second.times_sampled, second.table_size, second.probabilities, strict=True
        ):
            assert times == 1 + (key in first.keys)
            assert told == size
            assert chance == 1 / size
            size -= times == 2
        assert len(replay.table("t")) == size == 3


@pytest.mark.parametrize("sampler", [Uniform(), Uniform(replacement=False), Prioritized(0.7)])
@pytest.mark.parametrize("remover", [Fifo(), Uniform(), Prioritized()])
def test_the_same_seed_and_calls_give_the_same_batches(sampler, remover):
    # replay S10
    def play(seed):
        with new_replay(sampler, remover, max_size=20, seed=seed, max_times_sampled=30) as replay:
            keys = put(replay, range(1, 40))
            batches = [replay.sample("t", 7).info.keys.tolist()]
            replay.update_priorities("t", keys[25:30], [50, 0, 3, 4, 5])
            replay.delete("t", keys[30:33])
            put(replay, range(5), first=40)
            return [*batches, *(replay.sample("t", 9).info.keys.tolist() for _ in range(5))]

    assert play(7) == play(7)
    assert play(7) != play(8)


def test_no_seed_draws_one_from_the_system():
    # replay S10
    drawn = []
    for _ in range(2):
        with new_replay(Uniform(), seed=None) as replay:
            put(replay, [1.0] * 100)
            drawn.append(replay.sample("t", 20).info.keys.tolist())
    assert drawn[0] != drawn[1]


def test_one_selector_serves_in_several_tables_and_roles():
    # replay T1: descriptions without state
    selector = Prioritized()
    tables = [hr.Table(name, sampler=selector, remover=selector, max_size=3) for name in ("a", "b")]
    with hr.Replay(SIGNATURE, tables) as replay, replay.writer(history=1) as writer:
        for number in range(3):
            writer.append({"n": number})
            writer.create_item("a", 1, float(number == 0))
            writer.create_item("b", 1, float(number == 1))
        assert set(replay.sample("a", 20).data["n"].tolist()) == {0}
        assert set(replay.sample("b", 20).data["n"].tolist()) == {1}
    with pytest.raises(AttributeError):
        selector.priority_exponent = 2.0


# ---- removing ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("remover", "left"),
    [
        (Fifo(), [3, 4]),
        (Lifo(), [0, 1]),  # the example of T5
        (MinHeap(), [0, 3]),  # keeps the important ones
        (MaxHeap(), [1, 2]),
    ],
)
def test_deterministic_removers(remover, left):
    # replay T5
    with new_replay(Fifo(), remover, max_size=2) as replay:
        put(replay, [8, 1, 2, 9, 7])
        statistics = replay.table("t").statistics()
        assert (statistics.inserts, statistics.deletes, statistics.size) == (5, 3, 2)
        assert numbers_left(replay, 5) == left


def test_the_new_item_may_be_the_victim():
    # replay T5
    with new_replay(Fifo(), MinHeap(), max_size=2) as replay:
        put(replay, [5, 6])
        keys = put(replay, [1], first=2)
        assert numbers_left(replay, 3) == [0, 1]
        assert replay.update_priorities("t", keys, [1.0]) == 0


@pytest.mark.parametrize("in_one_call", [False, True])
def test_a_uniform_remover_keeps_all_alike(in_one_call):
    # replay T5, S3: each of 5 items (the new one too) is the one to go; 4 degrees of freedom
    gone = np.zeros(5)
    for seed in range(fewer(1000)):
        with new_replay(Fifo(), Uniform(), max_size=4, seed=seed) as replay:
            if in_one_call:
                with replay.writer(lanes=5, items=[hr.ItemRule("t", 1)]) as writer:
                    writer.append({"n": np.arange(5)})
            else:
                put(replay, [1.0] * 5)
            gone[list({0, 1, 2, 3, 4} - set(numbers_left(replay, 5)))] += 1
        if seed == 400 and in_one_call:
            break
    assert chi_square(gone, np.full(5, 0.2)) < 30


def test_a_prioritized_remover_takes_high_weights_first():
    # replay S9
    gone = np.zeros(4)
    for seed in range(fewer(600)):
        with new_replay(Fifo(), Prioritized(), max_size=3, seed=seed) as replay:
            put(replay, [1, 0, 4, 5])
            gone[list({0, 1, 2, 3} - set(numbers_left(replay, 5)))] += 1
    assert gone[1] == 0
    assert chi_square(gone[[0, 2, 3]], np.array([1, 4, 5]) / 10) < 25


@pytest.mark.parametrize(
    ("sampler", "remover"),
    list(itertools.product([Fifo(), Lifo(), Uniform(), Prioritized(), MinHeap(), MaxHeap()], repeat=2)),
)
def test_every_pair_of_selectors_keeps_its_size_and_its_items(sampler, remover):
    # replay T5, B5: 300 inserts into 10 places, with updates in between; every draw is an item that is there
    random = np.random.default_rng(0)
    with new_replay(sampler, remover, max_size=10) as replay:
        with replay.writer(history=1) as writer:
            for number in range(300):
                writer.append({"n": number})
                key = writer.create_item("t", 1, float(random.integers(0, 4)))
                assert key == number + 1
                assert len(replay.table("t")) == min(number + 1, 10)
                info = replay.sample("t", 3).info
                assert replay.update_priorities("t", info.keys, random.integers(0, 4, 3)) == 3
                assert (info.table_size == min(number + 1, 10)).all()
        statistics = replay.table("t").statistics()
        assert (statistics.inserts, statistics.deletes) == (300, 290)
