"""The last transitions of lanes in a rollout, where they are known only when it is complete."""

# Rules: collectors CR8

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

Marking: TypeAlias = Callable[[NDArray[np.bool_], NDArray[np.bool_]], None]
"""Writes into the flags of a complete rollout, bool[T, n]; also given where it has transitions, bool[T, n]."""


def mark_last_rows(truncated: NDArray[np.bool_], taken: NDArray[np.bool_]) -> None:
    """Marks the last transition of each lane truncated.

    Args:
        truncated: bool[T, n], written.
        taken: bool[T, n], where there is a transition.

    >>> truncated = np.zeros((3, 3), bool)
    >>> mark_last_rows(truncated, np.array([[True, True, False], [True, False, False], [True, False, False]]))
    >>> truncated.tolist()
    [[False, True, False], [False, False, False], [True, False, False]]
    """
    lanes = np.flatnonzero(taken.any(axis=0))
    last = len(taken) - 1 - taken[::-1].argmax(axis=0)
    truncated[last[lanes], lanes] = True
