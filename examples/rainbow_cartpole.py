"""Rainbow in a plain loop: distributional double Q-learning from prioritized 3-step transitions.

The loop is that of a CleanRL file. The replay stores each step once; the writer finds the episodes in what the vector
environment returns; 3-step returns are cut when a batch is drawn. The priority of a transition is the cross-entropy of
its last update, as in M. Hessel et al., "Rainbow: Combining Improvements in Deep Reinforcement Learning" (2018). The
network has dueling heads, and explores by epsilon in place of noisy layers.

    pip install "headrace[torch]"
    python examples/rainbow_cartpole.py --steps 20000
"""

from __future__ import annotations

import argparse
import copy

import gymnasium as gym
import numpy as np
import torch
from torch import nn

import headrace as hr

ENV, NUM_ENVS, BATCH, N_STEP, GAMMA = "CartPole-v1", 4, 128, 3, 0.99
ATOMS, LOWEST, HIGHEST = 51, 0.0, 100.0  # Returns of CartPole: at most 1 / (1 - gamma).
RANDOM_STEPS, TARGET_UPDATES, EXPLORATION = 1_000, 200, 0.25
EXPONENT, BETA = 0.5, 0.4


class Network(nn.Module):
    """A distribution of the return for each action; acting takes the action of the largest mean."""

    def __init__(self) -> None:
        super().__init__()
        self.body = nn.Sequential(nn.Linear(4, 128), nn.ReLU(), nn.Linear(128, 128), nn.ReLU())
        self.value, self.advantage = nn.Linear(128, ATOMS), nn.Linear(128, 2 * ATOMS)
        self.register_buffer("atoms", torch.linspace(LOWEST, HIGHEST, ATOMS))

    def log_probabilities(self, observation: torch.Tensor) -> torch.Tensor:
        """Of the 51 returns of both actions, float32[n, 2, 51], for observations float32[n, 4]."""
        hidden = self.body(observation)
        advantage = self.advantage(hidden).unflatten(-1, (2, ATOMS))
        value = self.value(hidden).unsqueeze(1)
        return torch.log_softmax(value + advantage - advantage.mean(dim=1, keepdim=True), dim=-1)

    @torch.no_grad()
    def forward(self, observation: torch.Tensor) -> torch.Tensor:
        """Actions int64[n] for observations float32[n, 4]."""
        return (self.log_probabilities(observation).exp() @ self.atoms).argmax(dim=1)


def project(probabilities: torch.Tensor, returns: torch.Tensor) -> torch.Tensor:
    """Spreads the probabilities float32[n, 51] of these returns, float32[n, 51], over the two nearest atoms."""
    place = (returns.clamp(LOWEST, HIGHEST) - LOWEST) / (HIGHEST - LOWEST) * (ATOMS - 1)
    lower = place.floor().clamp(max=ATOMS - 2)
    share = place - lower
    spread = torch.zeros_like(probabilities)
    spread.scatter_add_(1, lower.long(), probabilities * (1 - share))
    return spread.scatter_add_(1, lower.long() + 1, probabilities * share)


def losses(net: Network, target: Network, batch: hr.ReplaySample) -> torch.Tensor:
    """The cross-entropy of each transition, float32[n]."""
    rows = torch.arange(len(batch["reward"]))
    following = batch["next_observation"]
    with torch.no_grad():
        # The discount is 0 after termination, and gamma**n where the episode goes on or was truncated.
        returns = batch["reward"].unsqueeze(1) + batch["discount"].unsqueeze(1) * net.atoms
        wanted = project(target.log_probabilities(following)[rows, net(following)].exp(), returns)
    return -(wanted * net.log_probabilities(batch["observation"])[rows, batch["action"]]).sum(dim=1)


def update(
    net: Network,
    target: Network,
    optimizer: torch.optim.Optimizer,
    replay: hr.Replay,
    writer: hr.TransitionWriter,
) -> None:
    """One step on one batch, whose transitions get new priorities."""
    batch = replay.sample(BATCH, views=writer.views, to="torch")
    weights = torch.as_tensor(
        (batch.info.table_size * batch.info.probabilities) ** -BETA, dtype=torch.float32
    )
    loss = losses(net, target, batch)
    optimizer.zero_grad()
    (weights / weights.max() * loss).mean().backward()
    nn.utils.clip_grad_norm_(net.parameters(), 10.0)
    optimizer.step()
    replay.update_priorities("replay", batch.info.keys, loss.detach().numpy())


def evaluate(net: Network, seed: int) -> float:
    """The mean return of 10 episodes without exploration, each of 500 steps at most."""
    with hr.Collector(ENV, net, frames_per_batch=5000, num_envs=10, seed=seed) as collector:
        batch = next(collector)  # [10, 500]
    ends = np.where(batch["terminated"].any(axis=1), batch["terminated"].argmax(axis=1) + 1, 500)
    return float(ends.mean())


def main(steps: int = 20_000, seed: int = 0) -> float:
    """Trains for so many steps of the environments together; the mean return of the learner at the end."""
    torch.manual_seed(seed)
    random, net = np.random.default_rng(seed), Network()
    target, optimizer = copy.deepcopy(net), torch.optim.Adam(net.parameters(), lr=5e-4)
    envs = gym.make_vec(ENV, num_envs=NUM_ENVS)
    # A new transition gets the largest priority so far, and is soon drawn for the first time.
    table = hr.Table.prioritized(50_000, EXPONENT, new_priority="largest")
    replay = hr.Replay.for_env(envs, [table], seed=seed)
    writer = hr.TransitionWriter(replay, n_step=N_STEP, gamma=GAMMA, env=envs)
    with replay, writer:
        obs, _ = envs.reset(seed=seed)
        for step in range(NUM_ENVS, steps + 1, NUM_ENVS):
            epsilon = max(0.02, 1 - step / (EXPLORATION * steps))
            explores = random.random(NUM_ENVS) < epsilon
            best = net(torch.from_numpy(obs)).numpy()
            actions = np.where(explores, random.integers(2, size=NUM_ENVS), best)
            next_obs, rewards, terminated, truncated, infos = envs.step(actions)
            writer.add(obs, actions, rewards, terminated, truncated, next_obs, infos)
            obs = next_obs
            if step > RANDOM_STEPS:
                update(net, target, optimizer, replay, writer)
            if step % (TARGET_UPDATES * NUM_ENVS) == 0:
                target.load_state_dict(net.state_dict())
            if step % 1_000 == 0:
                print(f"{step:7,} steps: return {evaluate(net, seed + 1000):5.1f}", flush=True)
    envs.close()
    return evaluate(net, seed + 1000)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--steps", type=int, default=20_000, help="of the four environments together")
    parser.add_argument("--seed", type=int, default=0)
    torch.set_num_threads(1)  # The network is small.
    print(f"episodes return {main(**vars(parser.parse_args())):.0f} at the end")
