"""Contract of selectors, Headrace's own and yours."""

# Rules: replay S1 to S10, T1, T5, T6, L5

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from headrace.replay import Replay, SampleInfo, Table
from headrace.spec import Signature
from headrace.tables.description.selectors import AnySelector, CustomSelector, Fifo, Uniform
from headrace.testing.pytest_hypothesis import given_contract, hypothesis, strategies

_SIGNATURE = Signature.like({"n": 0})
_PRIORITIES = [0.5, 4.0, 1.0, 8.0, 2.0, 3.0]
# Where all are 0 those that left are easily mixed up with those that are there.
_SOME_PRIORITIES = strategies.sampled_from([[0.0], [1.0], [0.0, 0.5, 1.0, 7.0, 1e12]])
# Probabilities below this are not expected to show.
_RARE = 0.01
# In standard deviations of a chi-square, about: one in ten million.
_UNLIKELY = 5.2


class SelectorContract(ABC):
    """Tests of a selector as sampler and as remover. Derive from it and define `make`; pytest does the rest.

    A selector must pick present items only. Its reported probabilities must match its picks, and depend on the present
    items, their order and priorities only. The description must have no state. All random numbers must come from the
    replay's generator.

    >>> class TestRankBased(SelectorContract):
    ...     def make(self):
    ...         return RankBased()
    >>> from headrace.testing.rank_based import RankBased
    >>> TestRankBased().test_one_item_is_picked_for_certain()
    """

    @abstractmethod
    def make(self) -> AnySelector:
        """A selector."""

    # ---- as sampler ------------------------------------------------------------------------------------------------

    def test_the_description_keeps_nothing(self) -> None:
        """One object serves in several tables and roles, which know nothing of each other."""
        # Rules: replay T1
        selector = self.make()
        if isinstance(selector, CustomSelector):
            assert selector.new_index() is not selector.new_index(), "new_index returned one index twice"
        tables = [Table(name, sampler=selector, remover=selector, max_size=4) for name in "ab"]
        with Replay(_SIGNATURE, tables, seed=0) as replay:
            _put(replay, _PRIORITIES, "a")
            for size in (1, 2, 3):
                (key,) = _put(replay, [1.0], "b", first=size)
                info = replay.sample("b", 1, timeout=0).info
                assert info.keys[0] <= key, "a key of no table"
                assert info.table_size[0] == size
            before = replay.table("b").statistics().size
            replay.reset("a")
            assert replay.table("b").statistics().size == before
            replay.sample("b", 1, timeout=0)

    def test_one_item_is_picked_for_certain(self) -> None:
        """A single item is picked with any priority."""
        for priority in (0.0, 1e-300, 1.0, 1e300):
            with _sampled_by(self.make()) as replay:
                keys = _put(replay, [priority])
                info = replay.sample("t", 1, timeout=0).info
                assert (info.keys.tolist(), info.probabilities.tolist()) == (keys, [1.0])

    def test_reported_probabilities_are_what_happens(self) -> None:
        """Each item is picked as often as it says, in batches and one by one."""
        # Rules: replay S3, S4, L5
        for batch_size, batches in ((len(_PRIORITIES), 500), (1, 1500)):
            with _sampled_by(self.make()) as replay:
                keys = _put(replay, _PRIORITIES)
                chances, counts = _draw(replay, batch_size, batches)
                assert set(counts) <= set(keys), "a key of no item"
                unseen = 1.0 - math.fsum(chances.values())
                assert -1e-9 < unseen < _RARE, (
                    f"the items that were picked have probability {1 - unseen} in all"
                )
                _assert_likely(chances, counts)

    def test_an_updated_item_is_as_if_inserted_so(self) -> None:
        """Nothing is left of earlier priorities, however far away they were."""
        # Rules: replay S8
        random = np.random.default_rng(1)
        with _sampled_by(self.make()) as fresh, _sampled_by(self.make()) as updated:
            _put(fresh, _PRIORITIES)
            keys = np.array(_put(updated, _PRIORITIES[::-1]))
            for factor in (3.7e18, 1.0, 1e-15, 1.0):
                some = random.permutation(len(keys))[:4]
                updated.update_priorities("t", keys[some], np.array(_PRIORITIES)[some] * factor)
            for key, priority in zip(keys, _PRIORITIES, strict=True):
                updated.update_priorities("t", [key], [priority])
            _assert_same_chances(_draw(fresh, 6, 100)[0], _draw(updated, 6, 100)[0])

    def test_any_priorities_serve(self) -> None:
        """Zeros, and the ends of the range of a float."""
        # Rules: replay S4, P1
        for priorities in ([0.0] * 5, [0.0, 0.0, 1.0], [1e300, 5e-324, 1.0], [1.7e308] * 3):
            with _sampled_by(self.make()) as replay:
                _put(replay, priorities)
                for _ in range(20):
                    _assert_valid(replay.sample("t", 2, timeout=0).info)

    def test_a_batch_is_successive_draws(self) -> None:
        """With max_times_sampled=1 an item is gone for the next draw of the same batch."""
        # Rules: replay T6, L5
        for seed in range(4):
            with _sampled_by(self.make(), max_times_sampled=1, seed=seed) as replay:
                keys = _put(replay, _PRIORITIES)
                info = replay.sample("t", len(keys), timeout=0).info
                assert sorted(info.keys.tolist()) == keys
                assert info.table_size.tolist() == [6, 5, 4, 3, 2, 1]
                assert info.probabilities[-1] == 1.0
                assert len(replay.table("t")) == 0
            for gone in range(3):
                left = _chances_without(self.make(), info.keys[:gone])
                told = float(info.probabilities[gone])
                chance = left.get(int(info.keys[gone]))
                assert math.isclose(told, chance, rel_tol=1e-9) if chance else told < _RARE

    def test_what_left_is_never_picked(self) -> None:
        """Deleted, or pushed out by newer items."""
        # Rules: replay T5, T7
        for priorities in ([1.0] * 4, [0.0] * 4, _PRIORITIES[:4]):
            with _sampled_by(self.make(), max_size=4) as replay:
                keys = _put(replay, priorities)
                for gone in range(1, 4):
                    replay.delete("t", keys[gone - 1 : gone])
                    _assert_drawn_from(replay, keys[gone:])
                keys = keys[3:] + _put(replay, priorities)
                _assert_drawn_from(replay, keys[1:])

    @given_contract
    @hypothesis.given(strategies.data())
    def test_only_items_that_are_there_are_picked(self, data: strategies.DataObject) -> None:
        """After any sequence of inserts, updates, removals and samples."""
        # Rules: replay B3, T6, T7, T8, P2
        most = data.draw(strategies.sampled_from([0, 0, 1, 3]), "max_times_sampled")
        priority = strategies.sampled_from(data.draw(_SOME_PRIORITIES, "priorities"))
        live: list[int] = []
        with _sampled_by(self.make(), max_size=5, max_times_sampled=most) as replay:
            calls = strategies.sampled_from(["put", "put", "put", "update", "delete", "reset", "sample"])
            for call in data.draw(strategies.lists(calls, max_size=25), "calls"):
                some = strategies.sampled_from([*live, 10**6])
                if call == "put":
                    live = [*live, *_put(replay, [data.draw(priority)])][-5:]
                elif call == "update":
                    replay.update_priorities(
                        "t", [data.draw(some)] * 2, [data.draw(priority), data.draw(priority)]
                    )
                elif call == "delete":
                    gone = data.draw(some)
                    replay.delete("t", [gone, gone])
                    live = [key for key in live if key != gone]
                elif call == "reset":
                    replay.reset("t")
                    live = []
                elif live:
                    live = _sample(replay, live, most)
                assert len(replay.table("t")) == len(live)

    def test_the_same_seed_gives_the_same_batches(self) -> None:
        """In both roles."""
        # Rules: replay S10
        first, second = (_play(self.make()) for _ in range(2))
        assert first == second, (
            "two replays of one seed and the same calls differ: is there another generator?"
        )

    # ---- as remover ------------------------------------------------------------------------------------------------

    def test_as_remover_it_takes_one_item_for_each_too_many(self) -> None:
        """The new one or an older one; nothing else is touched."""
        # Rules: replay T5
        with _removed_by(self.make(), max_size=4) as replay:
            live: set[int] = set()
            for number in range(25):
                (key,) = _put(replay, [float(number * 7 % 5)], first=number)
                now = _there(replay)
                assert now <= live | {key}
                assert len(now) == min(number + 1, 4)
                live = now
                if number % 6 == 5:
                    replay.delete("t", [min(live)])
                    live = _there(replay)
                    _put(replay, [2.0])
                    live = _there(replay)
            replay.table("t").configure(max_size=2)
            assert _there(replay) < live
            assert len(_there(replay)) == 2

    def test_as_remover_it_takes_what_it_picks_as_sampler(self) -> None:
        """With the same probabilities."""
        # Rules: replay S9, T5
        with _sampled_by(self.make()) as replay:
            keys = _put(replay, _PRIORITIES)
            by_key, _ = _draw(replay, len(keys), 200)
            chances = {keys.index(key): chance for key, chance in by_key.items()}
        counts: dict[int, int] = {}
        with _removed_by(self.make(), max_size=len(_PRIORITIES) - 1) as replay:
            for _ in range(400):
                keys = _put(replay, _PRIORITIES)
                (victim,) = set(keys) - _there(replay)
                counts[keys.index(victim)] = counts.get(keys.index(victim), 0) + 1
                replay.reset("t")
        _assert_likely(chances, counts)


