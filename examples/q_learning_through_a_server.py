"""Four actors, a server, and a learner, each a process of its own: Q-learning on a slippery lake.

The server is `headrace serve` with the file beside this one. Actors write transitions to it, the learner draws them by
their priorities and writes its newest values back, which the actors read. A rate limiter of the server balances
both sides. On several machines nothing differs but the address. With `--backend ray` the actors are tasks of a Ray
cluster: the one of this machine that runs already, or one that ends with the program.

    pip install headrace            # or "headrace[ray]"
    python examples/q_learning_through_a_server.py --updates 2000
    python examples/q_learning_through_a_server.py --updates 2000 --backend ray
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

import gymnasium as gym
import numpy as np
from numpy.typing import NDArray

import headrace as hr
from headrace.replay import Writer

Values = NDArray[np.float64]
GAMMA, BATCH, RATE, EXPLORATION = 0.97, 256, 0.1, 0.3
SETTINGS = Path(__file__).with_suffix(".toml")


def make_env() -> gym.Env:
    """Returns the lake: 16 places, 4 directions, and a reward of 1 at the goal. Two steps in three go aside."""
    return gym.make("FrozenLake-v1", is_slippery=True)


def act(address: str, seed: int) -> None:
    """Plays until the server ends. Every 10 episodes it reads the learner's newest values."""
    random, env = np.random.default_rng(seed), make_env()
    q = np.zeros((16, 4))
    with suppress(hr.Closed, hr.Disconnected), hr.Client(address) as client:
        experience, values = client.replay("experience"), client.replay("values")
        # Each step and the observation after it are one item.
        with experience.writer(items=[hr.ItemRule("transitions", length=1, lookahead=1)]) as writer:
            for episode in range(sys.maxsize):
                if episode % 10 == 0 and values.can_sample("newest"):
                    q = values.sample("newest", 1)["q"][0]
                play(env, q, random, writer)


def play(env: gym.Env, q: Values, random: np.random.Generator, writer: Writer) -> None:
    """Plays one episode, and writes its steps."""
    observation, _ = env.reset(seed=int(random.integers(1 << 31)))
    ended = False
    while not ended:
        step = {"observation": observation, "action": choose(q[observation], EXPLORATION, random)}
        observation, step["reward"], step["terminated"], step["truncated"], _ = env.step(step["action"])
        writer.append(step)
        ended = step["terminated"] or step["truncated"]
    writer.end_episode({"observation": observation})


def choose(scores: Values, exploration: float, random: np.random.Generator) -> int:
    """Returns one of the best actions, or any action with the probability `exploration`."""
    if random.random() < exploration:
        return int(random.integers(len(scores)))
    return int(random.choice(np.flatnonzero(scores == scores.max())))


def learn(address: str, updates: int) -> Values:
    """Draws batches, and moves the values towards what followed. Returns the values."""
    q, views = np.zeros((16, 4)), hr.views.transition(gamma=GAMMA)
    with hr.Client(address) as client:
        experience, values = client.replay("experience"), client.replay("values")
        with values.writer(items=[hr.ItemRule("newest", 1)]) as newest:
            for update in range(1, updates + 1):
                batch = experience.sample("transitions", BATCH, views=views, timeout=60)
                place = batch["observation"], batch["action"]
                target = batch["reward"] + batch["discount"] * q[batch["next_observation"]].max(axis=1)
                error = target - q[place]
                np.add.at(q, place, RATE * error / np.maximum(1, counts(place)[place]))
                experience.update_priorities("transitions", batch.info.keys, np.abs(error) + 0.01)
                if update % 20 == 0:
                    newest.append({"q": q, "updates": update})
                if update % 200 == 0:
                    print(f"{update:6,} updates: {success(q):4.0%} of the episodes reach the goal")
    return q


def counts(place: tuple[NDArray[np.int64], NDArray[np.int64]]) -> Values:
    """Returns how often each pair of a place and an action is in a batch."""
    found = np.zeros((16, 4))
    np.add.at(found, place, 1)
    return found


def success(q: Values, episodes: int = 200) -> float:
    """Returns the share of episodes that reach the goal with the best actions."""
    random, env, reached = np.random.default_rng(0), make_env(), 0.0
    for episode in range(episodes):
        observation, _ = env.reset(seed=episode)
        ended = False
        while not ended:
            observation, reward, terminated, truncated, _ = env.step(choose(q[observation], 0.0, random))
            ended = terminated or truncated
            reached += float(reward)
    return reached / episodes


@contextmanager
def server() -> Iterator[str]:
    """Runs `headrace serve` in a process, and gives its address."""
    command = [sys.executable, "-m", "headrace", "serve", str(SETTINGS), "--json"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            yield json.loads(process.stdout.readline())["addresses"][0]
        finally:
            process.terminate()


def start_processes(address: str, seeds: Sequence[int], stack: ExitStack) -> None:
    """Starts the actors as processes of this machine; the end of `stack` waits for them."""
    context = multiprocessing.get_context("spawn")
    for seed in seeds:
        process = context.Process(target=act, args=(address, seed), daemon=True)
        process.start()
        stack.callback(process.join)


def start_ray_tasks(address: str, seeds: Sequence[int], stack: ExitStack) -> None:
    """Starts the actors as tasks of a Ray cluster; the end of `stack` waits for them."""
    import ray

    if not ray.is_initialized():
        ray.init(include_dashboard=False, log_to_driver=False)
        stack.callback(ray.shutdown)
    play_until_the_end = ray.remote(num_cpus=0.5)(act)
    stack.callback(ray.get, [play_until_the_end.remote(address, seed) for seed in seeds])


BACKENDS = {"process": start_processes, "ray": start_ray_tasks}


def main(updates: int = 2000, actors: int = 4, seed: int = 0, backend: str = "process") -> float:
    """Learns; returns the share of episodes that reach the goal afterwards."""
    with ExitStack() as stack:
        with server() as address:
            BACKENDS[backend](address, range(seed * actors, (seed + 1) * actors), stack)
            q = learn(address, updates)
            with hr.Client(address) as client:
                table = client.replay("experience").table("transitions").statistics()
    share = success(q)
    print(f"{table.inserts} transitions, each learnt from {table.samples_per_insert_so_far:.1f} times")
    print(f"the goal is reached in {share:.0%} of 200 episodes")
    return share


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--updates", type=int, default=2000)
    parser.add_argument("--actors", type=int, default=4)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--backend", choices=BACKENDS, default="process")
    main(**vars(parser.parse_args()))
