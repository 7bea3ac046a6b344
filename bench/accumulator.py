"""How fast an actor gathers steps: `TrajectoryAccumulator.add` beside the bare assignments that it makes.

python -m bench.accumulator
"""

from __future__ import annotations

import json
import statistics
import time
from collections.abc import Callable
from typing import Any

import numpy as np

from headrace.trajectories import TrajectoryAccumulator

STEPS = 256
ROUNDS = 200


def run() -> list[dict[str, Any]]:
    """Returns one record a way of adding: the median rate, its range, and the ratio to the bare assignments."""
    step = {"obs": np.ones(8, np.float32), "reward": 1.5, "done": False}
    shapes = {"obs": ((STEPS, 8), np.float32), "reward": ((STEPS,), np.float32), "done": ((STEPS,), bool)}
    arrays = {name: np.zeros(shape, dtype) for name, (shape, dtype) in shapes.items()}
    flat = TrajectoryAccumulator({"step": arrays})
    nested = TrajectoryAccumulator(
        {"step": {"obs": {"pose": arrays["obs"]}, "rest": (arrays["reward"], arrays["done"])}}
    )
    nested_step = {"obs": {"pose": step["obs"]}, "rest": (step["reward"], step["done"])}

    def bare() -> None:
        obs, reward, done = arrays.values()
        for row in range(STEPS):
            obs[row] = step["obs"]
            reward[row] = step["reward"]
            done[row] = step["done"]

    def adding(acc: TrajectoryAccumulator, data: Any) -> Callable[[], None]:
        def add_all() -> None:
            for _ in range(STEPS):
                acc.add("step", data)
            acc.build(strict=True)

        return add_all

    ways = {
        "bare assignments": bare,
        "add, 3 leaves": adding(flat, step),
        "add, nested": adding(nested, nested_step),
    }
    rates: dict[str, list[float]] = {name: [] for name in ways}
    for _ in range(ROUNDS):
        for name, way in ways.items():
            start = time.perf_counter()
            way()
            rates[name].append(STEPS / (time.perf_counter() - start))
    limit = statistics.median(rates["bare assignments"])
    return [
        {
            "name": f"accumulator: {name}",
            "unit": "steps/s",
            "median": statistics.median(found),
            "min": min(found),
            "max": max(found),
            "ratio_to_limit": statistics.median(found) / limit,
        }
        for name, found in rates.items()
    ]


if __name__ == "__main__":
    for record in run():
        print(json.dumps(record))
