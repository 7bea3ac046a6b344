"""Histograms that are gathered part by part, without knowing the range of the values before."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

MOST_BINS = 64
# A bin is at least 2**-40 of the largest value wide, so that the numbers of bins stay exact.
_FINEST = 40
# The exponent of the smallest positive float64.
_LEAST_EXPONENT = -1074
_LARGEST = float(np.finfo(np.float64).max)
_BARS, _PLAIN_BARS = " ▁▂▃▄▅▆▇█", " .:-=+*#@"
_MOST_BARS = 16


@dataclass(frozen=True)
class Histogram:
    """Numbers of values in bins of equal width.

    Attributes:
        low: the lower edge of the first bin.
        width: of a bin. A bin holds the values from its lower edge on and below its upper one.
        counts: int64[n], 1 to 64 bins; the first and the last are not empty.
    """

    low: float
    width: float
    counts: NDArray[np.int64]

    def bars(self, *, ascii_only: bool = False) -> str:
        """Returns at most 16 characters whose heights show the counts; a space stands for an empty bin.

        Args:
            ascii_only: for outputs that cannot encode blocks.

        >>> Histogram(0.0, 1.0, np.array([8, 0, 1, 4])).bars()
        '█ ▁▄'
        """
        group = -(-len(self.counts) // _MOST_BARS)
        sums = np.add.reduceat(self.counts, np.arange(0, len(self.counts), group))
        levels = np.ceil(8 * sums / sums.max()).astype(int)
        characters = _PLAIN_BARS if ascii_only else _BARS
        return "".join(characters[level] for level in levels)


class HistogramTally:
    """Counts values in bins whose width is a power of two.

    Bins are joined in pairs where a value lies outside, so nothing is counted twice or by estimate. The same values
    give the same histogram, whatever parts they come in.

    Args:
        whole_numbers: whether no bin may be narrower than 1, so that small integers have a bin each.

    >>> tally = HistogramTally(whole_numbers=True)
    >>> tally.add(np.array([3.0, 3.0]))
    >>> tally.add(np.array([5.0]))
    >>> tally.histogram()
    Histogram(low=3.0, width=1.0, counts=array([2, 0, 1]))
    """

    def __init__(self, *, whole_numbers: bool) -> None:
        self._exponent = 0 if whole_numbers else _LEAST_EXPONENT
        self._first = 0
        self._counts: NDArray[np.int64] = np.zeros(0, np.int64)

    def add(self, values: NDArray[np.float64], times: NDArray[np.int64] | None = None) -> None:
        """Counts finite values `[n]`.

        Args:
            values: any.
            times: how often each value counts; None counts each once.
        """
        if not len(values):
            return
        low, high = float(values.min()), float(values.max())
        exponent = max(self._exponent, _finest_exponent(max(-low, high)))
        first, last = self._span(low, high, exponent)
        while last - first >= MOST_BINS:
            exponent += 1
            first, last = self._span(low, high, exponent)
        counts = np.zeros(last - first + 1, np.int64)
        if len(self._counts):
            before = self._first + np.arange(len(self._counts))
            np.add.at(counts, (before >> min(exponent - self._exponent, 63)) - first, self._counts)
        bins = _bins_of(values, exponent) - first
        # Sums of integers below 2**53 are exact, also as floats.
        new = np.bincount(bins, times, minlength=len(counts))
        self._counts = counts + new.astype(np.int64, copy=False)
        self._first, self._exponent = first, exponent

    def _span(self, low: float, high: float, exponent: int) -> tuple[int, int]:
        """Returns the numbers of the first and the last bin of the values so far and of new ones."""
        first, last = _bins_of(np.array([low, high]), exponent).tolist()
        if not len(self._counts):
            return first, last
        shift = exponent - self._exponent
        return min(first, self._first >> shift), max(last, (self._first + len(self._counts) - 1) >> shift)

    def histogram(self) -> Histogram | None:
        """Returns the histogram of the values so far; None without values."""
        if not len(self._counts):
            return None
        with np.errstate(over="ignore"):
            # Below the most negative float there is no edge.
            low = max(float(np.ldexp(float(self._first), self._exponent)), -_LARGEST)
        return Histogram(low, math.ldexp(1.0, self._exponent), self._counts.copy())


def _finest_exponent(magnitude: float) -> int:
    """Returns the exponent of the narrowest bins for values of at most this size."""
    return math.frexp(magnitude)[1] - _FINEST if magnitude > 0 else _LEAST_EXPONENT


def _bins_of(values: NDArray[np.float64], exponent: int) -> NDArray[np.int64]:
    # Both are the same numbers; a product takes a third of the time, but not all powers are floats.
    is_float = -1022 <= exponent <= 1022
    scaled = values * math.ldexp(1.0, -exponent) if is_float else np.ldexp(values, -exponent)
    bins = np.floor(scaled, out=scaled).astype(np.int64)
    # A negative value may become zero when it is divided.
    return np.minimum(bins, -1, out=bins, where=values < 0) if values.min() < 0 else bins
