"""One step of environments with several agents, which begin their episodes together: one lane for each agent."""

# Rules: collectors CR5, CR7

from __future__ import annotations

from typing import Any

import numpy as np

from headrace.collectors.loop.recording import Columns, RecordingStepper
from headrace.collectors.loop.waiting import WaitingStepper
from headrace.envs.protocol import NO_ENVS, Indices, StepResult


class TogetherStepper(RecordingStepper):
    """A `RecordingStepper` of environments that are reset with all their lanes when their last agent has ended.

    The limit counts the steps of an environment, whichever of its agents play. At the limit the agents that play are
    truncated, and the episode of the environment is over.

    Args:
        stepper, actor, ...: see `RecordingStepper`.
    """

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self._sees_every_step = True  # An episode may be over in a step in which no agent ends.

    def _sort_ends(self, result: StepResult, next_row: Columns) -> tuple[Indices, Indices]:
        """See `RecordingStepper._sort_ends`; agents that ended before are reset with the others."""
        finals, _ = super()._sort_ends(result, next_row)
        return finals, result.over

    def _cut_long(self, result: StepResult) -> Indices:
        """See `RecordingStepper._cut_long`; the lanes of an environment all have its length, also while they wait."""
        lengths = self._lengths
        lengths += 1
        cut = NO_ENVS
        long = lengths >= self._limit
        if long.any():
            took = long.copy()
            took[result.waiting] = False
            cut = np.flatnonzero(took & ~(result.terminated | result.truncated))
            result.truncated |= took
            result.ended = np.flatnonzero(result.terminated | result.truncated)
            result.over = np.union1d(result.over, np.flatnonzero(long))
        lengths[result.over] = 0
        return cut


class WaitingTogetherStepper(WaitingStepper, TogetherStepper):
    """A `TogetherStepper` whose environments wait with all their lanes when their episode is over.

    Args:
        stepper, actor, ...: see `RecordingStepper`.
    """
