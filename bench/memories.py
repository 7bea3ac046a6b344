"""Memories beside those of skrl, in turn in one run: adding a row, and drawing batches.

`python -m bench.memories` prints the table. `limit` is the same work without a single check: plain writes into, or
gathers from, tensors of the same shapes.
"""

from __future__ import annotations

import json
import statistics
import time
from collections.abc import Callable
from typing import Any

import torch

import headrace as hr

try:
    from skrl.memories.torch import RandomMemory as SkrlMemory
except ImportError:
    SkrlMemory = None

SMALL = {"states": 4, "actions": 1, "rewards": 1, "next_states": 4, "terminated": 1}
FLAGS = ("terminated", "truncated")
ROUNDS, SECONDS = 15, 0.04


def run() -> list[dict[str, Any]]:
    """One row for each case: calls a second of ours, of the limit and of the peer, and their ratios."""
    threads = torch.get_num_threads()
    torch.set_num_threads(
        1
    )  # Threads that wait for each other on a busy machine would be all that is measured.
    try:
        rows = [_adding(1_000, 8), _adding(100_000, 8), _adding_views(1_000, 8)]
        rows += [_sampling("small", SMALL, 1_000, 8, least=25e3), _sampling("small", SMALL, 100_000, 8)]
        rows += [_sampling("rows of 4 KB", {"states": 1024}, 20_000, 1)]
        rows += [_sampling("rows of 28 KB", {"states": 84 * 84}, 8_000, 1)]
    finally:
        torch.set_num_threads(threads)
    return rows


def _memory(cls: Any, sizes: dict[str, int], memory_size: int, num_envs: int) -> Any:
    memory = cls(memory_size=memory_size, num_envs=num_envs, device="cpu")
    for name, size in sizes.items():
        memory.create_tensor(name=name, size=size, dtype=torch.bool if name in FLAGS else torch.float32)
    return memory


def _row(sizes: dict[str, int], num_envs: int) -> dict[str, torch.Tensor]:
    return {
        name: torch.zeros(num_envs, size, dtype=torch.bool) if name in FLAGS else torch.randn(num_envs, size)
        for name, size in sizes.items()
    }


def _adding(memory_size: int, num_envs: int) -> dict[str, Any]:
    row = _row(SMALL, num_envs)
    return _adding_case(f"memories/add {num_envs} of {memory_size} rows", row, memory_size, num_envs)


def _adding_views(memory_size: int, num_envs: int) -> dict[str, Any]:
    # What wrappers of environments give: a flat tensor seen as a column.
    row = {
        name: torch.cat([value, value]).view(2 * num_envs, -1)[:num_envs]
        for name, value in _row(SMALL, num_envs).items()
    }
    return _adding_case(f"memories/add views of {memory_size} rows", row, memory_size, num_envs)


def _adding_case(name: str, row: dict[str, torch.Tensor], memory_size: int, num_envs: int) -> dict[str, Any]:
    ours = _memory(hr.memories.RandomMemory, SMALL, memory_size, num_envs)
    peer = _memory(SkrlMemory, SMALL, memory_size, num_envs) if SkrlMemory else None
    storages = [
        (torch.zeros(memory_size, num_envs, SMALL[key], dtype=value.dtype), value)
        for key, value in row.items()
    ]

    def limit() -> None:
        for storage, value in storages:
            storage[0] = value

    return _case(
        name,
        lambda: ours.add_samples(**row),
        limit,
        None if peer is None else lambda: peer.add_samples(**row),
        least_ratio=1 / 1.3,
    )


def _sampling(
    what: str, sizes: dict[str, int], memory_size: int, num_envs: int, least: float | None = None
) -> dict[str, Any]:
    row, names = _row(sizes, num_envs), list(sizes)
    ours = _memory(hr.memories.RandomMemory, sizes, memory_size, num_envs)
    peer = _memory(SkrlMemory, sizes, memory_size, num_envs) if SkrlMemory else None
    for memory in (ours, peer) if peer is not None else (ours,):
        for name in names:
            memory.set_tensor_by_name(name, row[name][0].expand(memory_size, num_envs, -1))
        memory.filled = True
    views = [ours.get_tensor_by_name(name, keepdim=False) for name in names]

    def limit() -> None:
        rows = torch.randint(0, memory_size * num_envs, (256,))
        for view in views:
            view.index_select(0, rows)

    return _case(
        f"memories/sample 256, {what}, {memory_size} rows",
        lambda: ours.sample(names, 256),
        limit,
        None if peer is None else lambda: peer.sample(names, 256),
        least_ratio=1 / 1.1,
        least=least,
    )


def _case(
    name: str,
    ours: Callable[[], Any],
    limit: Callable[[], Any],
    peer: Callable[[], Any] | None,
    *,
    least_ratio: float,
    least: float | None = None,
) -> dict[str, Any]:
    sides = {"ours": ours, "limit": limit} | ({"peer": peer} if peer else {})
    counts = {side: _calls_in(work, SECONDS) for side, work in sides.items()}
    rates: dict[str, list[float]] = {side: [] for side in sides}
    for _ in range(ROUNDS):
        for side, work in sides.items():
            rates[side].append(_rate(work, counts[side]))
    middle = {side: statistics.median(values) for side, values in rates.items()}
    to_peer = [a / b for a, b in zip(rates["ours"], rates.get("peer", []), strict=False)]
    ratio = statistics.median(to_peer) if to_peer else None
    return {
        "name": name,
        "unit": "calls/s",
        "ours": middle["ours"],
        "limit": middle["limit"],
        "peer": middle.get("peer"),
        "peer_name": "skrl" if peer else None,
        "ratio": ratio,
        "of_limit": middle["ours"] / middle["limit"],
        "least_ratio": least_ratio,
        "least": least,
        "met": (ratio is None or ratio >= least_ratio) and (least is None or middle["ours"] >= least),
    }


def _calls_in(work: Callable[[], Any], seconds: float) -> int:
    work()
    count = 1
    while (rate := _rate(work, count)) * seconds > 4 * count:
        count *= 4
    return max(1, int(rate * seconds))


def _rate(work: Callable[[], Any], count: int) -> float:
    start = time.perf_counter()
    for _ in range(count):
        work()
    return count / (time.perf_counter() - start)


if __name__ == "__main__":
    for result in run():
        print(
            json.dumps(
                {key: round(value, 2) if isinstance(value, float) else value for key, value in result.items()}
            )
        )
