"""Environments that show frames of noise, and a policy on stacks of four of them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces

_STEPS = 200


class Frames(gymnasium.Env[Any, Any]):
    """Shows frames of noise, one or four stacked; an episode has 200 steps."""

    action_space = spaces.Discrete(4)

    def __init__(self, stacked: int) -> None:
        shape = (84, 84) if stacked == 1 else (stacked, 84, 84)
        self.observation_space = spaces.Box(0, 255, shape, np.uint8)
        self._noise = np.random.default_rng(0).integers(0, 256, (16, *shape), np.uint8)
        self._t = 0

    def reset(self, **_: Any) -> Any:
        self._t = 0
        return self._noise[0], {}

    def step(self, _: Any) -> Any:
        self._t += 1
        return self._noise[self._t % 16], 0.0, False, self._t == _STEPS, {}


def policy_on_stacks() -> Callable[[Any], Any]:
    """Returns a policy on stacks `[n, 4, 84, 84]` that multiplies them with a matrix."""
    weights = np.random.default_rng(1).normal(size=(4 * 84 * 84, 4)).astype(np.float32)

    def policy(stacks: Any) -> Any:
        return (stacks.reshape(len(stacks), -1).astype(np.float32) @ weights).argmax(-1)

    return policy
