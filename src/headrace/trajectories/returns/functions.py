"""Generalized advantages, lambda-returns and discounted returns."""

from __future__ import annotations

from typing import Any

import numpy as np

from headrace.checks import check_share
from headrace.trajectories.returns.steps import Steps


# Values that are not finite are results, and no reason to warn.
@np.errstate(all="ignore")
def gae(
    rewards: Any,
    values: Any,
    next_values: Any,
    terminated: Any,
    truncated: Any,
    gamma: float = 0.99,
    lambda_: float = 0.95,
    *,
    ends: Any = None,
    mask: Any = None,
) -> tuple[Any, Any]:
    """Computes generalized advantage estimates, and the returns that a critic learns from.

    `advantage[t] = error[t] + gamma * lambda_ * advantage[t + 1]` within a trajectory, with
    `error[t] = reward[t] + gamma * next_value[t] - value[t]`; after a termination the next value is 0.

    All arguments are arrays of one shape `[..., T]`, of NumPy, torch or JAX.

    Args:
        rewards: numbers.
        values: the critic's values of the observations; the results have their library, device and dtype (integers
            give float64).
        next_values: values of the next observations: at a truncation or a cut, of the true last one. Not read at a
            termination.
        terminated: booleans.
        truncated: booleans.
        gamma: discount of one step, from 0 to 1.
        lambda_: weight of longer returns, from 0 to 1.
        ends: booleans: the last steps of parts that no flag ends, such as fragments.
        mask: booleans: real steps. Where it is False the results are 0, and nothing is read.

    Returns:
        `(advantages, returns)`, `[..., T]`; returns are advantages plus values. Tensors carry no gradient.

    Raises:
        ValueError: shapes differ; gamma or lambda_ is outside [0, 1].
        TypeError: arrays of several libraries, flags that are not booleans.

    Source: J. Schulman et al., "High-Dimensional Continuous Control Using Generalized Advantage Estimation" (2016).

    >>> advantages, returns = gae([1.0, 1, 1], [0.0] * 3, [0, 0, 8.0], [False] * 3, [False, False, True], 0.5, 1)
    >>> advantages
    array([2.75, 3.5 , 5.  ])
    """
    gamma, lambda_ = check_share("gamma", gamma), check_share("lambda_", lambda_)
    steps = Steps(values, rewards, terminated, truncated, ends, mask)
    value = steps.numbers("values", values)
    errors = steps.bootstrapped(steps.numbers("next_values", next_values), gamma) - value
    advantages = steps.arrays.backward(errors, steps.arrays.scaled(steps.more, gamma * lambda_))
    return steps.result(advantages), steps.result(advantages + value)


@np.errstate(all="ignore")
def lambda_returns(
    rewards: Any,
    next_values: Any,
    terminated: Any,
    truncated: Any,
    gamma: float = 0.99,
    lambda_: float = 0.95,
    *,
    ends: Any = None,
    mask: Any = None,
) -> Any:
    """Computes lambda-returns: mixtures of all n-step returns.

    `G[t] = reward[t] + gamma * ((1 - lambda_) * next_value[t] + lambda_ * G[t + 1])` within a trajectory, and
    `reward[t] + gamma * next_value[t]` at its last step; after a termination the next value is 0.

    Args and errors are those of `gae`; the result has the library, device and dtype of `rewards`.

    Source: R. Sutton and A. Barto, "Reinforcement Learning", 2nd edition (2018), chapter 12.

    >>> lambda_returns([1.0, 1, 1], [4.0, 4, 4], [False, False, True], [False] * 3, gamma=0.5, lambda_=0.5)
    array([2.5625, 2.25  , 1.    ])
    """
    gamma, lambda_ = check_share("gamma", gamma), check_share("lambda_", lambda_)
    steps = Steps(rewards, rewards, terminated, truncated, ends, mask)
    last = steps.bootstrapped(next_values := steps.numbers("next_values", next_values), gamma)
    earlier = steps.rewards + gamma * (1 - lambda_) * next_values
    offsets = steps.arrays.where(steps.more, earlier, last)
    return steps.result(steps.arrays.backward(offsets, steps.arrays.scaled(steps.more, gamma * lambda_)))


@np.errstate(all="ignore")
def discounted_returns(
    rewards: Any,
    terminated: Any,
    truncated: Any,
    gamma: float = 0.99,
    *,
    next_values: Any = None,
    ends: Any = None,
    mask: Any = None,
) -> Any:
    """Computes discounted sums of the rewards up to the end of the trajectory.

    The last step of a trajectory adds `gamma * next_value`, unless it is terminated; without `next_values` it adds
    nothing. Args and errors are those of `gae`; the result has the library, device and dtype of `rewards`.

    >>> discounted_returns([1.0, 1, 1], [False, False, True], [False] * 3, gamma=0.5)
    array([1.75, 1.5 , 1.  ])
    """
    gamma = check_share("gamma", gamma)
    steps = Steps(rewards, rewards, terminated, truncated, ends, mask)
    offsets = steps.rewards
    if next_values is not None:
        last = steps.bootstrapped(steps.numbers("next_values", next_values), gamma)
        offsets = steps.arrays.where(steps.more, offsets, last)
    return steps.result(steps.arrays.backward(offsets, steps.arrays.scaled(steps.more, gamma)))
