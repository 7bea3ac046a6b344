"""Counter environments with the interface of dm_env."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import dm_env
import numpy as np
from dm_env import specs

from headrace.testing.envs import NUM_ACTIONS, CounterEnv, Ending, Layout


class DmCounterEnv(dm_env.Environment):  # type: ignore[misc]  # dm_env has no types
    """A `CounterEnv` with the interface of dm_env.

    Args:
        episode_length, copy, layout: see `CounterEnv`.
        ending: "terminated": the last discount of an episode is 0; "truncated": it is 0.5.

    Attributes:
        counter: the `CounterEnv`.

    >>> env = DmCounterEnv(1)
    >>> env.reset().observation
    array([0, 0, 0])
    >>> env.step(3)
    TimeStep(step_type=<StepType.LAST: 2>, reward=3.0, discount=0.0, observation=array([0, 0, 1]))
    """

    def __init__(
        self,
        episode_length: int | Sequence[int],
        *,
        copy: int = 0,
        ending: Ending = "terminated",
        layout: Layout = "box",
    ) -> None:
        self.counter = CounterEnv(episode_length, copy=copy, ending=ending, layout=layout)

    def reset(self) -> dm_env.TimeStep:
        """Returns the first step of the next episode."""
        return dm_env.restart(self.counter.reset()[0])

    def step(self, action: Any) -> dm_env.TimeStep:
        """Takes one transition."""
        observation, reward, terminated, truncated, _ = self.counter.step(action)
        if terminated:
            return dm_env.termination(reward, observation)
        return (
            dm_env.truncation(reward, observation, 0.5)
            if truncated
            else dm_env.transition(reward, observation)
        )

    def observation_spec(self) -> Any:
        """Returns the specs of the layout."""
        sizes: Any = {
            "box": 3,
            "dict": {"count": 2, "copy": 1},
            "tuple": [2, 1],
        }
        if self.counter._layout == "image":
            return specs.BoundedArray((8, 8, 3), np.uint8, 0, 255)
        return _specs(sizes[self.counter._layout])

    def action_spec(self) -> specs.DiscreteArray:
        """Returns the spec of four actions."""
        return specs.DiscreteArray(NUM_ACTIONS)

    def state_dict(self) -> dict[str, Any]:
        """Returns the state of the counter."""
        return self.counter.state_dict()

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Restores the counter."""
        self.counter.load_state_dict(state)

    def close(self) -> None:
        """Closes the counter."""
        self.counter.close()


def _specs(sizes: Any) -> Any:
    if isinstance(sizes, dict):
        return {name: _specs(size) for name, size in sizes.items()}
    return list(map(_specs, sizes)) if isinstance(sizes, list) else specs.Array((sizes,), np.int64)
