"""A contract that a broken thing passes is worth nothing: each fault here fails at least one of its tests."""

import inspect
import mmap
import os
from dataclasses import dataclass

import numpy as np
import pytest

from headrace.store.memory.arena import Arena
from headrace.tables.description.rate_limiters import CustomRateLimiter, RateLimiter
from headrace.tables.description.selectors import CustomSelector, SelectorIndex
from headrace.testing import RateLimiterContract, SelectorContract, StorageContract


def run_all(contract):
    for name, test in inspect.getmembers(contract, inspect.isfunction):
        if name.startswith("test_"):
            test(contract())


def fails(contract, name):
    """Whether this test of a contract notices. One of pytest's own may not be an `Exception`."""
    try:
        getattr(contract(), name)()
    except (Exception, pytest.fail.Exception):
        return True
    return False


# ---- selectors -----------------------------------------------------------------------------------------------


class Weighted(SelectorIndex):
    """A correct index in proportion to priorities, to be broken in one place each."""

    def __init__(self):
        self.weights = {}

    def insert(self, key, priority):
        self.weights[key] = min(priority, 1e290)

    def update(self, key, priority):
        self.insert(key, priority)

    def remove(self, key):
        del self.weights[key]

    def chances(self):
        weights = np.array(list(self.weights.values()))
        whole = weights.sum()
        return weights / whole if whole > 0 else np.full(len(weights), 1 / len(weights))

    def choose(self, count, random):
        chances = self.chances()
        places = random.choice(len(chances), count, p=chances)
        return np.array(list(self.weights))[places], np.maximum(chances[places], 5e-324)


class ForgetsToRemove(Weighted):
    def remove(self, key):
        self.weights[key] = 0.0


class KeepsAllThatLeft(Weighted):
    def remove(self, key):
        pass


class TellsAnotherProbability(Weighted):
    def choose(self, count, random):
        keys, _ = super().choose(count, random)
        return keys, [1 / len(self.weights)] * count


class NeverPicksTheNewest(Weighted):
    def choose(self, count, random):
        chances = self.chances()
        others = max(1, len(chances) - 1)
        places = random.choice(others, count, p=chances[:others] / chances[:others].sum())
        return np.array(list(self.weights))[places], chances[places]


class HasItsOwnGenerator(Weighted):
    def choose(self, count, random):
        return super().choose(count, np.random.default_rng())


class IgnoresUpdates(Weighted):
    def update(self, key, priority):
        pass


class AddsToARunningSum(Weighted):
    """A sum that is added to and subtracted from drifts."""

    def __init__(self):
        super().__init__()
        self.sum = 0.0

    def insert(self, key, priority):
        self.sum += min(priority, 1e290) - self.weights.get(key, 0.0)
        super().insert(key, priority)

    def remove(self, key):
        self.sum -= self.weights[key]
        super().remove(key)

    def choose(self, count, random):
        keys, _ = super().choose(count, random)
        chances = [self.weights[key] / self.sum if self.sum > 0 else 1 / len(self.weights) for key in keys]
        return keys, np.clip(chances, 5e-324, 1.0)


class DividesByZero(Weighted):
    def chances(self):
        weights = np.array(list(self.weights.values()))
        with np.errstate(invalid="ignore"):
            return weights / weights.sum()


class GivesTooFew(Weighted):
    def choose(self, count, random):
        keys, chances = super().choose(count, random)
        return keys[:1], chances[:1]


class PicksEachOfABatchOnce(Weighted):
    """A batch is not what as many single draws would be."""

    def choose(self, count, random):
        chances = self.chances()
        count_there = np.count_nonzero(chances)
        places = random.choice(len(chances), min(count, count_there), replace=False, p=chances)
        places = np.resize(places, count)
        return np.array(list(self.weights))[places], chances[places]


@dataclass(frozen=True)
class With(CustomSelector):
    index: type

    def new_index(self):
        return self.index()


