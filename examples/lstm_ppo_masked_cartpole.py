"""PPO with an LSTM on CartPole without velocities: a rollout worker carries the state and cuts sequences.

The policy sees two numbers, the position of the cart and the angle of the pole. To know their velocities it must
remember. `hr.RolloutWorker` gives the policy the state after its last step, and cuts the rows into sequences with the
state before each. A sequence never crosses the end of an episode. PPO: Schulman et al. 2017; GAE: Schulman et al. 2016.

    pip install "headrace[torch]"
    python examples/lstm_ppo_masked_cartpole.py
    python examples/lstm_ppo_masked_cartpole.py --no-memory
"""

from __future__ import annotations

import argparse
from collections.abc import Mapping
from typing import Any

import gymnasium as gym
import numpy as np
import torch
from torch import nn
from torch.distributions import Categorical

import headrace as hr

NUM_ENVS, STEPS, SEQUENCE = 8, 128, 16
EPOCHS, MINIBATCH, CLIP, ENTROPY = 6, 256, 0.2, 0.01
HIDDEN = 64
STATE_IN, STATE_OUT = ("state_in_0", "state_in_1"), ("state_out_0", "state_out_1")
REWARD_SCALE = 0.02  # Errors of the critic stay small beside the objective of the actor: they share the LSTM.


def make_env() -> gym.Env[Any, Any]:
    """Returns CartPole whose observation is float32[2]: the position of the cart and the angle of the pole."""
    env = gym.make("CartPole-v1")
    box = gym.spaces.Box(-np.inf, np.inf, (2,), np.float32)
    return gym.wrappers.TransformObservation(env, lambda observation: observation[[0, 2]], box)


class LstmPolicy(nn.Module):
    """Actor and critic on one LSTM; acts, and computes advantages for the worker.

    Args:
        memory: False: every step begins with the initial state, for comparison.
    """

    def __init__(self, memory: bool = True) -> None:
        super().__init__()
        self.memory = memory
        self.encoder = nn.Sequential(nn.Linear(2, HIDDEN), nn.Tanh())
        self.lstm = nn.LSTM(HIDDEN, HIDDEN, batch_first=True)
        self.actor, self.critic = nn.Linear(HIDDEN, 2), nn.Linear(HIDDEN, 1)
        self.initial_state = [np.zeros(HIDDEN, np.float32)] * 2  # Of one environment.

    def forward(self, observation: torch.Tensor, h: torch.Tensor, c: torch.Tensor) -> tuple[Any, ...]:
        """Returns scores [S, L, 2], values [S, L] and the last state of sequences float32[S, L, 2]."""
        hidden, (h, c) = self.lstm(self.encoder(observation), (h[None], c[None]))
        return self.actor(hidden), self.critic(hidden).squeeze(-1), h[0], c[0]

    @torch.no_grad()
    def compute_actions(self, inputs: Mapping[str, Any]) -> tuple[Any, ...]:
        """Returns actions, the new state, and further columns of n rows: sequences of one step each."""
        seen = {name: torch.from_numpy(column) for name, column in inputs.items()}
        scores, value, *state = self(seen["observation"][:, None], *(seen[name] for name in STATE_IN))
        choice = Categorical(logits=scores[:, 0])
        action = choice.sample()
        if not self.memory:
            state = [torch.zeros_like(part) for part in state]
        extras = {"log_prob": choice.log_prob(action).numpy(), "value": value[:, 0].numpy()}
        return action.numpy(), [part.numpy() for part in state], extras

    @torch.no_grad()
    def postprocess_trajectory(self, batch: hr.SampleBatch, other_agents: Any, episode: Any) -> None:
        """Adds `advantage` and `return` to rows of one episode: a whole one, or the part within one fragment."""
        last = {name: torch.from_numpy(batch[name][-1:]) for name in ("next_observation", *STATE_OUT)}
        _, value, *_ = self(last["next_observation"][:, None], *(last[name] for name in STATE_OUT))
        next_values = np.append(batch["value"][1:], value[0].numpy())
        batch["advantage"], batch["return"] = hr.trajectories.gae(
            REWARD_SCALE * batch["reward"],
            batch["value"],
            next_values,
            batch["terminated"],
            batch["truncated"],
        )


def update(policy: LstmPolicy, optimizer: torch.optim.Optimizer, batch: hr.SampleBatch) -> None:
    """Learns for some epochs by the clipped objective, from minibatches of whole sequences."""
    longest = batch.max_seq_len
    padded = batch.right_zero_pad(longest)
    rows = {
        name: torch.from_numpy(padded[name]).unflatten(0, (-1, longest))  # [S, L, ...]
        for name in ("observation", "action", "log_prob", "advantage", "return")
    }
    rows["mask"] = torch.from_numpy(padded.mask).view(-1, longest)
    states = [torch.from_numpy(padded[name]) for name in STATE_IN]  # [S, HIDDEN]
    real = rows["advantage"][rows["mask"]]
    rows["advantage"] = (rows["advantage"] - real.mean()) / (real.std() + 1e-8)
    for _ in range(EPOCHS):
        for chosen in torch.randperm(len(batch.seq_lens)).split(MINIBATCH // longest):
            part = {name: column[chosen] for name, column in rows.items()}
            scores, value, *_ = policy(part["observation"], *(state[chosen] for state in states))
            choice = Categorical(logits=scores)
            ratio = (choice.log_prob(part["action"]) - part["log_prob"]).exp()
            advantage = part["advantage"]
            gain = torch.minimum(ratio * advantage, ratio.clamp(1 - CLIP, 1 + CLIP) * advantage)
            error = (value - part["return"]).square()
            loss = (0.5 * error - gain - ENTROPY * choice.entropy())[part["mask"]].mean()
            optimizer.zero_grad()
            loss.backward()
            nn.utils.clip_grad_norm_(policy.parameters(), 0.5)
            optimizer.step()


def main(batches: int = 300, seed: int = 0, memory: bool = True) -> float:
    """Returns the mean length of the last 20 episodes, 500 at most."""
    torch.manual_seed(seed)
    policy = LstmPolicy(memory)
    optimizer = torch.optim.Adam(policy.parameters(), lr=1e-3, eps=1e-5)
    schedule = torch.optim.lr_scheduler.LinearLR(optimizer, 1.0, 0.02, total_iters=batches)
    options = {
        "rollout_fragment_length": STEPS,
        "num_envs": NUM_ENVS,
        "max_seq_len": SEQUENCE if memory else 1,
        "seed": seed,
    }
    lengths: list[int] = []
    with hr.RolloutWorker(make_env, policy, **options) as worker:
        for number in range(1, batches + 1):
            batch = worker.sample()
            lengths += (batch["t"][batch["done"]] + 1).tolist()
            update(policy, optimizer, batch)
            schedule.step()
            if number % 10 == 0:
                frames = number * NUM_ENVS * STEPS
                print(f"{frames:7,} frames, episodes of {np.mean(lengths[-20:]):5.1f} steps")
    return float(np.mean(lengths[-20:]))


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--batches", type=int, default=300, help="batches of 1,024 frames (default: 300)")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--no-memory", dest="memory", action="store_false", help="for comparison")
    torch.set_num_threads(1)  # The networks are small.
    print(f"episodes of {main(**vars(parser.parse_args())):.0f} steps at the end")
