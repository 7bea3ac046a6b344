"""Selectors of the next item: six of Headrace, and your own; each serves as sampler and as remover.

A selector here is a description, immutable and without state; every table makes its own index from it.
"""

# Rules: replay S1-S10

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

__all__ = [
    "CustomSelector",
    "Fifo",
    "Lifo",
    "MaxHeap",
    "MinHeap",
    "Prioritized",
    "Selector",
    "SelectorIndex",
    "Uniform",
]

# The kinds of selectors, as kernels know them. CUSTOM: no kernel serves it.
FIFO, LIFO, UNIFORM, PRIORITIZED, HEAP = KINDS = range(5)
CUSTOM = 5


@dataclass(frozen=True)
class Selector:
    """Base of the six selectors of Headrace. A selector of your own is a `CustomSelector`.

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
        """The exponent of the priorities."""
        return 1.0


@dataclass(frozen=True)
class Fifo(Selector):
    """The item inserted first.

    >>> Fifo()
    Fifo()
    """

    # Rules: replay S1

    kind: ClassVar[int] = FIFO


@dataclass(frozen=True)
class Lifo(Selector):
    """The item inserted last.

    >>> Lifo()
    Lifo()
    """

    # Rules: replay S2

    kind: ClassVar[int] = LIFO


@dataclass(frozen=True)
class Uniform(Selector):
    """Any item, with the same chance.

    Args:
        replacement: False makes the draws of one batch distinct; the batch waits until there are enough.

    >>> Uniform(replacement=False)
    Uniform(replacement=False)
    """

    # Rules: replay S3, S7

    replacement: bool = True
    kind: ClassVar[int] = UNIFORM


@dataclass(frozen=True)
class Prioritized(Selector):
    """Items in proportion to `priority ** priority_exponent`; a priority of 0 is never drawn while another is not.

    Source: T. Schaul et al., "Prioritized Experience Replay" (2016), proportional variant. Importance weights are
    `(info.table_size * info.probabilities) ** -beta`.

    Raises:
        ValueError: a negative, infinite or NaN exponent.

    >>> Prioritized(0.6)
    Prioritized(priority_exponent=0.6)
    """

    # Rules: replay P4

    priority_exponent: float = 1.0
    kind: ClassVar[int] = PRIORITIZED
    reads_priorities: ClassVar[bool] = True

    def __post_init__(self) -> None:
        if not 0 <= self.priority_exponent < math.inf:
            raise ValueError(
                f"priority_exponent: expected a finite number >= 0, got {self.priority_exponent}"
            )
        object.__setattr__(self, "priority_exponent", float(self.priority_exponent))

    @property
    def exponent(self) -> float:
        """The exponent of the priorities."""
        return float(self.priority_exponent)


@dataclass(frozen=True)
class MinHeap(Selector):
    """The item of the lowest priority; ties: the one least recently inserted or updated.

    >>> MinHeap()
    MinHeap()
    """

    # Rules: replay S5

    kind: ClassVar[int] = HEAP
    reads_priorities: ClassVar[bool] = True


@dataclass(frozen=True)
class MaxHeap(MinHeap):
    """The item of the highest priority; ties: the one least recently inserted or updated.

    >>> MaxHeap()
    MaxHeap()
    """

    # Rules: replay S5

    sign: ClassVar[float] = -1.0


class SelectorIndex(ABC):
    """The index that a selector of your own keeps of the items of one table, in one role.

    A table calls it for every item that is inserted, changed or removed, and asks it to choose, all under the replay's
    lock. Items are inserted in order, with rising keys. It need not be thread-safe.

    An error that leaves one of these methods ends the table: a change may be incomplete, so every later call that needs
    the index raises `RuntimeError`. A method that uses its own table gets one.
    """

    @abstractmethod
    def insert(self, key: int, priority: float) -> None:
        """Adds a new item, whose key is above all before it; its priority is finite and >= 0."""

    @abstractmethod
    def update(self, key: int, priority: float) -> None:
        """Sets the priority of an item, perhaps to the one that it has."""

    @abstractmethod
    def remove(self, key: int) -> None:
        """Removes an item: the remover chose it, it was sampled for the last time, or it was deleted."""

    @abstractmethod
    def choose(
        self, count: int, random: np.random.Generator
    ) -> tuple[Sequence[int] | NDArray[np.integer], Sequence[float] | NDArray[np.floating]]:
        """Picks `count` times among the same items, at least one of which is there; takes none of them out.

        Args:
            count: how many picks; one item may be picked more than once.
            random: the replay's generator. All random numbers must come from it: the same seed and the same calls then
                give the same batches.

        Returns:
            [count] keys of items that are there, and the probability that each pick had, above 0 and at most 1.
        """
        # Rules: replay S10


class CustomSelector(ABC):
    """A selector of your own, in plain Python: derive from it and write its index of a table.

    The object describes and keeps nothing: one may serve in several tables, as sampler and as remover. A table that has
    one asks it item by item, which takes microseconds where those of Headrace take nanoseconds; other tables of the
    replay are as quick as before. `headrace.testing.SelectorContract` tests it.

    >>> class Newest(CustomSelector):
    ...     def new_index(self):
    ...         return NewestIndex()
    >>> class NewestIndex(SelectorIndex):
    ...     def __init__(self):
    ...         self.keys = []
    ...     def insert(self, key, priority):
    ...         self.keys.append(key)
    ...     def update(self, key, priority):
    ...         pass
    ...     def remove(self, key):
    ...         self.keys.remove(key)
    ...     def choose(self, count, random):
    ...         return [self.keys[-1]] * count, [1.0] * count
    >>> import headrace as hr
    >>> table = hr.Table("t", sampler=Newest(), remover=Fifo(), max_size=10)
    >>> with hr.Replay(hr.Signature.like({"x": 0}), [table]) as replay:
    ...     with replay.writer(items=[hr.ItemRule("t", length=1)]) as writer:
    ...         for x in range(5):
    ...             writer.append({"x": x})
    ...     replay.sample("t", 2).data["x"]
    array([4, 4])
    """

    @abstractmethod
    def new_index(self) -> SelectorIndex:
        """Returns an index without items, which shares nothing with others. Each use in a table has one of its own."""


AnySelector = Selector | CustomSelector
