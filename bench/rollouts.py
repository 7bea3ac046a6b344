"""Rollout workers against bare loops over the same environments with the same policies."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces

import headrace as hr
from bench.bare_loops import count_resets
from bench.case import Case, contest_case
from bench.measure import Contest, Goal, Plan, Run
from bench.noise import Frames, policy_on_stacks

ENVIRONMENTS = 8
STEPS = 200
AGENTS = tuple(f"agent_{number}" for number in range(10))
Policy = Callable[[Any], Any]


def cases() -> list[Case]:
    return [
        contest_case("rollouts/random", _random, Goal(ratio=0.85)),
        contest_case("rollouts/2x64", _network, Goal(ratio=0.9)),
        contest_case("rollouts/4 frames", _frames, Goal(ratio=1 / 1.15)),
        contest_case("rollouts/4 frames, kept stacks", _frames_kept, Goal(ratio=1 / 1.15)),
        contest_case("rollouts/4 frames, same worker", _frames_of_one_worker, Goal(ratio=1 / 1.15)),
        contest_case("rollouts/10 agents", _agents, Goal(ratio=0.6)),
        contest_case("rollouts/7 views", _views, Goal(least=1e6)),
    ]


def _cart_pole() -> Any:
    return gymnasium.make("CartPole-v1")


@contextmanager
def _random(_: Plan) -> Iterator[Contest]:
    generator = np.random.default_rng(0)

    def policy(observation: Any) -> Any:
        return generator.integers(2, size=len(observation))

    with _against_sync_vector(policy) as contest:
        yield contest


@contextmanager
def _network(_: Plan) -> Iterator[Contest]:
    import torch

    torch.manual_seed(0)  # Another network has episodes of another length.
    net = torch.nn.Sequential(
        torch.nn.Linear(4, 64),
        torch.nn.Tanh(),
        torch.nn.Linear(64, 64),
        torch.nn.Tanh(),
        torch.nn.Linear(64, 2),
    )

    def policy(observation: Any) -> Any:
        with torch.no_grad():
            return net(torch.from_numpy(observation)).argmax(-1).numpy()

    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        with _against_sync_vector(policy) as contest:
            yield contest
    finally:
        torch.set_num_threads(before)


@contextmanager
def _against_sync_vector(policy: Policy) -> Iterator[Contest]:
    env = gymnasium.vector.SyncVectorEnv([_cart_pole] * ENVIRONMENTS)
    first, _ = env.reset(seed=0)
    resets = count_resets(env.envs)

    def bare(count: int) -> None:
        observation, owed = first, count * STEPS * ENVIRONMENTS
        while owed > 0:
            resets.clear()
            steps = -(-owed // ENVIRONMENTS)
            for _ in range(steps):
                observation, *_ = env.step(policy(observation))
            # After an end the next step only resets the environment, which is no step of it (views-rollouts R2).
            owed -= steps * ENVIRONMENTS - len(resets)

    with hr.RolloutWorker(
        _cart_pole, policy, num_envs=ENVIRONMENTS, rollout_fragment_length=STEPS, seed=0
    ) as worker:
        yield _contest(worker, bare, "bare SyncVectorEnv(8) with the policy")
    env.close()


@contextmanager
def _frames(plan: Plan) -> Iterator[Contest]:
    with _against_ready_stacks(plan, [], "a loop that gets ready stacks and keeps nothing") as contest:
        yield contest


@contextmanager
def _frames_kept(plan: Plan) -> Iterator[Contest]:
    """Keeps each stack as loops of PPO do: `obs[step] = next_obs`."""
    kept = np.empty((plan.size(50), ENVIRONMENTS, 4, 84, 84), np.uint8)
    kept.fill(1)  # Its pages are there.
    with _against_ready_stacks(plan, kept, "a loop that gets ready stacks and keeps them") as contest:
        yield contest


@contextmanager
def _against_ready_stacks(plan: Plan, kept: Any, limit_name: str) -> Iterator[Contest]:
    """Against a plain loop over environments that show ready stacks.

    Args:
        plan: of the run.
        kept: `[T, n, 4, 84, 84]`, where the loop keeps its stacks; empty: it keeps none.
        limit_name: describes the loop.
    """
    steps = plan.size(50)
    policy = policy_on_stacks()
    envs = [Frames(4) for _ in range(ENVIRONMENTS)]
    first = np.stack([env.reset()[0] for env in envs])

    def bare(count: int) -> None:
        stacks = first
        for t in range(count * steps):
            if len(kept):
                kept[t % steps] = stacks
            returned = [env.step(action) for env, action in zip(envs, policy(stacks), strict=True)]
            for env, step in zip(envs, returned, strict=True):
                if step[3]:
                    env.reset()
            stacks = np.stack([step[0] for step in returned])

    with _stacking_worker(policy, steps) as worker:
        yield _contest(worker, bare, limit_name, steps)


@contextmanager
def _frames_of_one_worker(plan: Plan) -> Iterator[Contest]:
    steps = plan.size(50)
    policy = policy_on_stacks()
    options = {"num_envs": ENVIRONMENTS, "rollout_fragment_length": steps}
    views = {"observation": hr.View("observation"), "next_observation": _LATER}
    with (
        _stacking_worker(policy, steps) as worker,
        hr.RolloutWorker(lambda: Frames(4), policy, views=views, **options) as ready,
    ):

        def with_ready_stacks(count: int) -> None:
            for _ in range(count):
                ready.sample()

        limit = "the same worker, with environments that show ready stacks"
        yield _contest(worker, with_ready_stacks, limit, steps)


_LATER = hr.View("observation", shift=1, used_for_training=False)


def _stacking_worker(policy: Any, steps: int) -> hr.RolloutWorker:
    stack = hr.View("observation", shift="-3:0", fill="edge", used_for_training=False)
    return hr.RolloutWorker(
        lambda: Frames(1), policy, num_envs=ENVIRONMENTS, rollout_fragment_length=steps,
        views={"observation": stack, "next_observation": _LATER},
    )  # fmt: skip


class _Parallel:
    """Ten agents that are observed at each step; an episode has 100 steps."""

    possible_agents = AGENTS

    def __init__(self) -> None:
        self._noise = np.random.default_rng(0).normal(size=(16, 8)).astype(np.float32)
        self.agents: list[str] = []

    def observation_space(self, _: str) -> Any:
        return spaces.Box(-10, 10, (8,))

    def action_space(self, _: str) -> Any:
        return spaces.Discrete(4)

    def reset(self, **_: Any) -> Any:
        self.agents, self._t = list(AGENTS), 0
        return self._seen(), {}

    def step(self, actions: Any) -> Any:
        self._t += 1
        ends = dict.fromkeys(AGENTS, self._t == 100)
        rewards = {agent: float(action) for agent, action in actions.items()}
        if self._t == 100:
            self.agents = []
        return self._seen(), rewards, dict.fromkeys(AGENTS, False), ends, {agent: {} for agent in AGENTS}

    def _seen(self) -> Any:
        return {agent: self._noise[(self._t + i) % 16] * 0.5 for i, agent in enumerate(AGENTS)}

    def close(self) -> None:
        pass


@contextmanager
def _agents(_: Plan) -> Iterator[Contest]:
    generator = np.random.default_rng(0)

    def policy(observation: Any) -> Any:
        return generator.integers(4, size=len(observation))

    envs = [_Parallel() for _ in range(ENVIRONMENTS)]

    def bare(count: int) -> None:
        seen = [env.reset()[0] for env in envs]
        for _ in range(count * STEPS):
            stacked = np.stack([row for each in seen for row in each.values()])
            actions = policy(stacked).reshape(ENVIRONMENTS, -1)
            for i, env in enumerate(envs):
                seen[i] = env.step(dict(zip(seen[i], actions[i], strict=True)))[0]
                if not env.agents:
                    seen[i] = env.reset()[0]

    with hr.RolloutWorker(_Parallel, policy, num_envs=ENVIRONMENTS, rollout_fragment_length=STEPS) as worker:
        yield _contest(worker, bare, "bare loop with the policy")


@contextmanager
def _views(_: Plan) -> Iterator[Contest]:
    """The cut of a fragment alone: its rows are presented again and again."""
    views = {
        "stack": hr.View("observation", shift="-3:0", fill="edge"),
        "previous action": hr.View("action", shift=-1),
        "previous reward": hr.View("reward", shift=-1),
        "next action": hr.View("action", shift=1),
        "masked": hr.View("observation", shift=1, mask=True),
        "rewards": hr.View("reward", shift="-4:0"),
        "two before": hr.View("observation", shift=-2),
    }
    with hr.RolloutWorker(
        _cart_pole, lambda seen: np.zeros(len(seen), np.int64), num_envs=ENVIRONMENTS,
        rollout_fragment_length=500, views=views,
    ) as worker:  # fmt: skip
        loop = worker._loop
        worker.sample()
        loop._left[:] = 500
        while (lanes := loop._taking_part()).size:
            loop._step(lanes)
        for piece in loop._pieces.values():
            loop._fragments.close(piece, is_end=False)
        pieces = sorted(loop._fragments._closed, key=lambda piece: piece.order)

        def run(count: int) -> Any:
            for _ in range(count):
                batch, _ = loop._lanes.present(pieces, None)
            return batch

        yield Contest(ours=run, limit=None, per_call=8 * 500, unit="steps/s")
        loop._cut()


def _contest(worker: Any, bare: Run, limit_name: str, steps: int = STEPS) -> Contest:
    def run(count: int) -> Any:
        batch = None
        for _ in range(count):
            batch = worker.sample()
        return batch

    run(1)
    return Contest(
        ours=run,
        limit=bare,
        limit_name=limit_name,
        verify=lambda batch: _check(batch, steps),
        per_call=ENVIRONMENTS * steps,
        unit="env steps/s",
    )


def _check(batch: Any, steps: int) -> None:
    if batch.env_steps() != ENVIRONMENTS * steps:
        raise AssertionError(f"{batch.env_steps()} steps")
