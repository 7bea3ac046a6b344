"""Which seed each environment gets."""

from __future__ import annotations

from operator import index


def environment_seeds(seed: int, count: int, *, first: int = 0, static_seed: bool = False) -> list[int]:
    """Returns the seeds of `count` environments, numbered from `first`.

    Args:
        seed: not negative.
        count: how many.
        first: how many environments stand before these, in other workers.
        static_seed: the same seed for all.

    Raises:
        ValueError: a negative seed.
        TypeError: a seed that is not an integer.

    >>> environment_seeds(1, 3, first=3)
    [4, 5, 6]
    >>> environment_seeds(1, 3, static_seed=True)
    [1, 1, 1]
    """
    # Rules: collectors CS1
    if index(seed) < 0:
        raise ValueError(f"seed: expected an integer of 0 or more, got {seed}")
    return [index(seed) + (0 if static_seed else first + i) for i in range(count)]
