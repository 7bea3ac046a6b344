"""Asynchronous workers, one learner, no replay: V-trace on whole batches as they come.

Each worker collects with weights that may be a little older than the learner's, by MAX_STALENESS updates at most. A
batch is one rollout of one worker. V-trace corrects for the age of its weights; each row has their number,
`policy_version`.

The algorithm is that of L. Espeholt et al., "IMPALA: Scalable Distributed Deep-RL with Importance Weighted
Actor-Learner Architectures" (2018). `impala_queue.py` is the same with rollouts that wait in a replay, and
`impala_ray.py` with workers on the machines of a Ray cluster.

    pip install "headrace[torch]"
    python examples/impala_vtrace.py --batches 1200
"""

from __future__ import annotations

import argparse
import time
from typing import Any

import gymnasium
import torch
from torch import nn
from torch.distributions import Categorical

import headrace as hr

# Any environment whose observations are vectors and whose actions are discrete.
ENV = "CartPole-v1"
WORKERS, NUM_ENVS, STEPS = 2, 16, 20  # A batch is a rollout of one worker: NUM_ENVS environments, STEPS each.
# No row is further behind the learner than this many updates; WORKERS - 1 keeps all workers busy.
MAX_STALENESS = 2
GAMMA, LEARNING_RATE, ENTROPY = 0.99, 1e-3, 0.01


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


def loss_of(net: ActorCritic, rows: dict[str, torch.Tensor]) -> torch.Tensor:
    """Policy gradient, a little entropy, squared error of the values; `rows` are `[N, T, ...]`."""
    choice, value = Categorical(logits=net.actor(rows["observation"])), net.value(rows["observation"])
    log_prob = choice.log_prob(rows["action"])
    with torch.no_grad():
        targets, advantages = hr.trajectories.vtrace(
            rows["reward"],
            value,
            net.value(rows["next_observation"]),
            rows["terminated"],
            rows["truncated"],
            log_rhos=log_prob - rows["log_prob"],
            gamma=GAMMA,
            mask=rows["mask"],
        )
    gain = log_prob * advantages + ENTROPY * choice.entropy()
    return (0.5 * (value - targets).square() - gain)[rows["mask"]].mean()


def main(
    batches: int = 1200, workers: int = WORKERS, seed: int = 0, **options: Any
) -> hr.collectors.CollectorStatistics:
    """Learns from each batch once; returns the collector's counters. `options` are further ones of the collector."""
    torch.manual_seed(seed)
    net = ActorCritic()
    optimizer = torch.optim.Adam(net.parameters(), lr=LEARNING_RATE)
    frames = NUM_ENVS * STEPS
    began = time.perf_counter()
    with hr.MultiCollector(
        ENV,
        net,
        sync=False,
        num_workers=workers,
        num_envs=NUM_ENVS,
        frames_per_batch=frames,
        total_frames=batches * frames,
        max_staleness=MAX_STALENESS,
        seed=seed,
        **options,
    ) as collector:
        for number, batch in enumerate(collector, 1):
            loss = loss_of(net, batch.torch())
            optimizer.zero_grad()
            loss.backward()
            nn.utils.clip_grad_norm_(net.parameters(), 1.0)
            optimizer.step()
            collector.update_policy_weights_(net)  # Each worker takes it over at its next step.
            if number % 100 == 0:
                told = collector.statistics()
                print(f"{number:5} batches: return {told.episode_return_mean:6.1f}, lag {told.lag_mean:.1f}")
        told = collector.statistics()
    seconds = time.perf_counter() - began
    print(
        f"{told.frames:,} frames in {seconds:.0f} s; rows were {max(told.lag_histogram)} updates old at most"
    )
    return told


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--batches", type=int, default=1200, help="rollouts of 320 frames (default: 1200)")
    parser.add_argument("--workers", type=int, default=WORKERS, help="worker processes (default: 2)")
    parser.add_argument("--seed", type=int, default=0)
    torch.set_num_threads(1)  # The networks are small, and the workers need the cores.
    print(f"the last 100 episodes returned {main(**vars(parser.parse_args())).episode_return_mean:.0f}")
