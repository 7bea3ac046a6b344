"""Calls of a policy whose results are checked and cast: actions, states and further columns."""

# Rules: views-rollouts P2, P3; collectors CP1, CP3

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any, NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

from headrace.errors import SpecError
from headrace.policies.forms import Form
from headrace.spec import ArraySpec, Signature, as_array, check_array

Columns: TypeAlias = Mapping[str, NDArray[Any]]


class Decision(NamedTuple):
    """The checked result of a policy for B rows.

    Attributes:
        actions: columns `[B, ...]` of the action signature.
        state_outs: the new states, `[B, ...]` each, of the dtypes of the initial ones.
        extras: further columns `[B, ...]`.
    """

    actions: Columns
    state_outs: list[NDArray[Any]]
    extras: Columns


class CheckedPolicy:
    """Calls a policy and checks the result against the action space, the initial state and the first call's columns.

    Args:
        form: the policy, from `form_of`.
        acted: `Signature({"action": ...})`.
        initial_state: for one row, from `initial_state_of`.
        name: of the policy, which begins every message.
        reserved: columns that the policy must not return: name to a description of the existing column.

    Attributes:
        extras: specs of the further columns that the policy returns; known after the first call.

    >>> from headrace.policies import actions_or_pair, form_of
    >>> acted = Signature.like({"action": 0})
    >>> policy = CheckedPolicy(form_of(lambda seen: (seen % 2, {"value": seen / 2}), acted, actions_or_pair), acted)
    >>> policy({"observation": np.arange(3)}, rows=3)
    Decision(actions={'action': array([0, 1, 0])}, state_outs=[], extras={'value': array([0. , 0.5, 1. ])})
    """

    def __init__(
        self,
        form: Form,
        acted: Signature,
        initial_state: Sequence[NDArray[Any]] = (),
        *,
        name: str = "policy",
        reserved: Mapping[str, str] = MappingProxyType({}),
    ) -> None:
        self._form = form
        self._acted = acted
        self._bare_spec = acted.columns["action"] if list(acted.columns) == ["action"] else None
        self._state_specs = [ArraySpec(state.shape, state.dtype) for state in initial_state]
        self._name = name
        self._reserved = reserved
        self._was_called = False
        self.extras: dict[str, ArraySpec] = {}

    def __call__(self, inputs: Mapping[str, Any], rows: int) -> Decision:
        """Returns what the policy does.

        Args:
            inputs: see `Form`.
            rows: B.

        Raises:
            SpecError: a result that does not fit; the message has the policy's name and the path.
        """
        try:
            actions, state_outs, extras = self._form(inputs)
        except SpecError as error:
            raise SpecError(f"{self._name}: {error}") from error
        return Decision(
            self._check_actions(actions, rows),
            self._check_states(state_outs, rows) if state_outs or self._state_specs else [],
            self._check_extras(extras, rows) if extras or self.extras or not self._was_called else {},
        )

    def _check_actions(self, actions: Any, rows: int) -> Columns:
        try:
            if self._bare_spec is not None:
                return {"action": check_array(actions, self._bare_spec, "action", (rows,))}
            return self._acted.validate({"action": actions}, (rows,))
        except SpecError as error:
            raise SpecError(f"{self._name}: {error}; {self._advice(actions, rows)}") from error

    def _advice(self, actions: Any, rows: int) -> str:
        """Describes the result that a policy must return, for the error about any other result."""
        advice = f"a policy returns actions [n, ...], one for each of the n = {rows} environments"
        is_discrete = self._bare_spec == ArraySpec((), np.int64)
        count, *others = getattr(actions, "shape", None) or (0,)
        if is_discrete and count == rows and len(others) == 1 and others[0] > 1:
            return f"{advice}; for values of all actions, as a Q-network gives them, return values.argmax(-1)"
        if isinstance(actions, tuple):
            return f"{advice}, or the pair (actions, dict of further columns), such as (actions, {{'value': values}})"
        return advice

    def _check_states(self, state_outs: Sequence[Any], rows: int) -> list[NDArray[Any]]:
        if len(state_outs) != len(self._state_specs):
            raise SpecError(
                f"{self._name}: state_outs: expected {len(self._state_specs)}, one for each of initial_state, got "
                f"{len(state_outs)}"
            )
        try:
            return [
                check_array(state, spec, f"state_out_{i}", (rows,))
                for i, (state, spec) in enumerate(zip(state_outs, self._state_specs, strict=True))
            ]
        except SpecError as error:
            raise SpecError(f"{self._name}: {error}") from error

    def _check_extras(self, extras: Mapping[str, Any], rows: int) -> Columns:
        if not self._was_called:
            self._learn_extras(extras, rows)
            self._was_called = True
        if extras.keys() != self.extras.keys():
            raise SpecError(
                f"{self._name}: expected the columns {tuple(self.extras)} of its first call, got {tuple(extras)}"
            )
        try:
            return {
                name: check_array(value, self.extras[name], name, (rows,)) for name, value in extras.items()
            }
        except SpecError as error:
            raise SpecError(f"{self._name}: {error}") from error

    def _learn_extras(self, extras: Mapping[str, Any], rows: int) -> None:
        specs = {}
        for name, value in extras.items():
            if name in self._reserved:
                raise SpecError(
                    f"{self._name}: the column {name!r} is {self._reserved[name]}; give it another name"
                )
            if not _is_column_name(name):
                raise SpecError(
                    f"{self._name}: extras: expected the name of a column, a string without '/', got {name!r}"
                )
            array = as_array(value, f"{self._name}: {name}")
            if array.shape[:1] != (rows,):
                raise SpecError(f"{self._name}: {name}: expected shape [{rows}, ...], got {array.shape}")
            specs[name] = ArraySpec(array.shape[1:], array.dtype)
        self.extras = specs


def _is_column_name(name: object) -> bool:
    return isinstance(name, str) and name != "" and "/" not in name
