"""Rate limiters: pure arithmetic on inserts, samples and deletes decides when a table inserts and is sampled.

One formula with four numbers. With I, S, D the completed inserts, samples and deletes:

* n more items may be inserted: `I + n - D <= min_size` or `(I + n) * samples_per_insert - S <= max_diff`;
* n may be sampled: `I - D >= max(1, min_size)` and `I * samples_per_insert - S - n >= min_diff`.

A `CustomRateLimiter` has a rule of its own in place of the second half of each line.

Waiting is the table's business. The formula is that of DeepMind's Reverb (A. Cassirer et al., 2021), stated for
batches: a batch is one decision.
"""

from __future__ import annotations

import math
import warnings
from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Any

import numpy as np

from headrace.checks import check_count

_INFINITE = math.inf
# Beyond this a float may not distinguish n from n + 1; no table has as many items.
_COUNTABLE = 2.0**50


@dataclass(frozen=True)
class RateLimiter:
    """The four numbers of a gate. Make one with `MinSize`, `SampleToInsertRatio`, `Queue` or `Stack`.

    A class of yours that derives from it and sets other numbers is a limiter, too. Rules beyond these four numbers need
    a `CustomRateLimiter`.

    Attributes:
        samples_per_insert: samples that one insert is worth.
        min_size: items below which nothing is sampled.
        min_diff: the least value of `I * samples_per_insert - S` after a sample.
        max_diff: its greatest value after an insert, once `min_size` is exceeded.
    """

    samples_per_insert: float
    min_size: int
    min_diff: float
    max_diff: float

    def __init_subclass__(cls, **arguments: Any) -> None:
        super().__init_subclass__(**arguments)
        # The numbers answer `insertable` and `largest_batch`, too, and these must not contradict the gates.
        for gate, other in (("can_insert", "insertable"), ("can_sample", "largest_batch")):
            if getattr(cls, gate) is not getattr(RateLimiter, gate) and (
                getattr(cls, other) is getattr(RateLimiter, other)
            ):
                raise TypeError(
                    f"{cls.__name__}: a limiter with a {gate} of its own derives from CustomRateLimiter, and writes "
                    "allows_insert and allows_sample"
                )

    @property
    def never_blocks_inserts(self) -> bool:
        """Whether every insert goes in at once."""
        return self.max_diff == _INFINITE

    def insertable(self, inserts: int, samples: int, deletes: int) -> float:
        """Returns the number of items that may be inserted now without removals between them, perhaps infinite."""
        by_size = self.min_size - (inserts - deletes)
        by_rate = (self.max_diff + samples) / self.samples_per_insert - inserts
        if abs(by_rate) < _COUNTABLE:
            # The division may be a last bit off; the rule itself decides.
            by_rate = math.floor(by_rate)
            while not self._rate_admits(inserts + by_rate, samples):
                by_rate -= 1
            while self._rate_admits(inserts + by_rate + 1, samples):
                by_rate += 1
        return max(0, by_size, by_rate)

    def _rate_admits(self, inserts: float, samples: int) -> bool:
        return inserts * self.samples_per_insert - samples <= self.max_diff

    def can_insert(self, inserts: int, samples: int, deletes: int, n: int) -> bool:
        """Returns whether n more items may be inserted now."""
        return inserts + n - deletes <= self.min_size or self._rate_admits(inserts + n, samples)

    def can_sample(self, inserts: int, samples: int, deletes: int, n: int) -> bool:
        """Returns whether a batch of n may be sampled now."""
        return (
            inserts - deletes >= max(1, self.min_size)
            and inserts * self.samples_per_insert - samples - n >= self.min_diff
        )

    def largest_batch(self) -> float:
        """Returns the largest batch that any number of inserts could admit."""
        # Rules: replay L10
        return max(self.max_diff, self.samples_per_insert * self.min_size) - self.min_diff

    def share(self, parts: int) -> RateLimiter:
        """Returns the limiter of each of several tables that divide the items of one among them.

        Raises:
            ValueError: so little is left for each that neither side could move.
        """
        # Rules: collectors CY4
        return RateLimiter(
            self.samples_per_insert, -(-self.min_size // parts), self.min_diff / parts, self.max_diff / parts
        )

    def __str__(self) -> str:
        return (
            f"samples_per_insert={self.samples_per_insert:g}, min_size={self.min_size}, "
            f"min_diff={self.min_diff:g}, max_diff={self.max_diff:g}"
        )


class CustomRateLimiter(RateLimiter, ABC):
    """A limiter of your own: derive from it and write when inserting and sampling are allowed.

    Its answers must be pure arithmetic on the counts it is given: the same counts, the same answer. It keeps no state
    and looks at no clock, for a table asks again only when a count has changed. Some rules hold in any case: a
    table with fewer than `min_size` items always takes more and is never sampled; so is none that is empty. For every
    reachable state it must allow an insert or a sample, or the table stands still for ever. It must not raise.
    `headrace.testing.RateLimiterContract` tests all this. A table asks it for each insert, one by one.

    Args:
        samples_per_insert: a target, shown in statistics; NaN if there is none.
        min_size: items below which nothing is sampled.

    >>> class Warmup(CustomRateLimiter):
    ...     "Four samples an insert, but none of the first thousand inserts counts."
    ...     def __init__(self):
    ...         super().__init__(samples_per_insert=4.0, min_size=1000)
    ...     def allows_insert(self, inserts, samples, deletes, n):
    ...         return (inserts + n - 1000) * 4 - samples <= 64
    ...     def allows_sample(self, inserts, samples, deletes, n):
    ...         return samples + n - (inserts - 1000) * 4 <= 64
    >>> Warmup().can_sample(inserts=1000, samples=64, deletes=0, n=1)
    False
    """

    def __init__(self, *, samples_per_insert: float = math.nan, min_size: int = 1) -> None:
        min_size = check_count(f"{type(self).__name__}: min_size", min_size, 1)
        _fill(self, float(samples_per_insert), min_size, -_INFINITE, _INFINITE)

    @abstractmethod
    def allows_insert(self, inserts: int, samples: int, deletes: int, n: int) -> bool:
        """Returns whether a table of `min_size` items or more takes n more items; then it takes fewer, too."""

    @abstractmethod
    def allows_sample(self, inserts: int, samples: int, deletes: int, n: int) -> bool:
        """Returns whether a table of `min_size` items or more admits a batch of n; then it admits smaller ones, too."""

    @property
    def never_blocks_inserts(self) -> bool:
        """Returns False: plain Python code may refuse any insert."""
        return False

    def insertable(self, inserts: int, samples: int, deletes: int) -> float:
        """Returns 1 or 0: the next answer may depend on the item that is removed for this one."""
        return int(self.can_insert(inserts, samples, deletes, 1))

    def can_insert(self, inserts: int, samples: int, deletes: int, n: int) -> bool:
        """Returns whether n more items may be inserted now."""
        size = inserts - deletes
        return size + n <= self.min_size or bool(self.allows_insert(inserts, samples, deletes, n))

    def can_sample(self, inserts: int, samples: int, deletes: int, n: int) -> bool:
        """Returns whether a batch of n may be sampled now."""
        size = inserts - deletes
        return size >= self.min_size and bool(self.allows_sample(inserts, samples, deletes, n))

    def largest_batch(self) -> float:
        """Returns the largest batch that any number of inserts could admit; infinity unless overridden."""
        return _INFINITE

    def share(self, parts: int) -> RateLimiter:
        """Raises ValueError, unless overridden or for one part: a rule of your own cannot be divided."""
        if parts == 1:
            return self
        raise ValueError(
            f"{self}: expected a limiter of Headrace, or one with a method share(parts), for {parts} shards"
        )

    def __eq__(self, other: object) -> bool:
        return type(self) is type(other) and vars(self) == vars(other)

    def __hash__(self) -> int:
        return hash((type(self), self.min_size))

    def __str__(self) -> str:
        return f"{type(self).__name__}, min_size={self.min_size}"


@dataclass(frozen=True)
class MinSize(RateLimiter):
    """Sampling waits until the table has `n` items; inserting never waits.

    >>> MinSize(3).can_sample(inserts=2, samples=0, deletes=0, n=1)
    False
    """

    # Rules: replay L1

    def __init__(self, n: int) -> None:
        n = check_count("MinSize: n", n, 1)
        _fill(self, 1.0, n, -_INFINITE, _INFINITE)

    def share(self, parts: int) -> MinSize:
        """See `RateLimiter.share`."""
        return MinSize(-(-self.min_size // parts))


@dataclass(frozen=True)
class Queue(RateLimiter):
    """At most `n` items more are inserted than sampled, and each sample needs an insert of its own.

    >>> Queue(2).can_insert(inserts=2, samples=0, deletes=0, n=1)
    False
    """

    # Rules: replay L2

    def __init__(self, n: int) -> None:
        n = check_count(f"{type(self).__name__}: n", n, 1)
        _fill(self, 1.0, 1, 0.0, float(n))

    def share(self, parts: int) -> Queue:
        """See `RateLimiter.share`."""
        return type(self)(-(-int(self.max_diff) // parts))


class Stack(Queue):
    """The gate of `Queue`, for a table that gives the newest first.

    >>> Stack(2).max_diff
    2.0
    """

    # Rules: replay L2


@dataclass(frozen=True)
class SampleToInsertRatio(RateLimiter):
    """Each item is sampled about `samples_per_insert` times.

    Args:
        samples_per_insert: the target, above 0.
        min_size_to_sample: items below which nothing is sampled.
        error_buffer: how far `I * samples_per_insert - S` may stray from its value at `min_size_to_sample`: a number,
            or the two bounds `(low, high)` themselves.

    Raises:
        ValueError: samples_per_insert <= 0; min_size_to_sample < 1; bounds so near each other that neither side could
            move, or so high that sampling never opens.

    >>> limiter = SampleToInsertRatio(2, 3, 4)
    >>> limiter.min_diff, limiter.max_diff
    (2.0, 10.0)
    """

    # Rules: replay L3, L4

    def __init__(
        self, samples_per_insert: float, min_size_to_sample: int, error_buffer: float | tuple[float, float]
    ) -> None:
        spi, size = float(samples_per_insert), min_size_to_sample
        if not 0 < spi < _INFINITE:
            raise ValueError(f"samples_per_insert: expected a finite number > 0, got {samples_per_insert}")
        size = check_count("min_size_to_sample", size, 1)
        if isinstance(error_buffer, tuple):
            low, high = map(float, error_buffer)
            apart = high - low
        else:
            low, high = spi * size - error_buffer, spi * size + error_buffer
            # The difference of the bounds is rounded: the smallest buffer there may be would be refused.
            apart = 2.0 * error_buffer
        if not apart >= 2 * max(1.0, spi):
            raise ValueError(
                f"error_buffer: the bounds {low:g} and {high:g} leave no room for one insert and one sample; "
                f"they must be at least {2 * max(1.0, spi):g} apart (2 * max(1, samples_per_insert))"
            )
        if low > spi * size:
            raise ValueError(
                f"error_buffer: the lower bound {low:g} is above samples_per_insert * min_size_to_sample = "
                f"{spi * size:g}, so sampling would not open at {size} items"
            )
        if high < spi * size:
            warnings.warn(
                f"error_buffer: the upper bound {high:g} is below samples_per_insert * min_size_to_sample = "
                f"{spi * size:g}; inserting closes as soon as the table has {size} items",
                stacklevel=2,
            )
        _fill(self, spi, size, low, high)

    def share(self, parts: int) -> SampleToInsertRatio:
        """See `RateLimiter.share`."""
        bounds = self.min_diff / parts, self.max_diff / parts
        return SampleToInsertRatio(self.samples_per_insert, -(-self.min_size // parts), bounds)


def _fill(limiter: RateLimiter, spi: float, min_size: int, min_diff: float, max_diff: float) -> None:
    numbers = {"samples_per_insert": spi, "min_size": min_size, "min_diff": min_diff, "max_diff": max_diff}
    for name, value in numbers.items():
        object.__setattr__(limiter, name, value.item() if isinstance(value, np.generic) else value)
