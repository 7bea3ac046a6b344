"""Collection of CartPole-v1 against a bare loop over the same eight environments."""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import gymnasium
import numpy as np

import headrace as hr
from bench.bare_loops import ENVIRONMENTS, STEPS, bare_loop, make_network, make_network_policy, two_bare_loops
from bench.case import Case, contest_case
from bench.measure import Contest, Goal, Plan, Run
from bench.noise import Frames, policy_on_stacks

POOL_ENVIRONMENTS = 64
# Environments of the asynchronous pool that are given at a time.
_READY = 32
_FRAME_STEPS = 50
_LARGE_FRAME = (84, 84, 4)
_COPIES = 8
_FRAMES = ENVIRONMENTS * STEPS
# Rollouts that a worker may have finished while others had their turn: they are taken before the clock starts.
_AHEAD = 3
_REST = 0.2


def cases() -> list[Case]:
    return [
        contest_case("collect/inline", _inline, Goal(ratio=0.95)),
        contest_case("collect/asynchronous, 1 worker", _asynchronous, Goal(ratio=0.85)),
        contest_case("collect/asynchronous, 2x64", _network, Goal(ratio=0.9)),
        contest_case("collect/asynchronous, 2 workers", _two_asynchronous, Goal(ratio=0.9)),
        contest_case("collect/asynchronous, 2 workers, 2x64", _two_networks, Goal(ratio=0.9)),
        contest_case("collect/synchronous, 2 workers, 2x64", _two_synchronous, Goal(ratio=0.85)),
        contest_case("collect/asynchronous, 84x84x4", _large, Goal(ratio=0.7)),
        contest_case("collect/EnvPool", _pool, Goal(ratio=0.85)),
        contest_case("collect/EnvPool, asynchronous", _async_pool, Goal(ratio=0.85)),
        contest_case("collect/4 frames", _frames, Goal(ratio=1 / 1.15)),
    ]


@contextmanager
def _inline(_: Plan) -> Iterator[Contest]:
    with hr.Collector("CartPole-v1", num_envs=ENVIRONMENTS, frames_per_batch=_FRAMES, seed=0) as collector:
        with bare_loop() as limit:
            yield _contest(collector, limit, ahead=0)


@contextmanager
def _asynchronous(_: Plan) -> Iterator[Contest]:
    with hr.AsyncCollector(
        "CartPole-v1", num_envs=ENVIRONMENTS, frames_per_batch=_FRAMES, seed=0
    ) as collector:
        with bare_loop() as limit:
            yield _contest(collector, limit, ahead=_AHEAD)


@contextmanager
def _network(_: Plan) -> Iterator[Contest]:
    """A torch policy of 2x64 units, in the worker and in the bare loop."""
    with (
        hr.AsyncCollector(
            "CartPole-v1",
            policy_factory=make_network,
            num_envs=ENVIRONMENTS,
            frames_per_batch=_FRAMES,
            seed=0,
        ) as collector,
        bare_loop(make_network_policy()) as limit,
    ):
        yield _contest(collector, limit, ahead=_AHEAD)


@contextmanager
def _two_asynchronous(_: Plan) -> Iterator[Contest]:
    """Two workers, each against a bare loop of its own."""
    with (
        hr.MultiCollector(
            "CartPole-v1",
            sync=False,
            num_workers=2,
            num_envs=ENVIRONMENTS,
            frames_per_batch=_FRAMES,
            seed=0,
        ) as collector,
        two_bare_loops() as limit,
    ):
        contest = _contest(collector, limit, ahead=2 * _AHEAD)
        contest.limit_name = "two bare loops at once"
        yield contest


@contextmanager
def _two_networks(_: Plan) -> Iterator[Contest]:
    """Two workers with a torch policy each, against two such bare loops."""
    with (
        hr.MultiCollector(
            "CartPole-v1",
            sync=False,
            num_workers=2,
            policy_factory=make_network,
            num_envs=ENVIRONMENTS,
            frames_per_batch=_FRAMES,
            seed=0,
        ) as collector,
        two_bare_loops(make_network_policy) as limit,
    ):
        contest = _contest(collector, limit, ahead=2 * _AHEAD)
        contest.limit_name = "two bare loops at once with the policy"
        yield contest


@contextmanager
def _two_synchronous(_: Plan) -> Iterator[Contest]:
    """Two workers with a torch policy each; a batch has a rollout of both."""
    with (
        hr.MultiCollector(
            "CartPole-v1",
            sync=True,
            num_workers=2,
            policy_factory=make_network,
            num_envs=ENVIRONMENTS,
            frames_per_batch=2 * _FRAMES,
            seed=0,
        ) as collector,
        two_bare_loops(make_network_policy) as limit,
    ):
        yield Contest(
            ours=lambda count: _batches(collector, count),
            limit=lambda count: limit(2 * count),
            limit_name="two bare loops at once with the policy",
            verify=lambda batch: _check(batch, 2 * ENVIRONMENTS),
            per_call=2 * _FRAMES,
            unit="frames/s",
        )


