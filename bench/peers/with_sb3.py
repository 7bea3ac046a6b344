"""Stable-Baselines3: `ReplayBuffer`. It has no prioritized buffer and no sequences."""

from __future__ import annotations

from typing import Any

import numpy as np
from gymnasium import spaces
from stable_baselines3.common.buffers import ReplayBuffer

from bench.measure import Run
from bench.peers.streams import Columns, stack, transition, transitions
from bench.steps import BATCH, LANES

_SMALL = spaces.Box(-np.inf, np.inf, (4,), np.float32), spaces.Discrete(LANES)


def _add(buffer: ReplayBuffer, step: Columns, infos: list[dict[str, Any]]) -> None:
    buffer.add(
        step["observation"],
        step["next_observation"],
        step["action"],
        step["reward"],
        step["terminated"],
        infos,
    )


def _appends(size: int, lanes: int) -> Run:
    buffer = ReplayBuffer(size, *_SMALL, device="cpu", n_envs=lanes)
    step, infos = transition(3, lanes), [{} for _ in range(lanes)]

    def run(count: int) -> None:
        for _ in range(count):
            _add(buffer, step, infos)

    return run


def _samples(buffer: ReplayBuffer) -> Run:
    def run(count: int) -> Any:
        batch = None
        for _ in range(count):
            batch = buffer.sample(BATCH)
        return batch

    return run


def _uniform(size: int) -> Run:
    buffer = ReplayBuffer(size, *_SMALL, device="cpu", n_envs=LANES)
    infos: list[dict[str, Any]] = [{} for _ in range(LANES)]
    for step in transitions(size):
        _add(buffer, step, infos)
    return _samples(buffer)


def _frames(size: int) -> Run:
    buffer = ReplayBuffer(
        size,
        spaces.Box(0, 255, (4, 84, 84), np.uint8),
        spaces.Discrete(4),
        device="cpu",
        optimize_memory_usage=True,
        handle_timeout_termination=False,
    )
    number = np.zeros(1)
    for index in range(size):
        buffer.add(stack(index)[None], stack(index + 1)[None], number, number, number, [{}])
    return _samples(buffer)


WORK = {
    "append_one": lambda size: _appends(size, 1),
    "append_64": lambda size: _appends(size, LANES),
    "uniform": _uniform,
    "frames": _frames,
}
