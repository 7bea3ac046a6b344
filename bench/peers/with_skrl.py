"""skrl: `RandomMemory`. It has no prioritized memory; frames and their successors are kept as whole stacks."""

from __future__ import annotations

from typing import Any

import torch
from skrl.memories.torch import RandomMemory

from bench.measure import Run
from bench.peers.streams import MOST_STACKS, Columns, transition, transitions
from bench.steps import BATCH, LANES

_SIZES = {
    "observation": (4, torch.float32),
    "next_observation": (4, torch.float32),
    "action": (1, torch.int64),
    "reward": (1, torch.float32),
    "terminated": (1, torch.bool),
    "truncated": (1, torch.bool),
}


def _memory(size: int, lanes: int) -> Any:
    memory = RandomMemory(memory_size=size // lanes, num_envs=lanes, device="cpu")
    for name, (width, dtype) in _SIZES.items():
        memory.create_tensor(name=name, size=width, dtype=dtype)
    return memory


def _tensors(step: Columns, lanes: int) -> dict[str, torch.Tensor]:
    return {name: torch.from_numpy(value).view(lanes, -1) for name, value in step.items()}


def _appends(size: int, lanes: int) -> Run:
    memory, step = _memory(size, lanes), _tensors(transition(3, lanes), lanes)

    def run(count: int) -> None:
        for _ in range(count):
            memory.add_samples(**step)

    return run


def _samples(memory: Any, names: list[str], batch_size: int, length: int) -> Run:
    def run(count: int) -> Any:
        batch = None
        for _ in range(count):
            batch = memory.sample(names, batch_size, sequence_length=length)
        return batch

    return run


def _small(size: int, batch_size: int, length: int) -> Run:
    memory = _memory(size, LANES)
    for step in transitions(size):
        memory.add_samples(**_tensors(step, LANES))
    return _samples(memory, list(_SIZES), batch_size, length)


def _frames(size: int) -> Run:
    rows = min(size, MOST_STACKS)
    memory = RandomMemory(memory_size=rows, num_envs=1, device="cpu")
    names = ["observation", "next_observation"]
    for name in names:
        memory.create_tensor(name=name, size=4 * 84 * 84, dtype=torch.uint8)
    stack = torch.zeros((1, 4 * 84 * 84), dtype=torch.uint8)
    for _ in range(rows):
        memory.add_samples(observation=stack, next_observation=stack)
    return _samples(memory, names, BATCH, 1)


WORK = {
    "append_one": lambda size: _appends(size, 1),
    "append_64": lambda size: _appends(size, LANES),
    "uniform": lambda size: _small(size, BATCH, 1),
    "sequences": lambda size: _small(size, 32, 64),
    "frames": _frames,
}
