"""PPO with attention on CartPole without velocities: the same views act and train.

The policy sees the position of the cart and the angle of the pole. Their velocities must be found in the past, so it
reads the last 16 observations and the actions before them. Two views say this, and the program keeps no history: the
worker stores each step once, shows the views to the policy while it acts, and puts the same rows into the batches. At
the start of an episode the missing rows are masked. PPO: Schulman et al. 2017; the network: Vaswani et al. 2017.

    pip install "headrace[torch]"
    python examples/attention_ppo_masked_cartpole.py
    python examples/attention_ppo_masked_cartpole.py --window 1
"""

from __future__ import annotations

import argparse
from collections.abc import Mapping
from typing import Any

import gymnasium as gym
import numpy as np
import torch
from torch import nn
from torch.distributions import Categorical

import headrace as hr

NUM_ENVS, STEPS = 8, 128
EPOCHS, MINIBATCH, CLIP, ENTROPY = 6, 256, 0.2, 0.01
SIZE, HEADS = 32, 2
REWARD_SCALE = (
    0.02  # Errors of the critic stay small beside the objective of the actor: they share the network.
)


def make_env() -> gym.Env[Any, Any]:
    """Returns CartPole whose observation is float32[2]: the position of the cart and the angle of the pole."""
    env = gym.make("CartPole-v1")
    box = gym.spaces.Box(-np.inf, np.inf, (2,), np.float32)
    return gym.wrappers.TransformObservation(env, lambda observation: observation[[0, 2]], box)


class AttentionPolicy(nn.Module):
    """Actor and critic on one layer of a transformer, which reads the last `window` steps.

    Attributes:
        views: columns that the worker shows to the policy and puts into the batches, for W = window:
            `seen` float32[n, W, 2] with `seen_mask` bool[n, W], and `acted` int64[n, W].
    """

    def __init__(self, window: int) -> None:
        super().__init__()
        self.views = {
            "seen": hr.View("observation", shift=f"{1 - window}:0", mask=True),
            # The action before each observation; 2 where there was none.
            "acted": hr.View("action", shift=f"{-window}:-1", fill=2),
            # For the value after the last row of a fragment.
            "next_seen": hr.View("observation", shift=f"{2 - window}:1", mask=True),
            "next_acted": hr.View("action", shift=f"{1 - window}:0", fill=2),
        }
        self.observation, self.action = nn.Linear(2, SIZE), nn.Embedding(3, SIZE)
        self.place = nn.Parameter(torch.randn(window, SIZE) * 0.1)
        self.attention = nn.TransformerEncoderLayer(SIZE, HEADS, 2 * SIZE, dropout=0.0, batch_first=True)
        self.actor, self.critic = nn.Linear(SIZE, 2), nn.Linear(SIZE, 1)

    def forward(self, rows: Mapping[str, Any], when: str = "") -> tuple[torch.Tensor, torch.Tensor]:
        """Returns scores [n, 2] and values [n] at each row, or with when="next_" at the rows after."""
        seen, acted, mask = (
            torch.as_tensor(rows[f"{when}{name}"]) for name in ("seen", "acted", "seen_mask")
        )
        tokens = self.observation(seen) + self.action(acted) + self.place
        last = self.attention(tokens, src_key_padding_mask=~mask)[:, -1]
        return self.actor(last), self.critic(last).squeeze(-1)

    @torch.no_grad()
    def compute_actions(self, inputs: Mapping[str, Any]) -> tuple[Any, ...]:
        """Returns actions, no state, and further columns of n rows."""
        scores, value = self(inputs)
        choice = Categorical(logits=scores)
        action = choice.sample()
        return action.numpy(), [], {"log_prob": choice.log_prob(action).numpy(), "value": value.numpy()}

    @torch.no_grad()
    def postprocess_trajectory(self, batch: hr.SampleBatch, other_agents: Any, episode: Any) -> None:
        """Adds `advantage` and `return` to rows of one episode: a whole one, or the part within one fragment."""
        _, value = self(batch[-1:], "next_")
        next_values = np.append(batch["value"][1:], value.numpy())
        batch["advantage"], batch["return"] = hr.trajectories.gae(
            REWARD_SCALE * batch["reward"],
            batch["value"],
            next_values,
            batch["terminated"],
            batch["truncated"],
        )

    def loss(self, batch: Mapping[str, Any]) -> torch.Tensor:
        """Returns the clipped objective. The worker sees what it reads, and leaves other columns out of the batches."""
        scores, value = self(batch)
        action, log_prob, advantage, returns = (
            torch.as_tensor(batch[name]) for name in ("action", "log_prob", "advantage", "return")
        )
        choice = Categorical(logits=scores)
        ratio = (choice.log_prob(action) - log_prob).exp()
        advantage = (advantage - advantage.mean()) / (advantage.std() + 1e-8)
        gain = torch.minimum(ratio * advantage, ratio.clamp(1 - CLIP, 1 + CLIP) * advantage).mean()
        error = (value - returns).square().mean()
        return 0.5 * error - gain - ENTROPY * choice.entropy().mean()


def update(
    policy: AttentionPolicy, optimizer: torch.optim.Optimizer, batch: hr.SampleBatch, seed: int
) -> None:
    """Learns for some epochs from minibatches."""
    for epoch in range(EPOCHS):
        for part in batch.shuffle(seed * EPOCHS + epoch).timeslices(MINIBATCH):
            optimizer.zero_grad()
            policy.loss(part).backward()
            nn.utils.clip_grad_norm_(policy.parameters(), 0.5)
            optimizer.step()


def main(batches: int = 100, seed: int = 0, window: int = 16) -> float:
    """Returns the mean length of the last 20 episodes, 500 at most."""
    torch.manual_seed(seed)
    policy = AttentionPolicy(window)
    optimizer = torch.optim.Adam(policy.parameters(), lr=1e-3, eps=1e-5)
    schedule = torch.optim.lr_scheduler.LinearLR(optimizer, 1.0, 0.02, total_iters=batches)
    options = {"rollout_fragment_length": STEPS, "num_envs": NUM_ENVS, "seed": seed}
    lengths: list[int] = []
    with hr.RolloutWorker(make_env, policy, **options) as worker:
        for number in range(1, batches + 1):
            batch = worker.sample()
            lengths += (batch["t"][batch["done"]] + 1).tolist()
            update(policy, optimizer, batch, seed=number)
            schedule.step()
            if number == 1:
                print("columns that the loss does not read:", *sorted(worker.pruned["default_policy"]))
            if number % 10 == 0:
                frames = number * NUM_ENVS * STEPS
                print(f"{frames:7,} frames, episodes of {np.mean(lengths[-20:]):5.1f} steps")
    return float(np.mean(lengths[-20:]))


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--batches", type=int, default=100, help="batches of 1,024 frames (default: 100)")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--window", type=int, default=16, help="steps that the policy sees (default: 16)")
    torch.set_num_threads(1)  # The networks are small.
    print(f"episodes of {main(**vars(parser.parse_args())):.0f} steps at the end")
