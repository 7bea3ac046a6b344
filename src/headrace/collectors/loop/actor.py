"""The policy of a collector: it acts for n environments at every step, with their recurrent states."""

# Rules: collectors CP1 to CP3, CP6

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from numpy.typing import NDArray

from headrace.envs.columns import STEP_COLUMNS
from headrace.envs.protocol import Indices
from headrace.policies import (
    CheckedPolicy,
    PolicyStates,
    actions_or_pair,
    form_of,
    initial_state_of,
    state_out_columns,
)
from headrace.spec import ArraySpec, Signature

Columns = Mapping[str, NDArray[Any]]


class Actor:
    """Calls a policy on the observations of n environments, and keeps its recurrent states between steps.

    Args:
        policy: of any form (`headrace.policies.form_of`); a callable may return the pair of actions and columns.
        observed: `Signature({"observation": ..., **info_columns})`.
        acted: `Signature({"action": ...})`.
        num_envs: n.

    Attributes:
        is_recurrent: whether the policy has states.

    Raises:
        TypeError: not a policy.
        SpecError: an initial state that is not a list of arrays.
    """

    def __init__(self, policy: Any, observed: Signature, acted: Signature, num_envs: int) -> None:
        initial = initial_state_of(policy)
        self._states = PolicyStates(initial, num_envs)
        reserved = (
            dict.fromkeys(observed.tree, "an info column")
            | dict.fromkeys(STEP_COLUMNS, "a column of every step")
            | dict.fromkeys(self._states.specs, "a state of the policy")
        )
        form = form_of(policy, acted, actions_or_pair)
        self._policy = CheckedPolicy(form, acted, initial, reserved=reserved)
        self.is_recurrent = bool(initial)
        self._observed = None if "observation" in observed.columns else observed
        self._num_envs = num_envs

    @property
    def extras(self) -> dict[str, ArraySpec]:
        """Columns that the policy adds to a step, its states included; known after the first call."""
        return self._states.specs | self._policy.extras

    def __call__(self, row: Columns) -> tuple[Columns, Columns]:
        """Returns actions and further columns, `[n, ...]`, for the observations of one row.

        Raises:
            SpecError: a result that does not fit, with the path.
        """
        observation = (
            row["observation"] if self._observed is None else self._observed.unflatten(row)["observation"]
        )
        if not self.is_recurrent:
            actions, _, extras = self._policy({"observation": observation}, self._num_envs)
            return actions, extras
        # The policy has copies of its own: the states before the step are columns, whatever it does with them.
        inputs = {"observation": observation, **self._states.columns()}
        actions, state_outs, extras = self._policy(inputs, self._num_envs)
        return actions, {**self._states.columns(), **state_out_columns(state_outs), **extras}

    def follow(self, extras: Columns, restarted: Indices) -> None:
        """Keeps the states after a step.

        Args:
            extras: the further columns of the step.
            restarted: environments whose next observation is the first of an episode.
        """
        self._states.follow(extras, restarted)

    def reset(self) -> None:
        """Sets the initial states, as every environment begins an episode."""
        self._states.reset()
