"""A rollout of this process that is not complete, as a state holds it."""

# Rules: collectors CQ3

from __future__ import annotations

from collections.abc import Mapping
from copy import deepcopy
from dataclasses import asdict, dataclass
from typing import Any

from headrace.collectors.batches.partial_rollout import PartialRollout
from headrace.collectors.loop.step_counts import StepCounts
from headrace.collectors.loop.turn import RolloutTurn


@dataclass(frozen=True)
class RolloutUnderWay:
    """How far a rollout is, and its steps so far.

    Attributes:
        turn: how far it is.
        steps: those that were taken; None: there are none.
        counts: of those steps that are not in the tally.
    """

    turn: RolloutTurn
    steps: PartialRollout | None
    counts: StepCounts

    def state_dict(self) -> dict[str, Any]:
        """Returns the attributes."""
        return asdict(self)

    @classmethod
    def from_state(cls, state: Mapping[str, Any]) -> RolloutUnderWay:
        """Returns the rollout of a state, whose containers stay as they are."""
        own = deepcopy(dict(state))
        steps = None if own["steps"] is None else PartialRollout.from_state(own["steps"])
        return cls(RolloutTurn(**own["turn"]), steps, StepCounts(**own["counts"]))
