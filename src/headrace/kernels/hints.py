"""Hints to the processor, and copies of widths that C must know: what a loop over arrays cannot say.

Each function is in C, in `hints.pxd`, and has its twin in Python here.
"""

from __future__ import annotations

import math
from typing import Any

from headrace.kernels.kinds import Bytes, GivenBytes, Longs, LongTable


def prefetch(array: Any, place: int) -> None:
    """Ask the processor for `array[place]`, which is soon to be read or changed; any place is fine, also none.

    A loop over random places that also computes waits for nearly each of them; one that asks for each of them early
    has dozens on their way (bench/changes.md has the figures).
    """


def move(target: Bytes, to: int, source: GivenBytes, begin: int, count: int) -> None:
    """Copy `count` bytes."""
    target[to : to + count] = source[begin : begin + count]


def stream(target: Bytes, to: int, source: GivenBytes, begin: int, count: int) -> None:
    """`move` past the caches, of a count that 16 divides: for what is too large to be still there when it is read.

    An ordinary store first reads what it writes over, and throws out of the cache what is needed soon. A kernel that
    streams calls `store_fence` before it ends.
    """
    move(target, to, source, begin, count)


def store_fence() -> None:
    """Makes streamed bytes visible to other threads before later stores are."""


def take_fields(
    records: Bytes, nbytes: int, rows: Longs, table: LongTable, first: int, stop: int, out: Bytes
) -> None:
    """`copying.copy_fields` of some fields that are all taken from the same rows.

    Args:
        first, stop: the fields.
    """
    for offset, width, _, begin, count, to in table[first:stop].tolist():
        for number, row in enumerate(rows[begin : begin + count].tolist()):
            move(out, to + number * width, records, max(row, 0) * nbytes + offset, width)


def place(values: Bytes, begin: int, width: int, count: int, records: Bytes, to: int, nbytes: int) -> None:
    """Copy `count` values, of `width` bytes each, from `values[begin:]` to every `nbytes`-th byte of `records[to:]`."""
    for number in range(count):
        move(records, to + number * nbytes, values, begin + number * width, width)


def in_order() -> None:
    """Keep the order of stores: those before this call are done before those after it.

    A process that is killed leaves behind what it has stored so far. Processors keep to the order of the instructions
    there; compilers do not, unless they are told.
    """


def value_within(value: float, limit: float) -> float:
    """The value, or 0 if it is above the limit; without a jump, which could not be predicted."""
    return value if value <= limit else 0.0


def power(base: float, exponent: float) -> float:
    """The power of a number >= 0; infinite where it is too large for a float."""
    try:
        return math.pow(base, exponent)
    except OverflowError:
        return math.inf
