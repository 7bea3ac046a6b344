"""How fast episodes go to files and come back: each format beside bare arrays of the same bytes.

python -m bench.datasets
"""

from __future__ import annotations

import json
import os
import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

import headrace as hr

EPISODES, STEPS, FLOATS = 1000, 200, 17
ROUNDS = 3


def run() -> list[dict[str, Any]]:
    """Returns one record for each way of writing or reading: the median rate, its range, the ratio to bare arrays."""
    episodes = [_episode(seed) for seed in range(EPISODES)]
    arrays = {
        name: np.concatenate([getattr(each, name) for each in episodes])
        for name in ("observations", "actions", "rewards", "terminations", "truncations")
    }
    with tempfile.TemporaryDirectory(dir=Path.cwd()) as folder:
        return [
            *_beside(
                "written", _writes(Path(folder), episodes), lambda: _save_arrays(Path(folder, "bare"), arrays)
            ),
            *_beside("read", _reads(Path(folder)), lambda: _load_arrays(Path(folder, "bare"))),
        ]


def _episode(seed: int) -> hr.Episode:
    random = np.random.default_rng(seed)
    end = np.arange(STEPS) == STEPS - 1
    return hr.Episode(
        random.normal(size=(STEPS + 1, FLOATS)),
        random.normal(size=(STEPS, 6)),
        random.normal(size=STEPS),
        end & False,
        end,
    )


def _writes(folder: Path, episodes: list[hr.Episode]) -> dict[str, Callable[[], Any]]:
    return {
        "npz": lambda: hr.datasets.save_npz(episodes, folder / "x", compressed=False, overwrite=True),
        "npz, compressed": lambda: hr.datasets.save_npz(episodes, folder / "c", overwrite=True),
        "Parquet": lambda: hr.datasets.save_parquet(episodes, folder / "x.parquet", overwrite=True),
        "Minari": lambda: hr.datasets.save_minari(episodes, "x-v0", root=folder, overwrite=True),
    }


def _reads(folder: Path) -> dict[str, Callable[[], Any]]:
    return {
        "npz": lambda: _read_all(hr.datasets.load_npz(folder / "x")),
        "npz, compressed": lambda: _read_all(hr.datasets.load_npz(folder / "c")),
        "Parquet": lambda: _read_all(hr.datasets.load_parquet(folder / "x.parquet")),
        "Minari": lambda: _read_all(hr.datasets.load_minari("x-v0", root=folder)),
    }


def _read_all(dataset: hr.datasets.EpisodeDataset) -> None:
    with dataset:
        steps = sum(map(len, dataset))
    if steps != EPISODES * STEPS:
        raise AssertionError(f"expected {EPISODES * STEPS} steps, got {steps}")


def _save_arrays(path: Path, arrays: dict[str, Any]) -> None:
    with path.open("wb") as file:
        for array in arrays.values():
            np.save(file, array)
        os.fsync(file.fileno())


def _load_arrays(path: Path) -> None:
    with path.open("rb") as file:
        for _ in range(5):
            np.load(file)


def _beside(what: str, ways: dict[str, Callable[[], Any]], bare: Callable[[], Any]) -> list[dict[str, Any]]:
    everything = {"bare arrays": bare, **ways}
    rates: dict[str, list[float]] = {name: [] for name in everything}
    for _ in range(ROUNDS):
        for name, way in everything.items():
            begin = time.perf_counter()
            way()
            rates[name].append(EPISODES * STEPS / (time.perf_counter() - begin))
    limit = statistics.median(rates["bare arrays"])
    return [
        {
            "name": f"datasets: {name} {what}",
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
