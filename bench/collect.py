"""Collection of CartPole-v1 against a bare loop over the same eight environments."""

from __future__ import annotations

import time
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import gymnasium
import numpy as np

import headrace as hr
from bench.case import Case, contest_case
from bench.measure import Contest, Goal, Plan, Run
from bench.noise import Frames, policy_on_stacks

ENVIRONMENTS = 8
STEPS = 128
POOL_ENVIRONMENTS = 64
_FRAME_STEPS = 50
_FRAMES = ENVIRONMENTS * STEPS
# Rollouts that a worker may have finished while others had their turn: they are taken before the clock starts.
_AHEAD = 3
_REST = 0.2


def cases() -> list[Case]:
    return [
        contest_case("collect/inline", _inline, Goal(ratio=0.85)),
        contest_case("collect/asynchronous, 1 worker", _asynchronous, Goal(ratio=0.85)),
        contest_case("collect/EnvPool", _pool, Goal(ratio=0.85)),
        contest_case("collect/4 frames", _frames, Goal(ratio=1 / 1.15)),
    ]


@contextmanager
def _inline(_: Plan) -> Iterator[Contest]:
    with hr.Collector("CartPole-v1", num_envs=ENVIRONMENTS, frames_per_batch=_FRAMES, seed=0) as collector:
        with _bare_loop() as limit:
            yield _contest(collector, limit, ahead=0)


@contextmanager
def _asynchronous(_: Plan) -> Iterator[Contest]:
    with hr.AsyncCollector(
        "CartPole-v1", num_envs=ENVIRONMENTS, frames_per_batch=_FRAMES, seed=0
    ) as collector:
        with _bare_loop() as limit:
            yield _contest(collector, limit, ahead=_AHEAD)


@contextmanager
def _pool(_: Plan) -> Iterator[Contest]:
    """EnvPool inline, random actions; the limit steps another pool with ready actions."""
    import envpool

    def make() -> Any:
        pool = envpool.make("CartPole-v1", env_type="gymnasium", num_envs=POOL_ENVIRONMENTS, seed=0)
        with warnings.catch_warnings(action="ignore"):
            assert pool.observation_space.shape == (
                4,
            )  # Its bounds of float64 are a warning when it is first read.
        return pool

    bare = make()
    bare.reset()
    actions = np.random.default_rng(0).integers(0, 2, (STEPS, POOL_ENVIRONMENTS))
    size = POOL_ENVIRONMENTS * STEPS

    def run(count: int) -> None:
        for _ in range(count):
            for action in actions:
                bare.step(action)

    with hr.Collector(make, frames_per_batch=size) as collector:
        yield Contest(
            ours=lambda count: _batches(collector, count),
            limit=run,
            limit_name=f"bare EnvPool({POOL_ENVIRONMENTS}).step",
            verify=_check_pool,
            per_call=size,
            unit="frames/s",
        )


@contextmanager
def _frames(_: Plan) -> Iterator[Contest]:
    """A policy on stacks of four frames: as a view while acting, against environments that show ready stacks."""
    policy = policy_on_stacks()
    views = {"observation": hr.View("observation", shift="-3:0", fill="edge", used_for_training=False)}
    size = ENVIRONMENTS * _FRAME_STEPS
    with (
        hr.Collector(
            lambda: Frames(1), policy, num_envs=ENVIRONMENTS, frames_per_batch=size, views=views
        ) as ours,
        hr.Collector(lambda: Frames(4), policy, num_envs=ENVIRONMENTS, frames_per_batch=size) as ready,
    ):
        yield Contest(
            ours=lambda count: _batches(ours, count),
            limit=lambda count: _batches(ready, count),
            limit_name="the same collector, with environments that show ready stacks",
            per_call=size,
            unit="frames/s",
        )


def _batches(collector: Any, count: int) -> Any:
    batch = None
    for _ in range(count):
        batch = collector.next()
    return batch


def _contest(collector: Any, limit: Run, *, ahead: int) -> Contest:
    return Contest(
        ours=lambda count: _batches(collector, count),
        limit=limit,
        before=lambda: _batches(collector, ahead),
        limit_name="bare SyncVectorEnv(8).step",
        verify=_check if not ahead else _check_and_let_rest,
        per_call=_FRAMES,
        unit="frames/s",
    )


@contextmanager
def _bare_loop() -> Iterator[Run]:
    env = gymnasium.vector.SyncVectorEnv([lambda: gymnasium.make("CartPole-v1")] * ENVIRONMENTS)
    env.reset(seed=0)
    env.action_space.seed(0)
    actions = [env.action_space.sample() for _ in range(STEPS)]

    def run(count: int) -> None:
        for _ in range(count):
            for action in actions:
                env.step(action)

    try:
        yield run
    finally:
        env.close()


def _check_and_let_rest(batch: Any) -> None:
    _check(batch)
    # The worker fills its rollouts ahead and then waits: the bare loop's turn is to be its own.
    time.sleep(_REST)


def _check_pool(batch: Any) -> None:
    """As `_check`; a masked row follows each end (collectors CE4)."""
    ends = batch["terminated"] | batch["truncated"]
    if batch.shape != (POOL_ENVIRONMENTS, STEPS) or not np.array_equal(~batch["mask"][:, 1:], ends[:, :-1]):
        raise AssertionError(f"shape {batch.shape}, {batch.frames} frames, {ends.sum()} ends")


def _check(batch: Any) -> None:
    """Whole batches whose next observations are the observations one step on (collectors CB4, CB7)."""
    if batch.shape != (ENVIRONMENTS, STEPS) or batch.frames != _FRAMES:
        raise AssertionError(f"shape {batch.shape}, {batch.frames} frames")
    same = batch["episode_id"][:, 1:] == batch["episode_id"][:, :-1]
    if not np.array_equal(batch["next_observation"][:, :-1][same], batch["observation"][:, 1:][same]):
        raise AssertionError("next observations are not the observations one step on")
