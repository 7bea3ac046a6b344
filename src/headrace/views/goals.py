"""Rules for replacing stored goals when a batch is drawn."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from headrace.checks import shown

STRATEGIES = ("future", "final", "episode")

GoalFunction = Callable[[Any, Any, Mapping[str, Any]], Any]
"""`function(achieved_goal, desired_goal, info)` of K transitions at once, as `compute_reward` of gymnasium-robotics."""


@dataclass(frozen=True)
class Hindsight:
    """Rule for replacing an item's goal; made by `views.hindsight`, which documents the arguments.

    Raises:
        ValueError: an unknown strategy, a ratio outside [0, 1].
        TypeError: a function that cannot be called.
    """

    goal: str
    achieved: str
    reward: GoalFunction
    strategy: str
    ratio: float
    terminated: GoalFunction | None
    info: tuple[str, ...]

    def __post_init__(self) -> None:
        if not callable(self.reward):
            raise TypeError(f"hindsight: reward: expected a function, got {self.reward!r}")
        if self.terminated is not None and not callable(self.terminated):
            raise TypeError(f"hindsight: terminated: expected a function or None, got {self.terminated!r}")
        if self.strategy not in STRATEGIES:
            raise ValueError(
                f"hindsight: strategy: expected one of {', '.join(map(repr, STRATEGIES))}, got {self.strategy!r}"
            )
        if not 0 <= self.ratio <= 1:
            raise ValueError(f"hindsight: ratio: expected a number in [0, 1], got {shown(self.ratio)}")
