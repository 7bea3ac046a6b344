"""PPO with worker processes: a batch has the rows of all workers, collected with the newest weights.

The workers begin together when a batch is asked for, and stand still while the learner learns. So every row was acted
by the newest weights. More workers pay off where environments are slow. PPO: Schulman et al. 2017; GAE: Schulman et
al. 2016.

    pip install "headrace[torch]"
    python examples/ppo_synchronous_workers.py --batches 40
"""

from __future__ import annotations

import argparse
import time

import gymnasium
import torch
from torch import nn
from torch.distributions import Categorical

import headrace as hr

# Any environment whose observations are vectors and whose actions are discrete.
ENV = "Acrobot-v1"
WORKERS, NUM_ENVS, STEPS = 2, 4, 256  # A batch has WORKERS * NUM_ENVS environments, with STEPS each.
GAMMA, LAMBDA = 0.99, 0.95
EPOCHS, MINIBATCH, LEARNING_RATE, CLIP, ENTROPY = 6, 256, 1e-3, 0.2, 0.01


def network(inputs: int, outputs: int) -> nn.Sequential:
    """Two hidden layers."""
    return nn.Sequential(
        nn.Linear(inputs, 64), nn.Tanh(), nn.Linear(64, 64), nn.Tanh(), nn.Linear(64, outputs)
    )


class ActorCritic(nn.Module):
    """Scores of the actions, and the value of the observation."""

    def __init__(self) -> None:
        super().__init__()
        with gymnasium.make(ENV) as env:
            inputs, actions = env.observation_space.shape[0], int(env.action_space.n)
        self.actor, self.critic = network(inputs, actions), network(inputs, 1)

    def value(self, observation: torch.Tensor) -> torch.Tensor:
        """Values float32[...] of observations float32[..., k]."""
        return self.critic(observation).squeeze(-1)

    def forward(self, observation: torch.Tensor) -> tuple[torch.Tensor, dict[str, torch.Tensor]]:
        """Actions int64[n] for observations float32[n, k], and the column of their log probabilities."""
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
        GAMMA,
        LAMBDA,
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


def main(batches: int = 40, workers: int = WORKERS, seed: int = 0) -> hr.collectors.CollectorStatistics:
    """Learns from each batch; returns the collector's counters."""
    torch.manual_seed(seed)
    net = ActorCritic()
    optimizer = torch.optim.Adam(net.parameters(), lr=LEARNING_RATE, eps=1e-5)
    frames = workers * NUM_ENVS * STEPS
    began = time.perf_counter()
    with hr.MultiCollector(
        ENV,
        net,
        sync=True,
        num_workers=workers,
        num_envs=NUM_ENVS,
        frames_per_batch=frames,
        total_frames=batches * frames,
        seed=seed,
    ) as collector:
        for number, batch in enumerate(collector, 1):  # [workers * NUM_ENVS, STEPS]
            update(net, optimizer, with_advantages(net, batch), seed=number)
            collector.update_policy_weights_(net)  # Acts from the first row of the next batch on.
            if number % 10 == 0:
                told = collector.statistics()
                print(f"{told.frames:7,} frames: return {told.episode_return_mean:6.1f}")
        told = collector.statistics()
    seconds = time.perf_counter() - began
    print(f"{told.frames:,} frames in {seconds:.0f} s; weights {max(told.lag_histogram)} updates old at most")
    return told


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--batches", type=int, default=40, help="batches of 2,048 frames (default: 40)")
    parser.add_argument("--workers", type=int, default=WORKERS, help="worker processes (default: 2)")
    parser.add_argument("--seed", type=int, default=0)
    torch.set_num_threads(1)  # The networks are small, and the workers need the cores.
    print(f"the last 100 episodes returned {main(**vars(parser.parse_args())).episode_return_mean:.1f}")
