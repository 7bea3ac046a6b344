"""Behaviour cloning from a Minari dataset: record a controller, save it, load it, and learn to act like it.

A hand-written controller balances the pole of CartPole, with some of its actions replaced by random ones so that it
also shows how to come back. Its episodes become a Minari dataset, which every other library that knows Minari can read.
The learner loads the dataset into a replay and draws batches from it, as it would from a running environment.

    pip install "headrace[torch,minari]"
    python examples/behaviour_cloning_minari.py --episodes 20
"""

from __future__ import annotations

import argparse
import itertools
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import nn
from torch.nn import functional

import headrace as hr

ENV, DATASET, NUM_ENVS = "CartPole-v1", "cartpole/controller-v0", 4
LONGEST = 500  # CartPole is truncated here: the pole never fell.


class Controller:
    """Pushes towards where the pole falls, and back to the middle; a share of the pushes is random."""

    def __init__(self, noise: float, seed: int) -> None:
        self.noise, self.generator = noise, np.random.default_rng(seed)

    def __call__(self, observation: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
        """Actions int64[n] for observations float32[n, 4]."""
        wanted = (observation @ [0.05, 0.2, 1.0, 0.5] > 0).astype(np.int64)
        is_random = self.generator.random(len(wanted)) < self.noise
        return np.where(is_random, self.generator.integers(2, size=len(wanted)), wanted)


def make_replay(seed: int) -> hr.Replay:
    """A place for the steps of CartPole, with one table of them all."""
    table = hr.Table.uniform(1_000_000, name="steps")
    return hr.Replay(hr.collectors.signature(ENV), [table], seed=seed)


def record(episodes: int, root: Path, seed: int) -> Path:
    """Collects at least so many episodes, and writes them as a Minari dataset."""
    with make_replay(seed) as replay:
        controller = Controller(noise=0.2, seed=seed)
        options = {"frames_per_batch": 1000, "num_envs": NUM_ENVS, "seed": seed}
        with hr.Collector(ENV, controller, replay_buffer=replay, **options) as collector:
            while collector.statistics().episodes < episodes:
                next(collector)
        return hr.datasets.save_minari(
            replay, DATASET, root=root, env_spec=ENV, algorithm_name="a linear controller, 20 % noise"
        )


def load(root: Path, seed: int) -> hr.Replay:
    """The dataset's transitions in a replay."""
    dataset = hr.datasets.load_minari(DATASET, root=root)
    returns = [episode.return_ for episode in dataset]
    print(f"{len(dataset)} episodes, {dataset.total_steps} steps, mean return {np.mean(returns):.0f}")
    replay = make_replay(seed)
    with hr.TransitionWriter(replay, "steps") as writer:
        for episode in dataset:
            writer.add_episode(episode)
    return replay


class Clone(nn.Module):
    """Scores of the two actions; acting takes the better one."""

    def __init__(self) -> None:
        super().__init__()
        self.scores = nn.Sequential(nn.Linear(4, 64), nn.Tanh(), nn.Linear(64, 2))

    def forward(self, observation: torch.Tensor) -> torch.Tensor:
        """Actions int64[n] for observations float32[n, 4]."""
        return self.scores(observation).argmax(dim=1)


def train(clone: Clone, replay: hr.Replay, updates: int, seed: int) -> list[float]:
    """Cross-entropy of the recorded actions; every loss."""
    optimizer = torch.optim.Adam(clone.parameters(), lr=3e-3)
    views = {"observation": hr.View("observation"), "action": hr.View("action")}
    losses = []
    with hr.loaders.Loader(replay, "steps", 256, views=views, to="torch") as loader:
        for batch in itertools.islice(loader, updates):
            loss = functional.cross_entropy(clone.scores(batch.data["observation"]), batch.data["action"])
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            losses.append(float(loss.detach()))
            if len(losses) % 100 == 0:
                share = success(clone, seed + 1000)
                print(f"{len(losses):6,} updates: the pole stays up in {share:4.0%} of the episodes")
    return losses


def success(policy: Any, seed: int, episodes: int = 20) -> float:
    """The share of episodes in which the pole never falls: one of each copy of the environment."""
    frames = LONGEST * episodes
    with hr.Collector(ENV, policy, frames_per_batch=frames, num_envs=episodes, seed=seed) as collector:
        terminated = next(collector)["terminated"]  # bool[20, 500]
    return float((~terminated.any(axis=1)).mean())


def main(episodes: int = 20, updates: int = 1000, seed: int = 0) -> tuple[float, float, list[float]]:
    """Records, loads, trains; returns the success of the clone before and after, and every loss."""
    torch.manual_seed(seed)
    clone = Clone()
    before = success(clone, seed + 1000)
    with tempfile.TemporaryDirectory() as folder:
        path = record(episodes, Path(folder), seed)
        print("recorded", path.relative_to(folder))
        with load(Path(folder), seed) as replay:
            losses = train(clone, replay, updates, seed)
    after, shown = success(clone, seed + 1000), success(Controller(0.2, seed), seed + 1000)
    print(f"loss {losses[0]:.2f} to {np.mean(losses[-20:]):.2f} in {updates} updates")
    print(f"the pole stays up in {before:.0%} of the episodes before, in {after:.0%} after")
    print(f"(with the controller that was recorded: {shown:.0%})")
    return before, after, losses


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--episodes", type=int, default=20)
    parser.add_argument("--updates", type=int, default=1000)
    parser.add_argument("--seed", type=int, default=0)
    torch.set_num_threads(1)  # The network is small.
    main(**vars(parser.parse_args()))
