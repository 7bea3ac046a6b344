"""The description of a table: its selectors, its size, and its rate limiter."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

from headrace.checks import check_count, is_name, shown
from headrace.tables.description.rate_limiters import MinSize, Queue, RateLimiter, Stack
from headrace.tables.description.selectors import (
    AnySelector,
    CustomSelector,
    Fifo,
    Lifo,
    Prioritized,
    Selector,
    Uniform,
)

# Items are counted in int64.
_LARGEST_COUNT = 2**63 - 1


@dataclass(frozen=True, kw_only=True, init=False)
class Table:
    """Items with a sampler, a remover and a rate limiter. A description: the state belongs to the `Replay`.

    Args:
        name: by which writers and learners ask for it.
        sampler: which item a draw gives: one of `selectors`, or a `CustomSelector`.
        remover: which item goes when there are more than `max_size`.
        max_size: the most items.
        rate_limiter: when inserting and sampling wait; by default sampling waits for the first item.
        max_times_sampled: number of samples after which an item leaves; 0 for no limit.
        new_priority: of the items for which a writer gives none: a number, or "largest", the largest priority that an
            item of the table has had since it was made or reset, 1 at least. The latter is that of T. Schaul et al.,
            "Prioritized Experience Replay" (2016).

    Raises:
        ValueError: an empty name, max_size < 1, max_times_sampled < 0, one of them >= 2^63, a new_priority that is
            negative or not finite, or a limiter that could never open.

    >>> from headrace.replay import selectors
    >>> Table("replay", sampler=selectors.Uniform(), remover=selectors.Fifo(), max_size=1000).max_size
    1000
    """

    # Rules: replay T2

    name: str
    sampler: AnySelector
    remover: AnySelector
    max_size: int
    rate_limiter: RateLimiter
    max_times_sampled: int
    new_priority: float | Literal["largest"]

    def __init__(
        self,
        name: str,
        *,
        sampler: AnySelector,
        remover: AnySelector,
        max_size: int,
        rate_limiter: RateLimiter = MinSize(1),  # noqa: B008 - immutable
        max_times_sampled: int = 0,
        new_priority: float | Literal["largest"] = 1.0,
    ) -> None:
        if not is_name(name):
            raise ValueError(f"name: expected a non-empty string that fits into UTF-8, got {name!r}")
        for role, selector in (("sampler", sampler), ("remover", remover)):
            if not isinstance(selector, Selector | CustomSelector):
                raise TypeError(
                    f"table {name!r}: {role}: expected a selector such as Fifo(), got {selector!r}"
                )
        max_times_sampled = checked_number(name, "max_times_sampled", max_times_sampled, 0)
        fields = {
            "name": name,
            "sampler": sampler,
            "remover": remover,
            "max_size": checked_size(name, max_size, rate_limiter),
            "rate_limiter": rate_limiter,
            "max_times_sampled": max_times_sampled,
            "new_priority": _checked_new_priority(name, new_priority),
        }
        for field, value in fields.items():
            object.__setattr__(self, field, value)

    @classmethod
    def uniform(
        cls,
        max_size: int,
        *,
        name: str = "replay",
        rate_limiter: RateLimiter = MinSize(1),  # noqa: B008 - immutable
    ) -> Table:
        """Returns a table that samples all items with the same chance and removes the oldest.

        >>> Table.uniform(1000) == Table("replay", sampler=Uniform(), remover=Fifo(), max_size=1000)
        True
        """
        return cls(name, sampler=Uniform(), remover=Fifo(), max_size=max_size, rate_limiter=rate_limiter)

    @classmethod
    def prioritized(
        cls,
        max_size: int,
        exponent: float,
        *,
        name: str = "replay",
        rate_limiter: RateLimiter = MinSize(1),  # noqa: B008 - immutable
        new_priority: float | Literal["largest"] = 1.0,
    ) -> Table:
        """Returns a table that samples in proportion to `priority ** exponent` and removes the oldest items.

        >>> Table.prioritized(1000, 0.6, new_priority="largest").sampler
        Prioritized(priority_exponent=0.6)
        """
        return cls(
            name,
            sampler=Prioritized(exponent),
            remover=Fifo(),
            max_size=max_size,
            rate_limiter=rate_limiter,
            new_priority=new_priority,
        )

    @classmethod
    def queue(cls, name: str, max_size: int) -> Table:
        """Returns a queue: first in, first out, each item once; inserting waits while it has `max_size` items.

        >>> Table.queue("requests", 10).max_times_sampled
        1
        """
        # Rules: replay T4
        return cls(
            name,
            sampler=Fifo(),
            remover=Fifo(),
            max_size=max_size,
            rate_limiter=Queue(max_size),
            max_times_sampled=1,
        )

    @classmethod
    def stack(cls, name: str, max_size: int) -> Table:
        """Returns a stack: last in, first out, each item once; inserting waits while it has `max_size` items.

        >>> Table.stack("newest", 10).sampler
        Lifo()
        """
        # Rules: replay T4
        return cls(
            name,
            sampler=Lifo(),
            remover=Lifo(),
            max_size=max_size,
            rate_limiter=Stack(max_size),
            max_times_sampled=1,
        )


def _checked_new_priority(name: str, priority: float | Literal["largest"]) -> float | Literal["largest"]:
    """Returns the priority of new items.

    Raises:
        ValueError: neither "largest" nor a finite number >= 0.
    """
    if isinstance(priority, str | bool):
        is_good = priority == "largest"
    else:
        is_good = hasattr(priority, "__float__") and 0 <= float(priority) < math.inf
    if not is_good:
        raise ValueError(
            f"table {name!r}: new_priority: expected a finite number >= 0 or 'largest', got {shown(priority)}"
        )
    return priority if isinstance(priority, str) else float(priority)


def check_rate_limiter(name: str, rate_limiter: RateLimiter) -> None:
    """Refuses what is not a rate limiter.

    Raises:
        TypeError: with what it is.
    """
    if not isinstance(rate_limiter, RateLimiter):
        raise TypeError(
            f"table {name!r}: rate_limiter: expected one such as MinSize(1), got {rate_limiter!r}"
        )


def checked_number(table: str, field: str, number: int, least: int) -> int:
    """Returns a number of a table's settings.

    Raises:
        TypeError, ValueError: it is not one, or too small or too large.
    """
    number = check_count(f"table {table!r}: {field}", number, least)
    if number > _LARGEST_COUNT:
        raise ValueError(f"table {table!r}: {field}: expected at most {_LARGEST_COUNT}, got {number}")
    return number


def checked_size(name: str, max_size: int, rate_limiter: RateLimiter) -> int:
    """Returns the size of a table, if the limiter can reach it.

    Raises:
        TypeError, ValueError: it cannot, or a number is wrong; with the numbers.
    """
    check_rate_limiter(name, rate_limiter)
    max_size = checked_number(name, "max_size", max_size, 1)
    if rate_limiter.min_size > max_size:
        raise ValueError(
            f"table {name!r}: the rate limiter waits for {rate_limiter.min_size} items, but max_size is {max_size}: "
            "sampling would never open. Raise max_size or lower the limiter's minimum"
        )
    return max_size


def kernel_selectors(table: Table) -> tuple[Selector, Selector]:
    """Returns the sampler and the remover of a table whose items lie in files.

    Raises:
        ValueError: one of them is the user's own, whose data would not survive the process.
    """
    sampler, remover = table.sampler, table.remover
    if isinstance(sampler, CustomSelector) or isinstance(remover, CustomSelector):
        raise ValueError(
            f"table {table.name!r}: expected selectors of Headrace for a replay with a path, got "
            f"{sampler!r} and {remover!r}. A selector of your own serves in memory: leave path out"
        )
    return sampler, remover
