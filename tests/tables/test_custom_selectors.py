"""Selectors and rate limiters of a user's own: what tables ask them, and what becomes of their faults.

The rules that they share with those of Headrace are in test_replay_stateful.py and tests/testing/test_contracts.py.
"""

import math
import threading
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

import headrace as hr
from headrace.replay.public import core_of
from headrace.tables.description.rate_limiters import CustomRateLimiter, MinSize, Queue
from headrace.tables.description.selectors import (
    CustomSelector,
    Fifo,
    Lifo,
    Prioritized,
    SelectorIndex,
    Uniform,
)
from headrace.tables.item_ring import ItemRing
from headrace.testing import FakeClock, RankBased

SIGNATURE = hr.Signature.like({"n": np.int64(0)})


class Noting(SelectorIndex):
    """Writes down what it is told, and picks the newest."""

    def __init__(self, calls):
        self.calls = calls
        self.keys = []

    def insert(self, key, priority):
        self.calls.append(("insert", key, priority))
        self.keys.append(key)

    def update(self, key, priority):
        self.calls.append(("update", key, priority))

    def remove(self, key):
        self.calls.append(("remove", key))
        self.keys.remove(key)

    def choose(self, count, random):
        assert isinstance(random, np.random.Generator)
        self.calls.append(("choose", count))
        return [self.keys[-1]] * count, [1.0] * count


class Noted(CustomSelector):
    def __init__(self):
        self.indexes = []

    def new_index(self):
        self.indexes.append([])
        return Noting(self.indexes[-1])


def put(replay, priorities, table="t"):
    with replay.writer(history=1) as writer:
        keys = []
        for number, priority in enumerate(priorities):
            writer.append({"n": number})
            keys.append(writer.create_item(table, 1, priority))
        return keys


def test_an_index_is_told_of_all_that_happens_in_order():
    # replay T5, T6, T7, T8, P2, P3
    selector = Noted()
    table = hr.Table("t", sampler=selector, remover=Fifo(), max_size=2, max_times_sampled=2)
    with hr.Replay(SIGNATURE, [table]) as replay:
        (calls,) = selector.indexes
        put(replay, [1.0, 2.0, 3.0])
        assert calls == [("insert", 1, 1.0), ("insert", 2, 2.0), ("insert", 3, 3.0), ("remove", 1)]
        calls.clear()
        assert replay.update_priorities("t", [3, 1, 2, 3, 9], [5.0, 6.0, 2.0, 7.0, 8.0]) == 3
        assert calls == [("update", 3, 5.0), ("update", 2, 2.0), ("update", 3, 7.0)]
        calls.clear()
        with pytest.raises(ValueError, match="priorities"):
            replay.update_priorities("t", [3, 2], [1.0, -1.0])
        assert calls == []
        assert replay.sample("t", 3).info.keys.tolist() == [3, 3, 2]
        assert calls == [("choose", 1), ("choose", 1), ("remove", 3), ("choose", 1)]
        calls.clear()
        assert replay.delete("t", [2, 2, 7]) == 1
        assert calls == [("remove", 2)]
        replay.reset("t")
        assert len(selector.indexes) == 2, "a reset begins with a new index"
        put(replay, [1.0])
        assert calls == [("remove", 2)]
        assert selector.indexes[1] == [("insert", 4, 1.0)]


class Meddling(CustomSelector, Noting):
    """Uses its table when it is asked, and goes on when that is refused."""

    def __init__(self, when, meddle):
        super().__init__([])
        self.when, self.meddle, self.refusals = when, meddle, []

    def new_index(self):
        return self

    def _meddle(self, when):
        if when == self.when:
            with pytest.raises(RuntimeError, match="uses the table that calls it") as caught:
                self.meddle()
            self.refusals.append(caught)

    def insert(self, key, priority):
        self._meddle("insert")
        super().insert(key, priority)

    def update(self, key, priority):
        self._meddle("update")
        super().update(key, priority)

    def remove(self, key):
        self._meddle("remove")
        super().remove(key)

    def choose(self, count, random):
        self._meddle("choose")
        return super().choose(count, random)


