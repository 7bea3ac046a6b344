"""Recurrent Q-learning with burn-in and stored state, on a corridor whose end must be told from its beginning.

After S. Kapturowski et al., "Recurrent Experience Replay in Distributed Reinforcement Learning" (2019), in small: the
state with which the policy acted is stored with each step. A chunk of a batch begins with the stored state, warms it
up on the steps before it, and learns from its own. Steps are stored once; an item is no more than the row where a chunk
begins, so chunks that overlap cost nothing, and another burn-in needs no new data.

    pip install "headrace[torch]"
    python examples/r2d2_sequences.py
"""

from __future__ import annotations

import argparse
import copy
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import torch

import headrace as hr

LANES, BATCH, GAMMA, HIDDEN = 16, 64, 0.95, 32
# A chunk learns from CHUNK steps; one row more is shown for the value after the last of them.
CHUNK, BURN_IN = 4, 4


class Corridor:
    """A sign is shown at the start only; at the end, a few steps on, the action must be that of the sign."""

    observation_size, num_actions = 3, 2

    def __init__(self, seed: int) -> None:
        self.random = np.random.default_rng(seed)
        self.sign, self.left, self.at_start = np.zeros((3, LANES), np.int64)
        self.reset(np.ones(LANES, bool))

    def reset(self, lanes: Any) -> None:
        """New corridors of 3 to 6 steps."""
        self.sign[lanes] = self.random.integers(0, 2, lanes.sum())
        self.left[lanes] = self.random.integers(3, 7, lanes.sum())
        self.at_start[lanes] = 1

    def observe(self) -> Any:
        """The sign while it can be seen (two numbers), and whether this is the end."""
        seen = np.zeros((LANES, 3), np.float32)
        seen[np.arange(LANES), self.sign] = self.at_start
        seen[:, 2] = self.left == 1
        return seen

    def step(self, actions: Any) -> tuple[Any, Any]:
        """Rewards, and where the end was reached."""
        ends = self.left == 1
        rewards = np.where(ends, np.where(actions == self.sign, 1.0, -1.0), 0.0).astype(np.float32)
        self.left -= 1
        self.at_start[:] = 0
        return rewards, ends


