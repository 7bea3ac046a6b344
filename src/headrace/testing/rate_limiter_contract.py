"""Contract of rate limiters, Headrace's own and yours."""

# Rules: replay L1 to L10

from __future__ import annotations

import math
from abc import ABC, abstractmethod

from headrace.replay import Replay, Table
from headrace.spec import Signature
from headrace.tables.description.rate_limiters import RateLimiter
from headrace.tables.description.selectors import Fifo
from headrace.testing.pytest_hypothesis import given_contract, hypothesis, strategies

_SIGNATURE = Signature.like({"n": 0})
_COUNTS = strategies.tuples(
    strategies.integers(0, 300), strategies.integers(0, 900), strategies.integers(0, 300)
).map(lambda counts: (counts[0], counts[1], min(counts[0], counts[2])))
_STEPS = strategies.lists(
    strategies.tuples(
        strategies.sampled_from(["insert", "insert", "sample", "delete"]), strategies.integers(1, 4)
    ),
    max_size=80,
)
_NUMBERS = [*range(1, 12), 200]
# Random steps seldom allow a large batch; these try the largest first, as often as a table is filled and sampled.
_FILLED_AND_EMPTIED = 3 * ([("insert", 1)] * 20 + [("sample", n) for n in range(20, 0, -1)])


