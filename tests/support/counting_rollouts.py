"""Rollouts over counter environments in which every number has a closed form."""

from typing import Any

import numpy as np

import headrace as hr
from headrace.testing.envs import CounterEnv


def counters(*lengths: int, **options: Any):
    """Returns an `env_creator` of counter environments whose episodes have these lengths, in turn."""

    def create(context):
        return CounterEnv(lengths, copy=context.env_index, **options)

    return create


def by_step(observation: Any) -> Any:
    """Acts with the number of the step, modulo 4."""
    return observation[:, 2] % 4


class Recurrent:
    """Counts its own steps in its state: `state_out` of step i is i + 1. The column "doubled" is twice the state."""

    initial_state = (np.zeros((), np.int64), np.full(2, 7.0))

    def __init__(self, views: dict[str, hr.View] | None = None) -> None:
        self.views = views or {}
        self.seen: list[dict[str, Any]] = []

    def compute_actions(self, input_dict):
        self.seen.append(dict(input_dict))
        state, other = input_dict["state_in_0"], input_dict["state_in_1"]
        return state % 4, [state + 1, other + 0.5], {"doubled": 2 * state}


def worker(env_creator: Any, policy: Any = by_step, **options: Any) -> hr.RolloutWorker:
    """Returns a worker, with a shorter default fragment."""
    return hr.RolloutWorker(env_creator, policy, **{"rollout_fragment_length": 6, **options})


def steps_of(batch: Any) -> list[list[int]]:
    """Returns [environment, episode, step] of each row, which counter environments observe."""
    return batch["observation"].tolist()
