"""Environments whose agents act in turn, through PettingZoo's converters (views-rollouts M1)."""

from typing import Any

import numpy as np
import pytest
from counting_rollouts import worker
from gymnasium import spaces
from pettingzoo import AECEnv
from pettingzoo.utils import aec_to_parallel, turn_based_aec_to_parallel

import headrace as hr


class TurnsOfTwo(AECEnv):
    """Two agents act in turn, four turns an episode. Both observe [turns so far], and turn n rewards both with n."""

    def __init__(self) -> None:
        super().__init__()
        self.metadata = {"name": "turns", "is_parallelizable": True}
        self.render_mode = None
        self.possible_agents = ["first", "second"]

    def observation_space(self, agent):
        return spaces.Box(0, 4, (1,), np.int64)

    def action_space(self, agent):
        return spaces.Discrete(2)

    def reset(self, seed=None, options=None):
        self.agents, self.turns = list(self.possible_agents), 0
        self.rewards, self._cumulative_rewards = (dict.fromkeys(self.agents, 0.0) for _ in range(2))
        self.terminations, self.truncations = (dict.fromkeys(self.agents, False) for _ in range(2))
        self.infos: dict[str, Any] = {name: {} for name in self.agents}
        self.agent_selection = self.agents[0]

    def observe(self, agent):
        return np.array([self.turns])

    def step(self, action):
        if self.terminations[self.agent_selection]:
            self._was_dead_step(action)
            return
        self._cumulative_rewards[self.agent_selection] = 0.0
        self.turns += 1
        self.rewards = dict.fromkeys(self.agents, float(self.turns))
        self.terminations = dict.fromkeys(self.agents, self.turns == 4)
        self.agent_selection = self.agents[self.turns % 2]
        self._accumulate_rewards()


def still(observation: Any) -> Any:
    """Does nothing."""
    return np.zeros(len(observation), np.int64)


@pytest.mark.parametrize(
    ("wrap", "seen", "rewards"),
    [
        (aec_to_parallel, [0, 2], [1.0 + 2, 3.0 + 4]),
        (turn_based_aec_to_parallel, [0, 1, 2, 3], [1.0, 2.0, 3.0, 4.0]),
    ],
)
def test_agents_that_act_in_turn_come_through_converters(wrap: Any, seen: list[int], rewards: list[float]):
    with worker(lambda: wrap(TurnsOfTwo()), still, rollout_fragment_length=2 * len(seen)) as made:
        batch = made.sample()
    rows = batch["default_policy"]
    assert batch.env_steps() == 2 * len(seen)
    assert rows["observation"][:, 0].tolist() == seen * 4
    assert rows["next_observation"][:, 0].tolist() == [*seen[1:], 4] * 4
    assert rows["reward"].tolist() == rewards * 4
    assert rows["terminated"].tolist() == [step == len(seen) - 1 for step in range(len(seen))] * 4
    assert not rows["truncated"].any()


def test_agents_that_act_in_turn_need_a_converter():
    with pytest.raises(
        ValueError, match="environment 0: its agents act in turn; wrap it with .*aec_to_parallel"
    ):
        worker(TurnsOfTwo, still)
    with pytest.raises(ValueError, match="environment 0: its agents act in turn"):
        hr.Collector(TurnsOfTwo, frames_per_batch=4)
