"""Offline learning from a Minari dataset: IQL balances a pole of which it has only seen random pushes.

Random actions are recorded and saved as a Minari dataset, the dataset is loaded into a replay, and the learner sees
nothing else. It never asks for the value of an action that is not in the data: values are an upper expectile of those
of recorded actions, and the policy copies recorded actions, the better the more. With `--temperature 0` all actions
weigh the same, which is behaviour cloning.

    pip install "headrace[torch,minari]"
    python examples/iql_minari.py --updates 5000

I. Kostrikov et al., "Offline Reinforcement Learning with Implicit Q-Learning" (2021).
"""

from __future__ import annotations

import argparse
import copy
import tempfile

import numpy as np
import torch
from torch import nn
from torch.nn import functional

import headrace as hr

ENV, DATASET = "CartPole-v1", "cartpole/random-v0"
BATCH, GAMMA, EXPECTILE, LARGEST_WEIGHT = 256, 0.99, 0.8, 100.0


def network(outputs: int) -> nn.Sequential:
    """Two hidden layers, for observations float32[n, 4]."""
    return nn.Sequential(
        nn.Linear(4, 128), nn.ReLU(), nn.Linear(128, 128), nn.ReLU(), nn.Linear(128, outputs)
    )


def record(steps: int, root: str, seed: int) -> None:
    """Writes the episodes of random actions as a Minari dataset."""
    with hr.Replay.for_env(ENV, [hr.Table.uniform(steps)], seed=seed) as replay:
        options = {"frames_per_batch": steps, "num_envs": 4, "seed": seed}
        with hr.Collector(ENV, replay_buffer=replay, **options) as collector:
            next(collector)
        hr.datasets.save_minari(replay, DATASET, root=root, env_spec=ENV, algorithm_name="random actions")


def load(replay: hr.Replay, root: str) -> float:
    """Puts the dataset's transitions into the replay; the mean return of the episodes."""
    dataset = hr.datasets.load_minari(DATASET, root=root)
    with hr.TransitionWriter(replay, gamma=GAMMA) as writer:
        for episode in dataset:
            writer.add_episode(episode)
    return float(np.mean([episode.return_ for episode in dataset]))


class Policy(nn.Module):
    """Scores of the two actions; acting takes the likelier one."""

    def __init__(self) -> None:
        super().__init__()
        self.scores = network(2)

    def forward(self, observation: torch.Tensor) -> torch.Tensor:
        """Actions int64[n] for observations float32[n, 4]."""
        return self.scores(observation).argmax(dim=1)


class Iql:
    """The learner: one update a batch."""

    def __init__(self, temperature: float) -> None:
        self.value, self.critic, self.policy = network(1), network(2), Policy()
        self.target, self.temperature = copy.deepcopy(self.critic), temperature
        nets = nn.ModuleList([self.value, self.critic, self.policy])
        self.optimizer = torch.optim.Adam(nets.parameters(), lr=1e-3)

    def update(self, batch: hr.ReplaySample) -> None:
        """Learns from a batch of `hr.views.transition`."""
        seen, action = batch["observation"], batch["action"].unsqueeze(1)
        value = self.value(seen).squeeze(1)
        with torch.no_grad():
            recorded = self.target(seen).gather(1, action).squeeze(1)
            # The discount is 0 after termination only.
            wanted = batch["reward"] + batch["discount"] * self.value(batch["next_observation"]).squeeze(1)
            weight = (self.temperature * (recorded - value)).exp().clamp(max=LARGEST_WEIGHT)
        better = recorded - value
        value_loss = (torch.where(better > 0, EXPECTILE, 1 - EXPECTILE) * better.square()).mean()
        critic_loss = functional.mse_loss(self.critic(seen).gather(1, action).squeeze(1), wanted)
        scores = functional.cross_entropy(self.policy.scores(seen), batch["action"], reduction="none")
        self.optimizer.zero_grad()
        (value_loss + critic_loss + (weight * scores).mean()).backward()
        self.optimizer.step()
        with torch.no_grad():
            for old, new in zip(self.target.parameters(), self.critic.parameters(), strict=True):
                old.lerp_(new, 0.005)


def evaluate(policy: Policy, seed: int) -> float:
    """The mean return of 20 episodes, each of 500 steps at most."""
    with hr.Collector(ENV, policy, frames_per_batch=10_000, num_envs=20, seed=seed) as collector:
        batch = next(collector)  # [20, 500]
    ends = np.where(batch["terminated"].any(axis=1), batch["terminated"].argmax(axis=1) + 1, 500)
    return float(ends.mean())


def main(
    steps: int = 20_000, updates: int = 5_000, temperature: float = 3.0, seed: int = 0
) -> tuple[float, float]:
    """Records, loads, learns; the mean return of the recorded episodes, and of the learner's."""
    torch.manual_seed(seed)
    learner = Iql(temperature)
    with (
        tempfile.TemporaryDirectory() as root,
        hr.Replay.for_env(ENV, [hr.Table.uniform(steps)], seed=seed) as replay,
    ):
        record(steps, root, seed)
        recorded = load(replay, root)
        print(f"the recorded episodes return {recorded:.1f}")
        views = hr.views.transition(gamma=GAMMA)
        for number in range(1, updates + 1):
            learner.update(replay.sample(BATCH, views=views, to="torch"))
            if number % 500 == 0:
                print(f"{number:7,} updates: return {evaluate(learner.policy, seed + 1000):5.1f}", flush=True)
    return recorded, evaluate(learner.policy, seed + 1000)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--steps", type=int, default=20_000, help="that are recorded")
    parser.add_argument("--updates", type=int, default=5_000)
    parser.add_argument("--temperature", type=float, default=3.0, help="how much more a better action counts")
    parser.add_argument("--seed", type=int, default=0)
    torch.set_num_threads(1)  # The networks are small.
    print(f"episodes return {main(**vars(parser.parse_args()))[1]:.0f} at the end")
