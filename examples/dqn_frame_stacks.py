"""DQN on stacks of frames, from single stored frames: one view stacks them to act, others to train.

A ball falls to one side, slowly or fast, and bounces off the walls. One frame does not tell where it goes. A view
stacks the last four frames for the policy while it acts. The replay stores each frame once, and `hr.views.transition`
makes the same stacks of them when a batch is drawn.
DQN: V. Mnih et al. 2015; double Q-learning: H. van Hasselt et al. 2016.

    pip install "headrace[torch]"
    python examples/dqn_frame_stacks.py
    python examples/dqn_frame_stacks.py --frames 1
"""

from __future__ import annotations

import argparse
import copy
from collections.abc import Mapping
from typing import Any

import gymnasium as gym
import numpy as np
import torch
from torch import nn
from torch.nn import functional

import headrace as hr

SIZE, FALL, NUM_ENVS, STEPS = 8, 7, 8, 64  # A ball falls 7 steps; STEPS are those of one rollout.
BATCH, N_STEP, GAMMA = 64, 3, 0.95
RANDOM_STEPS, TARGET_EVERY = 1_000, 100


class Catch(gym.Env[Any, Any]):
    """A frame is uint8[8, 8]: the ball, and below it the bat, which moves left, stays, or moves right (0, 1, 2).

    The ball falls one row a step and goes one or two columns to the side. The reward at the end is 1 if the ball falls
    on the bat, else -1.
    """

    observation_space = gym.spaces.Box(0, 255, (SIZE, SIZE), np.uint8)
    action_space = gym.spaces.Discrete(3)

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[Any, dict[str, Any]]:
        """A new ball at the top."""
        super().reset(seed=seed)
        self.row, self.column, self.bat = 0, int(self.np_random.integers(SIZE)), SIZE // 2
        self.speed = int(self.np_random.choice([-2, -1, 1, 2]))
        return self._frame(), {}

    def step(self, action: int) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        """Moves the bat, then the ball."""
        self.bat = int(np.clip(self.bat + int(action) - 1, 0, SIZE - 1))
        if not 0 <= self.column + self.speed < SIZE:
            self.speed = -self.speed
        self.row, self.column = self.row + 1, self.column + self.speed
        is_over = self.row == FALL
        reward = (1.0 if self.column == self.bat else -1.0) if is_over else 0.0
        return self._frame(), reward, is_over, False, {}

    def _frame(self) -> Any:
        frame = np.zeros((SIZE, SIZE), np.uint8)
        frame[-1, self.bat] = 128
        frame[self.row, self.column] = 255
        return frame


class Network(nn.Module):
    """Values float32[n, 3] of the actions for stacks uint8[n, frames, 8, 8]; without an axis for a single frame too."""

    def __init__(self, frames: int) -> None:
        super().__init__()
        self.layers = nn.Sequential(
            nn.Conv2d(frames, 16, 3, padding=1),
            nn.ReLU(),
            nn.Flatten(),
            nn.Linear(16 * SIZE * SIZE, 64),
            nn.ReLU(),
            nn.Linear(64, 3),
        )

    def forward(self, stack: torch.Tensor) -> torch.Tensor:
        """Scales the frames to [0, 1]."""
        return self.layers(stack.reshape(len(stack), -1, SIZE, SIZE).float() / 255)


class EpsilonGreedy:
    """Takes the best action, and sometimes a random one.

    Attributes:
        views: the stack of frames that it sees; stored rows have the newest frame only.
        epsilon: the share of random actions.
    """

    def __init__(self, net: Network, frames: int, epsilon: float, seed: int) -> None:
        stack = hr.View("observation", shift=f"{1 - frames}:0", fill="edge", used_for_training=False)
        self.net, self.views = net, {"stack": stack}
        self.epsilon, self.random = epsilon, np.random.default_rng(seed)

    def compute_actions(self, inputs: Mapping[str, Any]) -> Any:
        """Returns actions int64[n] for stacks uint8[n, frames, 8, 8]."""
        with torch.no_grad():
            best = self.net(torch.from_numpy(inputs["stack"])).argmax(1).numpy()
        explores = self.random.random(len(best)) < self.epsilon
        return np.where(explores, self.random.integers(0, 3, len(best)), best)


class Dqn:
    """The learner: one update a batch."""

    def __init__(self, net: Network) -> None:
        self.net, self.target = net, copy.deepcopy(net)
        self.optimizer = torch.optim.Adam(net.parameters(), lr=5e-4)
        self.updates = 0

    def update(self, data: Mapping[str, torch.Tensor]) -> None:
        """Learns from a batch of `hr.views.transition`, double Q-learning."""
        with torch.no_grad():
            best = self.net(data["next_observation"]).argmax(1, keepdim=True)
            value = self.target(data["next_observation"]).gather(1, best).squeeze(1)
            target = data["reward"] + data["discount"] * value
        values = self.net(data["observation"]).gather(1, data["action"][:, None]).squeeze(1)
        self.optimizer.zero_grad()
        functional.smooth_l1_loss(values, target).backward()
        self.optimizer.step()
        self.updates += 1
        if self.updates % TARGET_EVERY == 0:
            self.target.load_state_dict(self.net.state_dict())


def caught(net: Network, frames: int, seed: int) -> float:
    """Returns the share of 200 balls that are caught, without exploration."""
    policy = EpsilonGreedy(net, frames, epsilon=0.0, seed=seed)
    with hr.Collector(Catch, policy, frames_per_batch=200 * FALL, num_envs=200, seed=seed) as collector:
        batch = next(collector)  # One ball in each environment.
    return float((batch["reward"] > 0).sum() / 200)


def main(steps: int = 100_000, frames: int = 4, seed: int = 0) -> float:
    """Learns from so many steps, and returns the share of balls that are caught at the end."""
    torch.manual_seed(seed)
    net = Network(frames)
    learner, policy = Dqn(net), EpsilonGreedy(net, frames, epsilon=1.0, seed=seed)
    table = hr.Table.uniform(20_000, name="transitions")
    replay = hr.Replay(hr.collectors.signature(Catch), [table], seed=seed)
    options = {
        "frames_per_batch": STEPS,
        "total_frames": steps - steps % STEPS,
        "num_envs": NUM_ENVS,
        "replay_buffer": replay,
        "items": [hr.ItemRule("transitions", length=1, lookahead=N_STEP)],
        "seed": seed,
    }
    views = hr.views.transition(n_step=N_STEP, gamma=GAMMA, frame_stack=frames)
    with replay, hr.Collector(Catch, policy, **options) as collector:
        for number, _ in enumerate(collector):  # The batch is in the replay as well.
            done = (number + 1) * STEPS
            policy.epsilon = max(0.05, 1 - 2 * done / steps)
            if done < RANDOM_STEPS:
                continue
            for _ in range(STEPS // 8):  # An update for every 8 steps.
                learner.update(replay.sample("transitions", BATCH, views=views, to="torch").data)
            if learner.updates % 2000 == 0:
                print(f"{done:6,} steps: {caught(net, frames, seed + 1):4.0%} of the balls are caught")
    return caught(net, frames, seed + 1)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--steps", type=int, default=100_000, help="of all environments (default: 100000)")
    parser.add_argument("--frames", type=int, default=4, help="in a stack (default: 4)")
    parser.add_argument("--seed", type=int, default=0)
    torch.set_num_threads(1)  # The network is small.
    print(f"{main(**vars(parser.parse_args())):.0%} of the balls are caught at the end")
