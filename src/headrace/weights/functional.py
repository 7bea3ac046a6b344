"""Policies that are a function of their parameters."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

import numpy as np
import optree

from headrace.weights.layout import WeightLayout


class FunctionalPolicy:
    """Makes a policy with updatable weights from a function `apply(params, observation)`, as in JAX.

    Args:
        apply: returns the actions `[n, ...]` (or any other result of a policy) for parameters and observations.
        params: a pytree of arrays.

    Raises:
        TypeError: `apply` cannot be called.
        SpecError: a parameter is not an array; the message has its path.

    >>> policy = FunctionalPolicy(lambda params, observation: observation @ params["w"], {"w": np.eye(2)})
    >>> policy(np.array([[1.0, 2.0]]))
    array([[1., 2.]])
    >>> policy.load_state_dict({"w": 3 * np.eye(2)})
    >>> policy(np.array([[1.0, 2.0]]))
    array([[3., 6.]])
    """

    def __init__(self, apply: Callable[[Any, Any], Any], params: Any) -> None:
        if not callable(apply):
            raise TypeError(
                f"apply: expected a function of params and observation, got {type(apply).__name__}"
            )
        self._layout = WeightLayout(params)
        self.apply = apply
        self.params = params

    def __call__(self, observation: Any) -> Any:
        """Returns the result of `apply` for the present parameters."""
        return self.apply(self.params, observation)

    def state_dict(self) -> Any:
        """The parameters themselves."""
        return self.params

    def load_state_dict(self, params: Any) -> None:
        """Replaces the parameters by others of the same names, shapes and dtypes, on the same devices.

        Raises:
            SpecError: names, shapes or dtypes differ; the message has the path. Nothing is replaced.
        """
        new = self._layout.tree(self._layout.arrays(params))
        self.params = optree.tree_map(_as_before, self.params, new)


def _as_before(old: Any, new: Any) -> Any:
    """Converts `new` to the array type of `old`: a NumPy array would be moved to the device at each call."""
    torch, jax = sys.modules.get("torch"), sys.modules.get("jax")
    if torch is not None and isinstance(old, torch.Tensor):
        tensor = new if isinstance(new, torch.Tensor) else torch.from_numpy(np.array(new))
        return tensor.to(old.device, copy=True)
    if jax is not None and isinstance(old, jax.Array):
        return jax.device_put(np.array(new), old.sharding)
    return np.array(new)