class OneIndexForAll(CustomSelector):
    def __init__(self):
        self.index = Weighted()

    def new_index(self):
        return self.index


def contract_of(selector):
    class Contract(SelectorContract):
        def make(self):
            return selector()

    return Contract


def test_the_index_that_is_broken_below_is_right():
    run_all(contract_of(lambda: With(Weighted)))


@pytest.mark.parametrize(
    ("index", "test"),
    [
        (ForgetsToRemove, "test_what_left_is_never_picked"),
        (KeepsAllThatLeft, "test_what_left_is_never_picked"),
        (KeepsAllThatLeft, "test_a_batch_is_successive_draws"),
        (TellsAnotherProbability, "test_reported_probabilities_are_what_happens"),
        (NeverPicksTheNewest, "test_reported_probabilities_are_what_happens"),
        (HasItsOwnGenerator, "test_the_same_seed_gives_the_same_batches"),
        (IgnoresUpdates, "test_an_updated_item_is_as_if_inserted_so"),
        (AddsToARunningSum, "test_an_updated_item_is_as_if_inserted_so"),
        (DividesByZero, "test_any_priorities_serve"),
        (GivesTooFew, "test_reported_probabilities_are_what_happens"),
        (PicksEachOfABatchOnce, "test_reported_probabilities_are_what_happens"),
    ],
)
def test_a_broken_index_fails(index, test):
    assert fails(contract_of(lambda: With(index)), test)


def test_a_selector_with_state_fails():
    assert fails(contract_of(OneIndexForAll), "test_the_description_keeps_nothing")


# ---- rate limiters -------------------------------------------------------------------------------------------


class Rounds(CustomRateLimiter):
    """A correct limiter, to be broken in one place each."""

    def __init__(self):
        super().__init__(min_size=3)

    def allows_insert(self, inserts, samples, deletes, n):
        return inserts + n - samples <= 8

    def allows_sample(self, inserts, samples, deletes, n):
        return inserts - samples - n >= 0


class Counts(Rounds):
    """State: it closes after some questions."""

    asked = 0

    def allows_insert(self, inserts, samples, deletes, n):
        type(self).asked += 1
        return type(self).asked % 7 > 0 and super().allows_insert(inserts, samples, deletes, n)


class AllowsOnlyPairs(Rounds):
    def allows_sample(self, inserts, samples, deletes, n):
        return n % 2 == 0 and super().allows_sample(inserts, samples, deletes, n)


class StandsStill(Rounds):
    def allows_sample(self, inserts, samples, deletes, n):
        return inserts - samples - n >= 8


class NeverOpens(Rounds):
    def allows_insert(self, inserts, samples, deletes, n):
        return True

    def allows_sample(self, inserts, samples, deletes, n):
        return inserts < 0


class SamplesNothing(Rounds):
    """An empty table is sampled."""

    def can_sample(self, inserts, samples, deletes, n):
        return self.allows_sample(inserts, samples, deletes, n)


class ClosesBelowItsMinimum(Rounds):
    def can_insert(self, inserts, samples, deletes, n):
        return self.allows_insert(inserts, samples, deletes, n)


class InsertsMore(Rounds):
    def insertable(self, inserts, samples, deletes):
        return 5


class SaysItNeverBlocks(Rounds):
    @property
    def never_blocks_inserts(self):
        return True


class TellsASmallLargestBatch(Rounds):
    def largest_batch(self):
        return 2


class IsNeverEqual(Rounds):
    def __eq__(self, other):
        return self is other

    def __hash__(self):
        return id(self)


class DeadlockedNumbers(RateLimiter):
    def __init__(self):
        super().__init__(samples_per_insert=4.0, min_size=1, min_diff=3.0, max_diff=5.0)


def limiter_contract_of(limiter):
    class Contract(RateLimiterContract):
        def make(self):
            return limiter()

    return Contract


def test_the_limiter_that_is_broken_below_is_right():
    run_all(limiter_contract_of(Rounds))


