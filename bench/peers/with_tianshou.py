"""Tianshou: `VectorReplayBuffer` and `PrioritizedVectorReplayBuffer`; frames are stacked from single ones."""

from __future__ import annotations

from typing import Any

import numpy as np
from tianshou.data import Batch, PrioritizedVectorReplayBuffer, ReplayBuffer, VectorReplayBuffer

from bench.measure import Run
from bench.peers.streams import Columns, stack, transition, transitions
from bench.steps import BATCH, LANES


def _batch(step: Columns) -> Batch:
    return Batch(
        obs=step["observation"],
        act=step["action"],
        rew=step["reward"],
        terminated=step["terminated"],
        truncated=step["truncated"],
        obs_next=step["next_observation"],
        info=Batch(),
    )


def _appends(buffer: Any, lanes: int) -> Run:
    batch = _batch(transition(3, lanes))

    def run(count: int) -> None:
        for _ in range(count):
            buffer.add(batch)

    return run


def _filled(buffer: Any, size: int) -> Any:
    for step in transitions(size):
        buffer.add(_batch(step))
    return buffer


def _samples(buffer: Any) -> Run:
    def run(count: int) -> Any:
        batch = None
        for _ in range(count):
            batch = buffer.sample(BATCH)
        return batch

    return run


def _prioritized(size: int, exponent: float) -> Run:
    buffer = _filled(PrioritizedVectorReplayBuffer(size, LANES, alpha=exponent, beta=0.4), size)
    priorities = np.random.default_rng(1).random(BATCH) + 0.01

    def run(count: int) -> Any:
        batch = None
        for _ in range(count):
            batch, places = buffer.sample(BATCH)
            buffer.update_weight(places, priorities)
        return batch

    return run


def _frames(size: int) -> Run:
    buffer = ReplayBuffer(size, stack_num=4, ignore_obs_next=True, save_only_last_obs=True)
    step = Batch(obs=stack(0), act=0, rew=0.0, terminated=False, truncated=False, info=Batch())
    for index in range(size):
        step.terminated = index % 1000 == 999
        buffer.add(step)
    return _samples(buffer)


WORK = {
    "append_one": lambda size: _appends(VectorReplayBuffer(size, 1), 1),
    "append_64": lambda size: _appends(VectorReplayBuffer(size, LANES), LANES),
    "append_64_prioritized": lambda size: _appends(
        PrioritizedVectorReplayBuffer(size, LANES, alpha=0.6, beta=0.4), LANES
    ),
    "uniform": lambda size: _samples(_filled(VectorReplayBuffer(size, LANES), size)),
    "prioritized": _prioritized,
    "frames": _frames,
}
