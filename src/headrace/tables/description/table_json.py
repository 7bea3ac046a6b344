"""Tables as plain records for files: selectors, limiters and tables to JSON and back."""

from __future__ import annotations

import math
import warnings
from typing import Literal

import msgspec

from headrace.tables.description.rate_limiters import MinSize, Queue, RateLimiter, SampleToInsertRatio, Stack
from headrace.tables.description.selectors import (
    AnySelector,
    Fifo,
    Lifo,
    MaxHeap,
    MinHeap,
    Prioritized,
    Selector,
    Uniform,
)
from headrace.tables.description.table import Table

_PLAIN_SELECTORS: dict[str, type[Selector]] = {kind.__name__: kind for kind in (Fifo, Lifo, MinHeap, MaxHeap)}
_LIMITERS = (MinSize, Queue, Stack, SampleToInsertRatio, RateLimiter)


class SelectorJson(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """A selector."""

    kind: Literal["Fifo", "Lifo", "Uniform", "Prioritized", "MinHeap", "MaxHeap"]
    replacement: bool = True
    priority_exponent: float = 1.0


class LimiterJson(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A rate limiter; None stands for a bound that is infinite."""

    kind: Literal["MinSize", "Queue", "Stack", "SampleToInsertRatio", "RateLimiter"]
    samples_per_insert: float
    min_size: int
    min_diff: float | None
    max_diff: float | None


class TableJson(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """A table, without its state."""

    name: str
    sampler: SelectorJson
    remover: SelectorJson
    max_size: int
    rate_limiter: LimiterJson
    max_times_sampled: int
    new_priority: float | Literal["largest"] = 1.0


def table_to_json(table: Table) -> TableJson:
    """Returns a table's record for a file.

    Raises:
        ValueError: a selector or a limiter that is not one of Headrace's own.

    >>> table_to_json(Table.queue("q", 5)).rate_limiter.kind
    'Queue'
    """
    return TableJson(
        table.name,
        _selector_to_json(table.sampler),
        _selector_to_json(table.remover),
        table.max_size,
        limiter_to_json(table.rate_limiter),
        table.max_times_sampled,
        table.new_priority,
    )


def table_from_json(record: TableJson) -> Table:
    """Returns the table of a record of `table_to_json`.

    Raises:
        ValueError: numbers that no table has.

    >>> table_from_json(table_to_json(Table.stack("s", 5))) == Table.stack("s", 5)
    True
    """
    return Table(
        record.name,
        sampler=selector_from_json(record.sampler),
        remover=selector_from_json(record.remover),
        max_size=record.max_size,
        rate_limiter=limiter_from_json(record.rate_limiter),
        max_times_sampled=record.max_times_sampled,
        new_priority=record.new_priority,
    )


def _selector_to_json(selector: AnySelector) -> SelectorJson:
    kind = type(selector)
    if kind is Uniform and isinstance(selector, Uniform):
        return SelectorJson("Uniform", replacement=bool(selector.replacement))
    if kind is Prioritized and isinstance(selector, Prioritized):
        return SelectorJson("Prioritized", priority_exponent=selector.exponent)
    if kind not in _PLAIN_SELECTORS.values():
        raise ValueError(
            f"expected one of Headrace's selectors, got {selector!r}, which cannot be written down"
        )
    return SelectorJson(kind.__name__)  # type: ignore[arg-type]


def selector_from_json(record: SelectorJson) -> Selector:
    """Returns the selector of a record.

    Raises:
        ValueError: a priority exponent that no selector takes.
    """
    if record.kind == "Uniform":
        return Uniform(record.replacement)
    if record.kind == "Prioritized":
        return Prioritized(record.priority_exponent)
    return _PLAIN_SELECTORS[record.kind]()


def limiter_to_json(limiter: RateLimiter) -> LimiterJson:
    """Returns the record of a rate limiter.

    Raises:
        ValueError: a limiter that is not one of Headrace's own.
    """
    if type(limiter) not in _LIMITERS:
        raise ValueError(
            f"expected one of Headrace's limiters, got {limiter!r}, which cannot be written down"
        )
    return LimiterJson(
        type(limiter).__name__,  # type: ignore[arg-type]
        float(limiter.samples_per_insert),
        int(limiter.min_size),
        float(limiter.min_diff) if math.isfinite(limiter.min_diff) else None,
        float(limiter.max_diff) if math.isfinite(limiter.max_diff) else None,
    )


def limiter_from_json(record: LimiterJson) -> RateLimiter:
    """Returns the rate limiter of a record of `limiter_to_json`.

    Raises:
        ValueError: numbers that no such limiter has.
    """
    low = -math.inf if record.min_diff is None else record.min_diff
    high = math.inf if record.max_diff is None else record.max_diff
    limiter: RateLimiter
    if record.kind == "MinSize":
        limiter = MinSize(record.min_size)
    elif record.kind == "SampleToInsertRatio":
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # Its user was warned when it was made.
            limiter = SampleToInsertRatio(record.samples_per_insert, record.min_size, (low, high))
    elif record.kind == "RateLimiter":
        limiter = RateLimiter(record.samples_per_insert, record.min_size, low, high)
    else:
        limiter = (Queue if record.kind == "Queue" else Stack)(int(high) if math.isfinite(high) else 0)
    if limiter_to_json(limiter) != record:
        raise ValueError(f"rate_limiter: expected the numbers of a {record.kind}, got {record}")
    return limiter
