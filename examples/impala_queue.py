"""Several actors, one learner, each rollout learnt from once: V-trace on CartPole.

Two worker processes play with weights that are a little older than the learner's. What they do is cut into rollouts of
20 steps, which wait in a queue, first in, first out, until the learner has taken each of them once. A full queue makes
the actors wait, so no rollout gets old. V-trace corrects for the age that remains.

The algorithm is that of L. Espeholt et al., "IMPALA: Scalable Distributed Deep-RL with Importance Weighted
Actor-Learner Architectures" (2018).

    pip install "headrace[torch]"
    python examples/impala_queue.py --updates 600
"""

from __future__ import annotations

import argparse
import contextlib

import numpy as np
import torch
from torch import nn

import headrace as hr

ENV, NUM_ENVS, STEPS, BATCH = "CartPole-v1", 4, 20, 16
GAMMA = 0.99

# What the learner sees of each of the 20 rows of a rollout. Where an episode ends a row has no next observation: it is
# the final row, or padding, and no transition. The mask `next_observation_mask` tells.
COLUMNS = ("observation", "action", "reward", "terminated", "truncated", "log_prob", "policy_version")
VIEWS = {
    **{name: hr.View(name) for name in COLUMNS},
    "next_observation": hr.View("observation", shift=1, mask=True),
}


class ActorCritic(nn.Module):
    """Scores of the two actions, and the value of an observation."""

    def __init__(self) -> None:
        super().__init__()
        self.scores = nn.Sequential(nn.Linear(4, 64), nn.Tanh(), nn.Linear(64, 2))
        self.values = nn.Sequential(nn.Linear(4, 64), nn.Tanh(), nn.Linear(64, 1), nn.Flatten(start_dim=-2))

    def policy(self, observation: torch.Tensor) -> torch.distributions.Categorical:
        """How likely the actions are."""
        return torch.distributions.Categorical(logits=self.scores(observation))

    def forward(self, observation: torch.Tensor) -> tuple[torch.Tensor, dict[str, torch.Tensor]]:
        """What acts: actions int64[n], and a further column that is stored beside them."""
        policy = self.policy(observation)
        action = policy.sample()
        return action, {"log_prob": policy.log_prob(action)}


def loss_of(network: ActorCritic, data: dict[str, torch.Tensor]) -> torch.Tensor:
    """Policy gradient, a little entropy, squared error of the values."""
    policy, value = network.policy(data["observation"]), network.values(data["observation"])
    log_prob = policy.log_prob(data["action"])
    with torch.no_grad():
        target, advantage = hr.trajectories.vtrace(
            data["reward"],
            value,
            network.values(data["next_observation"]),
            data["terminated"],
            data["truncated"],
            log_rhos=log_prob - data["log_prob"],
            gamma=GAMMA,
            mask=data["next_observation_mask"],
        )
    gain = log_prob * advantage + 0.01 * policy.entropy()
    return (0.5 * (value - target).square() - gain)[data["next_observation_mask"]].mean()


def mean_return(collectors: list[hr.AsyncCollector]) -> float:
    """Of the last 100 episodes of each."""
    return float(np.mean([collector.statistics().episode_return_mean for collector in collectors]))


def main(updates: int = 600, actors: int = 2, seed: int = 0) -> tuple[list[float], float]:
    """Learns from so many batches of 16 rollouts; the loss of each, and the mean return of the last episodes."""
    torch.manual_seed(seed)
    network = ActorCritic()
    optimizer = torch.optim.Adam(network.parameters(), lr=1e-3)
    queue = hr.Table.queue("rollouts", max_size=2 * BATCH)
    # Every 20 steps of an episode one item; the last one is filled up. Each waits for its last next observation.
    rule = hr.ItemRule("rollouts", length=STEPS, stride=STEPS, end=hr.EndOfEpisode.PAD, lookahead=1)
    losses: list[float] = []
    ages: list[float] = []
    with contextlib.ExitStack() as stack:
        replay = stack.enter_context(hr.Replay(hr.collectors.signature(ENV, network), [queue], seed=seed))
        options = {
            "frames_per_batch": NUM_ENVS * STEPS,
            "num_envs": NUM_ENVS,
            "replay_buffer": replay,
            "items": [rule],
        }
        collectors = [
            stack.enter_context(
                hr.AsyncCollector(ENV, network, seed=seed + 1000 * k, track_policy_version=True, **options)
            )
            for k in range(actors)
        ]
        for collector in collectors:
            collector.start()  # From here on it fills the queue by itself.
        for update in range(1, updates + 1):
            data = replay.sample("rollouts", BATCH, views=VIEWS, to="torch", timeout=60).data
            version = data["policy_version"][data["next_observation_mask"]]
            ages.append(collectors[0].policy_version - float(version.double().mean()))
            loss = loss_of(network, data)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            for collector in collectors:
                collector.update_policy_weights_(network)
            losses.append(float(loss.detach()))
            if update % 50 == 0:
                print(f"{update:5} updates: the last episodes returned {mean_return(collectors):.0f}")
        returned, table = mean_return(collectors), replay.statistics().tables["rollouts"]
    print(f"{table.inserts} rollouts, {table.samples} learnt from, {np.mean(ages):.1f} updates old")
    return losses, returned


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--updates", type=int, default=600)
    parser.add_argument("--actors", type=int, default=2, help="worker processes that play")
    parser.add_argument("--seed", type=int, default=0)
    torch.set_num_threads(1)
    main(**vars(parser.parse_args()))
