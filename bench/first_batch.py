"""Draws a first prioritized batch with an installed Headrace, and updates its priorities.

Prints the time of the system's monotonic clock when it is done: a caller can tell how long a fresh process takes.
"""

from __future__ import annotations

import time

import numpy as np

import headrace as hr

STEP = {
    "observation": np.zeros(4, np.float32),
    "action": np.int64(0),
    "reward": np.float32(1.0),
    "terminated": False,
    "truncated": False,
}


def main() -> None:
    """Appends a hundred steps, draws 64 transitions of them, and updates their priorities."""
    table = hr.Table("t", sampler=hr.selectors.Prioritized(0.6), remover=hr.selectors.Fifo(), max_size=1000)
    with hr.Replay(hr.Signature.like(STEP), [table], seed=0) as replay:
        with replay.writer(items=[hr.ItemRule("t", 1, lookahead=3)]) as writer:
            for _ in range(100):
                writer.append(STEP)
            writer.end_episode(STEP["observation"])
        batch = replay.sample("t", 64, views=hr.views.transition(n_step=3, gamma=0.99))
        replay.update_priorities("t", batch.info.keys, np.abs(batch.data["reward"]))
    print(time.monotonic())
    assert batch.data["reward"].shape == (64,), batch.data["reward"].shape


if __name__ == "__main__":
    main()
