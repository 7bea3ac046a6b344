"""Bare loops over eight CartPole-v1 environments: the limits of collectors."""

from __future__ import annotations

import multiprocessing
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import gymnasium
import numpy as np

from bench.measure import Run

ENVIRONMENTS = 8
STEPS = 128
Policy = Callable[[Any], Any]


@contextmanager
def bare_loop(policy: Policy | None = None) -> Iterator[Run]:
    """Steps the environments in this process; a call is `STEPS` steps of each, resets not counted.

    Args:
        policy: on observations; None: the same random actions at each call.
    """
    env = gymnasium.vector.SyncVectorEnv([lambda: gymnasium.make("CartPole-v1")] * ENVIRONMENTS)
    observed, _ = env.reset(seed=0)
    env.action_space.seed(0)
    actions = [env.action_space.sample() for _ in range(STEPS)]
    resets = count_resets(env.envs)

    def at_random(steps: int) -> None:
        for i in range(steps):
            env.step(actions[i % STEPS])

    def with_policy(steps: int) -> None:
        observation = observed
        for _ in range(steps):
            observation, *_ = env.step(policy(observation))  # type: ignore[misc]

    take = at_random if policy is None else with_policy

    def run(count: int) -> None:
        owed = count * STEPS * ENVIRONMENTS
        while owed > 0:
            resets.clear()
            steps = -(-owed // ENVIRONMENTS)
            take(steps)
            # After an end the next step only resets the environment, which is no step of it (collectors CE4).
            owed -= steps * ENVIRONMENTS - len(resets)

    try:
        yield run
    finally:
        env.close()


def count_resets(envs: Any) -> list[None]:
    """Returns a list that gets an entry with each reset of an environment."""
    resets: list[None] = []

    def counted(reset: Callable[..., Any]) -> Callable[..., Any]:
        def call(**arguments: Any) -> Any:
            resets.append(None)
            return reset(**arguments)

        return call

    for env in envs:
        env.reset = counted(env.reset)
    return resets


@contextmanager
def two_bare_loops(make_policy: Callable[[], Policy] | None = None) -> Iterator[Run]:
    """Two such loops at once, one of them in another process; `count` calls are shared out among them."""
    here, there = multiprocessing.Pipe()
    process = multiprocessing.get_context("spawn").Process(
        target=_serve, args=(there, make_policy), daemon=True
    )
    process.start()
    there.close()
    try:
        with bare_loop(None if make_policy is None else make_policy()) as run:
            here.recv()  # It has made its environments.

            def both(count: int) -> None:
                here.send(count // 2)
                run(count - count // 2)
                here.recv()

            yield both
    finally:
        here.close()
        process.join()


def _serve(pipe: Any, make_policy: Callable[[], Policy] | None) -> None:
    with bare_loop(None if make_policy is None else make_policy()) as run:
        try:
            pipe.send(None)
            while True:
                run(pipe.recv())
                pipe.send(None)
        except (EOFError, BrokenPipeError):
            pass


def make_network() -> Any:
    """Returns a torch module of 2x64 units that acts on observations; torch uses one thread from here on."""
    import torch

    torch.set_num_threads(1)

    class Greedy(torch.nn.Module):
        """Takes the action of the larger value."""

        def __init__(self) -> None:
            super().__init__()
            self.net = torch.nn.Sequential(
                torch.nn.Linear(4, 64),
                torch.nn.Tanh(),
                torch.nn.Linear(64, 64),
                torch.nn.Tanh(),
                torch.nn.Linear(64, 2),
            )

        def forward(self, observation: Any) -> Any:
            return self.net(observation).argmax(-1)

    return Greedy()


def make_network_policy() -> Policy:
    """Returns the same network as a callable on arrays."""
    import torch

    network = make_network()

    def policy(observation: np.ndarray[Any, Any]) -> Any:
        with torch.no_grad():
            return network(torch.from_numpy(observation)).numpy()

    return policy
