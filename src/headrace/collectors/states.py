"""Parts of the state of a collector that inline collectors and workers share."""

# Rules: collectors CQ3

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

import numpy as np

from headrace.weights import apply_weights, has_weights, read_weights
from headrace.weights.layout import WeightLayout


def saved_weights(policy: Any) -> Any:
    """Returns a copy of the weights of a policy as arrays; None if it has none that can be replaced."""
    if not has_weights(policy):
        return None
    weights = read_weights(policy)
    layout = WeightLayout(weights)
    return layout.tree([np.array(array) for array in layout.arrays(weights)])


def check_weights(policy: Any, weights: Any) -> None:
    """Raises if saved weights do not fit a policy.

    Raises:
        ValueError: one has weights and the other has none.
        SpecError: names, shapes or dtypes differ.
    """
    if (weights is not None) != has_weights(policy):
        with_weights = "the policy" if weights is None else "the state"
        raise ValueError(
            f"load_state_dict: expected the state of a collector with the same policy; only {with_weights} has weights"
        )
    if weights is not None:
        WeightLayout(read_weights(policy)).arrays(weights)


def load_weights(policy: Any, weights: Any) -> None:
    """Gives a policy a copy of saved weights, which `check_weights` has accepted."""
    if weights is not None:
        layout = WeightLayout(weights)
        apply_weights(policy, layout.tree([np.array(array) for array in layout.arrays(weights)]))


def check_parts(state: Any, names: Collection[str]) -> None:
    """Raises if a state lacks parts.

    Raises:
        ValueError: it is not a dict with these names.
    """
    if not isinstance(state, Mapping) or not set(names) <= state.keys():
        given = (
            ", ".join(map(str, state)) or "none of them"
            if isinstance(state, Mapping)
            else type(state).__name__
        )
        raise ValueError(f"load_state_dict: expected a state with {', '.join(names)}, got {given}")


def check_num_envs(state: Mapping[str, Any], num_envs: int) -> None:
    """Raises if a state of a loop is of another number of environments.

    Raises:
        ValueError: it is.
    """
    if state["num_envs"] != num_envs:
        raise ValueError(
            f"load_state_dict: expected the state of a collector of {num_envs} environments, got {state['num_envs']}"
        )
