"""The policy of a collector: it acts for n environments at every step, with their recurrent states and views."""

# Rules: collectors CP1 to CP3, CP6, CR11; views-rollouts P2

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any

from numpy.typing import NDArray

from headrace.envs.columns import STEP_COLUMNS
from headrace.envs.protocol import Indices
from headrace.envs.step_signature import step_signature
from headrace.policies import (
    ActingViews,
    CheckedPolicy,
    ExplorationType,
    PolicyStates,
    actions_or_pair,
    exploring,
    form_of,
    initial_state_of,
    reads_views,
    state_out_columns,
    tensor_device,
)
from headrace.spec import ArraySpec, Signature
from headrace.views import View

if TYPE_CHECKING:
    import torch

Columns = Mapping[str, NDArray[Any]]


class Actor:
    """Calls a policy on the observations of n environments.

    Keeps its recurrent states between steps, and the rows before the newest ones that its views read.

    Args:
        policy: of any form (`headrace.policies.form_of`); a callable may return the pair of actions and columns.
        observed: `Signature({"observation": ..., **info_columns})`.
        acted: `Signature({"action": ...})`.
        num_envs: n.
        views: of the collector and the policy; those that are fed to a policy are presented.
        exploration_type: holds while the policy is called.
        device: see `form_of`.
        newest: `VectorStepper.on_device` of the environments, for a policy on their device.

    Attributes:
        remembers: whether the policy has states or views, so that `follow` is needed.
        views_read: names of the columns that views which it is fed read.

    Raises:
        TypeError: not a policy.
        SpecError: an initial state that is not a list of arrays; a view that cannot be shown.
        ValueError: a view for acting that looks ahead.
    """

    def __init__(
        self,
        policy: Any,
        observed: Signature,
        acted: Signature,
        num_envs: int,
        views: Mapping[str, View],
        *,
        exploration_type: ExplorationType,
        device: str | None,
        newest: Callable[[torch.device], Mapping[str, torch.Tensor] | None] | None = None,
    ) -> None:
        initial = initial_state_of(policy)
        self._states = PolicyStates(initial, num_envs)
        reserved = (
            dict.fromkeys(observed.tree, "an info column")
            | dict.fromkeys(STEP_COLUMNS, "a column of every step")
            | dict.fromkeys(self._states.specs, "a state of the policy")
        )
        form = exploring(form_of(policy, acted, actions_or_pair, device), exploration_type)
        self._policy = CheckedPolicy(form, acted, initial, reserved=reserved)
        on = tensor_device(policy, device)
        self._newest = None if newest is None or on is None else partial(newest, on)
        self._copies_to_device = on is not None and on.type != "cpu"
        self._is_recurrent = bool(initial)
        self._observed = None if "observation" in observed.columns else observed
        self._names = ("observation",) if self._observed is None else tuple(observed.columns)
        self._num_envs = num_envs
        # A policy without compute_actions takes the observation alone.
        shown = {name: view for name, view in views.items() if name == "observation" or reads_views(policy)}
        known = step_signature(observed, acted, self._states.specs)
        acting = ActingViews(shown, known.tree, observed.columns, num_envs)
        self._views = acting or None
        self._is_first = True
        self.views_read = frozenset(acting.columns)
        self.remembers = self._is_recurrent or self._views is not None

    @property
    def extras(self) -> dict[str, ArraySpec]:
        """Columns that the policy adds to a step, its states included; known after the first call."""
        return self._states.specs | self._policy.extras

    def __call__(self, row: Columns, version: int, lanes: Indices | None = None) -> tuple[Columns, Columns]:
        """Returns actions and further columns, `[n, ...]`, for the observations of one row.

        Args:
            row: columns `[n, ...]`, left unchanged; of m lanes `[m, ...]`, which are the policy's to write into.
            version: of the weights that act.
            lanes: int64[m], environments that act while the others still step; None: all.

        Raises:
            SpecError: a result that does not fit, with the path.
        """
        # The policy is given memory of its own, because it may write into it: the rows are recorded.
        inputs: dict[str, Any] = self._states.columns(lanes)
        if self._views is not None:
            self._views.see({**row, **inputs}, version, lanes)
            inputs |= self._views.present(lanes)
        if "observation" not in inputs:
            inputs["observation"] = self._observation(row, is_own=lanes is not None)
        actions, state_outs, extras = self._policy(inputs, self._num_envs if lanes is None else len(lanes))
        if self._is_first:
            if self._views is not None:
                self._views.learn(self._policy.extras)
            self._is_first = False
        if not self._is_recurrent:
            return actions, extras
        return actions, {**self._states.columns(lanes), **state_out_columns(state_outs), **extras}

    def _observation(self, row: Columns, *, is_own: bool) -> Any:
        """Returns the observations in memory of their own, unless the policy copies them to its device."""
        seen: Mapping[str, Any] = row
        tensors = None if self._newest is None else self._newest()
        if tensors is not None:
            seen = {**row, **tensors}
        elif not (is_own or self._copies_to_device):
            seen = {name: row[name].copy() for name in self._names}
        if self._observed is None:
            return seen["observation"]
        return self._observed.unflatten(seen)["observation"]

    def follow(self, row: Columns, values: Columns, version: int, restarted: Indices) -> None:
        """Keeps states and history after a step.

        Args:
            row: the observations before the step.
            values: the other columns of the step.
            version: of the weights that acted.
            restarted: environments whose next observation is the first of an episode.
        """
        self._states.follow(values, restarted)
        if self._views is not None:
            self._views.follow(row, values, version, restarted)

    def see(self, row: Columns, version: int, lanes: Indices) -> None:
        """Notes the observations of m lanes that act without the policy; `keep` follows."""
        if self._views is not None:
            self._views.see(row, version, lanes)

    def keep(self, values: Columns, lanes: Indices) -> None:
        """Keeps states and history of m lanes after they acted.

        Args:
            values: actions and further columns, `[m, ...]`; without states those of the lanes stay.
            lanes: int64[m].
        """
        self._states.keep(values, lanes)
        if self._views is not None:
            self._views.keep(values, lanes)

    def finish(self, outcomes: Columns, lanes: Indices, restarted: Indices) -> None:
        """Keeps the history of m lanes after their steps.

        Args:
            outcomes: columns of the step that were not known before it, `[m, ...]`.
            lanes: int64[m].
            restarted: those of them whose next observation is the first of an episode.
        """
        if restarted.size:
            self._states.reset(restarted)
        if self._views is not None:
            self._views.keep(outcomes, lanes)
            self._views.finish(lanes, restarted)

    def state_dict(self) -> dict[str, Any]:
        """Returns the states of the policy, and the rows that its views look back on."""
        views = None if self._views is None else self._views.state_dict()
        return {"states": self._states.state_dict(), "views": views}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Goes on after a state of a policy of the same form."""
        self._states.load_state_dict(state["states"])
        if self._views is not None and state["views"] is not None:
            self._views.load_state_dict(state["views"])

    def reset(self, envs: Indices | None = None) -> None:
        """Sets the initial states where environments (None: all) begin an episode."""
        self._states.reset(envs)
        if self._views is not None:
            self._views.reset(envs)