def _sampled_by(
    sampler: AnySelector, max_size: int = 1000, max_times_sampled: int = 0, seed: int = 0
) -> Replay:
    table = Table(
        "t", sampler=sampler, remover=Fifo(), max_size=max_size, max_times_sampled=max_times_sampled
    )
    return Replay(_SIGNATURE, [table], seed=seed)


def _removed_by(remover: AnySelector, max_size: int) -> Replay:
    table = Table("t", sampler=Uniform(replacement=False), remover=remover, max_size=max_size)
    return Replay(_SIGNATURE, [table], seed=0)


def _put(replay: Replay, priorities: Sequence[float], table: str = "t", first: int = 0) -> list[int]:
    """One item for each priority; returns the keys."""
    keys = []
    with replay.writer(history=1) as writer:
        for number, priority in enumerate(priorities, first):
            writer.append({"n": number})
            keys.append(writer.create_item(table, 1, priority))
    return keys


def _there(replay: Replay) -> set[int]:
    """The keys of all items; its sampler picks each once."""
    return set(replay.sample("t", len(replay.table("t")), timeout=0).info.keys.tolist())


def _draw(replay: Replay, batch_size: int, batches: int) -> tuple[dict[int, float], dict[int, int]]:
    """Draws from unchanged items; maps each key to its reported probability, and to its number of picks."""
    chances: dict[int, float] = {}
    counts: dict[int, int] = {}
    for _ in range(batches):
        info = replay.sample("t", batch_size, timeout=0).info
        _assert_valid(info)
        for key, chance in zip(info.keys.tolist(), info.probabilities.tolist(), strict=True):
            told = chances.setdefault(key, chance)
            assert math.isclose(told, chance, rel_tol=1e-9), f"item {key}: {told}, then {chance}"
            counts[key] = counts.get(key, 0) + 1
    return chances, counts