@contextmanager
def _large(_: Plan) -> Iterator[Contest]:
    """Frames of 28 KB of an environment that costs nothing, against a copy of as many."""
    size = ENVIRONMENTS * _FRAME_STEPS
    frames = np.ones((_FRAME_STEPS, ENVIRONMENTS, *_LARGE_FRAME), np.uint8)
    # More than the caches hold, as the batches that a learner takes one after another.
    copies = np.zeros((_COPIES, *frames.shape), np.uint8)

    def copy(count: int) -> None:
        for number in range(count):
            np.copyto(copies[number % _COPIES], frames)

    with hr.AsyncCollector(_LargeFrames, num_envs=ENVIRONMENTS, frames_per_batch=size, seed=0) as collector:
        yield Contest(
            ours=lambda count: _batches(collector, count),
            limit=copy,
            before=lambda: _batches(collector, _AHEAD),
            limit_name="np.copyto of the frames",
            verify=_check_large,
            per_call=size,
            unit="frames/s",
        )


class _LargeFrames(gymnasium.Env[Any, Any]):
    """Shows one frame of noise after another; an episode has 1000 steps."""

    observation_space = gymnasium.spaces.Box(0, 255, _LARGE_FRAME, np.uint8)
    action_space = gymnasium.spaces.Discrete(4)

    def __init__(self) -> None:
        self._noise = np.random.default_rng(0).integers(0, 256, (16, *_LARGE_FRAME), np.uint8)
        self._noise[:, 0, 0, 0] = np.arange(16)
        self._t = 0

    def reset(self, **_: Any) -> Any:
        self._t = 0
        return self._noise[0], {}

    def step(self, _: Any) -> Any:
        self._t += 1
        return self._noise[self._t % 16], 0.0, False, self._t == 1000, {}


def _check_large(batch: Any) -> None:
    """The frames are those of the steps, and the next ones follow them."""
    found = batch["observation"][..., 0, 0, 0], batch["next_observation"][..., 0, 0, 0]
    if not all(np.array_equal(each, (batch["t"] + k) % 16) for k, each in enumerate(found)):
        raise AssertionError("frames are not those of their steps")
    time.sleep(_REST)


@contextmanager
def _pool(_: Plan) -> Iterator[Contest]:
    """EnvPool inline, random actions; the limit steps another pool with ready actions."""
    make = _pool_factory()
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
def _async_pool(_: Plan) -> Iterator[Contest]:
    """EnvPool that gives half of its environments at a time, random actions; the limit sends ready actions."""
    make = _pool_factory(batch_size=_READY)
    bare = make()
    bare.async_reset()
    actions = np.random.default_rng(0).integers(0, 2, (2 * STEPS, _READY))
    size = POOL_ENVIRONMENTS * STEPS

    def run(count: int) -> None:
        for _ in range(count):
            for action in actions:
                bare.send(action, bare.recv()[-1]["env_id"])

    with hr.Collector(make, frames_per_batch=size) as collector:
        yield Contest(
            ours=lambda count: _batches(collector, count),
            limit=run,
            limit_name=f"bare EnvPool({POOL_ENVIRONMENTS}).recv and send of {_READY}",
            verify=_check_pool,
            per_call=size,
            unit="frames/s",
        )


def _pool_factory(**options: Any) -> Callable[[], Any]:
    import envpool

    def make() -> Any:
        pool = envpool.make(
            "CartPole-v1", env_type="gymnasium", num_envs=POOL_ENVIRONMENTS, seed=0, **options
        )
        with warnings.catch_warnings(action="ignore"):
            # Its bounds of float64 are a warning when the space is first read.
            assert pool.observation_space.shape == (4,)
        return pool

    return make


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


def _check_and_let_rest(batch: Any) -> None:
    _check(batch)
    # The worker fills its rollouts ahead and then waits: the bare loop's turn is to be its own.
    time.sleep(_REST)


def _check_pool(batch: Any) -> None:
    """As `_check`; a masked row follows each end (collectors CE4)."""
    ends = batch["terminated"] | batch["truncated"]
    if batch.shape != (POOL_ENVIRONMENTS, STEPS) or not np.array_equal(~batch["mask"][:, 1:], ends[:, :-1]):
        raise AssertionError(f"shape {batch.shape}, {batch.frames} frames, {ends.sum()} ends")


def _check(batch: Any, environments: int = ENVIRONMENTS) -> None:
    """Whole batches whose next observations are the observations one step on (collectors CB4, CB7)."""
    if batch.shape != (environments, STEPS) or batch.frames != environments * STEPS:
        raise AssertionError(f"shape {batch.shape}, {batch.frames} frames")
    same = batch["episode_id"][:, 1:] == batch["episode_id"][:, :-1]
    if not np.array_equal(batch["next_observation"][:, :-1][same], batch["observation"][:, 1:][same]):
        raise AssertionError("next observations are not the observations one step on")
