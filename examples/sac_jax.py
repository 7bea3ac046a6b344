"""SAC in JAX: a pendulum is swung up by networks that are plain trees of arrays.

The collector writes each step once into the replay. A loader draws batches ahead and hands them out as JAX arrays. One
compiled function makes an update of each: gradients for actor, critics and temperature, and a step of Adam.

    pip install "headrace[jax]"
    python examples/sac_jax.py --steps 8000

The algorithm is that of T. Haarnoja et al., "Soft Actor-Critic Algorithms and Applications" (2018), with a temperature
that is learnt. Adam: D. P. Kingma and J. Ba (2015).
"""

from __future__ import annotations

import argparse
import itertools
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

import headrace as hr

ENV, OBSERVATIONS, ACTIONS, LARGEST_ACTION = "Pendulum-v1", 3, 1, 2.0
NUM_ENVS, FRAMES, RANDOM_FRAMES = 4, 20, 1_000  # After FRAMES frames there are as many updates.
BATCH, GAMMA, LEARNING_RATE, TARGET_SHARE = 256, 0.99, 1e-3, 0.01
LEAST_ENTROPY = -float(ACTIONS)


class Learner(NamedTuple):
    """Everything that an update changes: trees of arrays.

    Attributes:
        params: weights of `actor` and `critics`, and `log_temperature`.
        target: slowly following weights of the critics.
        mean, square: Adam's moments of the gradients.
        updates: their number so far.
        key: of the random numbers to come.
    """

    params: Any
    target: Any
    mean: Any
    square: Any
    updates: jax.Array
    key: jax.Array


def network(random: np.random.Generator, inputs: int, outputs: int) -> list[dict[str, Any]]:
    """The weights of two hidden layers and a last one."""
    sizes = [inputs, 128, 128, outputs]
    return [
        {"w": random.normal(0, (1 / n) ** 0.5, (n, m)).astype(np.float32), "b": np.zeros(m, np.float32)}
        for n, m in itertools.pairwise(sizes)
    ]


def apply(layers: list[dict[str, Any]], rows: jax.Array) -> jax.Array:
    """The outputs float32[n, outputs] of a network for float32[n, inputs]."""
    for layer in layers[:-1]:
        rows = jax.nn.relu(rows @ layer["w"] + layer["b"])
    return rows @ layers[-1]["w"] + layers[-1]["b"]


def new_learner(seed: int) -> Learner:
    """Fresh weights. NumPy draws them: JAX would compile a program for each shape."""
    random = np.random.default_rng(seed)
    params = {
        "actor": network(random, OBSERVATIONS, 2 * ACTIONS),
        "critics": [network(random, OBSERVATIONS + ACTIONS, 1) for _ in range(2)],
        "log_temperature": np.zeros((), np.float32),
    }
    zeros = jax.tree.map(np.zeros_like, params)
    state = Learner(params, params["critics"], zeros, zeros, np.zeros((), np.int32), jax.random.key(seed))
    return jax.device_put(state)


def sample(actor: Any, observation: jax.Array, key: jax.Array) -> tuple[jax.Array, jax.Array]:
    """Actions float32[n, 1] with their gradients, and their log-probabilities float32[n]."""
    mean, log_std = jnp.split(apply(actor, observation), 2, axis=-1)
    log_std = jnp.clip(log_std, -5, 2)
    noise = jax.random.normal(key, mean.shape)
    raw = mean + jnp.exp(log_std) * noise
    # The density of a normal distribution, squashed by tanh: log(1 - tanh(x)**2) without a loss of digits.
    log_prob = -0.5 * (noise**2 + jnp.log(2 * jnp.pi)) - log_std - jnp.log(LARGEST_ACTION)
    log_prob -= 2 * (jnp.log(2) - raw - jax.nn.softplus(-2 * raw))
    return LARGEST_ACTION * jnp.tanh(raw), log_prob.sum(axis=-1)


def value(critics: Any, observation: jax.Array, action: jax.Array) -> jax.Array:
    """The values of an action by both critics, float32[2, n]; the lesser one is believed."""
    seen = jnp.concatenate([observation, action], axis=-1)
    return jnp.stack([apply(critic, seen)[:, 0] for critic in critics])


def loss(params: Any, target: Any, data: dict[str, jax.Array], key: jax.Array) -> jax.Array:
    """The losses of critics, actor and temperature; none has a gradient for the weights of another."""
    now, later = jax.random.split(key)
    temperature = jnp.exp(params["log_temperature"])
    fixed_temperature, fixed_actor, fixed_critics = jax.lax.stop_gradient(
        (temperature, params["actor"], params["critics"])
    )
    action, log_prob = sample(fixed_actor, data["next_observation"], later)
    following = value(target, data["next_observation"], action).min(axis=0) - fixed_temperature * log_prob
    # The discount is 0 after a termination only: a truncated episode goes on with the value of what followed.
    goal = data["reward"] + data["discount"] * following
    error = value(params["critics"], data["observation"], data["action"]) - goal

    action, log_prob = sample(params["actor"], data["observation"], now)
    gain = value(fixed_critics, data["observation"], action).min(axis=0) - fixed_temperature * log_prob
    surplus = jax.lax.stop_gradient(-log_prob) - LEAST_ENTROPY
    return jnp.mean(error**2) * 2 - gain.mean() + (temperature * surplus).mean()


