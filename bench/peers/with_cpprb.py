"""cpprb: `ReplayBuffer` and `PrioritizedReplayBuffer`. It has no sequences."""

from __future__ import annotations

from typing import Any

import numpy as np
from cpprb import PrioritizedReplayBuffer, ReplayBuffer

from bench.measure import Run
from bench.peers.streams import many_transitions, transition
from bench.steps import BATCH, LANES

_SMALL = {
    "observation": {"shape": 4, "dtype": np.float32},
    "action": {"dtype": np.int64},
    "reward": {"dtype": np.float32},
    "terminated": {"dtype": np.bool_},
    "truncated": {"dtype": np.bool_},
}


def _buffer(size: int) -> Any:
    return ReplayBuffer(size, {**_SMALL, "next_observation": _SMALL["observation"]})


def _prioritized_buffer(size: int, exponent: float = 0.6) -> Any:
    return PrioritizedReplayBuffer(
        size, {**_SMALL, "next_observation": _SMALL["observation"]}, alpha=exponent
    )


def _appends(buffer: Any, lanes: int) -> Run:
    step = transition(3, lanes)

    def run(count: int) -> None:
        for _ in range(count):
            buffer.add(**step)

    return run


def _uniform(size: int) -> Run:
    buffer = _buffer(size)
    buffer.add(**many_transitions(size))

    def run(count: int) -> Any:
        batch = None
        for _ in range(count):
            batch = buffer.sample(BATCH)
        return batch

    return run


def _prioritized(size: int, exponent: float) -> Run:
    buffer = _prioritized_buffer(size, exponent)
    buffer.add(**many_transitions(size))
    priorities = np.random.default_rng(1).random(BATCH) + 0.01

    def run(count: int) -> Any:
        batch = None
        for _ in range(count):
            batch = buffer.sample(BATCH)
            buffer.update_priorities(batch["indexes"], priorities)
        return batch

    return run


def _frames(size: int) -> Run:
    buffer = ReplayBuffer(
        size,
        {
            "observation": {"shape": (84, 84, 4), "dtype": np.uint8},
            "action": {},
            "reward": {},
            "terminated": {},
        },
        next_of="observation",
        stack_compress="observation",
    )
    stack = np.zeros((84, 84, 4), np.uint8)
    for index in range(size):
        buffer.add(
            observation=stack,
            next_observation=stack,
            action=index,
            reward=0.0,
            terminated=index % 1000 == 999,
        )
        if index % 1000 == 999:
            buffer.on_episode_end()

    def run(count: int) -> Any:
        batch = None
        for _ in range(count):
            batch = buffer.sample(BATCH)
        return batch

    return run


WORK = {
    "append_one": lambda size: _appends(_buffer(size), 1),
    "append_64": lambda size: _appends(_buffer(size), LANES),
    "append_64_prioritized": lambda size: _appends(_prioritized_buffer(size), LANES),
    "uniform": _uniform,
    "prioritized": _prioritized,
    "frames": _frames,
}
