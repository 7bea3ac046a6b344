"""Which shard serves which draw of a batch. Pure functions of the tables' statistics.

Draws with weights (`Uniform`, `Prioritized`) are of the whole: a draw falls on a shard in proportion to the weights of
its items, and the shard draws one of them, so an item has the chance that it would have in one table. Different items
(`Uniform(replacement=False)`) come from the shards as a multivariate hypergeometric draw of their sizes says. Samplers
without weights (`Fifo`, `Lifo`, heaps, custom ones) give their draws in turn, each shard in its own order.
"""

# Rules: collectors CY4; replay S3, S4, S7

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from headrace.statistics import TableStatistics
from headrace.tables.description.rate_limiters import RateLimiter

Records = Sequence[TableStatistics | None]
"""The statistics of one table in every shard; None for a shard that is down."""


@dataclass(frozen=True)
class Split:
    """Shards for the draws of a batch.

    Attributes:
        owners: int64[count]: for each draw, the number of its shard.
        shares: float64[shards]: the chance of each shard; a draw's probability in its shard is multiplied by it.
        is_in_turn: whether the shards were taken in turn, so that any other could serve the draw as well.
    """

    owners: NDArray[np.int64]
    shares: NDArray[np.float64]
    is_in_turn: bool


def split(records: Records, count: int, random: np.random.Generator, turn: int) -> Split | None:
    """Returns the shards for `count` draws, or None if the shards have too few items now.

    Args:
        records: of the table.
        count: number of draws.
        random: chooses the shards.
        turn: the shard that comes first where they are taken in turn.
    """
    present = [record for record in records if record is not None]
    if any(record.total_weight is None for record in present):
        return _in_turn(records, count, turn)
    if not _have_enough(present):
        return None
    records = [record if is_open(record) else None for record in records]
    sizes = np.array([0 if record is None else record.size for record in records], np.int64)
    if any(record.is_distinct for record in present):
        return _distinct(sizes, count, random)
    weights = np.array([(record and record.total_weight) or 0.0 for record in records])
    return _weighted(
        weights if weights.any() else sizes.astype(np.float64), _supply(records, count), count, random
    )


def _weighted(
    weights: NDArray[np.float64], supply: NDArray[np.int64], count: int, random: np.random.Generator
) -> Split | None:
    if supply.sum() < count:
        return None
    shares = weights / weights.max()
    shares /= shares.sum()
    owners = random.choice(len(shares), count, p=shares)
    taken = np.bincount(owners, minlength=len(shares))
    while (taken > supply).any():
        # Items leave with their last sample: the draws beyond them fall on the other shards.
        has_more = (taken < supply) & (shares > 0)
        if not has_more.any():
            return None
        chances = np.where(has_more, shares, 0.0)
        for shard in np.flatnonzero(taken > supply):
            beyond = np.flatnonzero(owners == shard)[supply[shard] :]
            owners[beyond] = random.choice(len(shares), len(beyond), p=chances / chances.sum())
        taken = np.bincount(owners, minlength=len(shares))
    return Split(owners, shares, is_in_turn=False)


def _supply(records: Records, count: int) -> NDArray[np.int64]:
    """Returns the number of draws that each shard's items allow: at least so many, or else at most."""
    times = [0 if record is None else record.max_times_sampled for record in records]
    sizes = [0 if record is None else record.size for record in records]
    least = np.array(
        [min(size, count) if most else count * (size > 0) for size, most in zip(sizes, times, strict=True)]
    )
    if least.sum() >= count:
        return least
    return np.array(
        [size * most if most else count * (size > 0) for size, most in zip(sizes, times, strict=True)]
    )


def _distinct(sizes: NDArray[np.int64], count: int, random: np.random.Generator) -> Split | None:
    if sizes.sum() < count:
        return None
    owners = np.repeat(np.arange(len(sizes)), random.multivariate_hypergeometric(sizes, count))
    return Split(random.permutation(owners), sizes / sizes.sum(), is_in_turn=False)


def _in_turn(records: Records, count: int, turn: int) -> Split | None:
    available = [min(count, most_now(record)) for record in records]
    if sum(available) < count:
        return None
    num_shards = len(records)
    owners = np.repeat(np.arange(num_shards), available)
    rounds = np.concatenate([np.arange(most) for most in available])
    order = np.lexsort(((owners - turn) % num_shards, rounds))[:count]
    return Split(owners[order], np.ones(num_shards), is_in_turn=True)


def may_serve(records: Records, count: int) -> bool:
    """Returns whether the shards would serve a batch now, each its part of it."""
    present = [record for record in records if record is not None]
    if sum(map(most_now, present)) < count:
        return False
    if present[0].total_weight is not None and not _have_enough(present):
        return False
    weights = {number: record.total_weight or 0.0 for number, record in enumerate(present) if is_open(record)}
    whole = sum(weights.values()) or 1.0
    return all(most_now(present[number]) >= count * weight / whole for number, weight in weights.items())


def _have_enough(present: Sequence[TableStatistics]) -> bool:
    """Returns whether the rate limiters ask for no more items, of one shard or of another.

    A shard that was emptied does not keep the others from serving; at the beginning all are waited for.
    """
    size, least = sum(record.size for record in present), sum(record.min_size for record in present)
    return size >= least or all(is_open(record) for record in present if record.size)


# ---- what a shard serves -------------------------------------------------------------------------------------------


def is_open(record: TableStatistics | None) -> bool:
    """Returns whether a table has as many items as its rate limiter asks for."""
    return record is not None and record.size >= max(1, record.min_size)


def most_now(record: TableStatistics | None) -> int:
    """Returns how large a batch a table may serve now, at most 2**62. It may serve less, and not more."""
    if record is None or record.waiting_samples or not is_open(record):
        return 0
    most = float(1 << 62)
    if record.max_times_sampled or record.is_distinct:
        most = record.size * max(1, record.max_times_sampled)
    by_rate = record.inserts * record.samples_per_insert - record.samples - record.min_diff
    # NaN: a limiter of the user's own.
    return int(most if math.isnan(by_rate) else max(0.0, min(most, math.floor(min(by_rate, most)))))


def largest_batch(record: TableStatistics) -> float:
    """Returns the largest batch that a table could ever serve."""
    # Rules: replay L10
    limiter = RateLimiter(record.samples_per_insert, record.min_size, record.min_diff, record.max_diff)
    largest = limiter.largest_batch()
    if record.is_distinct:
        return min(largest, record.max_size)
    return min(largest, record.max_size * record.max_times_sampled) if record.max_times_sampled else largest
