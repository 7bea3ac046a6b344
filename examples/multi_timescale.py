"""Many actors, one learner: what they send has parts that come at different rates.

Each actor thread plays CartPole with the network that the learner trains. A sample that it sends has

* `step`: 32 rows, one for each step: observation, action, reward, and whether the episode ended;
* `episode`: one row for each episode that ended meanwhile, up to 4;
* `last`: one row: the observation after the last step, from which the learner goes on with its own estimate.

`hr.TrajectoryAccumulator` gathers the parts, `hr.BatchQueue` puts the samples of all actors into batches, and the
learner takes each sample once (advantage actor-critic, V. Mnih et al., 2016).

    pip install "headrace[torch]"
    python examples/multi_timescale.py --batches 400
"""

from __future__ import annotations

import argparse
import contextlib
import itertools
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import gymnasium as gym
import numpy as np
import torch
from torch import nn
from torch.nn import functional

import headrace as hr

STEPS, MOST_EPISODES, BATCH = 32, 4, 8
GAMMA = 0.99

# Structure, shapes and dtypes of one sample; the values are not used.
EXAMPLE = {
    "step": {
        "observation": np.zeros((STEPS, 4), np.float32),
        "action": np.zeros(STEPS, np.int64),
        "reward": np.zeros(STEPS, np.float32),
        "ended": np.zeros(STEPS, bool),
    },
    "episode": {"return": np.zeros(MOST_EPISODES, np.float32), "is_there": np.zeros(MOST_EPISODES, bool)},
    "last": {"observation": np.zeros((1, 4), np.float32)},
}


class ActorCritic(nn.Module):
    """Scores of the two actions, and the value of an observation."""

    def __init__(self) -> None:
        super().__init__()
        self.scores = nn.Sequential(nn.Linear(4, 64), nn.Tanh(), nn.Linear(64, 2))
        self.values = nn.Sequential(nn.Linear(4, 64), nn.Tanh(), nn.Linear(64, 1))

    @torch.no_grad()
    def act(self, observation: np.ndarray[Any, Any]) -> int:
        """An action drawn for one observation."""
        probability = self.scores(torch.from_numpy(observation)).softmax(dim=0)[1]
        return int(torch.rand(()) < probability)

    @torch.no_grad()
    def value(self, observation: np.ndarray[Any, Any]) -> float:
        """The return to expect from one observation."""
        return float(self.values(torch.from_numpy(observation)))


def play(network: ActorCritic, queue: hr.BatchQueue, seed: int) -> None:
    """An actor's thread: fill the accumulator and send what it built, until the queue is closed."""
    accumulator = hr.TrajectoryAccumulator(EXAMPLE)
    # An actor that fails ends the others and the learner, too.
    with contextlib.closing(queue), contextlib.suppress(hr.Closed), gym.make("CartPole-v1") as env:
        observation, return_ = env.reset(seed=seed)[0], 0.0
        while True:
            action = network.act(observation)
            following, reward, terminated, truncated, _ = env.step(action)
            return_ += float(reward)
            if truncated and not terminated:
                # The pole still stands: the last reward brings the estimate of what would have followed.
                reward = float(reward) + GAMMA * network.value(following)
            ended = terminated or truncated
            step = {"observation": observation, "action": action, "reward": reward, "ended": ended}
            accumulator.add("step", step)
            observation = following
            if ended:
                if not accumulator.is_full("episode"):
                    accumulator.add("episode", {"return": return_, "is_there": True})
                observation, return_ = env.reset()[0], 0.0
            if accumulator.is_full("step"):
                accumulator.add("last", {"observation": observation})
                queue.send(accumulator.build())  # Slots of episodes that did not end are zeros.


def returns(step: dict[str, torch.Tensor], bootstrap: torch.Tensor) -> torch.Tensor:
    """Discounted sums of rewards, float32[B, T], which go on with `bootstrap` float32[B] after the last step."""
    found = [bootstrap]
    for t in reversed(range(STEPS)):
        found.append(step["reward"][:, t] + GAMMA * ~step["ended"][:, t] * found[-1])
    return torch.stack(found[:0:-1], dim=1)


def loss_of(network: ActorCritic, batch: dict[str, Any]) -> torch.Tensor:
    """Policy gradient, a little entropy, and the squared error of the values."""
    step = {name: torch.from_numpy(column) for name, column in batch["step"].items()}
    with torch.no_grad():
        bootstrap = network.values(torch.from_numpy(batch["last"]["observation"]))[:, 0, 0]
        target = returns(step, bootstrap)
    value = network.values(step["observation"])[:, :, 0]
    advantage = (target - value).detach()
    advantage = (advantage - advantage.mean()) / (advantage.std() + 1e-6)
    policy = torch.distributions.Categorical(logits=network.scores(step["observation"]))
    gain = policy.log_prob(step["action"]) * advantage + 0.01 * policy.entropy()
    return functional.mse_loss(value, target) - gain.mean()


def main(batches: int = 400, actors: int = 4, seed: int = 0) -> tuple[list[float], list[float]]:
    """Learns from so many batches of 8 samples of 32 steps; the loss of each, and the return of each episode."""
    torch.manual_seed(seed)
    network = ActorCritic()
    optimizer = torch.optim.Adam(network.parameters(), lr=2e-3)
    # Actors wait when three batches are full: nothing gets old, and nothing is lost.
    queue = hr.BatchQueue(EXAMPLE, BATCH)
    losses: list[float] = []
    episodes: list[float] = []
    with ThreadPoolExecutor(actors) as pool, contextlib.closing(queue):
        playing = [pool.submit(play, network, queue, seed + k) for k in range(actors)]
        for batch in itertools.islice(queue.batches(), batches):
            loss = loss_of(network, batch)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()  # The actors see it at once: they play with these very tensors.
            losses.append(float(loss.detach()))
            episodes += batch["episode"]["return"][batch["episode"]["is_there"]].tolist()
            if len(losses) % 50 == 0:
                print(f"{len(losses):5} batches: the last 50 episodes returned {np.mean(episodes[-50:]):.0f}")
        told = queue.statistics()
    for actor in playing:
        actor.result()  # Raises what ended an actor.
    print(f"samples: {told.samples_received} received, {told.samples_delivered} learnt from, each once")
    return losses, episodes


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--batches", type=int, default=400)
    parser.add_argument("--actors", type=int, default=4, help="threads that play")
    parser.add_argument("--seed", type=int, default=0)
    torch.set_num_threads(1)
    main(**vars(parser.parse_args()))
