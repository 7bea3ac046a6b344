"""V-trace: targets and advantages of another policy's steps."""

from __future__ import annotations

from typing import Any

import numpy as np

from headrace.checks import check_share, shown
from headrace.trajectories.returns.steps import Steps


@np.errstate(all="ignore")
def vtrace(
    rewards: Any,
    values: Any,
    next_values: Any,
    terminated: Any,
    truncated: Any,
    log_rhos: Any,
    gamma: float = 0.99,
    *,
    clip_rho: float = 1.0,
    clip_c: float = 1.0,
    lambda_: float = 1.0,
    ends: Any = None,
    mask: Any = None,
) -> tuple[Any, Any]:
    """Computes V-trace targets for the critic and advantages for the actor, from steps of an older policy.

    With `rho = min(clip_rho, exp(log_rhos))`, `c = lambda_ * min(clip_c, exp(log_rhos))` and
    `error[t] = rho[t] * (reward[t] + gamma * next_value[t] - value[t])`:
    `target[t] = value[t] + error[t] + gamma * c[t] * (target[t + 1] - value[t + 1])` within a trajectory, and
    `advantage[t] = rho[t] * (reward[t] + gamma * target[t + 1] - value[t])`, at the last step with the next value.

    Args:
        rewards: as for `gae`, like the other arguments that are not named here.
        values: as for `gae`.
        next_values: as for `gae`.
        terminated: as for `gae`.
        truncated: as for `gae`.
        log_rhos: log probability of each action under the learner's policy minus that under the policy that acted.
        gamma: discount of one step, from 0 to 1.
        clip_rho: largest weight of an error, above 0; may be infinite.
        clip_c: largest weight of the errors after a step, above 0; may be infinite.
        lambda_: factor of that weight, from 0 to 1.
        ends: as for `gae`.
        mask: as for `gae`.

    Returns:
        `(targets, advantages)`, `[..., T]`, as the results of `gae`.

    Raises:
        ValueError: as for `gae`; a clip is not above 0.
        TypeError: as for `gae`.

    Source: L. Espeholt et al., "IMPALA: Scalable Distributed Deep-RL with Importance Weighted Actor-Learner
    Architectures" (2018).

    >>> flags = [False, False], [False, False]
    >>> targets, advantages = vtrace([1.0, 1], [0.0, 0], [0, 4.0], *flags, log_rhos=[0.0, 0], gamma=0.5)
    >>> targets, advantages
    (array([2.5, 3. ]), array([2.5, 3. ]))
    """
    gamma, lambda_ = check_share("gamma", gamma), check_share("lambda_", lambda_)
    clip_rho, clip_c = _check_clip("clip_rho", clip_rho), _check_clip("clip_c", clip_c)
    steps = Steps(values, rewards, terminated, truncated, ends, mask)
    arrays, value = steps.arrays, steps.numbers("values", values)
    next_value = steps.numbers("next_values", next_values)
    ratios = arrays.exp(steps.numbers("log_rhos", log_rhos))
    rho = arrays.at_most(ratios, clip_rho)
    errors = rho * (steps.bootstrapped(next_value, gamma) - value)
    factors = arrays.where(steps.more, arrays.at_most(ratios, clip_c) * (gamma * lambda_), 0.0)
    targets = value + arrays.backward(errors, factors)
    next_target = arrays.where(steps.more, arrays.following(targets), next_value)
    advantages = rho * (steps.bootstrapped(next_target, gamma) - value)
    return steps.result(targets), steps.result(advantages)


def _check_clip(name: str, value: Any) -> float:
    if isinstance(value, bool) or not hasattr(value, "__float__"):
        raise TypeError(f"{name}: expected a number above 0, got {shown(value)}")
    if not float(value) > 0:
        raise ValueError(f"{name}: expected a number above 0, got {shown(value)}")
    return float(value)