USES = {
    "append": lambda replay, writer: writer.append({"n": 9}),
    "sample": lambda replay, writer: replay.sample("t", 1),
    "update": lambda replay, writer: replay.update_priorities("t", [1], [1.0]),
    "delete": lambda replay, writer: replay.delete("t", [1]),
    "reset": lambda replay, writer: replay.reset("t"),
    "configure": lambda replay, writer: replay.table("t").configure(max_size=1),
}


@pytest.mark.parametrize("use", USES)
@pytest.mark.parametrize("when", ["insert", "update", "remove", "choose"])
@pytest.mark.parametrize("max_times", [0, 1])
def test_an_index_that_uses_its_own_table_is_refused(use, when, max_times):
    """It is called in the middle of a change: what left twice would take another item's rows along."""
    selector = Meddling(when, lambda: USES[use](replay, writer))
    table = hr.Table("t", sampler=selector, remover=Fifo(), max_size=3, max_times_sampled=max_times)
    with hr.Replay(SIGNATURE, [table], seed=0) as replay:
        writer = replay.writer(items=[hr.ItemRule("t", 1)])
        for n in range(5):
            writer.append({"n": n})
        assert replay.update_priorities("t", [1, 4], [2.0, 3.0]) == 1
        assert replay.sample("t", 1).data["n"].tolist() == [4]
        assert replay.delete("t", [3]) == 1
        assert selector.refusals
        assert selector.keys == ([4] if max_times else [4, 5])
        assert len(replay.table("t")) == len(selector.keys)
        assert replay.statistics().store.rows == 5


def test_a_batch_without_removals_is_one_question():
    selector = Noted()
    with hr.Replay(SIGNATURE, [hr.Table("t", sampler=selector, remover=Fifo(), max_size=9)]) as replay:
        put(replay, [1.0, 1.0])
        info = replay.sample("t", 50).info
        assert selector.indexes[0][-1] == ("choose", 50)
        assert info.times_sampled.tolist() == list(range(1, 51))


@pytest.mark.parametrize("sampler", [Uniform(), Uniform(replacement=False), Prioritized(), RankBased()])
def test_a_remover_of_ones_own_is_told_what_sampling_removes(sampler):
    # replay T6
    selector = Noted()
    table = hr.Table("t", sampler=sampler, remover=selector, max_size=3, max_times_sampled=1)
    with hr.Replay(SIGNATURE, [table], seed=0) as replay:
        put(replay, [1.0, 1.0, 1.0, 1.0])
        (calls,) = selector.indexes
        assert calls[-2:] == [("choose", 1), ("remove", 4)], "the new item may be the victim"
        calls.clear()
        drawn = replay.sample("t", 2).info.keys.tolist()
        assert sorted(calls) == sorted(("remove", key) for key in drawn)


@pytest.mark.parametrize("role", ["sampler", "remover"])
@pytest.mark.parametrize(
    "rule",
    [hr.ItemRule("t", 1), hr.ItemRule("t", 3, lookahead=1), hr.ItemRule("t", 2, end=hr.EndOfEpisode.PAD)],
)
def test_every_way_into_a_table_leads_past_it(role, rule):
    # Steps, windows, ends of episodes; one lane or several
    selector = Noted()
    roles = {"sampler": Fifo(), "remover": Fifo(), role: selector}
    with hr.Replay(SIGNATURE, [hr.Table("t", **roles, max_size=5)]) as replay:
        for lanes in (1, 3):
            with replay.writer(lanes=lanes, items=[rule]) as writer:
                for number in range(7):
                    writer.append({"n": number if lanes == 1 else np.full(lanes, number)})
                writer.end_episode({"n": 0 if lanes == 1 else np.zeros(lanes, np.int64)})
        calls = [call[0] for call in selector.indexes[0]]
        found = replay.table("t").statistics()
        assert found.size == 5
        assert calls.count("insert") == found.inserts > 20
        assert calls.count("remove") == found.deletes == found.inserts - 5
        assert replay.sample("t", 4).info.keys.shape == (4,)


