"""Priorities that a caller gives to items."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike, NDArray


def checked_priorities(priorities: ArrayLike) -> NDArray[np.float64]:
    """Returns priorities as float64[n]. Bounds are checked where they are applied.

    Raises:
        ValueError: not numbers.

    >>> checked_priorities([1, 0.5])
    array([1. , 0.5])
    """
    array = np.asarray(priorities)
    # NumPy would read numbers out of texts, and make nan of None. JAX adds kinds of numbers to it, such as bfloat16.
    if not np.can_cast(array.dtype, np.float64, "same_kind"):
        raise ValueError(f"priorities: expected numbers, got {array.dtype}")
    return np.ascontiguousarray(array, np.float64).reshape(-1)
