"""One step of n environments that wait after the end of an episode until they are reset from outside."""

# Rules: collectors CR7

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from headrace.collectors.loop.recording import Columns, RecordingStepper
from headrace.ends import Autoreset
from headrace.envs import new_columns
from headrace.envs.protocol import NO_ENVS, Indices, StepResult
from headrace.leases.writing.page_steps import PageSteps

ALL_WAIT = (
    "every environment has ended and waits for a reset (reset_when_done=False): call reset(), or make the collector "
    "with reset_at_each_iter=True"
)


class WaitingStepper(RecordingStepper):
    """A `RecordingStepper` whose environments are not reset when they end.

    An environment that has ended takes no steps, and its rows hold nothing. The policy sees its last observation and
    its initial state until it is reset.

    Args:
        stepper, actor, ...: see `RecordingStepper`.

    Raises:
        ValueError: an environment that resets itself.
    """

    def __init__(self, stepper: Any, *args: Any, **options: Any) -> None:
        if stepper.autoreset is not Autoreset.DISABLED:
            raise ValueError(
                "reset_when_done: expected True for a vector environment that resets itself, got False; give single "
                "environments, or one with autoreset disabled"
            )
        super().__init__(stepper, *args, **options)
        self._waits = np.zeros(self._num_envs, np.bool_)
        self._last_seen = new_columns(stepper.observation_signature, self._num_envs)

    def reset(self, row: Columns, seeds: Any = None, envs: Indices | None = None) -> None:
        """See `RecordingStepper.reset`."""
        super().reset(row, seeds, envs)
        self._waits[slice(None) if envs is None else envs] = False
        self._note_active()

    def _note_active(self) -> None:
        self._active = np.flatnonzero(~self._waits) if self._waits.any() else None

    @property
    def all_wait(self) -> bool:
        """See `RecordingStepper.all_wait`."""
        return bool(self._waits.all())

    def state_dict(self) -> dict[str, Any]:
        """See `RecordingStepper.state_dict`."""
        seen = {name: column.copy() for name, column in self._last_seen.items()}
        return {**super().state_dict(), "waits": self._waits.copy(), "last_seen": seen}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """See `RecordingStepper.load_state_dict`."""
        super().load_state_dict(state)
        self._waits[:] = state["waits"]
        self._note_active()
        for name, column in self._last_seen.items():
            column[...] = state["last_seen"][name]

    def step(self, writer: PageSteps, at_random: bool) -> None:
        """See `RecordingStepper.step`; where every environment waits, the row holds nothing."""
        if not self._waits.all():
            super().step(writer, at_random)
            return
        waiting = np.arange(self._num_envs)
        self._show_last(writer.next_row, waiting)
        self._left -= 1
        writer.record({}, 0)
        writer.mark_idle(waiting)

    def _step_envs(self, actions: Columns, next_row: Columns) -> StepResult:
        waiting = np.flatnonzero(self._waits)
        result = self._stepper.step(actions, next_row, self._active)
        if not self._stepper.lanes_may_wait:  # Else it has named them, and others.
            result.waiting = waiting
        self._show_last(next_row, waiting)
        return result

    def _show_last(self, next_row: Columns, waiting: Indices) -> None:
        """Writes the last observations of the environments that wait."""
        if waiting.size:
            for name, column in next_row.items():
                column[waiting] = self._last_seen[name][waiting]

    def _sort_ends(self, result: StepResult, next_row: Columns) -> tuple[Indices, Indices]:
        """See `RecordingStepper._sort_ends`: environments that end wait from now on."""
        finals, over = super()._sort_ends(result, next_row)
        for name, column in next_row.items():
            self._last_seen[name][over] = column[over]
        self._waits[over] = True
        self._note_active()
        return finals, NO_ENVS

    def _cut_long(self, result: StepResult) -> Indices:
        self._lengths[self._waits] = -1  # They take no step, and their lengths stay 0.
        return super()._cut_long(result)

    def _mark_last(self, result: StepResult, cut: Indices) -> None:
        """See `RecordingStepper._mark_last`; the last transition of an episode is also that of the rollout."""
        super()._mark_last(result, cut)
        result.truncated[result.ended] = True
