"""DQN learns to flip bits, with goals of hindsight; without them it does not.

The environment is that of the paper (M. Andrychowicz et al., "Hindsight Experience Replay", 2017): n bits, a goal of n
bits, each action flips one, the reward is 0 where the goal is reached and -1 elsewhere. With 2**n states, a goal is
hardly ever reached by chance. Steps are stored once, as they were; goals are replaced when a batch is drawn.

    pip install "headrace[torch]"
    python examples/her_bit_flipping.py
    python examples/her_bit_flipping.py --no-hindsight
"""

from __future__ import annotations

import argparse
import copy
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import torch

import headrace as hr

LANES, BATCH, GAMMA = 16, 256, 0.98


def reward(achieved: Any, goal: Any, _info: Mapping[str, Any]) -> Any:
    """Of K transitions at once: 0 where all bits are those of the goal."""
    return (achieved == goal).all(1).astype(np.float32) - 1


class BitFlipping:
    """Environments side by side; each has n steps to reach its goal."""

    def __init__(self, bits: int, seed: int) -> None:
        self.random, self.bits = np.random.default_rng(seed), bits
        self.reset()

    def reset(self) -> None:
        """New bits and new goals for all."""
        self.state, self.goal = self.random.integers(0, 2, (2, LANES, self.bits)).astype(np.float32)

    def observe(self) -> dict[str, Any]:
        """As in gymnasium-robotics; there is nothing to see but what was achieved."""
        return {"achieved_goal": self.state.copy(), "desired_goal": self.goal}

    def step(self, actions: Any) -> Any:
        """Flips a bit in each; returns the rewards."""
        lanes = np.arange(LANES)
        self.state[lanes, actions] = 1 - self.state[lanes, actions]
        return reward(self.state, self.goal, {})


class Learner:
    """Q-learning with a target network."""

    def __init__(self, bits: int) -> None:
        self.net = torch.nn.Sequential(
            torch.nn.Linear(2 * bits, 256), torch.nn.ReLU(), torch.nn.Linear(256, bits)
        )
        self.target = copy.deepcopy(self.net)
        self.optimizer = torch.optim.Adam(self.net.parameters(), 1e-3)

    def values(self, observation: Mapping[str, Any], net: torch.nn.Module | None = None) -> torch.Tensor:
        """Of all actions; bits are shown as -1 and 1."""
        seen = torch.cat(
            [torch.as_tensor(observation[name]) for name in ("achieved_goal", "desired_goal")], 1
        )
        return (net or self.net)(2 * seen - 1)

    def act(self, observation: Mapping[str, Any]) -> Any:
        """The best actions."""
        with torch.no_grad():
            return self.values(observation).argmax(1).numpy()

    def update(self, data: Mapping[str, Any]) -> None:
        """One step on one batch."""
        with torch.no_grad():
            following = self.values(data["next_observation"], self.target).max(1).values
            wanted = data["reward"] + data["discount"] * following
            # The return of rewards that are 0 or -1.
            wanted = wanted.clamp(-1 / (1 - GAMMA), 0)
        values = self.values(data["observation"]).gather(1, data["action"][:, None])[:, 0]
        self.optimizer.zero_grad()
        torch.nn.functional.mse_loss(values, wanted).backward()
        self.optimizer.step()
        with torch.no_grad():
            for slow, fast in zip(self.target.parameters(), self.net.parameters(), strict=True):
                slow.lerp_(fast, 0.05)


def views(hindsight: bool) -> dict[str, hr.View]:
    """What a batch shows."""
    plain = hr.views.transition(gamma=GAMMA)
    if not hindsight:
        return plain
    return hr.views.hindsight(
        plain,
        goal="observation/desired_goal",
        achieved="observation/achieved_goal",
        reward=reward,
        strategy="future",
        ratio=0.8,
    )


def episode(env: BitFlipping, learner: Learner, writer: Any, epsilon: float) -> float:
    """One episode in each environment; the share of them that came by their goals (to stay there is no action)."""
    env.reset()
    reached = np.zeros(LANES, bool)
    for step in range(env.bits):
        observation = env.observe()
        actions = learner.act(observation)
        explores = env.random.random(LANES) < epsilon
        actions = np.where(explores, env.random.integers(0, env.bits, LANES), actions)
        rewards = env.step(actions)
        reached |= rewards == 0
        if writer is not None:
            # The time is up after n steps, wherever the bits are: that is a truncation.
            is_last = np.full(LANES, step == env.bits - 1)
            writer.append(
                {
                    "observation": observation,
                    "action": actions,
                    "reward": rewards,
                    "terminated": np.zeros(LANES, bool),
                    "truncated": is_last,
                }
            )
    if writer is not None:
        writer.end_episode({"observation": env.observe()})
    return float(reached.mean())


def main(arguments: Sequence[str] | None = None) -> float:
    """Trains, and returns the success rate without exploration."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--bits", type=int, default=10)
    parser.add_argument("--episodes", type=int, default=1600)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--no-hindsight", action="store_true", help="plain DQN on the same steps")
    options = parser.parse_args(arguments)
    torch.manual_seed(options.seed)
    env, learner = BitFlipping(options.bits, options.seed), Learner(options.bits)
    bits = np.zeros(options.bits, np.float32)
    signature = hr.Signature.like(
        {
            "observation": {"achieved_goal": bits, "desired_goal": bits},
            "action": 0,
            "reward": np.float32(0),
            "terminated": False,
            "truncated": False,
        }
    )
    table = hr.Table.uniform(100_000, name="steps")
    presented = views(not options.no_hindsight)
    relabelled = rewarded = 0
    with hr.Replay(signature, [table], seed=options.seed) as replay:
        with replay.writer(LANES, items=[hr.ItemRule("steps", 1, lookahead=1)]) as writer:
            for number in range(options.episodes // LANES):
                episode(env, learner, writer, epsilon=0.2)
                for _ in range(options.bits):
                    data = replay.sample("steps", BATCH, views=presented, to="torch").data
                    learner.update(data)
                    if "relabelled" in data:
                        relabelled += int(data["relabelled"].sum())
                        rewarded += int((data["relabelled"] & (data["reward"] == 0)).sum())
                if number % 10 == 9:
                    success = np.mean([episode(env, learner, None, 0.0) for _ in range(10)])
                    print(f"{(number + 1) * LANES:6,} episodes: {success:4.0%} of the goals are reached")
    success = float(np.mean([episode(env, learner, None, 0.0) for _ in range(20)]))
    print(f"{relabelled} transitions with goals of hindsight, {rewarded} of them reached theirs")
    print(f"{success:.0%} of the goals are reached after {options.episodes} episodes")
    return success


if __name__ == "__main__":
    main()
