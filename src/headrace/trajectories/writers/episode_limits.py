"""Finds episodes that become too long for an `EpisodeRule`."""

# Rules: trajectories A14

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from headrace.trajectories.rules.step_rules import EpisodeRule, StepRule
from headrace.trajectories.writers.lane_states import LaneStates

_NEVER = 1 << 62


class EpisodeLimits:
    """Predicts the call at which an episode becomes too long, so that earlier calls need no check.

    Args:
        rules: of the writer; those that split longer episodes have no limit.
        states: the lanes.
        lanes: as the step writer's.

    Attributes:
        next_call: no episode is too long before this many calls.
        longest: largest number of transitions that no rule refuses; None for no limit.
    """

    def __init__(self, rules: Sequence[StepRule], states: LaneStates, lanes: int | None) -> None:
        limits = [rule for rule in rules if isinstance(rule, EpisodeRule) and rule.overflow != "split"]
        self._rules = sorted(limits, key=lambda rule: rule.max_length)
        self._states = states
        self._lanes = lanes
        self.next_call = _NEVER
        refusing = [rule.max_length for rule in limits if rule.overflow == "raise"]
        self.longest = min(refusing, default=None)

    def check(self) -> str:
        """Refuses a step that makes an episode too long; returns the text of a warning, "" for none."""
        states, warning = self._states, ""
        lanes = np.flatnonzero(states.open)
        rows = states.rows(lanes)
        for rule in self._rules:
            over = lanes[rows == rule.max_length].tolist()
            if not over:
                continue
            which = "the episode" if self._lanes is None else f"the episodes of lanes {over}"
            if rule.overflow == "raise":
                raise ValueError(
                    f"add: {which} would have more than max_length={rule.max_length} transitions (table "
                    f"{rule.table!r}). Nothing was taken; reset() writes what there is. Or set a larger max_length, or "
                    "overflow='split' or 'drop'"
                )
            warning = (
                f"{which} is longer than max_length={rule.max_length} and dropped (table {rule.table!r}); "
                "overflow='split' would keep it"
            )
        return warning

    def watch(self) -> None:
        """Predicts the next call to check; called when episodes have begun or ended."""
        states = self._states
        begin = states.begin[states.open]
        calls = [
            int(due.min())
            for rule in self._rules
            if len(due := (begin + rule.max_length)[begin + rule.max_length >= states.calls])
        ]
        next_call = min(calls, default=_NEVER)
        # No call from here on, after which Ctrl-C could come.
        self.next_call = next_call
        states.changed = False