def test_tables_without_one_have_the_ring_of_before():
    # What nobody uses costs nothing.
    tables = [
        hr.Table("plain", sampler=Prioritized(), remover=Fifo(), max_size=9),
        hr.Table("own", sampler=RankBased(), remover=Fifo(), max_size=9),
    ]
    with hr.Replay(SIGNATURE, tables) as replay:
        assert type(core_of(replay).live_table("plain").ring) is ItemRing
        assert core_of(replay).live_table("plain").can_draw_fused
        assert not core_of(replay).live_table("own").can_draw_fused


def test_a_checkpoint_is_loaded_into_a_selector_of_ones_own(tmp_path):
    # replay Q9: the settings given win; the index is told of the items in the order of insertion
    with hr.Replay(SIGNATURE, [hr.Table("t", sampler=Uniform(), remover=Fifo(), max_size=9)]) as replay:
        keys = put(replay, [3.0, 1.0, 2.0])
        replay.delete("t", keys[1:2])
        replay.save(tmp_path)
    selector = Noted()
    table = hr.Table("t", sampler=selector, remover=RankBased(), max_size=9)
    with hr.Replay.load(tmp_path, tables=[table]) as replay:
        assert selector.indexes == [[("insert", keys[0], 3.0), ("insert", keys[2], 2.0)]]
        batch = replay.sample("t", 2)
        assert (batch.info.keys.tolist(), batch.data["n"].tolist()) == ([keys[2]] * 2, [2, 2])
        replay.table("t").configure(max_size=1)
        assert len(replay.table("t")) == 1


@pytest.mark.parametrize("roles", [{"sampler": RankBased()}, {"remover": RankBased()}])
def test_what_cannot_be_written_down_is_refused_before_anything_is_made(tmp_path, roles):
    table = hr.Table("t", **({"sampler": Fifo(), "remover": Fifo()} | roles), max_size=9)
    with pytest.raises(ValueError, match="table 't'.*RankBased.*leave path out"):
        hr.Replay(SIGNATURE, [table], path=tmp_path / "store")
    with hr.Replay(SIGNATURE, [table]) as replay:
        with pytest.raises(ValueError, match="RankBased.*cannot be written down"):
            replay.save(tmp_path)
    assert list(tmp_path.iterdir()) == []


# ---- faults ------------------------------------------------------------------------------------------------


class Answers(Noting):
    """Its picks are what the test says."""

    answer = None

    def choose(self, count, random):
        return self.answer


class Answering(CustomSelector):
    def __init__(self, answer):
        self.answer = answer

    def new_index(self):
        index = Answers([])
        index.answer = self.answer
        return index


@pytest.mark.parametrize(
    ("answer", "message"),
    [
        (([77], [1.0]), "got 77, which is not"),
        (([1, 1], [1.0, 1.0]), "expected 1 keys"),
        (([1], [0.0]), "above 0 and at most 1"),
        (([1], [math.nan]), "above 0"),
        (([1], [1.5]), "at most 1"),
        (([1.0], [1.0]), "expected 1 keys"),
        (([], []), "expected 1 keys"),
        (None, "expected 1 keys"),
        (1, "expected 1 keys"),
    ],
)
@pytest.mark.parametrize("k", [0, 1])
def test_picks_are_checked_before_anything_is_taken(answer, message, k):
    table = hr.Table("t", sampler=Answering(answer), remover=Fifo(), max_size=9, max_times_sampled=k)
    with hr.Replay(SIGNATURE, [table]) as replay:
        put(replay, [1.0])
        with pytest.raises(RuntimeError, match=f"choose of Answers.*{message}"):
            replay.sample("t", 1)
        found = replay.table("t").statistics()
        assert (found.size, found.samples, found.unique_samples) == (1, 0, 0)
        with pytest.raises(RuntimeError, match="failed before.*reset"):
            replay.sample("t", 1)


