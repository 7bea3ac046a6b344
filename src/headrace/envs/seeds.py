"""Seeds of environments."""

from __future__ import annotations

from headrace.checks import check_count


def environment_seeds(seed: int, count: int, *, first: int = 0, static_seed: bool = False) -> list[int]:
    """Returns the seeds of `count` environments, numbered from `first`.

    Args:
        seed: >= 0.
        count: number of environments.
        first: number of environments before these, in other workers.
        static_seed: the same seed for all.

    Raises:
        ValueError: the seed is negative.
        TypeError: the seed is not an integer.

    >>> environment_seeds(1, 3, first=3)
    [4, 5, 6]
    >>> environment_seeds(1, 3, static_seed=True)
    [1, 1, 1]
    """
    # Rules: collectors CS1
    number = check_count("seed", seed, 0)
    return [number + (0 if static_seed else first + i) for i in range(count)]