def adam(params: Any, gradients: Any, mean: Any, square: Any, number: jax.Array) -> tuple[Any, Any, Any]:
    """The step of Adam with this number, from 1 on: the new weights and moments."""
    mean = jax.tree.map(lambda m, g: 0.9 * m + 0.1 * g, mean, gradients)
    square = jax.tree.map(lambda s, g: 0.999 * s + 0.001 * g**2, square, gradients)
    first, second = 1 - 0.9**number, 1 - 0.999**number

    def moved(p: jax.Array, m: jax.Array, s: jax.Array) -> jax.Array:
        return p - LEARNING_RATE * (m / first) / (jnp.sqrt(s / second) + 1e-8)

    return jax.tree.map(moved, params, mean, square), mean, square


@jax.jit
def update(learner: Learner, data: dict[str, jax.Array]) -> Learner:
    """Learns from a batch of `hr.views.transition`."""
    key, now = jax.random.split(learner.key)
    gradients = jax.grad(loss)(learner.params, learner.target, data, now)
    number = learner.updates + 1
    params, mean, square = adam(learner.params, gradients, learner.mean, learner.square, number)
    target = jax.tree.map(lambda t, c: t + TARGET_SHARE * (c - t), learner.target, params["critics"])
    return Learner(params, target, mean, square, number, key)


@jax.jit
def draw(actor: Any, observation: jax.Array, key: jax.Array) -> tuple[jax.Array, jax.Array]:
    """Random actions float32[n, 1] for observations float32[n, 3], and the key of the next call."""
    following, now = jax.random.split(key)
    return sample(actor, observation, now)[0], following


@jax.jit
def most_likely(actor: Any, observation: jax.Array) -> jax.Array:
    """Actions float32[n, 1] without noise."""
    return LARGEST_ACTION * jnp.tanh(apply(actor, observation)[:, :ACTIONS])


class Explorer:
    """The policy of the collector: other random numbers at each call.

    Attributes:
        actor: the weights, which the learner replaces.
    """

    def __init__(self, actor: Any, seed: int) -> None:
        self.actor, self.key = actor, jax.random.key(seed)

    def __call__(self, observation: np.ndarray[Any, Any]) -> jax.Array:
        """Actions float32[n, 1] for observations float32[n, 3]."""
        action, self.key = draw(self.actor, observation, self.key)
        return action


def evaluate(actor: Any, seed: int) -> float:
    """The mean return of 10 episodes without noise. An episode of the pendulum has 200 steps: one batch."""
    policy = hr.FunctionalPolicy(most_likely, actor)
    with hr.Collector(ENV, policy, frames_per_batch=2000, num_envs=10, seed=seed) as collector:
        return float(collector.next()["reward"].sum(axis=1).mean())


def main(steps: int = 8_000, seed: int = 0) -> float:
    """Learns from so many frames; returns the return of the trained actor."""
    learner = new_learner(seed)
    policy = Explorer(learner.params["actor"], seed + 1)
    replay = hr.Replay.for_env(ENV, [hr.Table.uniform(100_000)], seed=seed)
    collector = hr.Collector(
        ENV,
        policy,
        frames_per_batch=FRAMES,
        total_frames=steps,
        init_random_frames=RANDOM_FRAMES,
        num_envs=NUM_ENVS,
        replay_buffer=replay,  # Each transition is an item of its table.
        seed=seed,
    )
    loader = hr.loaders.Loader(replay, "replay", BATCH, views=hr.views.transition(gamma=GAMMA), to="jax")
    with replay, collector, loader:
        for frames in itertools.accumulate(batch.frames for batch in collector):
            if frames < RANDOM_FRAMES:
                continue
            for batch in itertools.islice(loader, FRAMES):
                learner = update(learner, batch.data)
            policy.actor = learner.params["actor"]
            if frames % 1_000 == 0:
                print(f"{frames:6,} steps: return {evaluate(policy.actor, seed + 1000):7.1f}", flush=True)
    return evaluate(policy.actor, seed + 1000)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument(
        "--steps", type=int, default=8_000, help="frames of all environments, a multiple of 20"
    )
    parser.add_argument("--seed", type=int, default=0)
    print(f"episodes return {main(**vars(parser.parse_args())):.0f} at the end")
