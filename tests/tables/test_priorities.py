"""Priorities (replay P1 to P4)."""

import math

import numpy as np
import pytest

import headrace as hr
from headrace.tables.description.selectors import Fifo, Lifo, MaxHeap, MinHeap, Prioritized, Uniform

SIGNATURE = hr.Signature.like({"n": np.int64(0)})
SELECTORS = [Fifo(), Lifo(), Uniform(), Prioritized(), MinHeap(), MaxHeap()]
BAD = [-1.0, -1e-300, math.nan, math.inf, -math.inf]


def new_replay(sampler, remover=None):
    return hr.Replay(
        SIGNATURE, [hr.Table("t", sampler=sampler, remover=remover or Fifo(), max_size=100)], seed=0
    )


def put(replay, priorities):
    with replay.writer(history=1) as writer:
        keys = []
        for number, priority in enumerate(priorities):
            writer.append({"n": number})
            keys.append(writer.create_item("t", 1, priority))
        return keys


@pytest.mark.parametrize("bad", BAD)
@pytest.mark.parametrize("selector", SELECTORS)
def test_a_bad_priority_changes_nothing_and_the_table_serves_on(selector, bad):
    # replay P1
    with new_replay(selector, selector) as replay:
        keys = put(replay, [1.0, 2.0, 3.0])
        before = replay.table("t").statistics()
        with pytest.raises(ValueError, match="priorit"):
            replay.update_priorities("t", keys, [5.0, bad, 6.0])
        with replay.writer() as writer:
            writer.append({"n": 9})
            with pytest.raises(ValueError, match="priority"):
                writer.create_item("t", 1, bad)
        assert replay.table("t").statistics() == before
        told = {1: 1.0, 2: 2.0, 3: 3.0}
        for _ in range(20):
            info = replay.sample("t", 1).info
            assert told[int(info.keys[0])] == info.priorities[0]
        assert replay.update_priorities("t", keys, [7.0, 7.0, 7.0]) == 3


@pytest.mark.parametrize("bad", BAD)
def test_a_bad_priority_of_a_rule_is_refused(bad):
    # replay P1
    with pytest.raises(ValueError, match="priority"):
        hr.ItemRule("t", 1, priority=bad)


@pytest.mark.parametrize("bad", ["x", 1j, [2.0]])
def test_a_priority_that_is_not_a_number_is_named(bad):
    # replay P1: by the error of Headrace, not by that of Python's comparison
    with new_replay(Prioritized()) as replay, replay.writer() as writer:
        writer.append({"n": 1})
        with pytest.raises(TypeError, match="priority: expected a finite number"):
            writer.create_item("t", 1, bad)
        with pytest.raises(TypeError, match="priority: expected a finite number"):
            hr.ItemRule("t", 1, priority=bad)


@pytest.mark.parametrize("bad", [["x"], ["1.5"], [None], [1j]])
def test_updates_that_are_not_numbers_are_refused(bad):
    # replay P1: also texts out of which NumPy reads a number; the same in process, on a client and over shards
    with new_replay(Prioritized()) as replay:
        keys = put(replay, [1.0])
        with hr.Server({"r": replay}) as server, hr.Client(server.address) as client:
            sharded = hr.server.shards([server.address], "r")
            for each in (replay, client.replay("r"), sharded):
                with pytest.raises(ValueError, match="priorities: expected numbers, got"):
                    each.update_priorities("t", keys, bad)
            sharded.close()
        assert replay.table("t").statistics().updates == 0


def test_updates_in_the_numbers_of_jax():
    # replay P2: kinds of numbers that NumPy lacks
    numbers = pytest.importorskip("jax.numpy")
    with new_replay(Prioritized()) as replay:
        keys = put(replay, [1.0])
        assert replay.update_priorities("t", keys, np.array([2.5], numbers.bfloat16)) == 1
        assert replay.sample("t", 1).info.priorities.tolist() == [2.5]


@pytest.mark.parametrize(
    ("keys", "priorities"), [([1, 2], [1.0]), ([1], [1.0, 2.0]), ([], [1.0]), ([1, 2], 1.0)]
)
def test_lengths_must_agree(keys, priorities):
    # replay P2
    with new_replay(MaxHeap()) as replay:
        put(replay, [1.0, 2.0])
        with pytest.raises(ValueError, match="as many priorities as keys"):
            replay.update_priorities("t", keys, priorities)
        assert replay.table("t").statistics().updates == 0


