"""What no loop over arrays says: hints to the processor. Each is in C, in `hints.pxd`, and has its twin in Python here."""

from __future__ import annotations

import math
from typing import Any

from headrace.kernels.kinds import Bytes, GivenBytes


def prefetch(array: Any, place: int) -> None:
    """Ask the processor for `array[place]`, which is soon to be read or changed; any place is fine, also none.

    A loop over random places that also computes waits for nearly each of them; one that asks for each of them early
    has dozens on their way (bench/README.md has the figures).
    """


def move(target: Bytes, to: int, source: GivenBytes, begin: int, count: int) -> None:
    """Copy `count` bytes."""
    target[to : to + count] = source[begin : begin + count]


def in_order() -> None:
    """What is stored before is stored before whatever is stored after.

    A process that is killed leaves behind what it has stored so far. Processors keep to the order of the instructions
    there; compilers do not, unless they are told.
    """


def value_if(condition: Any, value: float) -> float:
    """The value, or 0 if the condition does not hold; without a jump, which could not be predicted."""
    return value if condition else 0.0


def power(base: float, exponent: float) -> float:
    """The power of a number >= 0; infinite where it is too large for a float."""
    try:
        return math.pow(base, exponent)
    except OverflowError:
        return math.inf
