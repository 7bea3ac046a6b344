"""Parts of the state of a collector that inline collectors and workers share."""

# Rules: collectors CQ3

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

import numpy as np

from headrace.errors import SpecError
from headrace.weights import apply_weights, has_weights, read_weights
from headrace.weights.layout import WeightLayout


def saved_weights(policy: Any) -> Any:
    """Returns a copy of the weights of a policy as arrays; None if it has none that can be replaced."""
    if not has_weights(policy):
        return None
    weights = read_weights(policy)
    layout = WeightLayout(weights)
    return layout.tree([np.array(array) for array in layout.arrays(weights)])


def check_weights(policy: Any, weights: Any, path: str = "weights") -> None:
    """Raises if saved weights, at a path of a state, do not fit a policy.

    Raises:
        ValueError: one has weights and the other has none.
        SpecError: names, shapes or dtypes differ.
    """
    if (weights is not None) != has_weights(policy):
        with_weights = "the policy" if weights is None else "the state"
        raise ValueError(
            f"load_state_dict: {path}: expected the state of a collector with the same policy; only {with_weights} has "
            "weights; nothing was changed"
        )
    if weights is None:
        return
    try:
        WeightLayout(read_weights(policy)).arrays(weights)
    except SpecError as error:
        raise SpecError(f"load_state_dict: {path}: {error}; nothing was changed") from None


def load_weights(policy: Any, weights: Any) -> None:
    """Gives a policy a copy of saved weights, which `check_weights` has accepted."""
    if weights is not None:
        layout = WeightLayout(weights)
        apply_weights(policy, layout.tree([np.array(array) for array in layout.arrays(weights)]))


def check_parts(state: Any, names: Collection[str], path: str = "") -> None:
    """Raises if a state, or its part at a path, lacks parts.

    Raises:
        ValueError: it is not a dict with these names.
    """
    if isinstance(state, Mapping):
        lacks = [name for name in names if name not in state]
        given = f"a dict without {', '.join(lacks)}" if lacks else ""
    else:
        given = type(state).__name__
    if given:
        raise ValueError(
            f"load_state_dict: {path}{': ' * bool(path)}expected a state with {', '.join(names)}, got {given}; nothing "
            "was changed"
        )


def check_num_envs(state: Any, num_envs: int, path: str = "loop") -> None:
    """Raises if the state of a loop, at a path of the whole one, is of another number of environments.

    Raises:
        ValueError: it is.
    """
    given = state.get("num_envs") if isinstance(state, Mapping) else state
    if not isinstance(given, int) or given != num_envs:
        shown = given if isinstance(given, int) else type(given).__name__
        raise ValueError(
            f"load_state_dict: {path}/num_envs: expected the state of a collector of {num_envs} environments, got "
            f"{shown}; nothing was changed"
        )