class Breaks(Noting):
    def remove(self, key):
        raise LookupError("a mistake of its author")


class Breaking(CustomSelector):
    def new_index(self):
        return Breaks([])


@pytest.mark.parametrize("role", ["sampler", "remover"])
def test_an_error_in_an_index_ends_the_table_until_it_is_reset(role):
    # Never silently wrong: an index that missed something is not asked again.
    roles = {"sampler": Fifo(), "remover": Lifo(), role: Breaking()}
    tables = [
        hr.Table("t", **roles, max_size=2),
        hr.Table("other", sampler=Fifo(), remover=Fifo(), max_size=9),
    ]
    with hr.Replay(SIGNATURE, tables) as replay:
        keys = put(replay, [1.0, 1.0])
        with pytest.raises(LookupError, match="a mistake"):
            replay.delete("t", keys[:1])
        writer = replay.writer(history=1)
        writer.append({"n": 5})
        if role == "sampler":
            with pytest.raises(RuntimeError, match="failed before"):
                replay.sample("t", 1)
        for call in (
            lambda: replay.delete("t", keys),
            lambda: replay.update_priorities("t", keys, [1.0, 1.0]),
            lambda: replay.table("t").configure(max_size=1),
            lambda: writer.create_item("t", 1),
        ):
            with pytest.raises(RuntimeError, match="failed before") as caught:
                call()
            assert isinstance(caught.value.__cause__, LookupError)
        writer.create_item("other", 1)
        assert replay.sample("other", 1).data["n"].tolist() == [5], "other tables go on"
        replay.reset("t")
        writer.create_item("t", 1)
        assert len(replay.table("t")) == 1
        writer.close()


class Faulty(Noting):
    """Fails on the n-th call of one method; `broken` is shared with the test, which may mend it."""

    def __init__(self, broken):
        super().__init__([])
        self.broken = broken

    def count(self, method):
        if method in self.broken:
            self.broken[method] -= 1
            if self.broken[method] < 0:
                raise LookupError(f"{method}: a mistake of its author")

    def insert(self, key, priority):
        self.count("insert")
        super().insert(key, priority)

    def remove(self, key):
        self.count("remove")
        super().remove(key)

    def update(self, key, priority):
        self.count("update")

    def choose(self, count, random):
        self.count("choose")
        return [self.keys[0]] * count, [1.0] * count


class Faults(CustomSelector):
    def __init__(self, **broken):
        self.broken = broken

    def new_index(self):
        return Faulty(self.broken)

    def recover(self):
        self.broken.clear()


def held_rows(replay):
    return replay.statistics().store.rows


@pytest.mark.parametrize("role", ["sampler", "remover"])
@pytest.mark.parametrize("by", ["sample", "delete", "configure"])
def test_an_error_while_a_pending_item_goes_in_reaches_the_flush(role, by):
    # I3, I5: it is not lost, whoever opened the gate has what was asked for, and the flush does not wait for ever.
    faults = Faults(insert=2)
    roles = {"sampler": Fifo(), "remover": Fifo(), role: faults}
    table = hr.Table("t", **roles, max_size=9, rate_limiter=Queue(2))
    with hr.Replay(SIGNATURE, [table]) as replay:
        writer = replay.writer(history=1)
        keys = []
        for number in range(4):
            writer.append({"n": number})
            keys.append(writer.create_item("t", 1))
        assert writer.pending == 2
        if by == "sample":
            assert replay.sample("t", 2).data["n"].tolist() == [0, 0]
        elif by == "delete":
            assert replay.delete("t", keys[:2]) == 2
        else:
            replay.table("t").configure(rate_limiter=MinSize(1))
            assert replay.table("t").statistics().max_diff == math.inf
        for timeout in (None, 0):
            with pytest.raises(
                RuntimeError, match="'t' failed.*2 of which are still pending.*a mistake"
            ) as caught:
                writer.flush(timeout)
            assert isinstance(caught.value.__cause__, LookupError)
        with pytest.raises(RuntimeError, match="still pending"):
            writer.close()
        found = replay.table("t").statistics()
        assert found.size == found.inserts - found.deletes
        assert (found.inserts, found.pending_inserts) == (2, 2)
        with pytest.raises(RuntimeError, match="failed before"):
            replay.update_priorities("t", keys, [1.0] * 4)
        faults.recover()
        replay.reset("t")
        writer.flush()
        assert replay.sample("t", 1).info.keys.tolist() == keys[2:3]
        assert replay.table("t").statistics().inserts == 2
        writer.close()


