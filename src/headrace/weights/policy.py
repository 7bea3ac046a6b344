"""The weights of a policy: the pytree of `state_dict()` and `load_state_dict()`."""

# Rules: collectors CP4

from __future__ import annotations

import sys
from typing import Any

import numpy as np

_ADVICE = "add state_dict() and load_state_dict(weights), or wrap a function with hr.FunctionalPolicy(apply, params)"


def has_weights(policy: Any) -> bool:
    """Whether the weights of this policy can be read and replaced."""
    return all(callable(getattr(policy, name, None)) for name in ("state_dict", "load_state_dict"))


def read_weights(policy: Any) -> Any:
    """Returns the weights of a policy as a pytree of arrays. They may be the policy's own: publish or copy them.

    Raises:
        TypeError: the policy has no `state_dict`.
    """
    state_dict = getattr(policy, "state_dict", None)
    if not callable(state_dict):
        raise TypeError(f"policy: expected one with state_dict(), got {type(policy).__name__}; {_ADVICE}")
    return state_dict()


def apply_weights(policy: Any, weights: Any) -> None:
    """Replaces the weights of a policy, in place.

    Args:
        policy: a torch module (its arrays are converted to tensors), or any object with `load_state_dict`.
        weights: as returned by `read_weights`.

    Raises:
        TypeError: the policy has no `load_state_dict`.
    """
    load = getattr(policy, "load_state_dict", None)
    if not callable(load):
        raise TypeError(
            f"policy: expected one with load_state_dict(), got {type(policy).__name__}; {_ADVICE}"
        )
    load(as_tensors(weights) if is_torch_module(policy) else weights)


def is_torch_module(policy: Any) -> bool:
    """Whether this is a torch module. Does not load torch: without it there is no torch module."""
    torch = sys.modules.get("torch")
    return torch is not None and isinstance(policy, torch.nn.Module)


def as_tensors(weights: Any) -> Any:
    """Converts a dict of arrays to torch tensors over the same memory; tensors stay as they are."""
    torch = sys.modules["torch"]
    return {
        name: value
        if isinstance(value, torch.Tensor)
        else torch.from_numpy(np.require(value, requirements="W"))
        for name, value in weights.items()
    }
