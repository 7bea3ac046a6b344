"""Your own loops in several processes, one learner: policy gradients on CartPole.

The learner holds a queue of episodes, and serves it. Each actor is a process with a loop of its own, which writes its
episodes to that queue, and reads the learner's newest weights before each. The learner takes each episode once
(R. J. Williams, 1992, with the mean return at each step as a baseline).

    pip install headrace
    python examples/own_loops_one_learner.py --updates 100
"""

from __future__ import annotations

import argparse
import multiprocessing
from contextlib import ExitStack, suppress

import gymnasium as gym
import numpy as np
from numpy.typing import NDArray

import headrace as hr
from headrace.replay import ReplaySample, Writer

ENV, LONGEST, BATCH, GAMMA, RATE = "CartPole-v1", 500, 16, 0.99, 10.0
STEP = {
    "observation": np.zeros(4, np.float32),
    "action": 0,
    "reward": 0.0,
    "terminated": False,
    "truncated": False,
}
Weights = NDArray[np.float64]


def probabilities(weights: Weights, observation: NDArray[np.float32]) -> NDArray[np.float64]:
    """Returns the probability of a push to the right, for observations [..., 4]."""
    return 1 / (1 + np.exp(-(observation @ weights)))


# ---- an actor ------------------------------------------------------------------------------------------------------


def act(address: str, seed: int) -> None:
    """Plays until the learner ends."""
    random, env = np.random.default_rng(seed), gym.make(ENV)
    with suppress(hr.Closed, hr.Disconnected), hr.Client(address) as client:
        episodes, newest = client.replay("episodes"), client.replay("weights")
        with episodes.writer(history=LONGEST, max_pending=4) as writer:
            while True:
                weights = newest.sample("newest", 1)["weights"][0]
                steps = play(env, weights, random, writer)
                # Waits while many items wait for a place in the queue.
                writer.create_item("queue", length=steps)
                writer.end_episode()


def play(env: gym.Env, weights: Weights, random: np.random.Generator, writer: Writer) -> int:
    """Plays one episode, and writes its steps; returns their number."""
    observation, _ = env.reset(seed=int(random.integers(1 << 31)))
    steps, ended = 0, False
    while not ended:
        action = int(random.random() < probabilities(weights, observation))
        step = {"observation": observation, "action": action}
        observation, step["reward"], step["terminated"], step["truncated"], _ = env.step(action)
        writer.append(step)
        steps, ended = steps + 1, step["terminated"] or step["truncated"]
    return steps


# ---- the learner ---------------------------------------------------------------------------------------------------


def gradient(weights: Weights, batch: ReplaySample) -> Weights:
    """Returns the direction that makes actions of above-average returns more likely."""
    reward, terminated, truncated = (batch[name] for name in ("reward", "terminated", "truncated"))
    mask = np.ones(reward.shape, bool) if batch.mask is None else batch.mask
    returns = hr.trajectories.discounted_returns(reward, terminated, truncated, GAMMA, mask=mask)
    baseline = np.where(mask, returns, 0).sum(axis=0) / mask.sum(axis=0)
    advantage = np.where(mask, returns - baseline, 0)
    surprise = batch["action"] - probabilities(weights, batch["observation"])
    direction = np.einsum("bt,btc->c", advantage * surprise, batch["observation"])
    return direction / (mask.sum() * (advantage.std() + 1e-8))


def main(updates: int = 100, actors: int = 3, seed: int = 0) -> list[float]:
    """Learns; returns the mean length of the episodes of each batch."""
    weights, lengths = np.zeros(4), []
    newest = hr.Table("newest", sampler=hr.selectors.Lifo(), remover=hr.selectors.Fifo(), max_size=1)
    context = multiprocessing.get_context("spawn")
    with ExitStack() as stack:
        episodes = stack.enter_context(
            hr.Replay(hr.Signature.like(STEP), [hr.Table.queue("queue", 2 * BATCH)])
        )
        published = stack.enter_context(hr.Replay(hr.Signature.like({"weights": weights}), [newest]))
        publisher = stack.enter_context(published.writer(items=[hr.ItemRule("newest", 1)]))
        publisher.append({"weights": weights})
        processes = []
        with hr.Server({"episodes": episodes, "weights": published}) as server:
            for number in range(actors):
                arguments = server.address, seed * actors + number
                processes.append(context.Process(target=act, args=arguments, daemon=True))
                processes[-1].start()
            for update in range(1, updates + 1):
                batch = episodes.sample("queue", BATCH, timeout=60)
                lengths.append(float(batch["reward"].sum() / BATCH))
                weights = weights + RATE * gradient(weights, batch)
                publisher.append({"weights": weights})
                if update % 10 == 0:
                    print(f"{update:4} updates: the last {BATCH} episodes lasted {lengths[-1]:.0f} steps")
        for process in processes:
            process.join()
    return lengths


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--updates", type=int, default=100)
    parser.add_argument("--actors", type=int, default=3)
    parser.add_argument("--seed", type=int, default=0)
    main(**vars(parser.parse_args()))
