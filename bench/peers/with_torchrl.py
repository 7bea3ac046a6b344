"""TorchRL: `TensorDictReplayBuffer` over `LazyTensorStorage`, `SliceSampler` for sequences."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from typing import Any

import torch
from tensordict import TensorDict
from torchrl.data import (
    LazyTensorStorage,
    SliceSampler,
    TensorDictPrioritizedReplayBuffer,
    TensorDictReplayBuffer,
)

from bench.measure import Run
from bench.peers.streams import MOST_STACKS, Columns, many_transitions, transition
from bench.steps import BATCH, EPISODE


def _tensors(columns: Columns) -> TensorDict:
    rows = len(columns["reward"])
    return TensorDict({name: torch.from_numpy(value) for name, value in columns.items()}, [rows])


def _buffer(size: int) -> Any:
    return TensorDictReplayBuffer(storage=LazyTensorStorage(size), batch_size=BATCH)


def _prioritized_buffer(size: int, exponent: float = 0.6) -> Any:
    return TensorDictPrioritizedReplayBuffer(
        alpha=exponent, beta=0.4, storage=LazyTensorStorage(size), batch_size=BATCH
    )


def _append_one(size: int) -> Run:
    buffer, step = _buffer(size), _tensors(transition(3, 1))[0]

    def run(count: int) -> None:
        for _ in range(count):
            buffer.add(step)

    return run


def _append_lanes(buffer: Any) -> Run:
    step = _tensors(transition(3))

    def run(count: int) -> None:
        for _ in range(count):
            buffer.extend(step)

    return run


def _samples(buffer: Any, rows: TensorDict) -> Run:
    buffer.extend(rows)

    def run(count: int) -> Any:
        batch = None
        for _ in range(count):
            batch = buffer.sample()
        return batch

    return run


def _prioritized(size: int, exponent: float) -> Run:
    buffer = _prioritized_buffer(size, exponent)
    buffer.extend(_tensors(many_transitions(size)))
    priorities = torch.rand(BATCH) + 0.01

    def run(count: int) -> Any:
        batch = None
        for _ in range(count):
            batch = buffer.sample()
            buffer.update_priority(batch["index"], priorities)
        return batch

    return run


def _frames(size: int) -> Run:
    rows = min(size, MOST_STACKS)
    stacks = torch.zeros((rows, 4, 84, 84), dtype=torch.uint8)
    columns = {"observation": stacks, "next_observation": stacks, "reward": torch.zeros(rows)}
    return _samples(_buffer(rows), TensorDict(columns, [rows]))


def _sequences(size: int) -> Run:
    buffer = TensorDictReplayBuffer(
        storage=LazyTensorStorage(size),
        sampler=SliceSampler(slice_len=64, traj_key="episode", cache_values=True),
        batch_size=32 * 64,
    )
    columns = _tensors(many_transitions(size))
    columns["episode"] = torch.arange(size) // EPISODE
    return _samples(buffer, columns)


def _has_sum_trees() -> bool:
    """Its sum trees are compiled, and are missing or cannot be loaded where the wheel was built for another torch."""
    try:
        return hasattr(importlib.import_module("torchrl._torchrl"), "SumSegmentTreeFp32")
    except ImportError:
        return False


WORK: dict[str, Callable[..., Run]] = {
    "append_one": _append_one,
    "append_64": lambda size: _append_lanes(_buffer(size)),
    "uniform": lambda size: _samples(_buffer(size), _tensors(many_transitions(size))),
    "frames": _frames,
    "sequences": _sequences,
}
if _has_sum_trees():
    WORK["append_64_prioritized"] = lambda size: _append_lanes(_prioritized_buffer(size))
    WORK["prioritized"] = _prioritized
