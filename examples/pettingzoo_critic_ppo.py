"""PPO for a PettingZoo environment with a centralised critic: a view shows the observations of all agents.

Two rowers share a boat and its reward. Each sees its own beat, at which it must row, and its own prize. At the finish
the reward is the sum of both prizes, which is far more than a stroke brings. A critic that sees one prize takes the
other one for a result of the strokes, so the rowers learn next to nothing. `hr.View("observation", agent=[...])` shows
the critic both prizes. The rowers still act on their own observations.

    pip install "headrace[torch,pettingzoo]"
    python examples/pettingzoo_critic_ppo.py
    python examples/pettingzoo_critic_ppo.py --own-view

The critic is that of C. Yu et al., "The Surprising Effectiveness of PPO in Cooperative Multi-Agent Games" (2022).
"""

from __future__ import annotations

import argparse
from collections.abc import Mapping
from typing import Any, ClassVar

import numpy as np
import torch
from gymnasium import spaces
from pettingzoo import ParallelEnv
from torch import nn
from torch.distributions import Categorical

import headrace as hr

NUM_ENVS, STEPS = 8, 50
EPOCHS, MINIBATCH, CLIP, ENTROPY = 6, 200, 0.2, 0.01
STROKES, PRIZE = 10, 200
ROWERS = ["port", "starboard"]


class Boat(ParallelEnv):
    """Ten strokes of two rowers.

    An observation is float32[4]: the beat (two numbers, one of them 1), the prize (-1 or 1), the strokes that are left.
    Rowing at the beat, action 0 or 1, brings 1. The finish brings both prizes, -200 or 200 each.
    """

    metadata: ClassVar[dict[str, Any]] = {"name": "boat"}
    possible_agents = ROWERS
    observed, acted = spaces.Box(-1, 1, (4,), np.float32), spaces.Discrete(2)

    def observation_space(self, agent: str) -> spaces.Space[Any]:
        """Returns the space of the observations of a rower."""
        return self.observed

    def action_space(self, agent: str) -> spaces.Space[Any]:
        """Returns the space of the actions of a rower."""
        return self.acted

    def reset(self, seed: int | None = None, options: Any = None) -> tuple[dict[str, Any], dict[str, Any]]:
        """Begins a race with new prizes."""
        if seed is not None or not hasattr(self, "random"):
            self.random = np.random.default_rng(seed)
        self.agents, self.left = list(ROWERS), STROKES
        self.prizes = self.random.choice([-1, 1], 2)
        return self._observe(), {agent: {} for agent in ROWERS}

    def step(self, actions: dict[str, int]) -> tuple[dict[str, Any], ...]:
        """One stroke of both; each gets the sum of the rewards."""
        reward = float(sum(actions[agent] == beat for agent, beat in zip(ROWERS, self.beats, strict=True)))
        self.left -= 1
        if self.left == 0:
            self.agents = []
            reward += PRIZE * float(self.prizes.sum())
        over = dict.fromkeys(ROWERS, self.left == 0)
        rewards, cut = dict.fromkeys(ROWERS, reward), dict.fromkeys(ROWERS, False)
        return self._observe(), rewards, over, cut, {agent: {} for agent in ROWERS}

    def _observe(self) -> dict[str, Any]:
        self.beats = self.random.integers(0, 2, 2)
        return {
            agent: np.array([beat == 0, beat == 1, prize, self.left / STROKES], np.float32)
            for agent, beat, prize in zip(ROWERS, self.beats, self.prizes, strict=True)
        }


class TeamPolicy(nn.Module):
    """The policy of both rowers, and a critic that is needed for learning only.

    Args:
        seen: the agents whose observations the critic gets; None: the row's own observation alone.

    Attributes:
        views: columns for the critic, float32[n, agents, 4]: the observations at each row, and at the row after.
    """

    def __init__(self, seen: list[str] | None) -> None:
        super().__init__()
        options: dict[str, Any] = {"agent": seen, "used_for_compute_actions": False}
        self.views = {
            "team": hr.View("observation", **options),
            "next_team": hr.View("observation", shift=1, **options),
        }
        self.actor = nn.Sequential(nn.Linear(4, 32), nn.Tanh(), nn.Linear(32, 2))
        self.critic = nn.Sequential(
            nn.Flatten(), nn.Linear(4 * len(seen or ["own"]), 64), nn.Tanh(), nn.Linear(64, 1), nn.Flatten(0)
        )

    @torch.no_grad()
    def compute_actions(self, inputs: Mapping[str, Any]) -> tuple[Any, ...]:
        """Returns actions, no state, and the log-probabilities of n rows."""
        choice = Categorical(logits=self.actor(torch.from_numpy(inputs["observation"])))
        action = choice.sample()
        return action.numpy(), [], {"log_prob": choice.log_prob(action).numpy()}

    @torch.no_grad()
    def postprocess_trajectory(self, batch: hr.SampleBatch, other_agents: Any, episode: Any) -> None:
        """Adds `advantage` and `return` to rows of one rower, of one race or of its part within one fragment."""
        value, next_value = (
            self.critic(torch.from_numpy(batch[name])).numpy() for name in ("team", "next_team")
        )
        batch["advantage"], batch["return"] = hr.trajectories.gae(
            batch["reward"] / PRIZE, value, next_value, batch["terminated"], batch["truncated"]
        )

    def loss(self, batch: Mapping[str, Any]) -> torch.Tensor:
        """Returns the clipped objective; columns that it does not read are left out of the batches."""
        rows = {
            name: torch.as_tensor(batch[name])
            for name in ("observation", "team", "action", "log_prob", "advantage", "return")
        }
        choice = Categorical(logits=self.actor(rows["observation"]))
        ratio = (choice.log_prob(rows["action"]) - rows["log_prob"]).exp()
        advantage = rows["advantage"]
        advantage = (advantage - advantage.mean()) / (advantage.std() + 1e-8)
        gain = torch.minimum(ratio * advantage, ratio.clamp(1 - CLIP, 1 + CLIP) * advantage).mean()
        error = (self.critic(rows["team"]) - rows["return"]).square().mean()
        return error - gain - ENTROPY * choice.entropy().mean()


def right_strokes(batch: hr.SampleBatch) -> float:
    """Returns the share of strokes at the beat."""
    return float((batch["action"] == batch["observation"][:, :2].argmax(1)).mean())


def main(batches: int = 75, seed: int = 0, own_view: bool = False) -> float:
    """Returns the share of strokes at the beat in the last batch; chance is 0.5."""
    torch.manual_seed(seed)
    policy = TeamPolicy(None if own_view else ROWERS)
    optimizer = torch.optim.Adam(policy.parameters(), lr=1e-3)
    options = {"rollout_fragment_length": STEPS, "num_envs": NUM_ENVS, "seed": seed}
    with hr.RolloutWorker(Boat, policy, **options) as worker:
        for number in range(1, batches + 1):
            batch = worker.sample()["default_policy"]
            for epoch in range(EPOCHS):
                for part in batch.shuffle(number * EPOCHS + epoch).timeslices(MINIBATCH):
                    optimizer.zero_grad()
                    policy.loss(part).backward()
                    optimizer.step()
            if number % 15 == 0:
                print(f"{number * NUM_ENVS * STEPS:6,} steps: {right_strokes(batch):4.0%} at the beat")
    return right_strokes(batch)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--batches", type=int, default=75, help="batches of 400 steps (default: 75)")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--own-view", action="store_true", help="a critic of one rower, for comparison")
    torch.set_num_threads(1)  # The networks are small.
    print(f"{main(**vars(parser.parse_args())):.0%} of the strokes at the beat at the end")
