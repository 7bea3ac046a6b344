"""Results of policies as NumPy arrays, from every library and device."""

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
        _fetch(actions),
        [_fetch(state) for state in state_outs] if state_outs else (),
        {name: _fetch(value) for name, value in extras.items()} if extras else {},
    )


def _fetch(tree: Any) -> Any:
    # One array or tensor in most cases: looking for containers costs more than the conversion.
    if type(tree) is np.ndarray:
        return tree
    torch = sys.modules.get("torch")
    if torch is not None and isinstance(tree, torch.Tensor):
        return _of_tensor(tree)
    return map_leaves(_of_leaf, tree)


def _of_leaf(leaf: Any) -> Any:
    torch, jax = sys.modules.get("torch"), sys.modules.get("jax")
    if torch is not None:
        if isinstance(leaf, torch.Tensor):
            return _of_tensor(leaf)
        if isinstance(leaf, torch.distributions.Distribution):
            from headrace.policies.distributions import act_from

            return _of_tensor(act_from(leaf, exploration_type()))
    return np.asarray(leaf) if jax is not None and isinstance(leaf, jax.Array) else leaf


def _of_tensor(tensor: Any) -> Any:
    try:
        return tensor.numpy()
    except (RuntimeError, TypeError):  # It needs a gradient, or is on another device.
        return tensor.numpy(force=True)
