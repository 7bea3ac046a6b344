"""Hyperparameters that change during training."""

from __future__ import annotations


def linear(at: float, start: float, end: float, over: float) -> float:
    """Interpolates from `start` at 0 to `end` at `over`, and returns `end` beyond.

    >>> [linear(frame, 1.0, 0.2, 100) for frame in (0, 50, 100, 500)]
    [1.0, 0.6, 0.2, 0.2]
    """
    share = min(max(at / over, 0.0), 1.0)
    return start * (1.0 - share) + end * share
