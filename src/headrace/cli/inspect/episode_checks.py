"""Suspicious things that only whole episodes show: values outside the spaces, and copies of episodes."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
import xxhash

from headrace.datasets.exporting.structure import FREE_PARTS, Array, Structure, part_of
from headrace.errors import SpecError


class BoundsCheck:
    """Counts the episodes with values outside a space.

    Args:
        name: `observation_space` or `action_space`.
        space: a gymnasium space of a kind that Minari has a form for.
        structure: of the episodes.
    """

    def __init__(self, name: str, space: Any, structure: Structure) -> None:
        # Imported here, because it imports gymnasium.
        from headrace.datasets.minari.space_checks import SpaceCheck

        self._outside = 0
        self._problem = ""
        self._check: SpaceCheck | None = None
        try:
            self._check = SpaceCheck(name, space, structure.roots[name.removesuffix("_space") + "s"])
        except SpecError as error:
            self._problem = str(error)

    def add(self, index: int, arrays: Mapping[str, Array]) -> None:
        """Checks the arrays of one episode, by path."""
        if self._check is None:
            return
        try:
            self._check.see(index, arrays)
        except SpecError as error:
            self._outside += 1
            self._problem = self._problem or str(error)

    def suspicions(self, episodes: int) -> Iterator[str]:
        """Returns a sentence if something does not fit the space.

        Args:
            episodes: number of episodes that were added.
        """
        if self._check is None:
            yield self._problem
        elif self._outside:
            yield f"out of bounds in {self._outside} of {episodes} episodes; the first: {self._problem}"


class Copies:
    """Counts the episodes that are equal to earlier ones in observations, actions, rewards and flags.

    >>> copies = Copies()
    >>> for index, reward in enumerate([1.0, 2.0, 1.0]):
    ...     copies.add(index, {"rewards": np.array([reward])})
    >>> list(copies.suspicions(3))
    ['1 of 3 episodes are copies of earlier ones; the first: episode 2 is the same as episode 0']
    """

    def __init__(self) -> None:
        self._first_of: dict[bytes, int] = {}
        self._count = 0
        self._example: tuple[int, int] | None = None

    def add(self, index: int, arrays: Mapping[str, Array]) -> None:
        """Compares the arrays of an episode, by path, with those so far, by a hash of 128 bits."""
        digest = xxhash.xxh3_128()
        for path, array in arrays.items():
            if part_of(path) not in FREE_PARTS:
                digest.update(repr(array.shape).encode())
                digest.update(np.ascontiguousarray(array).data)
        first = self._first_of.setdefault(digest.digest(), index)
        if first != index:
            self._count += 1
            self._example = self._example or (index, first)

    def suspicions(self, episodes: int) -> Iterator[str]:
        """Returns a sentence if there are copies.

        Args:
            episodes: number of episodes that were added.
        """
        if self._example is not None:
            later, first = self._example
            yield (
                f"{self._count} of {episodes} episodes are copies of earlier ones; the first: episode {later} is the "
                f"same as episode {first}"
            )
