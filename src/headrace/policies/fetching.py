"""Results of policies as NumPy arrays, whatever library and device they come from."""

# Rules: collectors CP2, CR11, CD2

from __future__ import annotations

import sys
from typing import Any

import numpy as np

from headrace.policies.exploration import exploration_type
from headrace.policies.result import PolicyResult
from headrace.trees import map_leaves


def fetched(result: PolicyResult) -> PolicyResult:
    """Returns the result with NumPy arrays for the tensors and JAX arrays in it, copied from their device if need be.

    A torch distribution becomes the actions that the present exploration type takes from it.

    >>> fetched(PolicyResult([1, 2])).actions
    [1, 2]
    """
    actions, state_outs, extras = result
    if type(actions) is np.ndarray and not state_outs and not extras:
        return result
    if "torch" not in sys.modules and "jax" not in sys.modules:
        return result
    return PolicyResult(
        map_leaves(_as_array, actions),
        [map_leaves(_as_array, state) for state in state_outs],
        {name: map_leaves(_as_array, value) for name, value in extras.items()},
    )


def _as_array(leaf: Any) -> Any:
    if isinstance(leaf, np.ndarray | np.generic | int | float):
        return leaf
    torch, jax = sys.modules.get("torch"), sys.modules.get("jax")
    if torch is not None:
        if isinstance(leaf, torch.Tensor):
            return leaf.numpy(force=True)
        if isinstance(leaf, torch.distributions.Distribution):
            from headrace.policies.distributions import act_from

            return act_from(leaf, exploration_type()).numpy(force=True)
    return np.asarray(leaf) if jax is not None and isinstance(leaf, jax.Array) else leaf
