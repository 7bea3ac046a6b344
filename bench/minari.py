"""How fast small steps go into a Minari dataset, beside Minari's own collector and its writer of whole episodes.

Minari's sides are left out where it is not installed. The environment of its collector does nothing but count. Of JAX
the collector needs one function; optree, which is faster, stands in for it where JAX is not installed.

python -m bench.minari
"""

from __future__ import annotations

import contextlib
import importlib.util
import io
import json
import os
import statistics
import sys
import tempfile
import time
import types
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import optree

import headrace as hr

EPISODE, FLOATS = 200, 4
TOTAL = 1_000_000
# The collector takes a minute for a million steps, and the same time for each.
COLLECTED = 20_000
ROUNDS = 3


def run(total: int = TOTAL, collected: int = COLLECTED, rounds: int = ROUNDS) -> list[dict[str, Any]]:
    """Returns one record for each way of writing: the median rate, its range, and how many times faster ours is.

    Args:
        total: steps of one export.
        collected: steps of one turn of Minari's sides.
        rounds: turns of each side.
    """
    with tempfile.TemporaryDirectory(dir=Path.cwd()) as folder, _root(folder), _tree_map():
        ways: dict[str, tuple[int, Callable[[], None]]] = {"ours": (total, lambda: _export(folder, total))}
        if importlib.util.find_spec("minari") is not None:
            ways["Minari, whole episodes"] = (collected, lambda: _buffers(collected))
            ways["Minari, its collector"] = (collected, lambda: _collect(collected))
        rates: dict[str, list[float]] = {name: [] for name in ways}
        for _ in range(rounds):
            for name, (steps, way) in ways.items():
                rates[name].append(_rate(steps, way))
    ours = statistics.median(rates["ours"])
    return [
        {
            "name": f"minari: {name}",
            "unit": "steps/s",
            "median": statistics.median(found),
            "min": min(found),
            "max": max(found),
            "ours_to_this": ours / statistics.median(found),
        }
        for name, found in rates.items()
    ]


def _rate(steps: int, way: Callable[[], None]) -> float:
    begin = time.perf_counter()
    way()
    return steps / (time.perf_counter() - begin)


@contextlib.contextmanager
def _root(folder: str) -> Iterator[None]:
    before = os.environ.get("MINARI_DATASETS_PATH")
    os.environ["MINARI_DATASETS_PATH"] = folder
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # Minari warns of all metadata that is not given.
            yield
    finally:
        os.environ.pop("MINARI_DATASETS_PATH")
        if before is not None:
            os.environ["MINARI_DATASETS_PATH"] = before


@contextlib.contextmanager
def _tree_map() -> Iterator[None]:
    """`jax.tree_util.tree_map`, which is all that the collector imports, where JAX is not installed."""
    if importlib.util.find_spec("jax") is not None:
        yield
        return
    jax, tree_util = types.ModuleType("jax"), types.ModuleType("jax.tree_util")
    tree_util.__dict__["tree_map"] = optree.tree_map
    jax.__dict__["tree_util"] = tree_util
    sys.modules.update({"jax": jax, "jax.tree_util": tree_util})
    try:
        yield
    finally:
        del sys.modules["jax"], sys.modules["jax.tree_util"]


def _episodes(total: int) -> Iterator[hr.Episode]:
    ends = np.arange(EPISODE) == EPISODE - 1
    for number in range(total // EPISODE):
        steps = np.arange(number * EPISODE, (number + 1) * EPISODE + 1, dtype=np.float32)
        observations = np.repeat(steps[:, None], FLOATS, axis=1)
        yield hr.Episode(
            observations, np.arange(EPISODE) % 2, np.ones(EPISODE), ends, np.zeros(EPISODE, bool)
        )


def _export(folder: str, total: int) -> None:
    path = hr.datasets.save_minari(_episodes(total), "ours-v0", root=folder, overwrite=True)
    with hr.datasets.load_minari(path) as dataset:
        last = dataset[-1].observations[-1, 0]
        if dataset.total_steps != total or last != np.float32(total):
            raise AssertionError(f"expected {total} steps, got {dataset.total_steps}, the last {last}")


class _Counting(gymnasium.Env[Any, Any]):
    observation_space = gymnasium.spaces.Box(-np.inf, np.inf, (FLOATS,))
    action_space = gymnasium.spaces.Discrete(2)

    def reset(
        self,
        *,
        seed: int | None = None,  # noqa: ARG002 - gymnasium's interface
        options: dict[str, Any] | None = None,  # noqa: ARG002
    ) -> tuple[Any, dict[str, Any]]:
        self.steps = 0
        return np.zeros(FLOATS, np.float32), {}

    def step(self, _: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        self.steps += 1
        return np.full(FLOATS, self.steps, np.float32), 1.0, self.steps == EPISODE, False, {}


def _collect(total: int) -> None:
    import minari

    env = minari.DataCollector(_Counting())
    for _ in range(total // EPISODE):
        env.reset()
        for step in range(EPISODE):
            env.step(step % 2)
    env.create_dataset("collected-v0")
    _delete("collected-v0")


def _buffers(total: int) -> None:
    import minari
    from minari.data_collector.episode_buffer import EpisodeBuffer

    parts = ("observations", "actions", "rewards", "terminations", "truncations")
    buffers = [
        EpisodeBuffer(infos={}, **{part: getattr(each, part) for part in parts}) for each in _episodes(total)
    ]
    spaces = {"observation_space": _Counting.observation_space, "action_space": _Counting.action_space}
    minari.create_dataset_from_buffers("buffers-v0", buffers, **spaces)
    _delete("buffers-v0")


def _delete(dataset: str) -> None:
    import minari

    with contextlib.redirect_stdout(io.StringIO()):  # It says so.
        minari.delete_dataset(dataset)


if __name__ == "__main__":
    for record in run():
        print(json.dumps(record))
