"""Numbers of sets of weights."""

from __future__ import annotations

from headrace.checks import check_count

LARGEST_VERSION = (1 << 31) - 1
"""Rows carry the version that acted as int32."""


def next_version(last: int, version: int | None) -> int:
    """Returns the number of a new set.

    Args:
        last: number of the set before.
        version: the wanted number; None for the next one.

    Raises:
        TypeError: not an integer.
        ValueError: not above the last number, or too large for a row.

    >>> next_version(3, None), next_version(3, 40)
    (4, 40)
    """
    number = last + 1 if version is None else check_count("version", version, 0)
    if number <= last:
        raise ValueError(f"version: expected more than {last}, the last one, got {number}")
    if number > LARGEST_VERSION:
        raise ValueError(f"version: expected at most {LARGEST_VERSION}, which a row can carry, got {number}")
    return number