class RateLimiterContract(ABC):
    """Tests of a rate limiter. Derive from it and define `make`; pytest does the rest.

    A limiter must compute its answers from inserts, samples and deletes only. If it allows n items, it must allow
    fewer. A table that obeys it must not stand still, and must not be sampled while empty.

    >>> class TestMine(RateLimiterContract):
    ...     def make(self):
    ...         return RateLimiter(samples_per_insert=2.0, min_size=3, min_diff=2.0, max_diff=10.0)
    >>> TestMine().test_sampling_opens()
    """

    @abstractmethod
    def make(self) -> RateLimiter:
        """Returns a rate limiter with a minimum size below 200."""

    def test_two_of_one_description_are_equal(self) -> None:
        """A description without state: values."""
        # Rules: replay T1
        assert self.make() == self.make()
        assert hash(self.make()) == hash(self.make())

    @given_contract
    @hypothesis.given(strategies.lists(_COUNTS, min_size=2, max_size=20))
    def test_the_same_counts_get_the_same_answer(self, asked: list[tuple[int, int, int]]) -> None:
        """It keeps no state and looks at nothing else."""
        limiter = self.make()
        before = [_answers(limiter, *counts) for counts in asked]
        after = [_answers(limiter, *counts) for counts in reversed(asked)]
        assert before == after[::-1], "the same counts were answered otherwise the second time"
        assert limiter == self.make(), "asking has changed it"

    @given_contract
    @hypothesis.given(_COUNTS)
    def test_what_is_allowed_for_many_is_allowed_for_fewer(self, counts: tuple[int, int, int]) -> None:
        """For inserts and for samples."""
        inserts, samples = _admitted(self.make(), *counts)
        assert inserts == sorted(inserts, reverse=True), f"can_insert for n = 1, 2, ...: {inserts}"
        assert samples == sorted(samples, reverse=True), f"can_sample for n = 1, 2, ...: {samples}"

    @given_contract
    @hypothesis.given(_COUNTS)
    def test_insertable_items_may_be_inserted(self, counts: tuple[int, int, int]) -> None:
        """`insertable` and `never_blocks_inserts`, by which a table inserts, do not contradict `can_insert`."""
        limiter = self.make()
        room = limiter.insertable(*counts)
        admitted, _ = _admitted(limiter, *counts)
        assert (room >= 1) == admitted[0], f"insertable {room}, can_insert {admitted[0]}"
        for n, may in zip(_NUMBERS, admitted, strict=True):
            assert may or n > room, f"insertable {room}, but {n} may not be inserted"
        assert all(admitted) or not limiter.never_blocks_inserts

    @given_contract
    @hypothesis.given(_COUNTS)
    def test_the_minimum_size_is_kept(self, counts: tuple[int, int, int]) -> None:
        """Below the minimum size a table accepts items and is not sampled, and neither is an empty table."""
        limiter = self.make()
        assert limiter.min_size >= 0
        size = counts[0] - counts[2]
        if size < limiter.min_size:
            assert limiter.can_insert(*counts, 1), f"{size} items of {limiter.min_size}: it takes no more"
        if size < max(1, limiter.min_size):
            assert not limiter.can_sample(*counts, 1), f"{size} items of {limiter.min_size}: it is sampled"

    @given_contract
    @hypothesis.given(_STEPS)
    @hypothesis.example(_FILLED_AND_EMPTIED)
    def test_it_never_stands_still(self, steps: list[tuple[str, int]]) -> None:
        """An insert or a sample is always allowed, and no batch exceeds `largest_batch`."""
        # Rules: replay L10
        limiter = self.make()
        inserts = samples = deletes = 0
        # Inserts that make up for deletes may add more than the rate alone would let in.
        largest = math.inf if any(step == "delete" for step, _ in steps) else limiter.largest_batch()
        for step, n in steps:
            if step == "insert" and limiter.can_insert(inserts, samples, deletes, n):
                inserts += n
                deletes = max(deletes, inserts - limiter.min_size - 3)  # The table has that max_size.
            elif step == "sample" and limiter.can_sample(inserts, samples, deletes, n):
                assert n <= largest, f"a batch of {n} is allowed; largest_batch is {largest}"
                samples += n
            elif step == "delete":
                deletes = min(inserts, deletes + n)
            moves = limiter.can_insert(inserts, samples, deletes, 1) or limiter.can_sample(
                inserts, samples, deletes, 1
            )
            assert moves, f"neither is allowed: inserts {inserts}, samples {samples}, deletes {deletes}"

    def test_sampling_opens(self) -> None:
        """A table that is only written to can be sampled at some time."""
        limiter = self.make()
        inserts = 0
        while not limiter.can_sample(inserts, 0, 0, 1):
            assert inserts < 10_000, "10000 items do not open it"
            assert limiter.can_insert(inserts, 0, 0, 1), (
                f"{inserts} items close inserting and do not open sampling"
            )
            inserts += 1

    @hypothesis.settings(given_contract, max_examples=20)
    @hypothesis.given(strategies.lists(strategies.sampled_from(["put", "put", "sample"]), max_size=40))
    def test_a_table_obeys_it(self, calls: list[str]) -> None:
        """Its gates are those of the limiter, and what waits goes in as soon as it may."""
        # Rules: replay I3, L7, L9
        limiter = self.make()
        table = Table(
            "t", sampler=Fifo(), remover=Fifo(), max_size=limiter.min_size + 2, rate_limiter=limiter
        )
        made = inserts = samples = deletes = 0
        with Replay(_SIGNATURE, [table]) as replay:
            writer = replay.writer(history=1)
            for call in ["put"] * min(limiter.min_size, 10) + calls:
                if call == "put":
                    writer.append({"n": made})
                    writer.create_item("t", 1)
                    made += 1
                elif limiter.can_sample(inserts, samples, deletes, 1):
                    replay.sample("t", 1, timeout=0)
                    samples += 1
                while inserts < made and limiter.can_insert(inserts, samples, deletes, 1):
                    inserts += 1
                    deletes = max(deletes, inserts - table.max_size)
                found = replay.table("t").statistics()
                assert (found.inserts, found.samples, found.deletes) == (inserts, samples, deletes)
                assert found.pending_inserts == made - inserts
                assert replay.can_sample("t", 2) == limiter.can_sample(inserts, samples, deletes, 2)
            for _ in range(made - inserts):
                replay.reset("t")
            writer.close(timeout=0)


def _answers(limiter: RateLimiter, *counts: int) -> tuple[object, ...]:
    return (*_admitted(limiter, *counts), limiter.insertable(*counts))


def _admitted(
    limiter: RateLimiter, inserts: int, samples: int, deletes: int
) -> tuple[list[bool], list[bool]]:
    """Returns for each of `_NUMBERS` whether this number of items may be inserted, and sampled."""
    return (
        [limiter.can_insert(inserts, samples, deletes, n) for n in _NUMBERS],
        [limiter.can_sample(inserts, samples, deletes, n) for n in _NUMBERS],
    )