def test_a_flush_that_waits_is_woken_by_the_error():
    # I5, L12: by an explicit hand-over: the flush waits on the clock when the gate opens.
    clock = FakeClock()
    table = hr.Table("t", sampler=Faults(insert=1), remover=Fifo(), max_size=9, rate_limiter=Queue(1))
    with hr.Replay(SIGNATURE, [table], clock=clock) as replay, ThreadPoolExecutor(2) as threads:
        writer = replay.writer(history=1)
        writer.append({"n": 0})
        writer.create_item("t", 1)
        writer.create_item("t", 1)
        flushing = threads.submit(writer.flush)
        clock.wait_for_waiters(1)
        assert replay.sample("t", 1).info.keys.tolist() == [1]
        with pytest.raises(RuntimeError, match="a mistake"):
            flushing.result(10)
        # A writer that waits for room in its own queue, and a learner that waits for items, end likewise.
        with pytest.raises(RuntimeError, match="failed before"):
            replay.sample("t", 1)
        with pytest.raises(RuntimeError, match="failed before"):
            writer.create_item("t", 1)
        replay.close()
        with pytest.raises(hr.Closed, match="1 items.*refused"):
            writer.close()


@pytest.mark.parametrize("rules", [1, 2])
def test_an_error_at_the_first_item_of_a_step_loses_nothing(rules):
    # I3: the step is stored, the item waits, other tables have theirs; what follows is refused before it is stored.
    faults = Faults(insert=1)
    tables = [
        hr.Table("t", sampler=faults, remover=Fifo(), max_size=9),
        hr.Table("other", sampler=Fifo(), remover=Fifo(), max_size=9),
    ]
    with hr.Replay(SIGNATURE, tables) as replay:
        writer = replay.writer(items=[hr.ItemRule("t", 1), hr.ItemRule("other", 1)][:rules])
        writer.append({"n": 0})
        writer.append({"n": 1})
        assert writer.pending == 1
        with pytest.raises(RuntimeError, match="failed before"):
            writer.append({"n": 2})
        with pytest.raises(RuntimeError, match="failed before"):
            writer.create_item("t", 1)
        with pytest.raises(RuntimeError, match="1 of which are still pending"):
            writer.flush()
        assert len(replay.table("t")) == 1
        assert len(replay.table("other")) == 2 * (rules - 1)
        faults.recover()
        replay.reset("t")
        writer.append({"n": 3})
        writer.close()
        assert replay.sample("t", 1).data["n"].tolist() == [1]
        replay.delete("t", replay.sample("t", 1).info.keys)
        assert replay.sample("t", 1).data["n"].tolist() == [3]
        for name in ("t", "other"):
            replay.reset(name)
        assert held_rows(replay) == 0, "no page is held by items that were refused"


@pytest.mark.parametrize("method", ["choose", "remove"])
def test_an_error_of_the_remover_keeps_the_counts_true(method):
    # Part 9: I - D is the size, whatever came in the way.
    faults = Faults(**{method: 1})
    table = hr.Table("t", sampler=Fifo(), remover=faults, max_size=2)
    with hr.Replay(SIGNATURE, [table]) as replay:
        writer = replay.writer(history=1)
        for number in range(4):
            writer.append({"n": number})
            writer.create_item("t", 1)
        with pytest.raises(RuntimeError, match="'t' failed.*0 of which"):
            writer.flush()
        found = replay.table("t").statistics()
        assert (found.inserts, found.deletes, found.size) == (4, 1, 3)
        replay.reset("t")
        writer.close()


