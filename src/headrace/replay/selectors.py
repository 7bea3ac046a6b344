"""Which item next: the six ways to choose, each usable as sampler and as remover.

A selector here is a description, immutable and without state; every table makes its own index from it (replay S1-S10).
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar

from headrace.replay.items import FIFO, HEAP, LIFO, PRIORITIZED, UNIFORM


@dataclass(frozen=True)
class Selector:
    """What the six have in common.

    Attributes:
        kind: which kernel serves it.
        reads_priorities: whether the priority of an item matters to it.
        sign: +1 where a heap gives the lowest priority first, -1 where the highest.
    """

    kind: ClassVar[int]
    reads_priorities: ClassVar[bool] = False
    sign: ClassVar[float] = 1.0

    @property
    def exponent(self) -> float:
        """Of the priorities."""
        return 1.0


@dataclass(frozen=True)
class Fifo(Selector):
    """The item inserted first (replay S1).

    >>> Fifo()
    Fifo()
    """

    kind: ClassVar[int] = FIFO


@dataclass(frozen=True)
class Lifo(Selector):
    """The item inserted last (replay S2).

    >>> Lifo()
    Lifo()
    """

    kind: ClassVar[int] = LIFO


@dataclass(frozen=True)
class Uniform(Selector):
    """Any item, with the same chance (replay S3).

    Args:
        replacement: False makes the draws of one batch distinct; the batch waits until there are enough (replay S7).

    >>> Uniform(replacement=False)
    Uniform(replacement=False)
    """

    replacement: bool = True
    kind: ClassVar[int] = UNIFORM


@dataclass(frozen=True)
class Prioritized(Selector):
    """Items in proportion to `priority ** priority_exponent`; a priority of 0 is never drawn while another is not.

    Source: T. Schaul et al., "Prioritized Experience Replay" (2016), proportional variant. Importance weights are
    `(info.table_size * info.probabilities) ** -beta` (replay P4).

    Raises:
        ValueError: a negative, infinite or NaN exponent.

    >>> Prioritized(0.6)
    Prioritized(priority_exponent=0.6)
    """

    priority_exponent: float = 1.0
    kind: ClassVar[int] = PRIORITIZED
    reads_priorities: ClassVar[bool] = True

    def __post_init__(self) -> None:
        if not 0 <= self.priority_exponent < math.inf:
            raise ValueError(
                f"priority_exponent: expected a finite number >= 0, got {self.priority_exponent}"
            )

    @property
    def exponent(self) -> float:
        """Of the priorities."""
        return float(self.priority_exponent)


@dataclass(frozen=True)
class MinHeap(Selector):
    """The item of the lowest priority; ties: the one least recently inserted or updated (replay S5).

    >>> MinHeap()
    MinHeap()
    """

    kind: ClassVar[int] = HEAP
    reads_priorities: ClassVar[bool] = True


@dataclass(frozen=True)
class MaxHeap(MinHeap):
    """The item of the highest priority; ties: the one least recently inserted or updated (replay S5).

    >>> MaxHeap()
    MaxHeap()
    """

    sign: ClassVar[float] = -1.0