def _chances_without(selector: AnySelector, gone: NDArray[np.uint64]) -> dict[int, float]:
    with _sampled_by(selector) as replay:
        _put(replay, _PRIORITIES)
        replay.delete("t", gone)
        return _draw(replay, len(replay.table("t")), 100)[0]


def _sample(replay: Replay, live: list[int], most: int) -> list[int]:
    """Draws two items, or one, and checks them against the present keys; returns the keys that are left."""
    info = replay.sample("t", min(2, len(live)), timeout=0).info
    _assert_valid(info)
    for place, key in enumerate(info.keys.tolist()):
        assert key in live, f"picked {key}, which is not there: {live}"
        assert info.table_size[place] == len(live)
        if len(live) == 1:
            assert info.probabilities[place] == 1.0
        if info.times_sampled[place] == most:
            live = [other for other in live if other != key]
    return live


def _assert_drawn_from(replay: Replay, live: list[int]) -> None:
    assert len(replay.table("t")) == len(live)
    for _ in range(30):
        _sample(replay, live, 0)


def _play(selector: AnySelector) -> list[list[int]]:
    """The keys of a few batches of a table in which the selector samples and removes."""
    table = Table("t", sampler=selector, remover=selector, max_size=6, max_times_sampled=9)
    batches = []
    with Replay(_SIGNATURE, [table], seed=7) as replay:
        for turn in range(12):
            keys = _put(replay, [float(turn % 4), 1.0, 3.0])
            info = replay.sample("t", 3, timeout=0).info
            batches.append(info.keys.tolist())
            replay.update_priorities("t", info.keys, info.priorities + 1.0)
            replay.delete("t", keys[:1])
    return batches


def _assert_valid(info: SampleInfo) -> None:
    chances = info.probabilities
    assert ((chances > 0.0) & (chances <= 1.0)).all(), f"probabilities: {chances.tolist()}"


def _assert_same_chances(one: dict[int, float], other: dict[int, float]) -> None:
    for key in set(one) | set(other):
        a, b = one.get(key, 0.0), other.get(key, 0.0)
        # A rare item may have been picked in one role and not in the other.
        assert math.isclose(a, b, rel_tol=1e-9) or (0.0 in (a, b) and max(a, b) < _RARE), (
            f"item {key}: {a}, {b}"
        )


def _assert_likely(chances: dict[int, float], counts: dict[int, int]) -> None:
    """Asserts that the counts fit these probabilities, by a chi-square test (Wilson and Hilferty, 1931)."""
    total = sum(counts.values())
    assert set(counts) <= set(chances), f"{set(counts) - set(chances)} should be too rare to come"
    cells = [(counts.get(key, 0), total * chance) for key, chance in chances.items() if total * chance >= 5.0]
    if len(cells) < 2:
        return
    statistic = sum((count - expected) ** 2 / expected for count, expected in cells)
    spread = 2.0 / (9.0 * (len(cells) - 1))
    deviations = ((statistic / (len(cells) - 1)) ** (1 / 3) - (1.0 - spread)) / math.sqrt(spread)
    assert deviations < _UNLIKELY, f"expected items in proportion to {chances}, got {counts}"
