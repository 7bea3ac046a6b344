"""Rewards for goals of hindsight: the views that show them, and the user's functions that compute them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from headrace.errors import SpecError
from headrace.spec import ArraySpec, Signature, check_array
from headrace.views.goals import GoalFunction, Hindsight
from headrace.views.sources import Source
from headrace.views.transition import TransitionView

FLAG = ArraySpec((), np.bool_)


@dataclass(frozen=True)
class RewardGroup:
    """Views that show rewards of the same transitions of each row.

    Attributes:
        source: one of them.
        rewards: the views of the reward itself, or of the sum over n steps.
        terminated, discounts: the views of the flag, and of the discount computed from it.
    """

    source: Source
    rewards: list[str] = field(default_factory=list)
    terminated: list[str] = field(default_factory=list)
    discounts: list[str] = field(default_factory=list)

    @property
    def sums(self) -> tuple[int, float] | None:
        """(n_step, gamma) of views of n-step transitions; else None."""
        view = self.source.view
        return (view.n_step, view.gamma) if isinstance(view, TransitionView) else None


def reward_groups(sources: Sequence[Source], rule: Hindsight) -> list[RewardGroup]:
    """Groups the views of rewards and recomputed flags by the transitions that they show."""
    found: dict[Any, RewardGroup] = {}
    for source in sources:
        view, column = source.view, source.columns.get("")
        is_reward = column == "reward"
        is_flag = column == "terminated" and rule.terminated is not None
        if isinstance(view, TransitionView):
            key: Any = (view.n_step, view.gamma)
            is_discount = view.part == "discount" and rule.terminated is not None
            is_reward = view.part == "reward"
        else:
            key, is_discount = (source.window, source.fill_threshold, source.is_plain), False
        if not (is_reward or is_flag or is_discount):
            continue
        shown = found.setdefault(key, RewardGroup(source))
        names = shown.rewards if is_reward else shown.discounts if is_discount else shown.terminated
        names.append(source.name)
    return list(found.values())


def reward_spec(signature: Signature, shown: Sequence[RewardGroup]) -> ArraySpec | None:
    """Returns the spec of the reward function's result for one transition; None if no view shows rewards."""
    if not any(each.rewards for each in shown):
        return None
    spec = signature.columns["reward"]
    if spec.shape != ():
        raise SpecError(f"hindsight: expected a scalar column 'reward' in the signature, got {spec}")
    return spec


def call(
    name: str, function: GoalFunction, arguments: tuple[Any, Any, dict[str, Any]], spec: ArraySpec, count: int
) -> NDArray[Any]:
    """Calls a function of the user, and checks its result for `count` transitions.

    Raises:
        SpecError: another shape or dtype than `spec` says; the message has the function's name.
    """
    return check_array(function(*arguments), spec, f"hindsight: what {name}() returned", (count,))


def show_rewards(
    shown: RewardGroup,
    shape: tuple[int, ...],
    where: NDArray[np.int64],
    rewards: NDArray[Any],
    out: dict[str, Any],
) -> None:
    """Writes rewards into the views of a group, summed where they show n-step returns.

    Args:
        shown: the group.
        shape: (M, W), of the rows whose rewards are shown.
        where: int64[K], the places of the new rewards among these.
        rewards: [K].
        out: the arrays by view, changed in place.
    """
    if shown.sums is not None and shown.sums[0] > 1:
        n_step, gamma = shown.sums
        each = np.zeros(shape)
        each.reshape(-1)[where] = rewards
        where = np.unique(where // n_step)
        rewards = np.zeros(len(where))
        for step in range(n_step):
            rewards += gamma**step * each[where, step]
    for name in shown.rewards:
        out[name].reshape(-1)[where] = rewards


def show_flags(
    shown: RewardGroup, where: NDArray[np.int64], flags: NDArray[Any], out: dict[str, Any]
) -> None:
    """Writes flags, bool[K], and the discounts computed from them, into the views of a group."""
    for name in shown.terminated:
        out[name].reshape(-1)[where] = flags
    for name in shown.discounts:
        assert shown.sums is not None
        out[name].reshape(-1)[where] = np.where(flags, 0.0, shown.sums[1])
