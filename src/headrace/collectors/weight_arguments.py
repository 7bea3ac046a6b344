"""The forms of arguments of `update_policy_weights_`."""

# Rules: collectors CW1

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from headrace.weights import has_weights, read_weights
from headrace.weights.layout import WeightLayout


def given_weights(positional: Any, weights: Any, policy: Any, own_policy: Any) -> Any:
    """Returns the weights of a call of `update_policy_weights_`, as a pytree of arrays.

    Args:
        positional, weights, policy: the arguments of the call, at most one of them given.
        own_policy: the policy that the collector was built with, for a call without arguments.

    Raises:
        ValueError: more than one source; or none, and the collector was built without a policy; a worker that is not 0.
        TypeError: a policy without `state_dict`.
    """
    given = [source for source in (positional, weights, policy) if source is not None]
    if len(given) > 1:
        raise ValueError(
            "update_policy_weights_: expected one of policy_or_weights, weights, policy, got several"
        )
    if given:
        source = given[0]
        if positional is not None and isinstance(source, Mapping) and source and _are_workers(source):
            source = _of_worker_zero(source)
    elif own_policy is None:
        raise ValueError(
            "update_policy_weights_: the collector was not built with a policy object; give weights or a policy"
        )
    else:
        source = own_policy
    is_tree = isinstance(source, Mapping | list | tuple | np.ndarray)
    return source if is_tree and not has_weights(source) else read_weights(source)


def _are_workers(source: Mapping[Any, Any]) -> bool:
    return all(isinstance(key, int) for key in source)


def _of_worker_zero(by_worker: Mapping[Any, Any]) -> Any:
    others = [key for key in by_worker if key != 0]
    if others:
        raise ValueError(f"update_policy_weights_: expected weights for worker 0, the only one, got {others}")
    return by_worker[0]


class WeightCheck:
    """Compares weights with those that a policy has, before anything is changed.

    Args:
        layout: of the policy's weights; None: it has none that can be replaced.
        policy: its type's name, for messages.
    """

    def __init__(self, layout: WeightLayout | None, policy: str) -> None:
        self.layout = layout
        self.policy = policy

    @classmethod
    def of(cls, policy: Any) -> WeightCheck:
        """Returns the check for the present weights of a policy."""
        layout = WeightLayout(read_weights(policy)) if has_weights(policy) else None
        return cls(layout, type(policy).__name__)

    def __call__(self, weights: Any) -> None:
        """Raises if weights do not fit.

        Raises:
            TypeError: the policy has no weights.
            SpecError: names, shapes or dtypes differ, with the path.
        """
        if self.layout is None:
            raise TypeError(
                f"policy: expected one with state_dict() and load_state_dict(), got {self.policy}; add them, or wrap a "
                "function with hr.FunctionalPolicy(apply, params)"
            )
        self.layout.arrays(weights)
