"""PPO in a plain loop: a collector brings fixed batches, `gae` makes advantages of them, minibatches go to the network.

Every batch is used for a few epochs and then dropped. At the end of a batch and where CartPole is truncated, the
advantages continue with the value of the true next observation. PPO: Schulman et al. 2017; GAE: Schulman et al. 2016.

    pip install "headrace[torch]"
    python examples/ppo_cartpole.py --batches 100
"""

from __future__ import annotations

import argparse

import numpy as np
import torch
from torch import nn
from torch.distributions import Categorical

import headrace as hr

ENV, NUM_ENVS, STEPS = "CartPole-v1", 8, 128
EPOCHS, MINIBATCH, CLIP, ENTROPY = 6, 256, 0.2, 0.01


class ActorCritic(nn.Module):
    """Scores of the two actions, and the value of the observation."""

    def __init__(self) -> None:
        super().__init__()
        self.actor = nn.Sequential(
            nn.Linear(4, 64), nn.Tanh(), nn.Linear(64, 64), nn.Tanh(), nn.Linear(64, 2)
        )
        self.critic = nn.Sequential(
            nn.Linear(4, 64), nn.Tanh(), nn.Linear(64, 64), nn.Tanh(), nn.Linear(64, 1)
        )

    def value(self, observation: torch.Tensor) -> torch.Tensor:
        """Values float32[...] of observations float32[..., 4]."""
        return self.critic(observation).squeeze(-1)

    @torch.no_grad()
    def forward(self, observation: torch.Tensor) -> tuple[torch.Tensor, dict[str, torch.Tensor]]:
        """Actions int64[n] for observations float32[n, 4], and the column of their log-probabilities."""
        choice = Categorical(logits=self.actor(observation))
        action = choice.sample()
        return action, {"log_prob": choice.log_prob(action)}


@torch.no_grad()
def with_advantages(net: ActorCritic, batch: hr.Batch) -> hr.Batch:
    """The batch with `advantage` and `return`, both float32[N, T]."""
    columns = batch.torch()
    advantages, returns = hr.trajectories.gae(
        columns["reward"],
        net.value(columns["observation"]),
        net.value(columns["next_observation"]),
        columns["terminated"],
        columns["truncated"],
        mask=columns["mask"],
    )
    return batch.with_columns({"advantage": advantages.numpy(), "return": returns.numpy()})


def update(net: ActorCritic, optimizer: torch.optim.Optimizer, batch: hr.Batch, seed: int) -> None:
    """Some epochs of the clipped objective."""
    for part in batch.minibatches(MINIBATCH, epochs=EPOCHS, seed=seed):
        rows = part.torch()
        choice = Categorical(logits=net.actor(rows["observation"]))
        ratio = (choice.log_prob(rows["action"]) - rows["log_prob"]).exp()
        advantage = rows["advantage"]
        advantage = (advantage - advantage.mean()) / (advantage.std() + 1e-8)
        gain = torch.minimum(ratio * advantage, ratio.clamp(1 - CLIP, 1 + CLIP) * advantage).mean()
        error = (net.value(rows["observation"]) - rows["return"]).square().mean()
        optimizer.zero_grad()
        (0.5 * error - gain - ENTROPY * choice.entropy().mean()).backward()
        nn.utils.clip_grad_norm_(net.parameters(), 0.5)
        optimizer.step()


def main(batches: int = 100, seed: int = 0) -> float:
    """Returns the mean length of the last 20 episodes, 500 at most."""
    torch.manual_seed(seed)
    net = ActorCritic()
    optimizer = torch.optim.Adam(net.parameters(), lr=1e-3, eps=1e-5)
    frames = NUM_ENVS * STEPS
    options = {
        "frames_per_batch": frames,
        "total_frames": batches * frames,
        "num_envs": NUM_ENVS,
        "seed": seed,
    }
    lengths: list[int] = []
    with hr.Collector(ENV, net, **options) as collector:
        for number, batch in enumerate(collector):
            lengths += (batch["t"][batch["terminated"] | batch["truncated"]] + 1).tolist()
            update(net, optimizer, with_advantages(net, batch), seed=number)
            if (number + 1) % 10 == 0:
                print(f"{(number + 1) * frames:7,} frames, episodes of {np.mean(lengths[-20:]):5.1f} steps")
    return float(np.mean(lengths[-20:]))


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description="PPO on CartPole.")
    parser.add_argument("--batches", type=int, default=100, help="batches of 1,024 frames (default: 100)")
    parser.add_argument("--seed", type=int, default=0)
    torch.set_num_threads(1)  # The networks are small.
    print(f"episodes of {main(**vars(parser.parse_args())):.0f} steps at the end")