@pytest.mark.parametrize(
    ("limiter", "test"),
    [
        (Counts, "test_the_same_counts_get_the_same_answer"),
        (AllowsOnlyPairs, "test_what_is_allowed_for_many_is_allowed_for_fewer"),
        (StandsStill, "test_it_never_stands_still"),
        (DeadlockedNumbers, "test_it_never_stands_still"),
        (NeverOpens, "test_sampling_opens"),
        (SamplesNothing, "test_the_minimum_size_is_kept"),
        (ClosesBelowItsMinimum, "test_the_minimum_size_is_kept"),
        (InsertsMore, "test_insertable_items_may_be_inserted"),
        (SaysItNeverBlocks, "test_insertable_items_may_be_inserted"),
        (TellsASmallLargestBatch, "test_it_never_stands_still"),
        (IsNeverEqual, "test_two_of_one_description_are_equal"),
    ],
)
def test_a_broken_limiter_fails(limiter, test):
    assert fails(limiter_contract_of(limiter), test)


def test_gates_that_contradict_the_numbers_are_refused():
    with pytest.raises(TypeError, match="derives from CustomRateLimiter"):

        class Contradicts(RateLimiter):
            def can_insert(self, inserts, samples, deletes, n):
                return False


# ---- storage -------------------------------------------------------------------------------------------------


class Dirty(Arena):
    @classmethod
    def new(cls, nbytes):
        arena = cls.private(nbytes)
        arena.array(nbytes // 2, (1,), np.uint8)[:] = 1
        return arena


class GivesCopies(Arena):
    @classmethod
    def new(cls, nbytes):
        return cls.private(nbytes)

    def array(self, offset, shape, dtype):
        return super().array(offset, shape, dtype).copy()


class IgnoresTheOffset(Arena):
    @classmethod
    def new(cls, nbytes):
        return cls.private(nbytes)

    def array(self, offset, shape, dtype):
        return super().array(0, shape, dtype)


class TakesAllAtOnce(Arena):
    @classmethod
    def new(cls, nbytes):
        arena = cls.private(nbytes)
        arena.array(0, (min(nbytes, 128 << 20),), np.uint8)[:] = 0
        return arena


class AttachesACopy(Arena):
    """What it says is its descriptor is another memory."""

    @classmethod
    def new(cls, nbytes):
        made = cls.shared(nbytes)
        other = os.memfd_create("headrace")
        os.ftruncate(other, nbytes)
        os.dup2(other, made._descriptor, inheritable=False)
        os.close(other)
        return made


class LeavesDescriptors(Arena):
    @classmethod
    def new(cls, nbytes):
        return cls.shared(nbytes)

    def close(self):
        self._descriptor = None


class StaysShared(Arena):
    @classmethod
    def new(cls, nbytes):
        return cls.shared(nbytes)

    def make_private(self):
        pass


class LooksPastItsEnd(Arena):
    """It maps more than it says, and so gives what is not its own."""

    @classmethod
    def new(cls, nbytes):
        return cls(mmap.mmap(-1, nbytes + mmap.PAGESIZE), nbytes)


def storage_contract_of(arena):
    class Contract(StorageContract):
        def make(self, nbytes):
            return arena.new(nbytes)

    return Contract


@pytest.mark.parametrize(
    ("arena", "test"),
    [
        (Dirty, "test_it_begins_with_zeros"),
        (GivesCopies, "test_arrays_are_its_bytes"),
        (IgnoresTheOffset, "test_arrays_are_its_bytes"),
        (TakesAllAtOnce, "test_a_reservation_takes_no_memory"),
        (AttachesACopy, "test_who_attaches_sees_the_same_bytes"),
        (LeavesDescriptors, "test_nothing_is_left_open"),
        (StaysShared, "test_a_forked_child_shares_it_until_it_makes_it_private"),
        (LooksPastItsEnd, "test_an_array_over_the_end_is_refused"),
    ],
)
def test_a_broken_arena_fails(arena, test):
    assert fails(storage_contract_of(arena), test)