def test_an_error_of_the_sampler_wakes_who_waits_behind_the_gate():
    # I5: nobody can open it any more.
    table = hr.Table("t", sampler=Faults(choose=0), remover=Fifo(), max_size=9, rate_limiter=Queue(1))
    with hr.Replay(SIGNATURE, [table]) as replay:
        writer = replay.writer(history=1)
        writer.append({"n": 0})
        writer.create_item("t", 1)
        writer.create_item("t", 1)
        with pytest.raises(LookupError, match="a mistake"):
            replay.sample("t", 1)
        with pytest.raises(RuntimeError, match="1 of which are still pending.*a mistake"):
            writer.flush()
        assert replay.table("t").statistics().samples == 0
        replay.close()
        with pytest.raises(hr.Closed):
            writer.close()


def test_an_error_of_a_limiter_of_ones_own_reaches_the_flush():
    # I3, I5: what opened the gate has its batch; the item waits, and goes in when the limiter answers again.
    class Limiter(CustomRateLimiter):
        def __init__(self):
            super().__init__(min_size=1)
            self.mood = "closed"

        def allows_insert(self, inserts, samples, deletes, n):
            if self.mood == "broken":
                raise LookupError("a mistake of its author")
            return self.mood == "open"

        def allows_sample(self, inserts, samples, deletes, n):
            return True

    limiter = Limiter()
    table = hr.Table("t", sampler=Fifo(), remover=Fifo(), max_size=9, rate_limiter=limiter)
    with hr.Replay(SIGNATURE, [table]) as replay:
        writer = replay.writer(history=1)
        writer.append({"n": 0})
        writer.create_item("t", 1)
        writer.create_item("t", 1)
        limiter.mood = "broken"
        assert replay.sample("t", 1).info.keys.tolist() == [1]
        with pytest.raises(RuntimeError, match="1 of which are still pending.*a mistake"):
            writer.flush()
        limiter.mood = "closed"
        replay.sample("t", 1)
        with pytest.raises(hr.DeadlineExceeded):
            writer.flush(0)
        limiter.mood = "open"
        replay.sample("t", 1)
        writer.flush()
        assert len(replay.table("t")) == 2
        writer.append({"n": 1})
        limiter.mood = "broken"
        with pytest.raises(LookupError):
            writer.create_item("t", 1)
        assert writer.pending == 0
        limiter.mood = "open"
        writer.close()
        replay.reset("t")
        assert held_rows(replay) == 0


@pytest.mark.parametrize("method", ["choose", "remove"])
def test_a_configure_that_fails_changes_no_setting(method):
    # T9
    table = hr.Table("t", sampler=Fifo(), remover=Faults(**{method: 0}), max_size=5)
    with hr.Replay(SIGNATURE, [table]) as replay:
        put(replay, [1.0] * 5)
        handle = replay.table("t")
        before = handle.statistics()
        with pytest.raises(LookupError, match="a mistake"):
            handle.configure(max_size=2, rate_limiter=Queue(2))
        assert handle.statistics() == before
        with pytest.raises(ValueError, match="waits for 4"):
            handle.configure(max_size=2, rate_limiter=MinSize(4))
        assert handle.statistics() == before


def test_a_new_index_that_fails_leaves_the_table_as_it_was():
    # T8: a reset that fails changes nothing.
    class Once(CustomSelector):
        made = 0

        def new_index(self):
            Once.made += 1
            if Once.made > 1:
                raise LookupError("a mistake of its author")
            return Noting([])

    with hr.Replay(SIGNATURE, [hr.Table("t", sampler=Once(), remover=Fifo(), max_size=5)]) as replay:
        keys = put(replay, [1.0, 1.0])
        with pytest.raises(LookupError, match="a mistake"):
            replay.reset("t")
        assert replay.sample("t", 1).info.keys.tolist() == keys[1:]
        assert len(replay.table("t")) == 2


