"""Workers in messages."""

from __future__ import annotations

from collections.abc import Collection
from itertools import islice

_NAMED = 8


def name_workers(workers: Collection[object]) -> str:
    """Names the first eight, and counts the others, as there may be a thousand.

    >>> name_workers(["worker 0", "worker 1"])
    'worker 0, worker 1'
    >>> name_workers(range(1000))
    '0, 1, 2, 3, 4, 5, 6, 7 and 992 more'
    """
    named = ", ".join(map(str, islice(workers, _NAMED)))
    more = len(workers) - _NAMED
    return f"{named} and {more} more" if more > 0 else named
