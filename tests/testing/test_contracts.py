"""The contracts of headrace.testing over all that Headrace has, and over a user's own."""

import subprocess
import sys
from dataclasses import dataclass

import pytest

from headrace.store.memory.arena import Arena
from headrace.tables.description.rate_limiters import (
    CustomRateLimiter,
    MinSize,
    Queue,
    RateLimiter,
    SampleToInsertRatio,
    Stack,
)
from headrace.tables.description.selectors import (
    CustomSelector,
    Fifo,
    Lifo,
    MaxHeap,
    MinHeap,
    Prioritized,
    SelectorIndex,
    Uniform,
)
from headrace.testing import RankBased, RateLimiterContract, SelectorContract, StorageContract

# ---- selectors -----------------------------------------------------------------------------------------------


class TestFifo(SelectorContract):
    def make(self):
        return Fifo()


class TestLifo(SelectorContract):
    def make(self):
        return Lifo()


class TestUniform(SelectorContract):
    def make(self):
        return Uniform()


class TestUniformWithoutReplacement(SelectorContract):
    def make(self):
        return Uniform(replacement=False)


class TestPrioritized(SelectorContract):
    def make(self):
        return Prioritized()


class TestPrioritizedByTheRoot(SelectorContract):
    def make(self):
        return Prioritized(0.5)


class TestMinHeap(SelectorContract):
    def make(self):
        return MinHeap()


class TestMaxHeap(SelectorContract):
    def make(self):
        return MaxHeap()


class TestRankBased(SelectorContract):
    def make(self):
        return RankBased()


@dataclass(frozen=True)
class Recent(CustomSelector):
    """Newer items more often, by a half-life in items: as a user would write it, with lists."""

    half_life: float

    def new_index(self):
        return RecentIndex(self.half_life)


class RecentIndex(SelectorIndex):
    def __init__(self, half_life):
        self.half_life = half_life
        self.keys = []

    def insert(self, key, priority):
        self.keys.append(key)

    def update(self, key, priority):
        pass

    def remove(self, key):
        self.keys.remove(key)

    def choose(self, count, random):
        newest_first = self.keys[::-1]
        weights = [0.5 ** (age / self.half_life) for age in range(len(newest_first))]
        whole = sum(weights)
        chances = [weight / whole for weight in weights]
        places = random.choice(len(chances), count, p=chances)
        return [newest_first[place] for place in places], [chances[place] for place in places]


class TestRecent(SelectorContract):
    def make(self):
        return Recent(half_life=2.0)


# ---- rate limiters -------------------------------------------------------------------------------------------


class TestMinSize(RateLimiterContract):
    def make(self):
        return MinSize(5)


class TestQueue(RateLimiterContract):
    def make(self):
        return Queue(3)


class TestQueueOfOne(RateLimiterContract):
    def make(self):
        return Queue(1)


class TestStack(RateLimiterContract):
    def make(self):
        return Stack(4)


class TestSampleToInsertRatio(RateLimiterContract):
    def make(self):
        return SampleToInsertRatio(2.5, 4, 6)


class TestSampleToInsertRatioByBounds(RateLimiterContract):
    def make(self):
        return SampleToInsertRatio(0.3, 7, (-4.0, 5.0))


class TestFourNumbers(RateLimiterContract):
    def make(self):
        return RateLimiter(samples_per_insert=1.5, min_size=2, min_diff=-3.0, max_diff=9.0)


@dataclass(frozen=True, init=False)
class Halves(RateLimiter):
    """A user's own that four numbers can say."""

    def __init__(self):
        super().__init__(samples_per_insert=0.5, min_size=4, min_diff=0.0, max_diff=6.0)


class TestHalves(RateLimiterContract):
    def make(self):
        return Halves()


class Growing(CustomRateLimiter):
    """A user's own that they cannot: few samples an insert in the beginning, `most` of them later."""

    def __init__(self, most):
        super().__init__(samples_per_insert=most, min_size=3)
        self.most = most

    def target(self, inserts):
        return sum(min(self.most, 1 + number / 20) for number in range(inserts))

    def allows_insert(self, inserts, samples, deletes, n):
        return self.target(inserts + n) - samples <= 4 * self.most

    def allows_sample(self, inserts, samples, deletes, n):
        return samples + n - self.target(inserts) <= self.most


class TestGrowing(RateLimiterContract):
    def make(self):
        return Growing(4.0)


# ---- storage -------------------------------------------------------------------------------------------------


class TestPrivate(StorageContract):
    def make(self, nbytes):
        return Arena.private(nbytes)


class TestShared(StorageContract):
    def make(self, nbytes):
        return Arena.shared(nbytes)


class TestFile(StorageContract):
    @pytest.fixture(autouse=True)
    def in_a_folder(self, tmp_path):
        self.folder = tmp_path

    def make(self, nbytes):
        return Arena.file(self.folder / f"arena-{len(list(self.folder.iterdir()))}", nbytes)


# ---- loading them --------------------------------------------------------------------------------------------


def test_contracts_are_loaded_when_they_are_asked_for():
    code = """
import sys, headrace.testing as testing
assert not {"hypothesis", "pytest"} & set(sys.modules), "loaded too early"
sys.modules["hypothesis"] = None
for name in ("SelectorContract", "RateLimiterContract", "StorageContract", "ReplayContract", "WriterContract"):
    try:
        getattr(testing, name)
    except ImportError as error:
        assert "headrace[testing]" in str(error)
    else:
        raise AssertionError("expected an ImportError")
assert testing.RankBased(0.5).exponent == 0.5
try:
    testing.Nothing
except AttributeError as error:
    assert "Nothing" in str(error)
"""
    subprocess.run([sys.executable, "-c", code], check=True, timeout=60)