def test_what_is_no_selector_is_refused():
    for wrong in (RankBased, object(), "Fifo"):
        with pytest.raises(TypeError, match="sampler: expected a selector"):
            hr.Table("t", sampler=wrong, remover=Fifo(), max_size=9)
    with pytest.raises(TypeError, match="abstract"):
        CustomSelector()


# ---- rate limiters -----------------------------------------------------------------------------------------


class Batches(CustomRateLimiter):
    """Inserting waits while 2 items were not sampled; a sample is of one of these."""

    def __init__(self, min_size=1):
        super().__init__(min_size=min_size)

    def allows_insert(self, inserts, samples, deletes, n):
        return inserts + n - samples <= 2

    def allows_sample(self, inserts, samples, deletes, n):
        return samples + n <= inserts

    def largest_batch(self):
        return 2


def test_what_waits_at_a_limiter_of_ones_own_goes_in_one_by_one():
    # replay I3, L5, L7
    table = hr.Table("t", sampler=Fifo(), remover=Fifo(), max_size=9, rate_limiter=Batches())
    with hr.Replay(SIGNATURE, [table]) as replay:
        writer = replay.writer(lanes=3, items=[hr.ItemRule("t", 1)])
        writer.append({"n": np.arange(3)})
        assert (len(replay.table("t")), writer.pending) == (2, 1)
        assert (replay.can_insert("t"), replay.can_sample("t", 2), replay.can_sample("t", 3)) == (
            False,
            True,
            False,
        )
        replay.sample("t", 1)
        assert (len(replay.table("t")), writer.pending) == (3, 0)
        replay.sample("t", 2)
        writer.append({"n": np.arange(3)})
        assert (len(replay.table("t")), writer.pending) == (5, 1)
        replay.sample("t", 1)
        writer.close()


def test_it_is_asked_with_the_counts_of_each_moment():
    # An insert into a full table is a delete, too: what it says next may depend on that.
    class UntilTwoLeft(CustomRateLimiter):
        def allows_insert(self, inserts, samples, deletes, n):
            return deletes < 2

        def allows_sample(self, inserts, samples, deletes, n):
            return True

    table = hr.Table("t", sampler=Fifo(), remover=Fifo(), max_size=2, rate_limiter=UntilTwoLeft())
    with hr.Replay(SIGNATURE, [table]) as replay:
        writer = replay.writer(lanes=8, items=[hr.ItemRule("t", 1)])
        writer.append({"n": np.arange(8)})
        assert writer.pending == 4
        found = replay.table("t").statistics()
        assert (found.inserts, found.deletes) == (4, 2)
        assert math.isnan(found.samples_per_insert)
        replay.reset("t")
        assert writer.pending == 0
        writer.close()


def test_waits_and_errors_name_it():
    # replay L9, L10
    clock = FakeClock()
    table = hr.Table("t", sampler=Fifo(), remover=Fifo(), max_size=9, rate_limiter=Batches(min_size=3))
    with hr.Replay(SIGNATURE, [table], clock=clock) as replay:
        put(replay, [1.0, 1.0])
        with pytest.raises(hr.DeadlineExceeded, match="Batches, min_size=3"):
            replay.sample("t", 1, timeout=0)
        with pytest.raises(ValueError, match="could never be served: at most 2"):
            replay.sample("t", 3)
        drawn = []
        thread = threading.Thread(target=lambda: drawn.append(replay.sample("t", 2)))
        thread.start()
        clock.wait_for_waiters(1)
        put(replay, [1.0])
        thread.join(10)
        assert len(drawn) == 1


def test_its_numbers_are_checked():
    # replay T2
    with pytest.raises(ValueError, match="Batches: min_size: expected"):
        Batches(min_size=0)
    with pytest.raises(ValueError, match="waits for 7 items, but max_size is 5"):
        hr.Table("t", sampler=Fifo(), remover=Fifo(), max_size=5, rate_limiter=Batches(7))
    assert Batches(2) == Batches(2) != Batches(3)
    assert hash(Batches(2)) == hash(Batches(2))
    with pytest.raises(TypeError, match="abstract"):
        CustomRateLimiter()
