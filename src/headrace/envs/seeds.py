"""Seeds of environments."""

from __future__ import annotations

from headrace.checks import check_count

# Seeds travel to workers in 64 bits. Inline collectors have the same bound, so that all collectors take the same seeds.
_END = 2**63


def environment_seeds(seed: int, count: int, *, first: int = 0, static_seed: bool = False) -> list[int]:
    """Returns the seeds of `count` environments, numbered from `first`.

    Args:
        seed: >= 0. The seeds of all environments are below 2**63.
        count: number of environments.
        first: number of environments before these, in other workers.
        static_seed: the same seed for all.

    Raises:
        ValueError: the seed is negative, or too large.
        TypeError: the seed is not an integer.

    >>> environment_seeds(1, 3, first=3)
    [4, 5, 6]
    >>> environment_seeds(1, 3, static_seed=True)
    [1, 1, 1]
    """
    # Rules: collectors CS1
    number = check_count("seed", seed, 0)
    seeds = [number + (0 if static_seed else first + i) for i in range(count)]
    if max(seeds, default=0) >= _END:
        raise ValueError(f"seed: expected seeds of all environments below 2**63, got {number}")
    return seeds