class Network(torch.nn.Module):
    """A GRU and values of the actions."""

    def __init__(self) -> None:
        super().__init__()
        self.cell = torch.nn.GRUCell(Corridor.observation_size, HIDDEN)
        self.head = torch.nn.Linear(HIDDEN, Corridor.num_actions)

    def unroll(
        self, observations: torch.Tensor, state: torch.Tensor, mask: torch.Tensor
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Values `[B, T, A]` and the last state; where `mask` is False the state stays as it is."""
        values = []
        for time in range(observations.shape[1]):
            state = torch.where(mask[:, time, None], self.cell(observations[:, time], state), state)
            values.append(self.head(state))
        return torch.stack(values, 1), state


class Learner:
    """Double Q-learning on chunks."""

    def __init__(self) -> None:
        self.net = Network()
        self.target = copy.deepcopy(self.net)
        self.optimizer = torch.optim.Adam(self.net.parameters(), 3e-3)

    def update(self, data: Mapping[str, torch.Tensor]) -> torch.Tensor:
        """One step on one batch; the new priorities of its items."""
        seen, mask = data["observation"], data["observation_mask"]
        values, following = self._values(self.net, data), self._values(self.target, data)
        actions, rewards, ended = (data[name][:, BURN_IN:-1] for name in ("action", "reward", "terminated"))
        # A transition counts where its own row and the next are there.
        real = (data["action_mask"][:, BURN_IN:-1] & mask[:, BURN_IN + 1 :]).float()
        best = values[:, 1:].argmax(2, keepdim=True)
        wanted = rewards + GAMMA * ~ended * following[:, 1:].gather(2, best)[..., 0].detach()
        errors = (values[:, :-1].gather(2, actions[..., None])[..., 0] - wanted) * real
        self.optimizer.zero_grad()
        (errors.square().sum() / real.sum().clamp(min=1)).backward()
        self.optimizer.step()
        assert seen.shape[1] == BURN_IN + CHUNK + 1
        with torch.no_grad():
            for slow, fast in zip(self.target.parameters(), self.net.parameters(), strict=True):
                slow.lerp_(fast, 0.05)
            # As in the paper: mostly the largest error of a chunk, in part the mean.
            return 0.9 * errors.abs().amax(1) + 0.1 * errors.abs().sum(1) / real.sum(1).clamp(min=1) + 1e-3

    @staticmethod
    def _values(net: Network, data: Mapping[str, torch.Tensor]) -> torch.Tensor:
        """Of the rows to learn from, with a state that was warmed up without gradients."""
        seen, mask = data["observation"], data["observation_mask"]
        with torch.no_grad():
            _, state = net.unroll(seen[:, :BURN_IN], data["state_in_h"], mask[:, :BURN_IN])
        values, _ = net.unroll(seen[:, BURN_IN:], state, mask[:, BURN_IN:])
        return values


class Actor:
    """Acts in all corridors, and writes each step with the state that it acted with."""

    def __init__(self, env: Corridor) -> None:
        self.env, self.state = env, torch.zeros(LANES, HIDDEN)

    def step(self, net: Network, writer: Any, epsilon: float) -> tuple[int, int]:
        """One step in each; how many corridors were finished, and how many of them rightly."""
        observation, before = self.env.observe(), self.state
        with torch.no_grad():
            always = torch.ones(LANES, 1, dtype=torch.bool)
            values, self.state = net.unroll(torch.from_numpy(observation)[:, None], before, always)
        actions = values[:, 0].argmax(1).numpy()
        explores = self.env.random.random(LANES) < epsilon
        actions = np.where(explores, self.env.random.integers(0, 2, LANES), actions)
        rewards, ends = self.env.step(actions)
        if writer is not None:
            writer.append(
                {
                    "observation": observation,
                    "action": actions,
                    "reward": rewards,
                    "terminated": ends,
                    "truncated": np.zeros(LANES, bool),
                    "state_in_h": before.numpy(),
                }
            )
            last = self.env.observe()
            for lane in np.flatnonzero(ends):
                writer.end_episode({"observation": last[lane]}, lane=int(lane))
        self.env.reset(ends)
        self.state = self.state * torch.from_numpy(~ends)[:, None]
        return int(ends.sum()), int((rewards > 0).sum())


def success_rate(net: Network, seed: int) -> float:
    """The share of corridors that end rightly, without exploration."""
    actor = Actor(Corridor(seed))
    finished, right = np.sum([actor.step(net, None, 0.0) for _ in range(60)], axis=0)
    return float(right / finished)


def main(arguments: Sequence[str] | None = None) -> float:
    """Trains, and returns the success rate without exploration."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--steps", type=int, default=100, help="of each of the corridors")
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args(arguments)
    torch.manual_seed(options.seed)
    signature = hr.Signature.like(
        {
            "observation": np.zeros(Corridor.observation_size, np.float32),
            "action": 0,
            "reward": np.float32(0),
            "terminated": False,
            "truncated": False,
            "state_in_h": np.zeros(HIDDEN, np.float32),
        }
    )
    table = hr.Table.prioritized(5_000, 0.9, name="chunks")
    # A chunk begins every second row: they overlap by half, as in the paper.
    rule = hr.ItemRule("chunks", 1, stride=CHUNK // 2, lookahead=CHUNK)
    views = hr.views.recurrent(CHUNK + 1, BURN_IN, state="state_in_h")
    learner, actor = Learner(), Actor(Corridor(options.seed))
    with hr.Replay(signature, [table], seed=options.seed) as replay:
        with replay.writer(LANES, items=[rule]) as writer:
            for number in range(options.steps):
                actor.step(learner.net, writer, epsilon=max(0.1, 1 - number / 500))
                if len(replay.table("chunks")) < BATCH:
                    continue
                batch = replay.sample("chunks", BATCH, views=views, to="torch")
                replay.update_priorities("chunks", batch.info.keys, learner.update(batch.data).numpy())
                if number % 10 == 9:
                    share = success_rate(learner.net, options.seed + 1)
                    print(f"{number + 1:6,} steps: {share:4.0%} of the corridors end rightly")
    share = success_rate(learner.net, options.seed + 1)
    print(f"{share:.0%} of the corridors end rightly after {options.steps} steps in each of {LANES}")
    return share


if __name__ == "__main__":
    main()
