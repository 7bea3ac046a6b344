"""The rollout that a loop collects."""

# Rules: collectors CQ1, CQ3

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any


@dataclass(slots=True)
class RolloutTurn:
    """How far the rollout under way is.

    Attributes:
        left: steps that are still to be taken; 0: no rollout is under way.
        at_random: whether its actions are random.
    """

    left: int = 0
    at_random: bool = False

    def begin(self, steps: int, *, at_random: bool) -> None:
        """Begins a rollout of so many steps."""
        self.left, self.at_random = steps, at_random

    def state_dict(self) -> dict[str, Any] | None:
        """Returns the attributes; None: no rollout is under way."""
        return {"left": self.left, "at_random": self.at_random} if self.left else None

    def load_state_dict(self, state: Mapping[str, Any] | None) -> None:
        """Goes on from a state."""
        self.left, self.at_random = (0, False) if state is None else (state["left"], state["at_random"])
