"""One step of environments with several agents, which begin their episodes together: one lane for each agent."""

# Rules: collectors CR5

from __future__ import annotations

from typing import Any

import numpy as np

from headrace.collectors.loop.recording import Columns, RecordingStepper
from headrace.envs.protocol import NO_ENVS, Indices, StepResult


class TogetherStepper(RecordingStepper):
    """A `RecordingStepper` whose limit counts the steps of an environment, whichever of its agents play.

    At the limit the agents that play are truncated, and the environment is reset with all its lanes.

    Args:
        stepper, actor, ...: see `RecordingStepper`.
    """

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        # All lanes of the environments that the last step is to reset.
        self._long: Indices = NO_ENVS

    def _sort_ends(self, result: StepResult, next_row: Columns) -> tuple[Indices, Indices]:
        """See `RecordingStepper._sort_ends`; agents that ended before are reset with the others."""
        finals, _ = super()._sort_ends(result, next_row)
        return finals, self._long

    def _cut_long(self, result: StepResult) -> Indices:
        """See `RecordingStepper._cut_long`; the lanes of an environment all have its length, also while they wait."""
        lengths = self._lengths
        lengths += 1
        cut = self._long = NO_ENVS
        long = lengths >= self._limit
        if long.any():
            lengths[long] = 0
            took = long.copy()
            took[result.waiting] = False
            cut = np.flatnonzero(took & ~(result.terminated | result.truncated))
            result.truncated |= took
            result.ended = np.flatnonzero(result.terminated | result.truncated)
            long[result.restarted] = False
            self._long = np.flatnonzero(long)
        lengths[result.restarted] = 0
        return cut