def test_keys_that_are_gone_are_ignored_and_counted():
    # replay P2: never applied to another item, also when its place in memory was used again
    with new_replay(MaxHeap()) as replay:
        keys = put(replay, [5.0, 6.0])
        replay.delete("t", keys)
        more = put(replay, [1.0, 2.0])
        assert replay.update_priorities("t", [*keys, more[0], 0, 10**18], [99.0] * 5) == 1
        statistics = replay.table("t").statistics()
        assert (statistics.updates, statistics.ignored_updates) == (1, 4)
        assert replay.sample("t", 1).info.priorities.tolist() == [99.0]
        replay.delete("t", more[:1])
        assert replay.sample("t", 1).info.priorities.tolist() == [2.0]


@pytest.mark.parametrize("sampler", [Prioritized(), MaxHeap()])
def test_no_key_is_found_where_no_item_is_left(sampler):
    # replay P2: not even in the slot where it stood, or in one where nothing ever stood
    with new_replay(sampler) as replay:
        assert replay.update_priorities("t", [0, 1], [9.0, 9.0]) == 0
    for empty in (lambda replay, keys: replay.delete("t", keys), lambda replay, _: replay.reset("t")):
        with new_replay(sampler) as replay:
            keys = put(replay, [5.0, 6.0])
            empty(replay, keys)
            assert replay.update_priorities("t", keys, [9.0, 9.0]) == 0
            assert not replay.can_sample("t", 1)


@pytest.mark.parametrize("sampler", [Prioritized(), MaxHeap()])
def test_of_two_entries_for_one_key_the_last_wins(sampler):
    # replay P2: both are counted as applied
    with new_replay(sampler) as replay:
        keys = put(replay, [1.0, 1.0])
        assert replay.update_priorities("t", [keys[0], keys[1], keys[0]], [0.0, 0.0, 3.0]) == 3
        info = replay.sample("t", 5).info
        assert set(info.keys.tolist()) == {keys[0]}
        assert info.priorities.tolist() == [3.0] * 5


def test_an_update_needs_no_open_gate():
    # replay P2
    table = hr.Table(
        "t", sampler=MaxHeap(), remover=Fifo(), max_size=10, rate_limiter=hr.rate_limiters.MinSize(10)
    )
    with hr.Replay(SIGNATURE, [table]) as replay:
        keys = put(replay, [1.0])
        assert not replay.can_sample("t")
        assert replay.update_priorities("t", keys, [2.0]) == 1


def test_an_update_to_the_same_value_is_a_touch():
    # replay P3
    with new_replay(MinHeap(), MinHeap()) as replay:
        keys = put(replay, [4.0, 4.0, 4.0])
        replay.update_priorities("t", [keys[1], keys[0]], [4.0, 4.0])
        order = []
        for _ in range(3):
            order.append(int(replay.sample("t", 1).info.keys[0]))
            replay.delete("t", order[-1:])
        assert order == [keys[2], keys[1], keys[0]]


def test_importance_weights_from_what_a_batch_tells():
    # replay P4: with beta = 1 the weighted mean of a draw is the plain mean
    priorities = np.array([1.0, 2.0, 5.0, 12.0])
    with new_replay(Prioritized()) as replay:
        put(replay, priorities)
        batch = replay.sample("t", 20_000)
        weights = (batch.info.table_size * batch.info.probabilities) ** -1.0
        assert weights == pytest.approx(priorities.sum() / (4 * priorities[batch.data["n"]]))
        assert (weights * batch.data["n"]).mean() == pytest.approx(1.5, abs=0.05)


def test_keys_in_any_integer_form_but_no_floats():
    # replay P2, T7
    with new_replay(Fifo()) as replay:
        keys = put(replay, [1.0] * 6)
        for form in (np.uint64, np.int64, np.int32):
            assert replay.update_priorities("t", np.array(keys, form), np.ones(6, np.float32)) == 6
        assert replay.update_priorities("t", [], []) == 0
        assert replay.update_priorities("t", np.array([1, 2**64 - 1], np.uint64), [1.0, 1.0]) == 1
        assert replay.update_priorities("t", np.array([-1]), [1.0]) == 0
        # Bits of a key in an array of signed integers, as torch keeps it; integers of Python are read as they are.
        assert replay.update_priorities("t", np.array([2**64 - 1], np.uint64).view(np.int64), [1.0]) == 0
        for wrong in ([-1], np.array([-1], object), np.array([2**64], object), -1):
            with pytest.raises(ValueError, match=r"keys\[0\]: expected an integer in \[0, 2\*\*64\), got "):
                replay.update_priorities("t", wrong, [1.0])
        with pytest.raises(ValueError, match="integers"):
            replay.update_priorities("t", [1.0], [1.0])
        with pytest.raises(ValueError, match="integers"):
            replay.delete("t", np.array([1.5]))
