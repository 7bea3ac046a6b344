"""Draws the picture of docs/collectors.md: `python docs/pictures/profile.py`.

Profiles two workers with eight CartPole environments each, whose learner takes 150 ms for a batch, and draws where
their time went. It is a real run, so no two pictures are equal.
"""

from __future__ import annotations

import tempfile
import time
from pathlib import Path

import numpy as np

import headrace as hr
from headrace.cli.collect.time_shares import draw

WORKERS = range(2)
LEARN_SECONDS = 0.15


def act(observation: np.ndarray) -> np.ndarray:
    """Pushes the cart below the pole."""
    return (observation[:, 2] > 0).astype(np.int64)


def main() -> None:
    """Writes the picture beside this file."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "profile_{worker_idx}.json"
        with hr.MultiCollector(
            "CartPole-v1", act, sync=False, num_workers=2, num_envs=8, frames_per_batch=512
        ) as collector:
            collector.enable_profile(workers=WORKERS, num_rollouts=12, warmup_rollouts=2, save_path=path)
            while collector.profile_config is not None:
                collector.next()
                time.sleep(LEARN_SECONDS)
        traces = [Path(str(path).format(worker_idx=idx)) for idx in WORKERS]
        draw(traces, Path(__file__).parent / "profile.svg")


if __name__ == "__main__":
    main()
