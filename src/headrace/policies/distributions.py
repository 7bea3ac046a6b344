"""Actions of torch distributions."""

# Rules: collectors CR11

from __future__ import annotations

import torch
from torch.distributions import Distribution

from headrace.errors import SpecError
from headrace.policies.exploration import ExplorationType


def act_from(distribution: Distribution, kind: ExplorationType) -> torch.Tensor:
    """Returns the actions that a distribution gives, a tensor `[n, ...]`.

    Args:
        distribution: of the actions of n environments.
        kind: see `ExplorationType`.

    Raises:
        SpecError: it has no mode, or no mean, where that is asked for.

    >>> uniform = torch.distributions.Uniform(torch.zeros(1), torch.ones(1))
    >>> act_from(uniform, ExplorationType.DETERMINISTIC)
    tensor([0.5000])
    """
    match kind:
        case ExplorationType.RANDOM:
            return distribution.sample()
        case ExplorationType.MODE:
            return _whole(_statistic(distribution, "mode"), distribution, "mode")
        case ExplorationType.MEAN:
            return _whole(_statistic(distribution, "mean"), distribution, "mean")
        case ExplorationType.DETERMINISTIC:
            return _mode_or_mean(distribution)


def _mode_or_mean(distribution: Distribution) -> torch.Tensor:
    mode = _statistic(distribution, "mode")
    if mode is None:
        return _whole(_statistic(distribution, "mean"), distribution, "mode and no mean")
    if not mode.is_floating_point() or not (missing := mode.isnan()).any():
        return mode
    mean = _statistic(distribution, "mean")
    found = mode if mean is None else torch.where(missing, mean, mode)
    return _whole(found, distribution, "mode and no mean")


def _statistic(distribution: Distribution, name: str) -> torch.Tensor | None:
    """Returns the mode or the mean; None if the class has none."""
    try:
        found: torch.Tensor = getattr(distribution, name)
    except NotImplementedError:
        return None
    return found


def _whole(found: torch.Tensor | None, distribution: Distribution, what: str) -> torch.Tensor:
    """Returns a statistic that every element has. torch writes NaN for one that does not exist."""
    if found is None or (found.is_floating_point() and bool(found.isnan().any())):
        raise SpecError(
            f"action: the policy's {type(distribution).__name__} has no {what}, which exploration_type asks for; give "
            "another exploration_type, or return the actions"
        )
    return found
